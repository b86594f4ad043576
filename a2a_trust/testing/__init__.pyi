# The public names of a2a_trust.testing.
from a2a_trust.testing.agents import InMemoryAgent as InMemoryAgent
from a2a_trust.testing.agents import memory_client as memory_client
from a2a_trust.testing.callers import as_caller as as_caller
from a2a_trust.testing.callers import fake_principal as fake_principal
from a2a_trust.testing.callers import fake_request as fake_request
from a2a_trust.testing.tokens import TokenIssuer as TokenIssuer
