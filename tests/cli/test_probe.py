"""``a2a-sign probe``: agents on this machine are probed as a user does it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from a2a_trust.probe import probing
from a2a_trust.probe.verdicts import RULES
from tests.cli.conftest import Run
from tests.probe.agents import KEY, Asked, Reply, by_key, rejection, serving

PRIVATE = "--private-origins"


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(probing, "INTERVAL", 0.0)
    (tmp_path / "ann.key").write_text(f"{KEY}\n")


def test_a_table_has_one_line_for_each_requirement_and_the_verdict_last(run: Run) -> None:
    with serving() as served:
        done = run("probe", served.url, PRIVATE, "--credential", "key=ann.key")
    assert (done.code, done.err) == (0, "")
    first, *rows, last = done.out.splitlines()
    assert first == f"Ledger at {served.url}, card not signed"
    assert rows == [
        f"  enforced  key  JSONRPC {served.url}/rpc     SendMessage with no credential: 401; "
        "SendMessage with the given credential: 200, error -32602, a mistake in the parameters",
        f"  enforced  key  HTTP+JSON {served.url}/rest  SendMessage with no credential: 401; "
        "SendMessage with the given credential: 400, a mistake in the parameters",
    ]
    assert last == f"{served.url}: ENFORCED"


def test_an_open_agent_fails_the_command(run: Run) -> None:
    with serving(guard=lambda _: None) as served:
        done = run("probe", served.url, PRIVATE)
        assert done.code == 1
        assert f"{served.url}: NOT ENFORCED\n" in done.out
        assert "  error open-operation /supportedInterfaces/0/url: SendMessage, " in done.out
        assert "      SendMessage with no credential: 200" not in done.out
        assert "      SendMessage with no credential: 200" in run("probe", served.url, PRIVATE, "-v").out
        assert run("probe", served.url, PRIVATE, "-q").out == f"{served.url}: NOT ENFORCED\n"


def test_a_doubt_fails_the_command_only_if_it_is_asked_to(run: Run) -> None:
    with serving(guard=lambda asked: by_key(asked) and Reply(status=503)) as served:
        assert run("probe", served.url, PRIVATE).code == 0
        done = run("probe", served.url, PRIVATE, "--fail-on", "cannot-tell")
    assert done.code == 1
    assert "SendMessage, SendStreamingMessage: cannot tell" in done.out


def test_the_report_as_json_has_verdicts_findings_and_proofs(run: Run) -> None:
    with serving(guard=lambda asked: None if asked.binding == "rest" else by_key(asked)) as served:
        report = run("probe", served.url, PRIVATE, "--json").json
    assert (report["command"], report["ok"], report["exit"]) == ("probe", False, 1)
    (agent,) = report["results"]
    assert (agent["url"], agent["name"], agent["verdict"]) == (served.url, "Ledger", "not enforced")
    assert [each["verdict"] for each in agent["requirements"]] == ["enforced", "not enforced"]
    assert agent["requirements"][1]["proof"][0] == "SendMessage with no credential: 400, a mistake in the parameters"
    assert agent["findings"][0]["rule"] == "open-operation"


def test_sarif_has_the_rules_and_where_the_agent_is(run: Run) -> None:
    with serving(guard=lambda _: None) as served:
        (log,) = run("probe", served.url, PRIVATE, "--sarif").json["runs"]
    assert log["tool"]["driver"]["name"] == "a2a-sign probe"
    assert [each["id"] for each in log["tool"]["driver"]["rules"]] == list(RULES)
    places = {each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in log["results"]}
    assert places == {served.url}
    assert {each["ruleId"] for each in log["results"]} >= {"open-operation", "open-extended-card"}
    fingerprints = [each["partialFingerprints"]["ruleAndPointer/v1"] for each in log["results"]]
    assert len(set(fingerprints)) == len(fingerprints)


def test_a_list_of_agents_ends_with_a_sum(run: Run, tmp_path: Path) -> None:
    with serving() as good, serving(guard=lambda _: None) as bad:
        (tmp_path / "agents.txt").write_text(f"# ours\n{good.url}\n\n{bad.url}\nhttp://127.0.0.1:9\n")
        done = run("probe", "--list", "agents.txt", PRIVATE)
        assert done.out.splitlines()[-1] == "3 agents: 1 enforced, 1 not enforced, 1 input-output"
        assert "127.0.0.1:9" in done.err
        assert done.code == 1
        report = run("probe", "--list", "agents.txt", PRIVATE, "--json").json
        assert [each["class"] for each in report["results"]] == ["ok", "invalid", "input-output"]
        named = f"key=ann.key@{good.url}"
        assert run("probe", "--list", "agents.txt", PRIVATE, "--credential", named).code == 1
        assert KEY not in str(bad.agent.asked)
        assert KEY in str(good.agent.asked)


def test_an_agent_that_cannot_be_reached_fails_the_command(run: Run) -> None:
    done = run("probe", "http://127.0.0.1:9", PRIVATE)
    assert done.code == 6
    assert "a2a-sign: error: http://127.0.0.1:9" in done.err
    assert "--private-origins" in run("probe", "http://127.0.0.1:9").err


WRONG = {
    "no agent": ([], "name its URL"),
    "several agents": (["https://a.example", "https://b.example", "--credential", "key=ann.key"], "name its origin"),
    "no scheme": (["https://a.example", "--credential", "ann.key"], "write SCHEME=FILE"),
    "a secret": (["https://a.example", "--credential", "key=sk_live_4eC39HqLyjWDarjtT1zdp7dcXyZ0aB1cD2"], "not shown"),
    "no origin": (["https://a.example", "--interface-origin", "a.example/path"], "is not an origin"),
    "a password in the URL": (["https://ann:sk_live_4eC39@a.example"], "write --credential"),
    "no list": (["--list", "missing.txt"], "missing.txt"),
    "no trust file": (["https://a.example", "--trust", "missing.toml"], "missing.toml"),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_arguments_that_are_wrong_are_named(run: Run, arguments: list[str], said: str) -> None:
    done = run("probe", *arguments)
    assert done.code in (2, 6)
    assert said in done.err
    assert "sk_live" not in done.err + done.out


def test_a_file_without_a_secret_is_an_error_about_the_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.key").write_text("")
    with serving() as served:
        done = run("probe", served.url, PRIVATE, "--credential", "key=empty.key")
        assert done.code == 2
        assert "empty.key" in done.err
        basic = {"securitySchemes": {"key": {"httpAuthSecurityScheme": {"scheme": "basic"}}}}
        served.agent.card = basic
        done = run("probe", served.url, PRIVATE, "--credential", "key=ann.key")
        assert "USER:PASSWORD" in done.err
        assert KEY not in done.err


def test_basic_credentials_and_tokens_come_from_files(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ann.password").write_text("ann:a long password")
    for scheme, file, sent in (
        ("basic", "ann.password", "Basic YW5uOmEgbG9uZyBwYXNzd29yZA=="),
        ("bearer", "ann.key", f"Bearer {KEY}"),
    ):
        card = {"securitySchemes": {"key": {"httpAuthSecurityScheme": {"scheme": scheme}}}}

        def guard(asked: Asked, sent: str = sent, scheme: str = scheme) -> Reply | None:
            is_right = asked.headers.get("authorization") == sent
            return None if is_right else rejection(asked, challenge=f"{scheme} x=y")

        with serving(guard=guard, card=card) as served:
            done = run("probe", served.url, PRIVATE, "--credential", f"key={file}", "--fail-on", "cannot-tell")
        assert done.code == 0, done.out


def test_a_credential_that_lacks_a_scope_is_sent_too(run: Run, tmp_path: Path) -> None:
    (tmp_path / "weak.key").write_text("weak")
    card = {"securityRequirements": [{"schemes": {"key": {"list": ["admin"]}}}]}
    with serving(
        guard=lambda asked: None if asked.headers.get("x-api-key") == "weak" else by_key(asked), card=card
    ) as served:
        done = run("probe", served.url, PRIVATE, "--credential", "key=ann.key", "--lacking", "key=weak.key", "--json")
    rules = {each["rule"] for each in json.loads(done.out)["results"][0]["findings"]}
    assert rules == {"scope-not-checked"}


@pytest.mark.parametrize("form", [[], ["--json"], ["--sarif"]])
def test_the_query_of_a_url_is_not_shown(run: Run, form: list[str]) -> None:
    with serving(guard=lambda _: None) as served:
        for place in ("", "/.well-known/agent-card.json"):
            done = run("probe", f"{served.url}{place}?api_key=hunter2", PRIVATE, *form)
            assert served.url in done.out + done.err
            assert "hunter2" not in done.out + done.err


def test_an_ambiguous_url_is_an_error(run: Run) -> None:
    done = run("probe", "https://agent.example/a b", PRIVATE)
    assert done.code != 0
    assert "https://agent.example/a b: " in done.err
