"""Agent locations: one agent has one location however its URL is written, and no query, name or card adds another."""

from __future__ import annotations

import json
import pickle
from urllib.parse import quote, unquote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.base.net.urls import has_dot_segment
from a2a_trust.card.schema import CARD_PATHS
from a2a_trust.client.location import Location, location_of, plain_url
from a2a_trust.errors import MalformedError
from tests.tables import walk

AGENT = "https://agent.example.com"


@walk(
    ("url", "location"),
    [
        # Scheme, host and port.
        ("https://agent.example.com", AGENT),
        ("https://Agent.EXAMPLE.com/.well-known/agent-card.json?a=//b:1/#c", AGENT),
        ("HTTPS://agent.example.com:443", AGENT),
        ("https://agent.example.com:0443/", AGENT),
        ("agent.example.com", AGENT),
        ("agent.example.com:443", AGENT),
        ("agent.example.com:8443", f"{AGENT}:8443"),
        ("https://agent.example.com:80", f"{AGENT}:80"),
        ("http://agent.example.com:80", "http://agent.example.com"),
        ("http://127.0.0.1:8000/x", "http://127.0.0.1:8000/x"),
        ("http://[::1]:8000/x", "http://[::1]:8000/x"),
        ("[::1]:8000", "https://[::1]:8000"),
        # Well-known names.
        (f"{AGENT}/.well-known/agent.json", AGENT),
        (f"{AGENT}/.Well-Known/Agent-Card.json/", AGENT),
        (f"{AGENT}/a/.well-known/agent-card.json", f"{AGENT}/a"),
        (f"{AGENT}/a/.well-known/agent.json#x", f"{AGENT}/a"),
        (f"{AGENT}/a/%2Ewell-known/agent%2djson", f"{AGENT}/a/.well-known/agent-json"),
        (f"{AGENT}/a/%2Ewell-known/agent%2ejson", f"{AGENT}/a"),
        (f"{AGENT}/a/.well-known/agent-card.json/.well-known/agent.json", f"{AGENT}/a"),
        # Cards at other names.
        (f"{AGENT}/cards/a.json", f"{AGENT}/cards/a.json"),
        (f"{AGENT}/cards/a.json?b", f"{AGENT}/cards/a.json"),
        (f"{AGENT}/well-known/agent-card.json", f"{AGENT}/well-known/agent-card.json"),
        (f"{AGENT}/x.well-known/agent.json", f"{AGENT}/x.well-known/agent.json"),
        # Paths.
        (f"{AGENT}/a", f"{AGENT}/a"),
        (f"{AGENT}/a/", f"{AGENT}/a"),
        (f"{AGENT}//a///", f"{AGENT}/a"),
        (f"{AGENT}/%61", f"{AGENT}/a"),
        (f"{AGENT}/%7eann/%40x", f"{AGENT}/~ann/@x"),
        (f"{AGENT}/a%2fb", f"{AGENT}/a%2Fb"),
        (f"{AGENT}/a%252fb", f"{AGENT}/a%252fb"),
        (f"{AGENT}/a%c3%bc", f"{AGENT}/a%C3%BC"),
        (f'{AGENT}/a"b', f"{AGENT}/a%22b"),
        (f"{AGENT}/A", f"{AGENT}/A"),
        (f"{AGENT}/a;b=c", f"{AGENT}/a;b=c"),
        (f"{AGENT}/...", f"{AGENT}/..."),
    ],
)
def test_a_location_is_written_in_one_way(url: str, location: str) -> None:
    found = location_of(url)
    assert found == location
    assert location_of(str(found)) == found
    assert location_of(found) is found
    assert f"{found}/".startswith(f"{found.origin}/")


@walk(
    "url",
    [
        "", " ", "/", "//agent.example.com", "ftp://agent.example.com", "file:///etc/passwd", "https://",
        "agent.example.com/x", "https://a@agent.example.com", "https://agent.example.com\\x", "https://ag ent",
        "https://agent.example.com:99999", "https://agent.example.com:x", "https://agent.example.com.", "https:x",
        f"{AGENT}/a/../b", f"{AGENT}/./a", f"{AGENT}/..", f"{AGENT}/%2e%2E/b", f"{AGENT}/.%2e/b", f"{AGENT}/a/%2e",
        f"{AGENT}/..;x/b", f"{AGENT}/a%2f..%2fb", f"{AGENT}/%252e%252e/b",
        f"{AGENT}/%", f"{AGENT}/%zz", f"{AGENT}/%6", f"{AGENT}/" + '"' * 1000, "grpc://agent.example.com", None, 7,
    ],
)  # fmt: skip
def test_what_is_no_location_is_refused(url: str) -> None:
    with pytest.raises(MalformedError, match=r"^location: "):
        location_of(url)


@pytest.mark.parametrize(
    ("url", "location"),
    [
        (f"{AGENT}/cards?agent=a", f"{AGENT}/cards?agent=a"),
        (f"{AGENT}:443//cards/?agent=%61#x", f"{AGENT}/cards?agent=%61"),
        (f"{AGENT}?agent=a", f"{AGENT}/?agent=a"),
        (f"{AGENT}/.well-known/agent.json?agent=a", f"{AGENT}/?agent=a"),
        (f"{AGENT}/cards?", f"{AGENT}/cards"),
        (f"{AGENT}/cards", f"{AGENT}/cards"),
    ],
)
def test_a_query_counts_where_the_user_named_it(url: str, location: str) -> None:
    found = location_of(url, with_query=True)
    assert found == location
    assert location_of(str(found), with_query=True) == found
    assert location_of(found) is found
    assert found.origin == AGENT


SEGMENTS = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=5), max_size=3)


@given(SEGMENTS, st.sampled_from(["", *CARD_PATHS]), st.data())
def test_every_spelling_of_a_url_is_one_location(segments: list[str], name: str, data: st.DataObject) -> None:
    """Also as httpx writes it, and as a server reads it; and two paths are two locations."""

    def written(segment: str) -> str:
        escapes = [f"%{byte:02x}" for byte in segment.encode()]
        return data.draw(st.sampled_from([quote(segment, safe=""), "".join(escapes), "".join(escapes).upper()]))

    url = "/".join([AGENT, *map(written, segments)]) + data.draw(st.sampled_from(["", "/", "//"]))
    url += f"{name}{data.draw(st.sampled_from(['', '?x', '#x', '?/.well-known/agent.json']))}"
    if has_dot_segment("/".join([quote(segment, safe="") for segment in segments])):
        with pytest.raises(MalformedError):
            location_of(url)
        return
    location = location_of(url)
    assert location == location_of(str(httpx.URL(url)))
    assert location == location_of("/".join([AGENT, *[quote(segment, safe="") for segment in segments]]))
    assert [unquote(segment) for segment in location.removeprefix(AGENT).split("/")[1:]] == segments
    assert location.isascii()
    assert location.isprintable()
    assert plain_url(location) == location


def test_a_location_is_a_text_for_files_and_processes() -> None:
    location = location_of(f"{AGENT}/a")
    assert isinstance(location, Location)
    assert json.dumps({"location": location}) == f'{{"location": "{AGENT}/a"}}'
    assert pickle.loads(pickle.dumps(location)) == location
