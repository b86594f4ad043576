"""Which requests are of an interface, which only look like one, and which are the application's own."""

from __future__ import annotations

import tracemalloc
from typing import Any
from unicodedata import normalize

import pytest

from a2a_trust.card.operations import (
    METHODS,
    ROUTES,
    Binding,
    Operation,
    ends_like_operation,
    fold_name,
    fold_path,
    is_foldable,
)
from a2a_trust.card.schema import Generation
from a2a_trust.card.view import read_card
from a2a_trust.errors import ConfigurationError
from a2a_trust.middleware.routing import Interfaces, Other, Target, Undeclared, route_path
from tests.tables import walk

HOST = "https://agent.example"
RPC = {"url": f"{HOST}/a2a/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
REST = {"url": f"{HOST}/a2a/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}
REST_0_3 = {**REST, "protocolVersion": "0.3"}
BOTH = (RPC, REST)


def interfaces(*supported: dict[str, Any], **options: Any) -> Interfaces:
    return Interfaces(read_card({"name": "x", "supportedInterfaces": list(supported)}), **options)


def meaning(of: Interfaces, method: str, path: str, root_path: str = "") -> Any:
    return of.meaning(route_path({"path": path, "root_path": root_path}) or "/", root_path, method)


def operation(of: Interfaces, method: str, path: str, root_path: str = "") -> Any:
    found = meaning(of, method, path, root_path)
    assert isinstance(found, Target), found
    return found.generation, found.operation, sorted(found.tenants), found.task_id


@walk("generation", list(Generation))
@walk("base", ["", "/a2a/rest"])
def test_every_route_of_a_generation_is_its_operation(generation: Generation, base: str) -> None:
    of = interfaces({**REST, "url": HOST + base, "protocolVersion": generation.value})
    for route in ROUTES[generation]:
        path = base + route.template.replace("{task}", "t 1").replace("{config}", "c")
        for method in route.methods:
            found = meaning(of, method, path)
            assert isinstance(found, Target)
            assert (found.binding, found.generation, found.operation) == (
                Binding.HTTP_JSON,
                generation,
                route.operation,
            )
            assert found.task_id == ("t 1" if "{task}" in route.template else "")
            assert found.has_body is (method == "POST")
        if "GET" in route.methods:
            assert meaning(of, "HEAD", path) == meaning(of, "GET", path)
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "QUERY", "OPTIONS", "post"} - set(route.methods):
            other = meaning(of, method, path)
            assert isinstance(other, Undeclared) or other.operation is not route.operation, (method, path)


@pytest.mark.parametrize("path", ["/a2a/rest/acme{}", "/acme/a2a/rest{}"])
def test_operations_of_1_0_may_have_a_tenant_in_both_places(path: str) -> None:
    of = interfaces(*BOTH)
    for route in ROUTES[Generation.V1_0]:
        for method in route.methods:
            found = meaning(of, method, path.format(route.template.replace("{task}", "5").replace("{config}", "6")))
            assert (found.operation, found.tenants) == (route.operation, {"acme"})


def test_a_json_rpc_interface_is_exactly_its_path_by_post() -> None:
    of = interfaces(*BOTH)
    assert meaning(of, "POST", "/a2a/rpc") == Target(binding=Binding.JSONRPC)
    for method in ("GET", "HEAD"):
        assert meaning(of, method, "/a2a/rpc") == Other(is_json_rpc=True)
    for method in ("PUT", "PATCH", "DELETE", "QUERY", "OPTIONS", "post", "Post", "PROPFIND", "WEBSOCKET"):
        found = meaning(of, method, "/a2a/rpc")
        assert isinstance(found, Undeclared)
        assert not found.may_be_named


@walk(
    "path",
    [
        "/a2a/rpc/", "//a2a/rpc", "/a2a//rpc", "/./a2a/rpc", "/x/../a2a/rpc", "/A2A/RPC", "/a2a/rpc;x=1", "/a2a\\rpc",
        "/a2a/rp%63", "/a2a/rpc%20", "/ａ2a/rpc", "/rpc", "/", "//", "/RPC/",
    ],
)  # fmt: skip
def test_a_path_that_a_lenient_router_takes_for_the_interfaces_is_not_the_applications(path: str) -> None:
    of = interfaces(*BOTH)
    for method in ("POST", "PUT", "QUERY"):
        assert isinstance(meaning(of, method, path), Undeclared)
    assert meaning(of, "GET", path) == Other(is_json_rpc=True)


def test_a_slash_at_the_end_is_named_and_cannot_be_an_other_path() -> None:
    found = meaning(interfaces(*BOTH), "POST", "/a2a/rpc/")
    assert isinstance(found, Undeclared)
    assert 'only by a slash at its end; call "/a2a/rpc", or correct the URL in the card' in found.why
    assert not found.may_be_named


@walk(
    "path",
    [
        "/tasks", "/tasks/5", "/acme/tasks", "/extendedAgentCard", "/acme/extendedAgentCard", "/v1/card", "/v1/tasks/5",
        "/a2a/rest/v1/card", "/a2a/rest/x/v1/message:send", "/agent/authenticatedExtendedCard", "/tasks/send",
        "/a2a/rest/message:send/", "/a2a/rest//message:send", "/A2A/REST/message:send", "/a2a/rest/Message:Send",
        "/a2a/rest/message%3Asend", "/a2a/rest/acme/x/message:send", "/docs/extendedagentcard/",
    ],
)  # fmt: skip
@walk("method", ["GET", "POST", "PUT", "WEBSOCKET"])
def test_a_path_that_ends_like_an_operation_of_no_interface_is_undeclared(method: str, path: str) -> None:
    assert isinstance(meaning(interfaces(*BOTH), method, path), Undeclared)


@walk("path", ["/docs", "/a2a/rest", "/a2a/rest/x", "/task", "/mytasks", "/tasks/1/2", "/v1/cards"])
def test_everything_else_is_the_applications(path: str) -> None:
    for method in ("GET", "POST", "DELETE", "WEBSOCKET"):
        assert meaning(interfaces(*BOTH), method, path) == Other()


@pytest.mark.parametrize("path", ["/v1/tasks", "/tasks/tasks", "/tasks/tasks/5", "/a2a/rest/tasks"])
def test_a_path_that_can_be_read_in_two_ways_names_the_tenants_of_both(path: str) -> None:
    at_root = interfaces({**REST, "url": HOST})
    if path == "/a2a/rest/tasks":
        assert operation(interfaces(REST), "GET", path)[2] == []
        return
    assert operation(at_root, "GET", path)[2] == [path.split("/")[1]]


def test_what_0_3_has_below_v1_is_of_no_tenant_of_1_0() -> None:
    merged = interfaces(RPC, REST, REST_0_3)
    assert operation(merged, "GET", "/a2a/rest/v1/tasks/5") == (Generation.V0_3, Operation.GET_TASK, [], "5")
    assert operation(merged, "GET", "/a2a/rest/v1/card")[:2] == (Generation.V0_3, Operation.GET_EXTENDED_CARD)
    # Servers of both have these two in 1.0 alone, where v1 is a tenant.
    assert operation(merged, "GET", "/a2a/rest/v1/tasks") == (Generation.V1_0, Operation.LIST_TASKS, ["v1"], "")
    assert operation(merged, "DELETE", "/a2a/rest/v1/tasks/5/pushNotificationConfigs/6")[2] == ["v1"]
    assert operation(interfaces(REST_0_3), "GET", "/a2a/rest/v1/tasks")[2] == []
    assert isinstance(meaning(interfaces(REST_0_3), "GET", "/a2a/rest/acme/v1/tasks"), Undeclared)


def test_the_extended_card_of_0_2_is_beside_the_interface() -> None:
    of = Interfaces(read_card({"name": "x", "url": f"{HOST}/team/rpc", "protocolVersion": "0.2.6"}))
    for path in ("/team/agent/authenticatedExtendedCard", "/team/rpc/agent/authenticatedExtendedCard"):
        assert operation(of, "GET", path)[1] is Operation.GET_EXTENDED_CARD
    assert isinstance(meaning(interfaces(*BOTH), "GET", "/agent/authenticatedExtendedCard"), Undeclared)


def test_a_card_of_0_1_has_its_paths_below_its_url() -> None:
    of = Interfaces(read_card({"name": "x", "url": f"{HOST}/a", "authentication": {"schemes": ["apiKey"]}}))
    assert operation(of, "POST", "/a/tasks/send")[:2] == (Generation.V0_1, Operation.SEND_MESSAGE)
    assert operation(of, "GET", "/a/tasks/t1") == (Generation.V0_1, Operation.GET_TASK, [], "t1")
    assert meaning(of, "POST", "/a") == Target(binding=Binding.JSONRPC)


# Where the application has them


@walk(
    ("path", "root_path", "is_found"),
    [
        ("/a2a/rpc", "", True),
        ("/a2a/rpc", "/a2a", True),  # the path with the prefix, as uvicorn has it
        ("/rpc", "/a2a", True),  # and without, as others have it
        ("/rpc", "/a2a/", True),
        ("/rpc", "", False),
        ("/a2a/rpc", "/team", False),
        ("/team/a2a/rpc", "/team", False),
        ("/rpc", "/a2", False),
    ],
)
def test_the_path_is_that_of_the_url_less_root_path(path: str, root_path: str, is_found: bool) -> None:
    found = meaning(interfaces(RPC), "POST", path, root_path)
    assert (found == Target(binding=Binding.JSONRPC)) is is_found


def test_served_at_says_what_a_proxy_makes_of_the_path() -> None:
    of = interfaces(*BOTH, served_at={RPC["url"]: "/", REST["url"]: "/inner"})
    assert meaning(of, "POST", "/") == Target(binding=Binding.JSONRPC)
    assert operation(of, "GET", "/inner/tasks/5")[3] == "5"
    assert operation(of, "GET", "/inner/acme/tasks/5")[2] == ["acme"]
    assert isinstance(meaning(of, "GET", "/a2a/rest/tasks/5"), Undeclared)
    assert operation(of, "GET", "/x/inner/tasks/5", "/x")[3] == "5"


def test_encoded_paths_are_the_same_paths() -> None:
    of = interfaces({**RPC, "url": f"{HOST}/caf%C3%A9/r%70c"})
    assert meaning(of, "POST", "/café/rpc") == Target(binding=Binding.JSONRPC)
    assert meaning(interfaces({**RPC, "url": HOST}), "POST", "/") == Target(binding=Binding.JSONRPC)
    assert meaning(interfaces({**RPC, "url": HOST}), "POST", "") == Target(binding=Binding.JSONRPC)


@walk(
    ("method", "path", "root_path", "wanted"),
    [
        ("POST", "/rpc", "", 'a2a/rpc is served at "/a2a/rpc": if a proxy'),
        ("POST", "/rpc", "", 'RequestRules(served_at={"https://agent.example/a2a/rpc": "/rpc"})'),
        ("POST", "/", "", 'RequestRules(served_at={"https://agent.example/a2a/rpc": "/"})'),
        ("GET", "/rest/tasks/5", "", 'RequestRules(served_at={"https://agent.example/a2a/rest": "/rest"})'),
        ("GET", "/tasks/5", "", 'RequestRules(served_at={"https://agent.example/a2a/rest": "/"})'),
        ("GET", "/tasks/5", "/team", 'a2a/rest is not below the root_path "/team"'),
    ],
)
def test_a_refusal_names_both_paths_and_the_line_to_write(method: str, path: str, root_path: str, wanted: str) -> None:
    found = meaning(interfaces(*BOTH), method, path, root_path)
    assert wanted in found.why
    assert len(found.why) < 400  # the audit trail cuts


@pytest.mark.parametrize(
    ("served_at", "needed"),
    [({f"{HOST}/other": "/"}, "has no interface"), ({RPC["url"]: "rpc"}, "must begin with a slash")],
)
def test_what_served_at_cannot_mean_does_not_start(served_at: dict[str, str], needed: str) -> None:
    with pytest.raises(ConfigurationError, match=needed):
        interfaces(RPC, served_at=served_at)


# Spellings


def test_folding_makes_one_of_many() -> None:
    assert {fold_path(path) for path in ("/a/b", "/A//b/", "/./a/x/../b", "/%61/b;v=1", "/a\\b", "/a/ｂ")} == {"/a/b"}
    assert {fold_name(name) for name in ("GetTask", " gettask ", "ＧetTask", "GetTas\u212a", "GET TAſK")} == {"gettask"}
    assert len({fold_name(name) for name in METHODS}) == len(METHODS)


def test_folding_finds_letters_beyond_ascii_in_each_form() -> None:
    assert {fold_path(path) for path in ("/gr\u00f6\u00dfe", "/GRO\u0308SSE", "/gr%C3%B6sse")} == {"/gro\u0308sse"}
    assert fold_path("/\uff0e\uff0e/\u2100\uff1bx/\uff0f") == "/a/c"
    assert fold_path("/a/b/../../..//./c;x=/;y/ d ") == "/c/d"


@walk(
    ("path", "is_one"),
    [
        ("/" + "a" * 60_000, True),
        ("/" + "é" * 1_023, True),
        ("/" + "é" * 1_024, False),
        ("/" + "%61" * 64, True),
        ("/" + "%61" * 65, False),
        ("/" + "%" * 65, False),
        ("/" + "".join(map(chr, range(0x4E00, 0x4E40))), True),
        ("/" + "".join(map(chr, range(0x4E00, 0x4E41))), False),
    ],
)
def test_a_path_is_folded_only_if_that_is_cheap(path: str, is_one: bool) -> None:
    assert is_foldable(path) is is_one


def test_a_name_is_folded_as_far_as_it_can_become_one_in_ascii() -> None:
    for char in filter(str.isprintable, map(chr, range(0x80, 0x1F200))):
        whole = normalize("NFKC", normalize("NFKC", char).casefold())
        assert fold_name(char) == whole if whole.isascii() else not fold_name(char).isascii()


def test_a_path_of_slashes_costs_no_more_than_its_length() -> None:
    """Seen here: 60 KB of slashes took 1.8 GB and seconds."""
    of = interfaces(*BOTH)
    for path in ("/a" + "/" * 60_000, "/tasks" * 10_000, "/a" * 30_000, "/../" * 15_000):
        tracemalloc.start()
        try:
            meaning(of, "POST", path)
            ends_like_operation(path)
            assert tracemalloc.get_traced_memory()[1] < 5_000_000
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("url", ["/rpc", "rpc", "//", "https:///rpc"])
def test_an_interface_without_a_host_is_not_advised_to_be_served_elsewhere(url: str) -> None:
    card = {"supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]}
    with pytest.raises(ConfigurationError, match=r"/supportedInterfaces/0/url: .* has no host; write the whole URL"):
        Interfaces(read_card(card))
