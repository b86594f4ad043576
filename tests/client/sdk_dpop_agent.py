"""The hello world agent of ``examples/sdk_hello_world``, which takes tokens bound by DPoP, with nonces.

Run by a server of that SDK's own environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import secrets

from hello_world import URL, agent, card, verifiers

from a2a_trust.auth.dpop import DPoP, ServerNonces
from a2a_trust.middleware.protection import protect

app = protect(
    agent,
    card=card,
    verifiers=verifiers,
    dpop=DPoP(url=URL, nonces=ServerNonces(secrets.token_bytes(32))),
)
