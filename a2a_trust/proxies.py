"""Client certificates from a proxy: the headers of each proxy, and how an agent recognizes its proxy."""

from a2a_trust.middleware.peer import Networks as Networks
from a2a_trust.middleware.proxies.certificate_only import AwsAlb as AwsAlb
from a2a_trust.middleware.proxies.certificate_only import Caddy as Caddy
from a2a_trust.middleware.proxies.certificate_only import Rfc9440 as Rfc9440
from a2a_trust.middleware.proxies.certificate_only import Traefik as Traefik
from a2a_trust.middleware.proxies.envoy import Envoy as Envoy
from a2a_trust.middleware.proxies.from_proxy import FromProxy as FromProxy
from a2a_trust.middleware.proxies.from_proxy import ProxySecret as ProxySecret
from a2a_trust.middleware.proxies.from_proxy import UnixSocket as UnixSocket
from a2a_trust.middleware.proxies.with_verdict import Apache as Apache
from a2a_trust.middleware.proxies.with_verdict import HAProxy as HAProxy
from a2a_trust.middleware.proxies.with_verdict import Nginx as Nginx
