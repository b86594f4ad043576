"""Clients of three released SDKs, under five servers: refused without a credential and served with one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from tests.servers.callers import Callers
from tests.servers.environments import answer_of
from tests.servers.serving import SERVERS
from tests.tables import walk

pytestmark = pytest.mark.real


class Speaker(NamedTuple):
    """One way in which one SDK speaks: ``version`` is that of the protocol."""

    sdk: str
    binding: str
    version: str


SCRIPTS = {"1.3.0": "sdk_client_1_3.py", "0.3.26": "sdk_client_0_3.py", "0.2.16": "sdk_client_0_2.py"}
SPEAKERS = [
    Speaker("1.3.0", "JSONRPC", "1.0"),
    Speaker("1.3.0", "HTTP+JSON", "1.0"),
    Speaker("1.3.0", "JSONRPC", "0.3"),
    Speaker("1.3.0", "HTTP+JSON", "0.3"),
    Speaker("0.3.26", "JSONRPC", "0.3"),
    Speaker("0.3.26", "HTTP+JSON", "0.3"),
    Speaker("0.2.16", "JSONRPC", "0.2"),
]


class Case(NamedTuple):
    server: str
    speaker: Speaker
    streaming: bool
    carried: str


Seen = dict[Case, dict[str, Any]]


@pytest.fixture(scope="module")
def seen(hello_worlds: dict[str, str], callers: Callers) -> Seen:
    """What every client saw in every case; one process of each SDK runs all of its cases."""
    cases = [
        Case(server, speaker, streaming, carried)
        for speaker in SPEAKERS
        for server in SERVERS
        for streaming in (False, True)
        for carried in ("nothing", "bad key", "key", "token")
    ]

    def question(case: Case) -> dict[str, Any]:
        origin = hello_worlds[case.server]
        key, login = {"X-API-Key": callers.key}, callers.token(origin)
        given: dict[str, tuple[dict[str, str], dict[str, str]]] = {
            "nothing": ({}, {}),
            "bad key": ({"key": "bad"}, {"X-API-Key": "bad"}),
            "key": ({"key": callers.key}, key),
            "token": ({"login": login}, {"Authorization": f"Bearer {login}"}),
        }
        credentials, headers = given[case.carried]
        return {
            "url": origin,
            "binding": case.speaker.binding,
            "version": case.speaker.version,
            "streaming": case.streaming,
            "text": "think longer" if case.streaming else "hi",
            "credentials": credentials,
            "headers": headers,
        }

    def answers(sdk: str) -> Seen:
        asked = [case for case in cases if case.speaker.sdk == sdk]
        return dict(zip(asked, answer_of(f"python-{sdk}", SCRIPTS[sdk], list(map(question, asked))), strict=True))

    with ThreadPoolExecutor() as workers:
        return {case: answer for some in workers.map(answers, SCRIPTS) for case, answer in some.items()}


speakers = pytest.mark.parametrize("speaker", SPEAKERS, ids=" ".join)
servers = pytest.mark.parametrize("server", SERVERS)


@servers
@speakers
@walk("streaming", [False, True])
@walk("carried", ["nothing", "bad key"])
def test_a_client_is_refused(seen: Seen, server: str, speaker: Speaker, streaming: bool, carried: str) -> None:
    answer = seen[Case(server, speaker, streaming, carried)]
    assert (answer["statuses"], answer["events"], answer["answer"]) == ([401], [], "")
    if (speaker.sdk, streaming) == ("0.2.16", True):
        # That client looks at the type of the answer before it looks at the status.
        assert "Expected response header Content-Type to contain 'text/event-stream'" in answer["error"]
    else:
        assert answer["error"].startswith(("HTTP Error 401", "HTTP Error: 401"))


@servers
@speakers
@walk("carried", ["key", "token"])
def test_a_client_with_a_credential_is_served(seen: Seen, server: str, speaker: Speaker, carried: str) -> None:
    answer = seen[Case(server, speaker, False, carried)]
    assert (answer["error"], answer["statuses"]) == (None, [200])
    assert (answer["events"], answer["answer"]) == (["completed"], "Hello World! You said: hi")


@servers
@speakers
@walk("carried", ["key", "token"])
def test_events_come_while_the_agent_works_all_and_in_order(
    seen: Seen, server: str, speaker: Speaker, carried: str
) -> None:
    answer = seen[Case(server, speaker, True, carried)]
    assert (answer["error"], answer["statuses"]) == (None, [200, 200])
    assert answer["events"] == ["submitted", "working", "artifact", "completed"]
    assert answer["answer"] == "Hello World! You said: think longer"
    # Asked when the second event had come, and as the same caller: nothing was held back until the end.
    assert answer["meanwhile"] == "working"
