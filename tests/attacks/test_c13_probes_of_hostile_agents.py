"""C13: An agent that is probed gets the operator's credential elsewhere, steers the report, or holds the probe."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from a2a_trust import Fetcher
from a2a_trust.cli.main import main
from a2a_trust.client import ApiKey
from a2a_trust.errors import FetchError
from a2a_trust.probe import ProbeOptions, ProbeReport, Verdict, probe_agent, probing
from tests.probe.agents import API_KEY, KEY, Agent, Asked, Reply, by_key, card_of, rejection, serving


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(probing, "INTERVAL", 0.0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key").write_text(KEY)


def secrets_of(agent: Agent) -> list[Asked]:
    return [asked for asked in agent.asked if KEY in str(asked)]


def test_no_redirect_takes_the_credential_along() -> None:
    with serving() as evil:
        location = {"Location": f"{evil.url}/rpc"}
        for status in (301, 302, 303, 307, 308):
            with serving(guard=lambda _, status=status: Reply(status=status, headers=location)) as served:
                assert served.probe(KEY).verdict is Verdict.CANNOT_TELL
                assert secrets_of(served.agent)
        assert evil.agent.asked == []


def interface(url: str, **members: Any) -> dict[str, Any]:
    return {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0", **members}


def test_an_interface_elsewhere_gets_no_request_on_the_word_of_a_card() -> None:
    with serving() as evil, serving(card={"supportedInterfaces": []}) as served:
        urls = [
            f"{evil.url}/rpc",
            evil.url.replace("127.0.0.1", "localhost") + "/rpc",
            f"{served.url}@{evil.url[7:]}/rpc",
        ]
        served.agent.card = {"supportedInterfaces": [interface(url) for url in urls]}
        report = served.probe(KEY)
        assert (report.verdict, report.requests) == (Verdict.CANNOT_TELL, 0)
        assert (evil.agent.asked, secrets_of(served.agent)) == ([], [])


def test_an_interface_elsewhere_that_the_operator_names_gets_no_credential() -> None:
    with serving() as evil, serving() as served:
        served.agent.card = {"supportedInterfaces": [interface(f"{evil.url}/rpc")]}
        fetcher = Fetcher(private_origins=[served.url, evil.url])
        served.probe(KEY, origins=[evil.url], fetcher=fetcher)
        assert evil.agent.asked
        assert secrets_of(evil.agent) == []
        key = {"key": ApiKey(KEY, origins=[evil.url])}
        served.probe(credentials=key, origins=[evil.url], fetcher=fetcher)
        assert secrets_of(evil.agent)
        assert secrets_of(served.agent) == []


def test_the_card_chooses_no_unsafe_header_for_the_credential() -> None:
    for name in ("Host", "Cookie", "X-Forwarded-For", "a\r\nX-Key", ""):
        scheme = {"apiKeySecurityScheme": {"location": "header", "name": name or "Authorization"}}
        with serving(card={"securitySchemes": {"key": scheme}}, guard=rejection) as served:
            assert served.probe(KEY).verdict is Verdict.CANNOT_TELL
            assert secrets_of(served.agent) == []


def test_tenants_and_paths_of_a_card_lead_nowhere_else() -> None:
    with serving() as served:
        paths = ["/rest/../../admin", "/rest/%2e%2e/admin", "//evil/rest", "/rest;x"]
        rest = [interface(served.url + path, protocolBinding="HTTP+JSON") for path in paths]
        rest.append(interface(f"{served.url}/rest", protocolBinding="HTTP+JSON", tenant="../../admin"))
        for each in rest:
            served.agent.card = {"supportedInterfaces": [each]}
            served.probe(KEY)
        assert not [asked.path for asked in served.agent.asked if "/admin" in asked.path.replace("%2F", "/")[:12]]


def echo(asked: Asked) -> Reply:
    """What it got, in every place of an answer that a report could show."""
    got = asked.headers.get("x-api-key", "")
    if not got:
        return rejection(asked)
    headers = {"WWW-Authenticate": f'ApiKey realm="{got}", resource_metadata="https://{got}.example"', "X-Got": got}
    error = {"code": -32001, "message": f"Task {got} not found", "data": got}
    return Reply(body={"jsonrpc": "2.0", "id": got, "error": error}, headers=headers)


def test_no_report_shows_a_credential_that_the_agent_echoes(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "a2a_trust")
    with serving(guard=echo) as served:
        for form in ([], ["-v"], ["--json"], ["--sarif"]):
            assert main(["probe", served.url, "--private-origins", "--credential", "key=key", *form]) == 1
            shown = capsys.readouterr()
            assert shown.out
            assert KEY not in shown.out + shown.err
        report = served.probe(KEY)
        assert secrets_of(served.agent)
    assert KEY not in repr(report) + caplog.text


def test_a_key_in_the_query_is_in_no_report_and_no_log(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "a2a_trust")
    scheme = {"apiKeySecurityScheme": {"location": "query", "name": "api_key"}}
    with serving(card={"securitySchemes": {"key": scheme}}) as served:
        main(["probe", served.url, "--private-origins", "--credential", "key=key", "-v"])
    shown = capsys.readouterr()
    assert KEY not in shown.out + shown.err + caplog.text


HOSTILE = "\x1b[2J\x1b]0;x\x07\u202e\r\n::set-output name=x::y\n##[error]\u2028"


def test_no_report_has_control_characters_or_commands_of_the_agent(capsys: pytest.CaptureFixture[str]) -> None:
    card = {
        "name": HOSTILE,
        "securitySchemes": {HOSTILE: API_KEY},
        "securityRequirements": [{"schemes": {HOSTILE: {"list": [HOSTILE]}}}],
    }
    with serving(card=card, guard=lambda _: Reply(body=HOSTILE.encode(), headers={"X-Y": "z"})) as served:
        whole = card_of(served.url)["supportedInterfaces"]
        served.agent.card |= {"supportedInterfaces": [*whole, interface(HOSTILE, protocolBinding=HOSTILE)]}
        for form in ([], ["-v"], ["--json"], ["--sarif"]):
            main(["probe", served.url, "--private-origins", *form])
            shown = capsys.readouterr()
            for text in (shown.out, shown.err):
                assert all(char == "\n" or char.isprintable() for char in text)
                assert "##[" not in text
                assert not [line for line in text.splitlines() if line.lstrip().startswith("::")]


def test_members_of_other_types_do_not_break_the_probe() -> None:
    for signatures in (5, [5, {}, {"protected": 5}, {"protected": "e30"}, {"protected": "W10"}]):
        with serving(card={"signatures": signatures, "capabilities": {"streaming": "yes"}}) as served:
            assert served.probe(KEY).requests


def test_a_credential_of_digits_is_not_shown_as_the_code_of_an_error() -> None:
    reply = Reply(body=b'{"jsonrpc": "2.0", "id": 1, "error": {"code": -77777777, "message": "no"}}')
    with serving(guard=lambda _: reply) as served:
        assert "77777777" not in repr(served.probe("77777777"))


def test_texts_that_take_long_to_search_are_cut() -> None:
    reply = Reply(status=400, body=b'{"detail": "%b"}' % (b"task not " * 7000))
    with serving(guard=lambda _: reply) as served:
        assert served.probe(KEY).verdict is Verdict.CANNOT_TELL


def test_a_url_in_a_challenge_shows_no_credential_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "a2a_trust")
    with serving() as served:

        def guard(asked: Asked) -> Reply:
            got = asked.headers.get("x-api-key", "nothing")
            return rejection(asked, challenge=f'ApiKey resource_metadata="{served.url}/{got}"' if got else "")

        served.agent.guard = guard
        served.probe(KEY)
        assert secrets_of(served.agent)
    assert KEY not in caplog.text


def test_a_long_name_does_not_fill_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(card={"name": "\u202e" * 20_000}) as served:
        main(["probe", served.url, "--private-origins"])
    assert max(map(len, capsys.readouterr().out.splitlines())) < 2000


@pytest.mark.parametrize(
    "url", ["http://[::1", "https://a b", "\\\\evil", "//x", "https://ann:pw@x.example", "a" * 9000]
)
def test_urls_of_a_card_that_cannot_be_read_do_not_break_the_probe(url: str) -> None:
    login = {"openIdConnectSecurityScheme": {"openIdConnectUrl": url}}
    flow = {"clientCredentials": {"tokenUrl": url, "scopes": {}}}
    oauth = {"oauth2SecurityScheme": {"flows": flow, "oauth2MetadataUrl": url}}
    schemes = {"key": API_KEY, "login": login, "oauth": oauth}
    every: list[Any] = [{"schemes": {name: {}}} for name in schemes]
    with serving(card={"securitySchemes": schemes, "securityRequirements": every}) as served:
        served.agent.guard = lambda asked: rejection(asked, challenge=f'Bearer resource_metadata="{url}"')
        assert served.probe(KEY).requests


@pytest.mark.parametrize("member", [[], {}, 5, None])
def test_metadata_of_other_types_does_not_break_the_probe(member: Any) -> None:
    with serving() as served:
        place = f"{served.url}/.well-known/oauth-authorization-server"
        flow = {"clientCredentials": {"tokenUrl": f"{served.url}/token", "scopes": {}}}
        served.agent.card = {
            "securitySchemes": {"oauth": {"oauth2SecurityScheme": {"flows": flow, "oauth2MetadataUrl": place}}},
            "securityRequirements": [{"schemes": {"oauth": {}}}],
        }
        page = {"issuer": served.url, "token_endpoint": member}
        served.agent.pages["/.well-known/oauth-authorization-server"] = page
        messages = [each.message for each in served.probe().findings]
    assert "the metadata names another token endpoint than the card" in messages


# --- agents that hold a probe


@contextmanager
def raw(answer: bytes, then: bytes = b"") -> Iterator[str]:
    """A server that answers each request with these bytes, and then repeats ``then`` until the client goes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def talk(connection: socket.socket) -> None:
        with connection:
            try:
                request = connection.recv(65_536)
                if b"GET /.well-known/agent-card.json" in request:
                    card = json.dumps(card_of(url)).encode()
                    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                    connection.sendall(head % len(card) + card)
                    return
                connection.sendall(answer)
                while then:
                    connection.sendall(then)
            except OSError:
                return  # the probe has seen enough

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            Thread(target=talk, args=(connection,), daemon=True).start()

    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    thread = Thread(target=accept)
    thread.start()
    try:
        yield url
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def probe(url: str) -> ProbeReport:
    key = {"key": ApiKey(KEY, origins=[url])}
    return probe_agent(url, ProbeOptions(credentials=key, fetcher=Fetcher(private_origins=[url], timeout=2)))


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
HELD = {
    "an endless stream": (HEAD, b": wait\n"),
    "an endless body": (HEAD.replace(b"text/event-stream", b"application/json"), b" " * 65_536),
    "endless headers": (b"HTTP/1.1 200 OK\r\n", b"X-Y: z\r\n"),
    "no HTTP": (b"\x00" * 100, b""),
    "nothing": (b"", b""),
}


@pytest.mark.parametrize(("answer", "then"), HELD.values(), ids=HELD)
def test_answers_without_end_end_the_probe_without_a_verdict(
    answer: bytes, then: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "_SECONDS", 5.0)
    with raw(answer, then) as url:
        assert probe(url).verdict is Verdict.CANNOT_TELL


def test_after_the_time_of_a_probe_no_request_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_SECONDS", 0.0)
    with serving(guard=lambda _: None) as served:
        report = served.probe(KEY)
        assert (report.verdict, report.requests, served.agent.asked) == (Verdict.CANNOT_TELL, 0, [])


def test_after_the_time_of_a_probe_there_are_no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_SECONDS", 0.5)
    monkeypatch.setattr(probing, "INTERVAL", 0.4)
    made: list[probing.Prober] = []
    original = probing.Prober

    def recorded(**options: Any) -> probing.Prober:
        made.append(original(**options))
        return made[-1]

    monkeypatch.setattr(probing, "Prober", recorded)
    with serving(guard=rejection) as served:
        assert served.probe(KEY).verdict is Verdict.CANNOT_TELL
    (prober,) = made
    assert prober._next <= prober.until + 0.4  # no later request was given a time to wait for


def test_after_many_bytes_no_request_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_MOST_BYTES", 300_000)
    with serving(guard=lambda _: Reply(body=b" " * 100_000)) as served:
        assert served.probe(KEY).verdict is Verdict.CANNOT_TELL
        assert len(served.agent.asked) < 20  # of 80; each begins before the others have ended


def test_a_huge_card_is_not_read() -> None:
    pages = {"/.well-known/agent-card.json": b" " * 300_000}
    with serving(pages=pages) as served, pytest.raises(FetchError, match="has more than 262144 bytes"):
        served.probe()


def test_a_card_with_many_interfaces_and_documents_costs_a_bounded_number_of_requests() -> None:
    with serving(guard=rejection) as served:
        many = [interface(f"{served.url}/rpc/{at}") for at in range(200)]
        login = {"openIdConnectSecurityScheme": {"openIdConnectUrl": f"{served.url}/issuer"}}
        schemes = {"key": API_KEY, **{f"login{at}": login for at in range(200)}}
        served.agent.card = {"supportedInterfaces": many, "securitySchemes": schemes}
        report = served.probe()
        assert len(served.agent.asked) <= 4 * 60 + 5
        assert report.verdict is Verdict.CANNOT_TELL


def test_requests_say_what_they_are() -> None:
    with serving(guard=by_key) as served:
        served.probe()
        agents = {asked.headers["user-agent"] for asked in served.agent.asked}
    assert {each.partition("/")[0] for each in agents} == {"a2a-trust-probe"}
