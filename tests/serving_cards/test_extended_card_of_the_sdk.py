"""The SDK's server has an extended card of its own, and gives it to anybody: behind us nobody gets it by any name.

The same requests go to the bare server too, which shows that they would have found it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from http.client import HTTPConnection
from itertools import product
from typing import Any, NamedTuple

import pytest

from tests.serving_cards.agent_card import EXTENDED, JSON_RPC, MARKER, REST
from tests.serving_cards.conftest import Agents, agents_serving
from tests.tables import walk

pytestmark = pytest.mark.real

METHODS = {"GetExtendedAgentCard": "1.0", "agent/getAuthenticatedExtendedCard": "0.3"}
NAMES = {"/extendedAgentCard": "1.0", "/v1/card": "0.3", "/agent/authenticatedExtendedCard": "0.3"}
BEFORE = (
    "",
    REST,
    f"/acme{REST}",
    f"/other{REST}",
    f"{REST}/acme",
    f"//{REST}",
    f"/.{REST}",
    f"/x/..{REST}",
    f"/team{REST}",
    f"http://agent{REST}",
    JSON_RPC,
)
BEHIND = ("", "/", "//", "%0A", "/%0A", "%0D%0A", "%00", "%20", "%2F", ";x", "?", "?tenant=other", "?tenant=acme")
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")
FORMS = {
    "plain": '{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{}}}}',
    "without params": '{{"jsonrpc":"2.0","id":1,"method":"{method}"}}',
    "as a text": '{{"jsonrpc":"2.0","id":"1","method":"{method}","params":{{}}}}',
    "escaped": '{{"jsonrpc":"2.0","id":1,"\\u006dethod":"{escaped}","params":{{}}}}',
    "slashed": '{{"jsonrpc":"2.0","id":1,"method":"{slashed}","params":{{}}}}',
    "after another": '{{"jsonrpc":"2.0","id":1,"method":"GetTask","method":"{method}","params":{{}}}}',
    "before another": '{{"jsonrpc":"2.0","id":1,"method":"{method}","method":"GetTask","params":{{"id":"1"}}}}',
    "twice": '{{"jsonrpc":"2.0","id":1,"method":"{method}","method":"{method}","params":{{}}}}',
    "one name escaped": '{{"jsonrpc":"2.0","id":1,"method":"GetTask","metho\\u0064":"{method}","params":{{}}}}',
    "params twice": '{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"id":"1"}},"params":{{}}}}',
    "id twice": '{{"jsonrpc":"2.0","id":2,"id":1,"method":"{method}","params":{{}}}}',
    "tenant": '{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"tenant":"acme"}}}}',
    "another tenant": '{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"tenant":"other"}}}}',
    "two tenants": '{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"tenant":"acme","tenant":"other"}}}}',
    "spaced": '\r\n\t {{ "params" : {{}} ,\n"method"\t:"{method}", "id":1,"jsonrpc":"2.0"}}\n\n',
    "numbers": '{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{}},"x":[NaN,-Infinity,1e999]}}',
    "surrogate": '{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{}},"x":"\\ud800"}}',
    "without an id": '{{"jsonrpc":"2.0","method":"{method}","params":{{}}}}',
    "batch": '[{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{}}}}]',
}
RPC_PATHS = (
    *(JSON_RPC + end for end in BEHIND),
    f"/{JSON_RPC}",
    f"http://agent{JSON_RPC}",
    f"/team{JSON_RPC}",
    "/a2a/%6Asonrpc",
    "/a2a/jsonrp%63%0A",
    "/",
)


PROTECTED = ("sdk", "sdk_behind", "sdk_root")


class Request(NamedTuple):
    what: str
    method: str
    target: str
    headers: dict[str, str]
    body: bytes = b""


def by_http() -> Iterator[Request]:
    spelled = ("/extendedagentcard", "/%65xtendedAgentCard", "/extendedAgent%43ard", "/v1%2Fcard", "/v%31/card")
    for name in (*NAMES, *spelled):
        version = {"A2A-Version": NAMES.get(name, "1.0")}
        for before, behind in product(BEFORE, BEHIND):
            yield Request("GET", "GET", before + name + behind, version)
        for method in ("HEAD", "POST", "PUT", "OPTIONS", "PROPFIND"):
            yield Request(method, method, REST + name, version)


def by_json_rpc() -> Iterator[Request]:
    def call(what: str, method: str, body: bytes, target: str = JSON_RPC, **headers: str) -> Request:
        given = {"Content-Type": "application/json", "A2A-Version": METHODS[method], **headers}
        return Request(what, "POST", target, given, body)

    for method in METHODS:
        escaped = "".join(f"\\u{ord(char):04X}" for char in method)
        spelled = {"method": method, "escaped": escaped, "slashed": method.replace("/", "\\/")}
        bodies = {form: text.format(**spelled) for form, text in FORMS.items()}
        for form, encoding in product(bodies, ENCODINGS):
            yield call(f"{form}, {encoding}", method, bodies[form].encode(encoding))
        plain = bodies["plain"].encode()
        for media_type in ("text/plain", "application/json; charset=utf-16", "multipart/form-data", "image/png", ""):
            yield call(f"as {media_type}", method, plain, **{"Content-Type": media_type})
        for target in RPC_PATHS:
            yield call(f"at {target}", method, plain, target)


REQUESTS = [*by_http(), *by_json_rpc()]


def answers(origin: str, requests: Sequence[Request], credential: dict[str, str]) -> list[tuple[int, str]]:
    """Status, and everything that came, headers included."""
    seen = []
    with closing(HTTPConnection(origin.removeprefix("http://"), timeout=30)) as connection:
        for request in requests:
            connection.request(request.method, request.target, request.body, {**request.headers, **credential})
            response = connection.getresponse()
            seen.append((response.status, f"{response.headers}{response.read().decode('utf-8', 'replace')}"))
    return seen


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    """The protected agent, also behind proxies that take ``/team`` off and say nothing, or say so, and the bare one."""
    prefixes = {"sdk": "", "sdk_behind": "/team", "sdk_root": "/team", "bare": ""}
    with agents_serving(tmp_path_factory.mktemp("agents"), **prefixes) as running:
        yield running


@pytest.fixture(scope="module")
def leaking(agents: Agents) -> list[Request]:
    """The requests that bring the SDK's own extended card from the bare server."""
    seen = zip(REQUESTS, answers(agents.origins["bare"], REQUESTS, {}), strict=True)
    return [request for request, (_, said) in seen if MARKER in said]


def test_the_bare_server_gives_its_extended_card_to_anybody_in_every_encoding(leaking: list[Request]) -> None:
    ways = {request.what for request in leaking}
    assert {f"{form}, {encoding}" for form in ("plain", "escaped", "after another") for encoding in ENCODINGS} <= ways
    assert {f"at {JSON_RPC}", f"at {JSON_RPC}%0A", "at /a2a/jsonrp%63%0A", "as image/png", "GET"} <= ways
    targets = {request.target for request in leaking}
    assert {f"{REST}/extendedAgentCard", f"{REST}/v1/card", f"/other{REST}/extendedAgentCard"} <= targets
    assert f"{REST}/extendedAgentCard%0A" in targets


@walk("agent", PROTECTED)
@walk("owner", ["eve", "ann"])
def test_no_request_reaches_it_whoever_asks(agents: Agents, leaking: list[Request], agent: str, owner: str) -> None:
    seen = dict(
        zip(map(repr, REQUESTS), answers(agents.origins[agent], REQUESTS, agents.credential(owner)), strict=True)
    )
    assert [request for request, (_, said) in seen.items() if MARKER in said] == []
    found = [seen[repr(request)] for request in leaking]
    # A refusal in the words of JSON-RPC is 200 too.
    assert {status for status, said in found if '"error":' in said} == {200, 400, 403}
    own = [said for status, said in found if '"error":' not in said]
    assert all(EXTENDED.partition("{")[0] + owner in said for said in own)
    assert bool(own) is (owner == "ann")


def test_without_a_credential_every_request_is_refused(agents: Agents) -> None:
    assert {status for status, _ in answers(agents.origins["sdk"], REQUESTS, {})} == {401}


def test_tenants_are_seen_behind_a_proxy_that_takes_off_a_prefix(agents: Agents) -> None:
    headers = {"A2A-Version": "1.0", "Content-Type": "application/json"}
    message: dict[str, Any] = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    requests = [
        Request(path, "POST", f"{path}/message:send", headers, json.dumps({"message": message}).encode())
        for path in (REST, f"/acme{REST}", f"/other{REST}")
    ]
    for agent in PROTECTED:
        seen = answers(agents.origins[agent], requests, agents.credential("ann"))
        assert [status for status, _ in seen] == [200, 200, 403]
