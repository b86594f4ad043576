"""The hello world agent of ``examples/sdk_hello_world`` behind a signed card that demands two credentials at once.

One is a token of OAuth, the other what SCHEME says: ``certificate`` or ``key``. Run by a server of that SDK's own
environment, never imported by a test. ``PROVIDER`` names the file of the authority of the provider's certificate,
``CARD_KEY`` that of the key that signs the card, ``CLIENTS`` that of the authority of the clients' certificates,
``API_KEYS`` the store of keys.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import os
import ssl
from typing import Any

from hello_world import AUDIENCE, ISSUER, URL, card, new_agent

from a2a_trust import CardServing, FromTls, load_private_key
from a2a_trust.auth.api_key.verifier import ApiKeyVerifier
from a2a_trust.auth.certificate.identities import FromUri, OnlyIdentities
from a2a_trust.auth.certificate.verifier import CertificateVerifier, ClientAuthority
from a2a_trust.auth.discovery import OpenIdKeys
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.auth.record_table import SqliteApiKeys
from a2a_trust.base.net.fetcher import Fetcher
from a2a_trust.card.merge import merged_card
from a2a_trust.middleware.protection import protect

SCHEME = os.environ["SCHEME"]


def verifier() -> Any:
    if SCHEME == "key":
        return ApiKeyVerifier(SqliteApiKeys(os.environ["API_KEYS"]))
    clients = ClientAuthority(
        name="clients",
        certificates=os.environ["CLIENTS"],
        identity=FromUri("agents.example"),
        allowed=OnlyIdentities({"spiffe://agents.example/ann", "spiffe://agents.example/bob"}),
    )
    return CertificateVerifier(clients)


for name in [*card.security_schemes]:
    if name != SCHEME:
        del card.security_schemes[name]
del card.security_requirements[:]
if SCHEME == "certificate":
    card.security_schemes[SCHEME].mtls_security_scheme.SetInParent()
oauth = card.security_schemes["oauth"].oauth2_security_scheme
oauth.oauth2_metadata_url = f"{ISSUER}/.well-known/openid-configuration"
oauth.flows.client_credentials.token_url = f"{ISSUER}/token"
oauth.flows.client_credentials.scopes["read"] = "To be greeted."
both = card.security_requirements.add()
both.schemes[SCHEME].list.extend(["read"] if SCHEME == "key" else [])
both.schemes["oauth"].list.append("read")

fetcher = Fetcher(
    ssl_context=ssl.create_default_context(cafile=os.environ["PROVIDER"]), private_origins=[ISSUER], timeout=60
)
app = protect(
    new_agent(),
    card=merged_card(card),
    verifiers={
        SCHEME: verifier(),
        "oauth": JwtVerifier(OpenIdKeys(ISSUER, fetcher), issuer=ISSUER, audience=AUDIENCE),
    },
    url=URL,
    serving=CardServing(signer=load_private_key(os.environ["CARD_KEY"]), lifetime=3600),
    client_certificates=FromTls() if SCHEME == "certificate" else None,
)
