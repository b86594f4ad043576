"""The hello world agent of ``examples/sdk_hello_world``, which takes tokens bound by DPoP, with nonces.

Its card is signed with the key in ``CARD_KEY``.

Run by a server of that SDK's own environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import json
import os
import secrets

from hello_world import URL, card, new_agent, verifiers

from a2a_trust.auth.dpop import DPoP, ServerNonces
from a2a_trust.keys import LocalSigner
from a2a_trust.middleware.protection import CardServing, protect

app = protect(
    new_agent(),
    card=card,
    verifiers=verifiers,
    serving=CardServing(signer=LocalSigner.from_jwk(json.loads(os.environ["CARD_KEY"]))),
    dpop=DPoP(url=URL, nonces=ServerNonces(secrets.token_bytes(32))),
)
