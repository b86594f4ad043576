"""For tests of agents and of clients: callers, tokens, and agents in memory. Nothing here authenticates anybody."""

from a2a_trust.base.exports import TYPE_CHECKING, lazy

if TYPE_CHECKING:
    from a2a_trust.testing.agents import InMemoryAgent as InMemoryAgent, assert_enforced as assert_enforced
    from a2a_trust.testing.agents import memory_client as memory_client
    from a2a_trust.testing.authorization_server import AuthorizationServer as AuthorizationServer
    from a2a_trust.testing.callers import as_caller as as_caller, fake_principal as fake_principal
    from a2a_trust.testing.callers import fake_request as fake_request
    from a2a_trust.testing.tokens import TokenIssuer as TokenIssuer
else:
    __getattr__, __dir__ = lazy(__name__, {
        "testing.agents": "InMemoryAgent assert_enforced memory_client",
        "testing.authorization_server": "AuthorizationServer",
        "testing.callers": "as_caller fake_principal fake_request",
        "testing.tokens": "TokenIssuer",
    })  # fmt: skip
