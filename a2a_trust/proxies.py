"""Client certificates from a proxy: the headers of each proxy, and how an agent recognizes its proxy."""

from a2a_trust.middleware.peer import Networks as Networks
from a2a_trust.middleware.proxies.forms import Apache as Apache
from a2a_trust.middleware.proxies.forms import AwsAlb as AwsAlb
from a2a_trust.middleware.proxies.forms import Caddy as Caddy
from a2a_trust.middleware.proxies.forms import Envoy as Envoy
from a2a_trust.middleware.proxies.forms import HAProxy as HAProxy
from a2a_trust.middleware.proxies.forms import Nginx as Nginx
from a2a_trust.middleware.proxies.forms import Rfc9440 as Rfc9440
from a2a_trust.middleware.proxies.forms import Traefik as Traefik
from a2a_trust.middleware.proxies.from_proxy import FromProxy as FromProxy
from a2a_trust.middleware.proxies.from_proxy import ProxySecret as ProxySecret
from a2a_trust.middleware.proxies.from_proxy import UnixSocket as UnixSocket
