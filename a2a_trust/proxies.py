"""Client certificates from a proxy: the headers of each proxy, and how an agent recognizes its proxy."""

from a2a_trust.base.exports import TYPE_CHECKING, lazy

if TYPE_CHECKING:
    from a2a_trust.auth.peers import Networks as Networks
    from a2a_trust.auth.certificate.proxy_forms import Apache as Apache, AwsAlb as AwsAlb, Caddy as Caddy
    from a2a_trust.auth.certificate.proxy_forms import Envoy as Envoy, HAProxy as HAProxy, Nginx as Nginx
    from a2a_trust.auth.certificate.proxy_forms import Rfc9440 as Rfc9440, Traefik as Traefik
    from a2a_trust.auth.certificate.from_proxy import FromProxy as FromProxy, ProxySecret as ProxySecret
    from a2a_trust.auth.certificate.from_proxy import UnixSocket as UnixSocket
else:
    __getattr__, __dir__ = lazy(__name__, {
        "auth.peers": "Networks",
        "auth.certificate.proxy_forms": "Apache AwsAlb Caddy Envoy HAProxy Nginx Rfc9440 Traefik",
        "auth.certificate.from_proxy": "FromProxy ProxySecret UnixSocket",
    })  # fmt: skip
