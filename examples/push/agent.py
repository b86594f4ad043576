"""The hello world agent of a2a-sdk 1.3.0, which tells a webhook of the caller when its task goes on.

Start it, where ``a2a-trust[server,client]``, ``a2a-sdk[http-server]==1.3.0``, ``fastapi`` and ``uvicorn`` are
installed, as examples/README.md says. Settings, all from the environment: ``AGENT_URL`` where the agent is called,
``RING`` its key ring, ``API_KEYS`` the store of its callers' keys, ``WEBHOOKS`` the private origins of webhooks of your
own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import httpx
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import BasePushNotificationSender, InMemoryPushNotificationConfigStore, InMemoryTaskStore
from a2a.types import AgentCard, AgentInterface
from starlette.applications import Starlette

from a2a_trust import ApiKeyVerifier, CardServing, Fetcher, KeyRingFile, RequestRules, SqliteApiKeys, protect
from a2a_trust.middleware import Webhooks
from a2a_trust.push import PushTransport, SignedPush

sys.path.append(str(Path(__file__).parents[1] / "sdk_hello_world"))
import hello_world

URL = os.environ.get("AGENT_URL", "http://127.0.0.1:9999")

card = AgentCard()
card.CopyFrom(hello_world.card)
card.capabilities.push_notifications = True
del card.supported_interfaces[:], card.security_requirements[1:]
card.supported_interfaces.append(AgentInterface(url=f"{URL}/rpc", protocol_binding="JSONRPC", protocol_version="1.0"))

ring = KeyRingFile(os.environ.get("RING", "ring.json"))
webhooks = InMemoryPushNotificationConfigStore()
# Each notification is signed, and goes to a checked address. Callers may register no other webhooks.
fetcher = Fetcher(private_origins=os.environ.get("WEBHOOKS", "").split())
ports = [443, *(int(origin.rpartition(":")[2]) for origin in os.environ.get("WEBHOOKS", "").split())]
sender = BasePushNotificationSender(
    httpx.AsyncClient(
        transport=PushTransport(fetcher),
        auth=SignedPush(ring, issuer=URL, configs=webhooks),
    ),
    webhooks,
)
handler = DefaultRequestHandler(
    agent_executor=hello_world.HelloWorld(),
    task_store=InMemoryTaskStore(),
    agent_card=card,
    push_config_store=webhooks,
    push_sender=sender,
)
app = protect(
    Starlette(routes=create_jsonrpc_routes(handler, rpc_url="/rpc")),
    card=card,
    verifiers={
        **hello_world.verifiers,
        "key": ApiKeyVerifier(SqliteApiKeys(os.environ.get("API_KEYS", "keys.db"))),
    },
    serving=CardServing(signer=ring),
    rules=RequestRules(webhooks=Webhooks(fetcher=fetcher, ports=ports)),
    url=URL,
)
