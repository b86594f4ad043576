"""The agent behind the proxies, for servers that are told what to serve on their command line."""

from __future__ import annotations

from tests.real.proxied_agent import application

app = application()
