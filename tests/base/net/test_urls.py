"""The reader of URLs: the parts that other readers see, or a refusal."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.base.net.urls import MAX_URL, Url, has_dot_segment, read_host, read_url, with_plain_escapes
from a2a_trust.errors import MalformedError
from tests.tables import walk


@walk(
    ("text", "url"),
    [
        ("HTTPS://Agent.EXAMPLE.com:0443/A?b#c", Url("https", "agent.example.com", 443, "/A", "b", "c")),
        ("http://[2001:DB8:0::1]", Url("http", "[2001:db8::1]", None, "", None, None)),
        ("x+y.z-1://a_b//?#", Url("x+y.z-1", "a_b", None, "//", "", "")),
        ("https://a?b/c?d#e?f#g", Url("https", "a", None, "", "b/c?d", "e?f#g")),
        ("https://a/%2e%2E/;b@c", Url("https", "a", None, "/%2e%2E/;b@c", None, None)),
        ("agent.example.com:50051", Url("", "agent.example.com", 50051, "", None, None)),
        ("LOCALHOST", Url("", "localhost", None, "", None, None)),
    ],
)
def test_the_parts_of_a_url(text: str, url: Url) -> None:
    assert read_url(text) == url


@walk(
    ("text", "origin"),
    [
        ("https://a:443/x", "https://a"),
        ("http://a:80", "http://a"),
        ("http://a:443", "http://a:443"),
        ("grpc://a:443", "grpc://a:443"),
        ("a:443", "://a:443"),
    ],
)
def test_an_origin_leaves_out_the_default_port(text: str, origin: str) -> None:
    assert read_url(text).origin == origin


def test_the_address_of_a_host() -> None:
    assert read_url("https://a.example").address is None
    assert str(read_url("https://192.0.2.1").address) == "192.0.2.1"
    assert str(read_url("https://[::1]:8443").address) == "::1"


@walk(
    "text",
    ["", "/x", "//a/x", "a/x", "a?x", "a:1/x", "https:", "https://", "https:///x", "https://:1", "https://a:", "a:x",
     "https://a:0", "https://a:65536", "https://u@a", "https://a b", "https://a\\b", "https://a/\t", "https://é",
     "https://a/é", "https://a..b", "https://a.", "https://-a", "https://127.1", "https://0x7f", "https://[::1",
     "https://[::1%25lo]", "https://[1]", "https://" + "a" * 64, "https://" + ".".join(["a" * 60] * 5),
     "https://a/" + "a" * MAX_URL],
)  # fmt: skip
def test_what_two_readers_could_read_as_two_urls_is_refused(text: str) -> None:
    with pytest.raises(MalformedError, match=r"^URL: "):
        read_url(text)


@given(
    st.builds("{}://{}{}{}".format, st.sampled_from(["https", "HTTP", "ws"]), st.sampled_from(["a", "A.b", "[::1]"]),
              st.sampled_from(["", ":1", ":443"]), st.text("/?#:@%41.a;[", max_size=12))
    | st.text("htps:/.@[]?#%\\-_ab09\n", max_size=40).map("https://".__add__)
)  # fmt: skip
def test_the_parts_are_those_that_others_see(text: str) -> None:
    try:
        url = read_url(text)
    except MalformedError:
        return
    parts = urlsplit(text)
    assert (url.scheme, url.port, url.path) == (parts.scheme, parts.port, parts.path)
    assert (url.query or "", url.fragment or "") == (parts.query, parts.fragment)
    assert url.host.strip("[]") == parts.hostname == httpx.URL(text).host


@walk(("text", "host"), [("A.Example", "a.example"), ("[2001:DB8:0::1]", "[2001:db8::1]"), ("192.0.2.1", "192.0.2.1")])
def test_a_host_has_one_spelling(text: str, host: str) -> None:
    assert read_host(text) == host


@walk(
    ("text", "what"),
    [("192.0.513", "an address"), ("[1]", "an address"), ("a:1", "only a host"), ("", "only a host")],
)
def test_what_is_no_host_is_refused_and_says_what_to_write(text: str, what: str) -> None:
    with pytest.raises(MalformedError, match=f"^write {re.escape(what)}"):
        read_host(text)


DOT_SEGMENTS = (
    "/a/../b", "/a/./b", "/..", "/a/.", "/%2e%2e/b", "/a/.%2E/b", "/a/%2E", "/a/..;x=1/b", "/a/..;", "/a/..%3bx/b",
    "/a/..%2fb", "/a%2F..%2Fb", "/a/..\\b", "/a/..%5cb", "/a%5C..", "/a/..%00/b", "/%252e%252e/b", "/%25252e./b",
    "/%%32e%%32e/b", "/a%252f..%252fb", "..", ".", f"/%{'25' * 900}2e",
)  # fmt: skip


@walk("path", DOT_SEGMENTS)
def test_a_dot_segment_is_one_in_every_spelling(path: str) -> None:
    assert has_dot_segment(path)


@walk(
    "path",
    ["", "/", "/a//b/", "/.well-known/x.json", "/a/..b", "/a/...", "/a.%2E/b", "/a%2Fb", "/a;b=../c", "/%25", "/%zz"],
)
def test_other_paths_have_none(path: str) -> None:
    assert not has_dot_segment(path)


@walk(
    ("path", "plain"), [("/%7e%41%2d", "/~A-"), ("/%2f%c3%3B", "/%2F%C3%3B"), ("/%2541%", "/%2541%"), ("/%zz", "/%zz")]
)
def test_escapes_are_written_where_they_are_needed_only(path: str, plain: str) -> None:
    assert with_plain_escapes(path) == plain
    assert with_plain_escapes(plain) == plain
