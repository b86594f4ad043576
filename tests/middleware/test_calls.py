"""The reader of calls: strict JSON, exact names, every tenant; and what it costs."""

from __future__ import annotations

import json
import threading
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.card.operations import METHODS, Binding, Operation
from a2a_trust.card.schema import Generation
from a2a_trust.middleware import calls
from a2a_trust.middleware.calls import MAX_MEMBERS, CallRejectedError, check_media_type, read_call, tenants_in_query
from a2a_trust.middleware.routing import Target
from tests.tables import walk

JSON_RPC = Target(binding=Binding.JSONRPC)
SEND = Target(binding=Binding.HTTP_JSON, generation=Generation.V1_0, operation=Operation.SEND_MESSAGE)


def request(method: str = "SendMessage", params: Any = None, **members: Any) -> bytes:
    given = {} if params is None else {"params": params}
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, **given, **members}).encode()


def refused(body: bytes, target: Target = JSON_RPC) -> CallRejectedError:
    with pytest.raises(CallRejectedError) as caught:
        read_call(target, body, b"")
    return caught.value


def code(body: bytes, target: Target = JSON_RPC) -> int:
    return refused(body, target).error.code


@walk("method", METHODS)
def test_a_method_is_an_operation_of_its_generation(method: str) -> None:
    call = read_call(JSON_RPC, request(method), b"")
    assert (call.generation, call.operation) == METHODS[method]
    assert (call.binding, call.method, call.tenants, call.call_id) == (Binding.JSONRPC, method, frozenset(), b"7")


@walk("method", ["x", "x" * 256, "acme/rebook", "GetTasks", "rpc.discover", "tasks/send2", "Größe"])
def test_a_method_that_a2a_does_not_have_is_an_extension(method: str) -> None:
    call = read_call(JSON_RPC, request(method, {"tenant": "acme"}), b"")
    assert (call.generation, call.operation, call.method, call.tenant) == (None, None, method, "acme")


@walk(
    "method",
    [
        "getextendedagentcard",
        "GETEXTENDEDAGENTCARD",
        " GetExtendedAgentCard",
        "GetExtendedAgentCard\n",
        "GetExtended AgentCard",
        "GetExtendedAgentCard\u200b",
        "\ufeffGetExtendedAgentCard",
        "GetExtendedAgentCard\u0000",
        "ＧｅｔExtendedAgentCard",
        "Get\u017fendMessage"[:3] + "ExtendedAgentCard\u00a0",
        "\u017fendMe\u017f\u017fage",
        "agent/getauthenticatedextendedcard",
        "agent／getAuthenticatedExtendedCard",
        "Message/Send",
    ],
    ids=ascii,
)
def test_a_method_in_another_spelling_is_unknown(method: str) -> None:
    error = refused(request(method))
    assert (error.error.code, error.call_id) == (-32601, b"7")


@walk(
    ("body", "wanted"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"{}{}", -32700),
        (b"{'jsonrpc':'2.0'}", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x",}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":NaN}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":01}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\xff"}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\xc0\x80"}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\xed\xa0\x80"}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\n"}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x"/**/}', -32700),
        (b"\xef\xbb\xbf" + request(), -32700),
        (request().decode().encode("utf-16"), -32700),
        (request().decode().encode("utf-32-le"), -32700),
        (request().decode().encode("cp037"), -32700),
        (b"[" + request() + b"]", -32600),
        (b"[]", -32600),
        (b"7", -32600),
        (b"null", -32600),
        (b"{}", -32600),
        (request(jsonrpc="1.0"), -32600),
        (request(jsonrpc=2.0), -32600),
        (request(id=[]), -32600),
        (request(id={}), -32600),
        (request(id=True), -32600),
        (request(id="x" * 2_000), -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (request(method=""), -32600),
        (request(method="x" * 257), -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":["SendMessage"]}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":null}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","method":"GetExtendedAgentCard"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","metho\\u0064":"SendMessage"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"id":1,"method":"SendMessage"}', -32600),
        (b'{"jsonrpc":"2.0","method":"SendMessage","params":{},"params":{"tenant":"x"}}', -32600),
        (b'{"jsonrpc":"2.0","method":"SendMessage","params":{"tenant":"x","tenant":"y"}}', -32600),
        (b'{"jsonrpc":"2.0","method":"SendMessage","params":{"a":1,"a":2}}', -32600),
        (b'{"jsonrpc":"2.0","method":"SendMessage","params":{"configuration":{},"configuration":{}}}', -32600),
        (request(params=[{"tenant": "acme"}]), -32602),
        (request(params="acme"), -32602),
        (request(params={"tenant": 1}), -32602),
        (request(params={"tenant": ["acme"]}), -32602),
        (request(params={"tenant": {"id": "acme"}}), -32602),
        (request(params={"configuration": [{"taskPushNotificationConfig": {"tenant": "acme"}}]}), -32602),
        (request("GetTask", {"id": 5}), -32602),
        (request("GetTaskPushNotificationConfig", {"taskId": "1", "task_id": "2"}), -32602),
        (b'{"jsonrpc":"2.0","method":"x","params":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}", -32600),
    ],
    ids=lambda value: repr(value)[:90],
)
def test_what_readers_could_read_otherwise_is_refused(body: bytes, wanted: int) -> None:
    error = refused(body).error
    assert (error.code, error.status) == (wanted, 400)


@walk("call_id", ["7", '"seven"', "null", "7.5", "1e999", '"\\ud83d\\ude00"'])
def test_an_id_comes_back_as_it_was(call_id: str) -> None:
    body = '{"jsonrpc":"2.0", "id" : %s , "method":"SendMessage"}' % call_id  # noqa: UP031
    assert read_call(JSON_RPC, body.encode(), b"").call_id == call_id.encode()
    without = b'{"jsonrpc":"2.0","method":"SendMessage"}'
    assert read_call(JSON_RPC, without, b"").call_id == b"null"


@walk(
    ("params", "tenants"),
    [
        ({}, set()),
        ({"tenant": ""}, set()),
        ({"tenant": None}, set()),
        ({"tenant": "acme"}, {"acme"}),
        ({"message": {"tenant": "acme"}, "metadata": {"tenant": "acme"}}, set()),
        ({"configuration": None}, set()),
        ({"configuration": "dark"}, set()),
        ({"configuration": {"taskPushNotificationConfig": {"tenant": "acme"}}}, {"acme"}),
        ({"configuration": {"task_push_notification_config": {"tenant": "acme"}}}, {"acme"}),
        ({"tenant": "a", "configuration": {"taskPushNotificationConfig": {"tenant": "b"}}}, {"a", "b"}),
        ({"tenant": "Ünternehmen"}, {"Ünternehmen"}),
    ],
)
def test_every_field_that_names_a_tenant_counts(params: Any, tenants: set[str]) -> None:
    assert read_call(JSON_RPC, request(params=params), b"").tenants == tenants
    assert read_call(JSON_RPC, request("acme/extension", params), b"").tenants == tenants
    assert read_call(SEND, json.dumps(params).encode(), b"").tenants == tenants
    assert read_call(SEND, json.dumps(params).encode(), b"tenant=other").tenants == {*tenants, "other"}


@walk(
    "name",
    [
        *("tenant\0", "tenant\0x", "x\0", "x\x1f", "x\x7f", "x\x85", "ten\u200bant", "x\ufeff", "x" * 257),
        *("Tenant", " tenant", "ten ant", "ＴENANT", "tenan\uff34", "TaskId", "CONFIGURATION", "taſkid", "Params"),
    ],
)
def test_a_name_that_a_reader_could_take_for_another_is_refused(name: str) -> None:
    places: list[dict[str, Any]] = [
        {name: "x"},
        {"configuration": {name: "x"}},
        {"configuration": {"taskPushNotificationConfig": {name: "x"}}},
        {"configuration": {"pushNotification": {name: "x"}}},
        {"pushNotificationConfig": {name: "x"}},
        {"config": {"push_notification_config": {name: "x"}}},
        {"message": {name: "x"}},
        {"request": {name: "x"}},
    ]
    for params in places:
        for body, target in ((request(params=params), JSON_RPC), (json.dumps(params).encode(), SEND)):
            error = refused(body, target)
            assert (error.error.code, name[:64].encode("unicode_escape")[:3] in str(error).encode()) == (-32600, True)
    assert code(json.dumps({"jsonrpc": "2.0", "id": 7, "method": "x", name: 1}).encode()) == -32600


def test_other_names_and_data_below_are_free() -> None:
    free = {"tenant\0": 1, "Tenant": 2, "x" * 300: 3}
    message = {"parts": [{"data": free, **free}], "metadata": free, "größe": 1, "ＸY": 2}
    params = {"message": message, "metadata": free, "tenants": ["a"], "x-tenant": "b", "größe": 1, "x" * 256: 2}
    assert read_call(JSON_RPC, request(params=params), b"").tenants == frozenset()
    assert read_call(JSON_RPC, request("acme/extension", {"message": [1], "config": "x", "request": None}), b"")


def test_escapes_are_the_same_names() -> None:
    body = request(params={"tenant": "acme"}).replace(b"tenant", b"ten\\u0061nt").replace(b"acme", b"\\u0061cme")
    assert read_call(JSON_RPC, body, b"").tenants == {"acme"}


@walk(
    ("method", "params", "task"),
    [
        ("GetTask", {"id": "5"}, "5"),
        ("CancelTask", {"id": "5"}, "5"),
        ("SubscribeToTask", {"id": "5"}, "5"),
        ("CreateTaskPushNotificationConfig", {"taskId": "5", "id": "6"}, "5"),
        ("GetTaskPushNotificationConfig", {"task_id": "5", "id": "6"}, "5"),
        ("tasks/get", {"id": "5"}, "5"),
        ("tasks/pushNotificationConfig/set", {"taskId": "5"}, "5"),
        ("tasks/pushNotificationConfig/delete", {"id": "5", "pushNotificationConfigId": "6"}, "5"),
        ("tasks/send", {"id": "5"}, "5"),
        ("SendMessage", {"id": "5", "taskId": "5"}, ""),
        ("ListTasks", {"id": "5"}, ""),
        ("acme/extension", {"id": "5"}, ""),
    ],
)
def test_the_task_of_an_operation(method: str, params: Any, task: str) -> None:
    assert read_call(JSON_RPC, request(method, params), b"").task_id == task


@pytest.mark.parametrize("second", ["6", "", None])
def test_two_tasks_are_refused(second: str | None) -> None:
    for params in ({"taskId": "5", "task_id": second}, {"task_id": second, "taskId": "5"}):
        assert code(request("GetTaskPushNotificationConfig", params)) == -32602
    both = {"taskId": "5", "task_id": "5"}
    assert read_call(JSON_RPC, request("GetTaskPushNotificationConfig", both), b"").task_id == "5"
    assert read_call(JSON_RPC, request("GetTask", {"id": None}), b"").task_id == ""


@pytest.mark.parametrize("member", ["method", "jsonrpc"])
def test_json_rpc_at_a_path_of_http_json_is_refused(member: str) -> None:
    assert code(json.dumps({member: "GetExtendedAgentCard"}).encode(), SEND) == -32600


def test_a_body_of_http_json_is_read_as_strictly() -> None:
    assert code(b'{"tenant":"a","tenant":"b"}', SEND) == -32600
    assert code(b"[]", SEND) == -32600
    assert code(b"x", SEND) == -32700
    assert read_call(SEND, b"", b"").tenants == frozenset()


@walk(
    "value",
    [
        b"application/json",
        b"Application/JSON",
        b"application/a2a+json",
        b" application/json ; charset=utf-8 ",
        b'application/json;charset="UTF-8"',
    ],
)
def test_media_types_that_are_json(value: bytes) -> None:
    check_media_type([value])


@walk(
    "values",
    [
        [],
        [b""],
        [b"text/plain"],
        [b"application/x-www-form-urlencoded"],
        [b"multipart/form-data; boundary=x"],
        [b"application/json; charset=cp037"],
        [b"application/json; charset=utf-7"],
        [b"application/json; charset=utf-16"],
        [b"application/json; charset=utf-8; charset=cp037"],
        [b"application/json, text/plain"],
        [b"application/jsonp"],
        [b"application/json", b"application/json"],
    ],
)
def test_media_types_that_another_reader_reads_otherwise(values: list[bytes]) -> None:
    with pytest.raises(CallRejectedError) as caught:
        check_media_type(values)
    assert (caught.value.error.code, caught.value.error.status) == (-32005, 415)


def test_an_alias_of_the_media_type_is_a_second_one() -> None:
    with pytest.raises(CallRejectedError):
        check_media_type([b"application/json", None])


@walk(
    ("query", "tenants"),
    [
        (b"", set()),
        (b"q=%FF&x", set()),
        (b"tenant=", set()),
        (b"tenant", set()),
        (b"tenant=acme", {"acme"}),
        (b"a=1&t%65nant=ac%6de", {"acme"}),
        (b"tenant=a%2525", {"a%25"}),
        (b"configuration.taskPushNotificationConfig.tenant=acme", {"acme"}),
        (b"tenants=acme", set()),
    ],
)
def test_tenants_of_a_query(query: bytes, tenants: set[str]) -> None:
    assert tenants_in_query(query) == tenants


@walk(
    "query",
    [
        *(b"tenant=a&tenant=a", b"tenant=&tenant=a", b"tenant=a&x.tenant=b", b"Tenant=a", b"%20tenant=a", b"TENANT=a"),
        *(b"tenant%00=a", b"tenant%00x=a", b"x%1f=a", b"x.tenant%00=a", b"tenant%00.x=a", b"%" + b"x" * 300),
    ],
)
def test_a_query_that_names_a_tenant_oddly_is_refused(query: bytes) -> None:
    with pytest.raises(CallRejectedError):
        tenants_in_query(query)


def test_an_object_with_very_many_members_is_refused_before_they_are_kept() -> None:
    many = b",".join(b'"%d":1' % number for number in range(MAX_MEMBERS + 1))
    assert code(b"{%b}" % many) == -32600
    # Where nothing is read, there may be as many as there are.
    read_call(JSON_RPC, b'{"jsonrpc":"2.0","method":"x","params":{"metadata":{%b}}}' % many, b"")


def test_reading_in_several_threads_does_not_mix_their_names() -> None:
    body, failures = request(params={"tenant": "acme", "metadata": ["x"] * 1000}), []

    def read() -> None:
        try:
            assert all(read_call(JSON_RPC, body, b"").tenants == {"acme"} for _ in range(200))
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_no_value_is_made_of_what_no_rule_reads() -> None:
    body = request(params={"message": {"parts": [{"raw": "A" * 3_000_000}], "metadata": {"n": [1.5] * 100_000}}})
    tracemalloc.start()
    try:
        read_call(JSON_RPC, body, b"")
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()


_scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
)
_names = st.sampled_from(["tenant", "configuration", "taskPushNotificationConfig", "params", "x", "é"])
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=4), max_leaves=12
)


@given(params=st.dictionaries(_names, _values, max_size=5), ascii_only=st.booleans(), indent=st.sampled_from([None, 2]))
def test_a_call_that_is_read_names_the_tenants_that_protobuf_would_see(
    params: dict[str, Any], ascii_only: bool, indent: int | None
) -> None:
    body = json.dumps({"jsonrpc": "2.0", "method": "x", "params": params}, ensure_ascii=ascii_only, indent=indent)
    try:
        data = body.encode()
    except UnicodeEncodeError:
        return
    seen = [params.get("tenant")]
    configuration = params.get("configuration")
    push = configuration.get("taskPushNotificationConfig") if isinstance(configuration, dict) else None
    seen += [push.get("tenant")] if isinstance(push, dict) else []
    try:
        call = read_call(JSON_RPC, data, b"")
    except CallRejectedError:
        assert (
            any(not isinstance(tenant, str | None) for tenant in seen)
            or isinstance(configuration, list)
            or push not in (None, {})
        )
    else:
        assert call.tenants == {tenant for tenant in seen if tenant}


_pairs = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "id", '"', "é", ""]),
        st.sampled_from(["1", '"x"', '"\\""', "{}", '{"a": 1}', "[1, 2]"]),
    ),
    max_size=4,
)


@given(
    pairs=_pairs,
    comma=st.sampled_from([",", ", ", " ,"]),
    colon=st.sampled_from([":", ": ", " :"]),
    around=st.sampled_from(["", " "]),
    escaped=st.booleans(),
)
def test_an_object_is_read_at_once_only_if_it_has_each_member_once(
    pairs: list[tuple[str, str]], comma: str, colon: str, around: str, escaped: bool
) -> None:
    """Also where a second member of one name is as long as the blanks that it stands in place of."""
    members = comma.join(f"{json.dumps(name, ensure_ascii=escaped)}{colon}{value}" for name, value in pairs)
    text = f"{around}{{{members}}}{around}".encode()
    simple = calls._simple_members(text, calls._plain)
    if simple is not None:
        assert [(name, bytes(value).decode()) for name, value in simple.items()] == pairs
    elif not around and not escaped and (comma, colon) in ((",", ":"), (", ", ": ")) and '"' not in dict(pairs):
        assert len(dict(pairs)) < len(pairs)


def test_a_member_that_comes_twice_in_place_of_blanks_is_seen() -> None:
    spaced = b'{"jsonrpc": "2.0", "id": 1, "method": "x", "params": {}}'
    twice = b'{"jsonrpc":"2.0","id":1,"method":"x","params":{},"id":1}'
    assert len(spaced) == len(twice)
    assert calls._simple_members(spaced, calls._plain) is not None
    assert calls._simple_members(twice, calls._plain) is None
    assert code(twice) == -32600
