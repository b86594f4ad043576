"""Client certificates from a proxy: the headers of each proxy, and how an agent recognizes its proxy."""

from a2a_trust.exports import TYPE_CHECKING, lazy

if TYPE_CHECKING:
    from a2a_trust.middleware.peer import Networks as Networks
    from a2a_trust.middleware.proxies.certificate_only import AwsAlb as AwsAlb, Caddy as Caddy, Rfc9440 as Rfc9440
    from a2a_trust.middleware.proxies.certificate_only import Traefik as Traefik
    from a2a_trust.middleware.proxies.envoy import Envoy as Envoy
    from a2a_trust.middleware.proxies.from_proxy import FromProxy as FromProxy, ProxySecret as ProxySecret
    from a2a_trust.middleware.proxies.from_proxy import UnixSocket as UnixSocket
    from a2a_trust.middleware.proxies.with_verdict import Apache as Apache, HAProxy as HAProxy, Nginx as Nginx
else:
    __getattr__, __dir__ = lazy(__name__, {
        "middleware.peer": "Networks", "middleware.proxies.certificate_only": "AwsAlb Caddy Rfc9440 Traefik",
        "middleware.proxies.envoy": "Envoy", "middleware.proxies.from_proxy": "FromProxy ProxySecret UnixSocket",
        "middleware.proxies.with_verdict": "Apache HAProxy Nginx",
    })  # fmt: skip
