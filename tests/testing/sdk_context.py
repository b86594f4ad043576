"""What the contexts of an a2a-sdk say that are made from a fake request; run by the interpreter of that SDK."""

# mypy: disable-error-code="import-not-found, import-untyped, attr-defined, unused-ignore"

from __future__ import annotations

import json

from a2a.server.agent_execution import RequestContext

from a2a_trust import acting_for, current_principal, principal_of
from a2a_trust.auth import Anonymous
from a2a_trust.testing import fake_principal, fake_request

try:
    from a2a.server.routes import DefaultServerCallContextBuilder as Builder
except ImportError:  # 0.3
    from a2a.server.apps.jsonrpc import DefaultCallContextBuilder as Builder

caller = fake_principal("bob", scopes=["read"])
call_context = Builder().build(fake_request(caller))
context = RequestContext(call_context=call_context)
with acting_for(context):
    names = {each.display_name for each in (principal_of(call_context), principal_of(context), current_principal())}
stranger = Builder().build(fake_request(Anonymous()))
said = {
    "names": sorted({*names, call_context.user.user_name}),
    "scopes": call_context.state["auth"].scopes,
    "authenticated": [call_context.user.is_authenticated, stranger.user.is_authenticated],
    "anonymous": principal_of(stranger).display_name == stranger.user.user_name,
}
print(json.dumps(said))
