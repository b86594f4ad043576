"""The hello world agent of ``examples/sdk_hello_world`` behind a card that demands a certificate and a token of OAuth.

Run by a server of that SDK's own environment, never imported by a test. ``CLIENTS`` names the file of the authority of
certificates, ``PROVIDER`` that of the authority of the provider's own one, ``METADATA`` the provider's discovery.
"""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import os
import ssl

from hello_world import AUDIENCE, ISSUER, agent, card

from a2a_trust.auth.certificate.authority import ClientAuthority
from a2a_trust.auth.certificate.identities import FromUri, OnlyIdentities
from a2a_trust.auth.certificate.verifier import CertificateVerifier
from a2a_trust.auth.discovery import OpenIdKeys
from a2a_trust.auth.jwt import JwtVerifier
from a2a_trust.middleware.client_certificate import FromTls
from a2a_trust.middleware.protection import protect
from a2a_trust.net.fetcher import Fetcher

fetcher = Fetcher(ssl_context=ssl.create_default_context(cafile=os.environ["PROVIDER"]), private_origins=[ISSUER])
clients = ClientAuthority(
    name="clients",
    certificates=os.environ["CLIENTS"],
    identity=FromUri("agents.example"),
    allowed=OnlyIdentities({"spiffe://agents.example/ann", "spiffe://agents.example/bob"}),
)
for name in [*card.security_schemes]:
    del card.security_schemes[name]
del card.security_requirements[:]
card.security_schemes["certificate"].mtls_security_scheme.SetInParent()
card.security_schemes["oauth"].oauth2_security_scheme.oauth2_metadata_url = f"{ISSUER}/.well-known/openid-configuration"
flow = card.security_schemes["oauth"].oauth2_security_scheme.flows.client_credentials
flow.token_url = f"{ISSUER}/token"
flow.scopes["read"] = "To be greeted."
both = card.security_requirements.add()
both.schemes["certificate"].SetInParent()
both.schemes["oauth"].list.append("read")

app = protect(
    agent,
    card=card,
    verifiers={
        "certificate": CertificateVerifier(clients),
        "oauth": JwtVerifier(OpenIdKeys(ISSUER, fetcher), issuer=ISSUER, audience=AUDIENCE),
    },
    client_certificates=FromTls(),
)
