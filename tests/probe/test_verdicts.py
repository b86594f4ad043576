"""A probe is right about agents that are guarded by hand in the usual wrong ways: each server fails one check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from a2a_trust.client import ApiKey, BearerToken
from a2a_trust.probe import ProbeReport, Verdict
from tests.probe.agents import (
    API_KEY,
    KEY,
    LOGIN,
    Agent,
    Asked,
    Reply,
    by_key,
    by_token,
    rejection,
    serving,
)


def rules(report: ProbeReport, *severities: str) -> set[str]:
    """The rules of the findings, which are of one agent without other faults."""
    return {each.rule for each in report.findings if each.severity in (severities or ("error", "warning", "note"))}


def verdicts(report: ProbeReport) -> dict[str, str]:
    return {each.interface.binding: each.verdict.value for each in report.requirements}


@pytest.mark.parametrize("key", [None, KEY])
def test_an_agent_that_enforces_its_card_has_no_findings(key: str | None) -> None:
    with serving() as served:
        report = served.probe(key)
    assert (report.verdict, report.findings) == (Verdict.ENFORCED, ())
    assert verdicts(report) == {"JSONRPC": "enforced", "HTTP+JSON": "enforced"}
    for row in report.requirements:
        assert len(row.proof) == 2
        assert row.proof[0] == "SendMessage with no credential: 401"
        assert ("with the given credential" in row.proof[1]) == (key is not None)


def admitting(admits: Callable[[Asked], bool]) -> Callable[[Asked], Reply | None]:
    """The right guard, but for requests that it lets pass."""
    return lambda asked: None if admits(asked) else by_key(asked)


WRONG: dict[str, tuple[Callable[[Asked], bool], set[str], dict[str, str]]] = {
    "nobody is asked": (
        lambda _: True,
        {"open-operation", "open-extended-card", "wrong-credential-accepted"},
        {"JSONRPC": "not enforced", "HTTP+JSON": "not enforced"},
    ),
    "the header need only be there": (
        lambda asked: "x-api-key" in asked.headers,
        {"wrong-credential-accepted"},
        {"JSONRPC": "not enforced", "HTTP+JSON": "not enforced"},
    ),
    "HTTP+JSON is open": (
        lambda asked: asked.binding == "rest",
        {"open-operation", "open-extended-card", "wrong-credential-accepted"},
        {"JSONRPC": "enforced", "HTTP+JSON": "not enforced"},
    ),
    "the extended card is open": (
        lambda asked: asked.operation == "GetExtendedAgentCard",
        {"open-extended-card", "wrong-credential-accepted"},
        {"JSONRPC": "not enforced", "HTTP+JSON": "not enforced"},
    ),
    "one method is open": (
        lambda asked: asked.operation == "ListTasks" and asked.binding == "rpc",
        {"open-operation", "wrong-credential-accepted"},
        {"JSONRPC": "not enforced", "HTTP+JSON": "enforced"},
    ),
    "streams are open": (
        lambda asked: asked.operation in ("SendStreamingMessage", "SubscribeToTask"),
        {"open-operation", "wrong-credential-accepted"},
        {"JSONRPC": "not enforced", "HTTP+JSON": "not enforced"},
    ),
    "GET is open": (
        lambda asked: asked.method == "GET",
        {"open-operation", "open-extended-card", "wrong-credential-accepted"},
        {"JSONRPC": "enforced", "HTTP+JSON": "not enforced"},
    ),
    "a key in another place is accepted": (
        lambda asked: "authorization" in asked.headers,
        {"wrong-credential-accepted"},
        {"JSONRPC": "not enforced", "HTTP+JSON": "not enforced"},
    ),
    "a malformed key is accepted": (
        lambda asked: len(asked.headers.get("x-api-key", "long enough")) < 8,
        {"wrong-credential-accepted"},
        {"JSONRPC": "not enforced", "HTTP+JSON": "not enforced"},
    ),
}


@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize(("admits", "found", "at"), WRONG.values(), ids=WRONG)
def test_what_is_open_is_found(
    admits: Callable[[Asked], bool], found: set[str], at: dict[str, str], key: str | None
) -> None:
    with serving(guard=admitting(admits)) as served:
        report = served.probe(key)
    assert report.verdict is Verdict.NOT_ENFORCED
    assert rules(report) == found
    assert verdicts(report) == at
    for row in report.requirements:
        assert len(row.proof) >= 1, row


def test_the_extended_card_is_looked_for_under_its_names_of_other_generations() -> None:
    pages = {"/agent/authenticatedExtendedCard": {"name": "Ledger", "description": "For known callers.", "skills": []}}
    with serving(pages=pages) as served:
        report = served.probe()
    assert rules(report) == {"open-extended-card"}
    for page in (Agent().document(), {"name": "a service", "status": "well"}):  # the public card, or no card at all
        with serving(pages={"/v1/card": page}) as served:
            assert served.probe().verdict is Verdict.ENFORCED


# --- tokens

TOKENS: dict[str, tuple[Callable[[dict[str, Any]], bool], str]] = {
    "signature": (lambda claims: claims["is signed"] and claims["exp"] - claims["iat"] < 1000, "a token signed by"),
    "unsigned": (lambda claims: claims["alg"] == "none", "an unsigned token"),
    "expired": (lambda claims: claims["alg"] != "none" and claims["iss"] == "https://idp.test", "an expired token"),
}


@pytest.mark.parametrize(("accepts", "named"), TOKENS.values(), ids=TOKENS)
def test_forged_tokens_that_are_accepted_are_found(accepts: Callable[[dict[str, Any]], bool], named: str) -> None:
    card = {"securitySchemes": {"login": LOGIN}, "securityRequirements": [{"schemes": {"login": {"list": ["read"]}}}]}
    with serving(guard=by_token(accepts), card=card) as served:
        report = served.probe()
    assert report.verdict is Verdict.NOT_ENFORCED
    assert rules(report, "error") == {"forged-token-accepted"}
    assert named in str([each.message for each in report.findings])


def test_tokens_have_the_issuer_of_the_card() -> None:
    card = {"securitySchemes": {"login": LOGIN}, "securityRequirements": [{"schemes": {"login": {"list": ["read"]}}}]}
    with serving(guard=by_token(lambda _: False), card=card) as served:
        report = served.probe()
        seen = [asked.claims() for asked in served.agent.asked if asked.token().count(".") == 2]
    assert report.verdict is Verdict.ENFORCED
    assert {each["iss"] for each in seen} == {"https://idp.test"}
    assert {each["scope"] for each in seen} == {"read"}
    assert {each["aud"].partition("/rest")[0].partition("/rpc")[0] for each in seen} == {served.url}


# --- what only a given credential shows


def test_a_credential_that_lacks_a_scope_must_be_rejected() -> None:
    card = {"securityRequirements": [{"schemes": {"key": {"list": ["admin"]}}}]}
    for admitted, verdict in (("", Verdict.ENFORCED), ("weak", Verdict.NOT_ENFORCED)):

        def admits(asked: Asked, admitted: str = admitted) -> bool:
            return admitted != "" and asked.headers.get("x-api-key") == admitted

        with serving(guard=admitting(admits), card=card) as served:
            weak = {"key": ApiKey("weak", origins=[served.url])}
            report = served.probe(KEY, lacking=weak)
        assert report.verdict is verdict
        assert rules(report) == ({"scope-not-checked"} if admitted else set())


def test_one_of_two_credentials_must_not_be_enough() -> None:
    card = {
        "securitySchemes": {"key": API_KEY, "login": LOGIN},
        "securityRequirements": [{"schemes": {"key": {}, "login": {}}}],
    }
    token = by_token(lambda _: False)

    def both(asked: Asked) -> Reply | None:
        return by_key(asked) or token(asked)

    for guard, found in ((both, set()), (token, {"half-accepted"})):
        with serving(guard=guard, card=card) as served:
            origins = [served.url]
            given = {"key": ApiKey(KEY, origins=origins), "login": BearerToken(KEY, origins=origins)}
            report = served.probe(credentials=given)
        assert rules(report, "error") == found
        assert (report.verdict is Verdict.ENFORCED) == (not found)


def test_a_given_credential_that_is_rejected_proves_nothing() -> None:
    with serving(guard=rejection) as served:
        report = served.probe(KEY)
        assert (report.verdict, rules(report)) == (Verdict.CANNOT_TELL, {"credential-rejected"})
        assert (
            served.probe().verdict is Verdict.ENFORCED
        )  # without one, that callers are rejected is all there is to see


def test_not_found_for_strangers_is_a_rejection_if_others_get_an_answer() -> None:
    def hide(asked: Asked) -> Reply | None:
        rejected = by_key(asked)
        return rejected and (Reply(status=404, body={}) if asked.operation == "GetTask" else rejected)

    with serving(guard=hide) as served:
        assert served.probe(KEY).verdict is Verdict.ENFORCED
        assert served.probe().verdict is Verdict.ENFORCED  # nothing is there for anybody


# --- what proves nothing

UNCLEAR: dict[str, Reply] = {
    "too many": Reply(status=429, body={}),
    "unavailable": Reply(status=503, body={}),
    "broken": Reply(status=500, body={"error": {"code": -32603, "message": "Internal error"}}),
    "elsewhere": Reply(status=302, headers={"Location": "https://login.example.com/"}),
    "a page": Reply(body=b"<html>Log in</html>", headers={"content-type": "text/html"}),
    "a bad request": Reply(status=400, body={"detail": "Bad Request"}),
    "success without a result": Reply(body={"code": 1001, "msg": "no entry", "status": "fail"}),
    "an empty success": Reply(status=204),
    "a missing member of the gateway": Reply(status=400, body={"message": "Missing tenant"}),
    "a blocked call": Reply(body={"jsonrpc": "2.0", "id": 1, "error": {"code": -32600, "message": "Blocked"}}),
    "other parameters": Reply(body={"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "Blocked"}}),
    "no task for anything": Reply(status=404, body={"error": "Task not found"}),
    "too many calls": Reply(body={"jsonrpc": "2.0", "id": 1, "error": {"code": -32005, "message": "Slow down"}}),
}


@pytest.mark.parametrize("reply", UNCLEAR.values(), ids=UNCLEAR)
def test_other_answers_prove_nothing(reply: Reply) -> None:
    with serving(guard=lambda asked: by_key(asked) and reply) as served:
        for report in (served.probe(), served.probe(KEY)):
            assert report.verdict is Verdict.CANNOT_TELL
            assert rules(report, "error") == set()


@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
def test_without_proof_for_sending_nothing_is_enforced(operation: str) -> None:
    def guard(asked: Asked) -> Reply | None:
        return Reply(status=503, body={}) if asked.operation == operation else by_key(asked)

    with serving(guard=guard) as served:
        report = served.probe(KEY)
    assert report.verdict is Verdict.CANNOT_TELL
    assert {each.reason for each in report.requirements} == {f"{operation}: cannot tell"}


def test_an_agent_without_streams_needs_no_proof_for_them() -> None:
    def guard(asked: Asked) -> Reply | None:
        absent = asked.operation in ("SendStreamingMessage", "SubscribeToTask")
        return Reply(status=404, body={}) if absent else by_key(asked)

    with serving(guard=guard, card={"capabilities": {"streaming": False}}) as served:
        assert served.probe(KEY).verdict is Verdict.ENFORCED


def test_a_card_that_demands_nothing_is_not_probed() -> None:
    demands: list[list[Any]] = [[], [{"schemes": {"key": {}}}, {}]]
    for demand in demands:
        with serving(card={"securityRequirements": demand}) as served:
            report = served.probe()
            assert report.verdict is Verdict.NOTHING_DEMANDED
            assert served.agent.asked == []


def test_interfaces_that_are_not_asked_leave_a_doubt() -> None:
    grpc = {"url": "https://agent.example.com:443", "protocolBinding": "GRPC", "protocolVersion": "1.0"}
    elsewhere = {"url": "https://victim.example.com/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    for other in (grpc, elsewhere):
        with serving() as served:
            served.agent.card = {"supportedInterfaces": [served.agent.document()["supportedInterfaces"][0], other]}
            report = served.probe(KEY)
        assert [each.verdict for each in report.requirements] == [Verdict.ENFORCED, Verdict.CANNOT_TELL]
        assert report.verdict is Verdict.CANNOT_TELL
        assert rules(report) == {"not-asked"}
        assert "not asked" in report.requirements[1].reason


def test_each_alternative_of_a_card_has_a_verdict() -> None:
    card = {
        "securitySchemes": {"key": API_KEY, "login": LOGIN},
        "securityRequirements": [{"schemes": {"key": {}}}, {"schemes": {"login": {"list": ["read"]}}}],
    }

    def guard(asked: Asked) -> Reply | None:  # every token is accepted
        return None if asked.token() else by_key(asked)

    with serving(guard=guard, card=card) as served:
        report = served.probe(KEY)
    assert {(each.requirement, each.verdict.value) for each in report.requirements} == {
        ("key", "not enforced"),  # a random token in the place of a key
        ("login (read)", "not enforced"),
    }


def test_two_interfaces_cost_at_most_120_requests() -> None:
    alternatives: list[Any] = [{"schemes": {f"key{at}": {}}} for at in range(40)]
    schemes = {f"key{at}": {"apiKeySecurityScheme": {"location": "header", "name": f"X-Key-{at}"}} for at in range(40)}
    with serving(card={"securitySchemes": schemes, "securityRequirements": alternatives}, guard=rejection) as served:
        report = served.probe()
    assert report.requests <= 120
    assert report.verdict is Verdict.CANNOT_TELL  # some alternatives were not asked


# --- answers that were misread


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=403, body=b"<html>Blocked</html>", headers={"content-type": "text/html"}),
        Reply(body={"jsonrpc": "2.0", "id": 1, "error": {"code": 401, "message": "no"}}),
        Reply(status=400, body={"message": "Missing API key"}),
    ],
    ids=["a page with 403", "401 as the code of an error", "a missing key, which is not a missing message"],
)
def test_a_doubtful_rejection_is_one_only_if_the_right_caller_is_answered(reply: Reply) -> None:
    with serving(guard=lambda asked: by_key(asked) and reply) as served:
        assert (served.probe().verdict, served.probe(KEY).verdict) == (Verdict.CANNOT_TELL, Verdict.ENFORCED)


def test_the_first_event_of_a_stream_may_have_no_data() -> None:
    error = b'{"jsonrpc": "2.0", "id": "probe", "error": {"code": -32602, "message": "Invalid params"}}'
    stream = Reply(
        body=b": connected\n\nretry: 9\n\ndata: %b\n\n" % error, headers={"content-type": "text/event-stream"}
    )

    def guard(asked: Asked) -> Reply | None:
        return stream if asked.operation == "SendStreamingMessage" else by_key(asked)

    with serving(guard=guard) as served:
        report = served.probe()
    assert verdicts(report)["JSONRPC"] == "not enforced"


def test_an_alternative_that_is_tried_in_part_is_not_enforced() -> None:
    names = [f"login{at}" for at in range(9)]
    card = {
        "securitySchemes": dict.fromkeys(names, LOGIN),
        "securityRequirements": [{"schemes": {name: {"list": ["read"]}}} for name in names],
    }
    with serving(guard=by_token(lambda claims: claims["alg"] == "none"), card=card) as served:
        report = served.probe()
    found = [each.verdict for each in report.requirements]
    assert set(found) == {Verdict.NOT_ENFORCED, Verdict.CANNOT_TELL}
