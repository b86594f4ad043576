"""Client certificates from a proxy: the headers of each proxy, and how an agent recognizes its proxy."""

from a2a_trust.exports import TYPE_CHECKING, lazy

if TYPE_CHECKING:
    from a2a_trust.middleware.peer import Networks as Networks
    from a2a_trust.middleware.proxies.forms import Apache as Apache, AwsAlb as AwsAlb, Caddy as Caddy, Envoy as Envoy
    from a2a_trust.middleware.proxies.forms import HAProxy as HAProxy, Nginx as Nginx, Rfc9440 as Rfc9440
    from a2a_trust.middleware.proxies.forms import Traefik as Traefik
    from a2a_trust.middleware.proxies.from_proxy import FromProxy as FromProxy, ProxySecret as ProxySecret
    from a2a_trust.middleware.proxies.from_proxy import UnixSocket as UnixSocket
else:
    __getattr__, __dir__ = lazy(__name__, {
        "middleware.peer": "Networks",
        "middleware.proxies.forms": "Apache AwsAlb Caddy Envoy HAProxy Nginx Rfc9440 Traefik",
        "middleware.proxies.from_proxy": "FromProxy ProxySecret UnixSocket",
    })  # fmt: skip
