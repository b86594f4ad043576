"""Client certificates: to verify them in agents, and to use them in clients."""

from a2a_trust.base.exports import TYPE_CHECKING, lazy

if TYPE_CHECKING:
    from a2a_trust.auth.certificate.verifier import ClientAuthority as ClientAuthority
    from a2a_trust.auth.certificate.identities import AllIssued as AllIssued, FromDns as FromDns, FromEmail as FromEmail
    from a2a_trust.auth.certificate.identities import FromSubject as FromSubject, FromUri as FromUri
    from a2a_trust.auth.certificate.identities import OnlyIdentities as OnlyIdentities
    from a2a_trust.auth.certificate.identities import OnlyThumbprints as OnlyThumbprints
    from a2a_trust.auth.certificate.verifier import CertificateVerifier as CertificateVerifier
    from a2a_trust.client.certificates import CertificateFiles as CertificateFiles
    from a2a_trust.client.certificates import CertificateInMemory as CertificateInMemory
    from a2a_trust.client.certificates import client_context as client_context
    from a2a_trust.auth.credentials import FromTls as FromTls
else:
    __getattr__, __dir__ = lazy(__name__, {
        "auth.certificate.verifier": "ClientAuthority CertificateVerifier",
        "auth.certificate.identities": "AllIssued FromDns FromEmail FromSubject FromUri OnlyIdentities "
        "OnlyThumbprints", "client.certificates": "CertificateFiles CertificateInMemory client_context",
        "auth.credentials": "FromTls",
    })  # fmt: skip
