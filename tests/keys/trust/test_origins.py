"""Hosts: a URL has one for every reader or it is refused, and patterns end at a label."""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.errors import ConfigurationError, MalformedError
from a2a_trust.keys.trust.origins import (
    Origins,
    UnsafeAnyOrigin,
    host_of,
    interface_host,
    is_unencrypted,
    origin_of,
    overlap,
)
from tests.tables import walk


@walk(
    ("url", "host"),
    [
        ("https://agent.example.com", "agent.example.com"),
        ("https://agent.example.com/", "agent.example.com"),
        ("https://agent.example.com/a/b?c=d#e", "agent.example.com"),
        ("https://agent.example.com?x", "agent.example.com"),
        ("https://agent.example.com#x", "agent.example.com"),
        ("HTTPS://Agent.EXAMPLE.com:8443/x", "agent.example.com"),
        ("http://localhost:8000", "localhost"),
        ("grpc://agent.example.com:50051/", "agent.example.com"),
        ("agent.example.com", "agent.example.com"),
        ("agent.example.com:443", "agent.example.com"),
        ("localhost", "localhost"),
        ("my_service:50051", "my_service"),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva.example"),
        ("https://127.0.0.1:8080/x", "127.0.0.1"),
        ("https://[::1]:8443/x", "[::1]"),
        ("[2001:DB8::1]:443", "[2001:db8::1]"),
        ("[2001:db8::1]", "[2001:db8::1]"),
        ("https://[2001:db8:0:0::1]/", "[2001:db8::1]"),
        ("https://[2001:0DB8::0001]", "[2001:db8::1]"),
        ("https://[::192.0.2.1]", "[::c000:201]"),
        ("https://0xc0.example", "0xc0.example"),
        ("https://a.example.com//evil.example/", "a.example.com"),
        ("https://a.example.com/https://evil.example/", "a.example.com"),
        ("https://a.example.com?next=https://evil.example/", "a.example.com"),
        ("https://a.example.com/@evil.example", "a.example.com"),
    ],
)
def test_the_host_of_a_plain_url_or_address(url: str, host: str) -> None:
    assert host_of(url) == host


@walk(
    ("url", "origin"),
    [
        ("HTTPS://Agent.EXAMPLE.com:0443/x", "https://agent.example.com"),
        ("http://[::1]:80", "http://[::1]"),
        ("http://agent.example.com:443", "http://agent.example.com:443"),
        ("grpc://agent.example.com:443/", "grpc://agent.example.com:443"),
        ("agent.example.com:443", "://agent.example.com:443"),
        ("agent.example.com", "://agent.example.com"),
    ],
)
def test_an_origin_has_one_spelling(url: str, origin: str) -> None:
    assert origin_of(url) == origin


@walk("url", ["https://agent.example.com:65536", "agent.example.com/x", "https://[x"])
def test_what_has_no_origin_is_refused(url: str) -> None:
    with pytest.raises(MalformedError, match="URL"):
        origin_of(url)


@walk(
    "url",
    [
        "",
        "/",
        "/path",
        "//host/path",
        "?x",
        "#x",
        ".",
        "..",
        "https:",
        "https:/",
        "https://",
        "https:///path",
        "https:////host",
        "https:/host/path",
        "https:host/path",
        "https:host",
        "mailto:a/b@host",
        "mailto:a@host",
        "data:text/html,x/y",
        "javascript:alert(1)//host",
        "file:///etc/passwd",
        "x/https://host/",
        "ht tp://host/",
        "1http://host/",
        "https://user@host/",
        "https://user:password@host/",
        "https://@host/",
        "https://host@evil.example/",
        "user@host",
        "https://host:evil.example/",
        "https://host:",
        "https://host:x/",
        "https://host:123456/",
        "https://host:0x50/",
        "https://host:-1/",
        "https://host:80:80/",
        "https://:443/",
        ":443",
        "https://.host/",
        "https://host./",
        "https://ho..st/",
        "https://-host/",
        "https://host-/",
        "https://a.-b.c/",
        "https://ho%73t/",
        "https://host%00.evil.example/",
        "https://host\\@evil.example/",
        "https:\\\\host\\",
        "https://host\\evil.example",
        "https://ho st/",
        " https://host/",
        "https://host/ ",
        "https://host/\t",
        "https://ho\nst/",
        "https://host/\x00",
        "https://host\x7f/",
        "https://höst/",
        "https://host/ü",
        "https://ｈost/",
        "https://host。example/",
        "https://ho*st/",
        "https://*.example.com/",
        "https://ho,st/",
        "https://host;x/",
        "https://(host)/",
        "https://[host]/",
        "https://[::1/",
        "https://::1]/",
        "https://[::1]evil.example/",
        "https://[::1]:x/",
        "https://[v1.x]/",
        "https://[fe80::1%25eth0]/",
        "https://[]/",
        "::1",
        "2001:db8::1",
        "[::1",
        "https://192.0.513",
        "https://192.0.2",
        "https://3221225985",
        "https://3221225985:443/x?y",
        "https://0xc0.0.2.1",
        "https://0xC0000201",
        "https://192.0.2.0x1",
        "https://0300.0.2.1",
        "https://192.0.2.01",
        "https://192.0.2.256",
        "https://192.0.2.1.1",
        "https://example.1",
        "https://[::ffff:192.0.2.1]",
        "https://[::ffff:c000:201]",
        "https://[2001:db8::1::1]",
        "https://[2001:db8]",
        "https://[12345::1]",
        "https://" + "a" * 2_048,
        "https://" + "a" * 254,
        "https://" + ".".join(["a" * 60] * 5),
    ],
)
def test_what_two_readers_could_take_for_two_hosts_is_refused(url: str) -> None:
    with pytest.raises(MalformedError, match=r"^URL: "):
        host_of(url)


@given(st.text(max_size=20).map("https://".__add__) | st.text(max_size=20))
def test_every_text_has_a_plain_host_or_is_refused(url: str) -> None:
    try:
        host = host_of(url)
    except MalformedError:
        return
    assert re.fullmatch(r"[a-z0-9_.-]+|\[[0-9a-f:.]+\]", host)
    assert host in url.lower() or str(IPv6Address(host[1:-1])) == host[1:-1]


@given(st.text(alphabet="ahost.:/@\\?#[]%-1", max_size=14))
def test_the_host_stands_where_it_stands_for_every_reader(rest: str) -> None:
    try:
        host = host_of(f"https://{rest}")
    except MalformedError:
        return
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if host.startswith("["):
        assert IPv6Address(authority[1 : authority.index("]")]) == IPv6Address(host[1:-1])
    else:
        assert re.fullmatch(re.escape(host) + r"(:[0-9]{1,5})?", authority)


def test_the_text_of_a_refusal_does_not_hold_the_url() -> None:
    with pytest.raises(MalformedError) as error:
        host_of("https://user:s3cret@host/")
    assert "s3cret" not in str(error.value)


# --- interfaces


@walk(
    ("url", "host"),
    [
        ("https://agent.example.com/a2a", "agent.example.com"),
        ("HTTPS://Agent.EXAMPLE.com:8443/a2a", "agent.example.com"),
        ("wss://agent.example.com/ws", "agent.example.com"),
        ("GRPC://agent.example.com:50051", "agent.example.com"),
        ("grpcs://agent.example.com", "agent.example.com"),
        ("http://localhost:10000/", "localhost"),
        ("ws://[::1]:8080/", "[::1]"),
        ("localhost:8080", "localhost"),
        ("my_service:50051", "my_service"),
        ("agent.example.com:443", "agent.example.com"),
        ("127.0.0.1:50051", "127.0.0.1"),
        ("[2001:DB8::1]:443", "[2001:db8::1]"),
    ],
)
def test_the_authority_of_an_interface_is_the_agents_host(url: str, host: str) -> None:
    assert interface_host(url) == host


#: Each with the scheme that a client reads in it.
OTHER_SCHEMES = [
    ("dns:agent.example.com", "dns"),
    ("dns:///agent.example.com", "dns"),
    ("dns:///agent.example.com:443", "dns"),
    ("dns://8.8.8.8/agent.example.com:443", "dns"),
    ("DNS://agent.example.com/evil.example", "dns"),
    ("dns:443", "dns"),
    ("passthrough:///agent.example.com:443", "passthrough"),
    ("passthrough:443", "passthrough"),
    ("ipv4:1.2.3.4:80", "ipv4"),
    ("ipv4://agent.example.com/1.2.3.4:80", "ipv4"),
    ("ipv6:[::1]:80", "ipv6"),
    ("unix:/run/agent.sock", "unix"),
    ("unix:443", "unix"),
    ("unix:///run/agent.sock", "unix"),
    ("unix://agent.example.com/run/agent.sock", "unix"),
    ("unix-abstract:443", "unix-abstract"),
    ("vsock:2:443", "vsock"),
    ("xds:///agent.example.com", "xds"),
    ("xds://agent.example.com/evil.example", "xds"),
    ("google-c2p:///agent.example.com", "google-c2p"),
    ("ftp://agent.example.com/", "ftp"),
    ("file:///etc/passwd", "file"),
    ("file://agent.example.com/etc/passwd", "file"),
    ("javascript:alert(1)", "javascript"),
    ("javascript://agent.example.com/%0aalert(1)", "javascript"),
    ("data:text/plain,x", "data"),
    ("mailto:a@agent.example.com", "mailto"),
    ("httpx://agent.example.com/", "httpx"),
    ("h2c+https://agent.example.com/", "h2c+https"),
    ("view-source:https://agent.example.com/", "view-source"),
    ("blob:https://agent.example.com/", "blob"),
    ("://agent.example.com", ""),
    ("//agent.example.com", ""),
    ("https:443", "https"),
    ("https:agent.example.com", "https"),
    ("grpc:50051", "grpc"),
    (" dns:443", "dns"),
]


@walk(("url", "scheme"), OTHER_SCHEMES)
def test_another_scheme_is_refused_by_name(url: str, scheme: str) -> None:
    with pytest.raises(MalformedError, match=r"^URL: ") as caught:
        interface_host(url)
    if scheme in ("", "view-source"):
        return  # no scheme for every reader, and no host either
    assert str(caught.value).startswith(f"URL: the scheme {scheme!r} does not say at which host the agent is; write ")


@walk(
    "url",
    ["agent.example.com", "localhost", "[::1]", "::1", "agent.example.com:", "a:b", "a:70000", "https://a:70000/", "",
     "https://user@agent.example.com/", "https://agent.example.com./", "agent.example.com:443/path", "a.b:1:2"],
)  # fmt: skip
def test_an_interface_without_a_host_for_every_reader_is_refused(url: str) -> None:
    with pytest.raises(MalformedError, match=r"^URL: "):
        interface_host(url)


def test_a_refused_scheme_cannot_steer_a_terminal_or_fill_a_log() -> None:
    for url in ("\x1b[2J\u202e://agent.example.com", "x" * 5000 + "://agent.example.com"):
        with pytest.raises(MalformedError) as caught:
            interface_host(url)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 300


@walk(
    ("url", "unencrypted"),
    [
        ("http://a", True), ("HTTP://a", True), ("ws://a", True), ("Ws://a/x", True), ("https://a", False),
        ("wss://a", False), ("grpc://a", False), ("a:80", False), ("http:80", False), ("x.http://a", False),
    ],
)  # fmt: skip
def test_only_a_url_that_says_so_is_called_unencrypted(url: str, unencrypted: bool) -> None:
    assert is_unencrypted(url) is unencrypted


SCHEMES = ("https", "wss", "grpc", "grpcs", "http", "ws", "dns", "unix", "xds", "ipv4", "passthrough", "x+y", "")


@given(
    st.sampled_from(SCHEMES),
    st.booleans(),
    st.sampled_from([":", "://", ":/", ":///", ""]),
    st.from_regex(r"[a-z.:/@\[\]0-9-]{0,24}", fullmatch=True),
)
def test_an_interface_has_the_authority_of_an_allowed_scheme_or_is_refused(
    scheme: str, upper: bool, between: str, rest: str
) -> None:
    """Against urlsplit, for whatever is put together of schemes and what may follow them."""
    url = f"{scheme.upper() if upper else scheme}{between}{rest}"
    try:
        host = interface_host(url)
    except MalformedError:
        return
    if "://" in url:
        parts = urlsplit(url)
        assert parts.scheme in ("https", "wss", "grpc", "grpcs", "http", "ws")
        assert host == (f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname)
    else:
        name, _, port = url.rpartition(":")
        assert (name.lower(), port.isdigit()) == (host, True)
        assert host not in SCHEMES


# --- patterns


@walk(
    ("pattern", "covered", "not_covered"),
    [
        (
            "example.com",
            ["example.com"],
            ["a.example.com", "xexample.com", "example.com.evil.example", "com", "", "example.co", ".example.com"],
        ),
        (
            "*.example.com",
            ["a.example.com", "a.b.example.com", "xn--a.example.com"],
            ["example.com", "badexample.com", ".example.com", "example.com.evil.example", "", "com", "a.example.com."],
        ),
        ("*.Example.COM", ["a.example.com"], ["example.com"]),
        ("AGENT.example.com", ["agent.example.com"], ["Agent.example.com"]),  # hosts come in lower case
        ("localhost", ["localhost"], ["localhost.evil.example", "a.localhost"]),
        ("127.0.0.1", ["127.0.0.1"], ["127.0.0.10", "1.127.0.0.1"]),
        ("[::1]", ["[::1]"], ["[::10]", "::1"]),
        ("[2001:DB8:0::1]", ["[2001:db8::1]"], ["[2001:db8:0::1]"]),  # hosts come in one spelling
    ],
)
def test_a_pattern_covers_whole_labels_only(pattern: str, covered: list[str], not_covered: list[str]) -> None:
    origins = Origins(pattern)
    assert [host for host in covered if not origins.covers(host)] == []
    assert [host for host in not_covered if origins.covers(host)] == []


def test_several_patterns_cover_what_any_of_them_covers() -> None:
    origins = Origins("a.example.com", "*.example.org", "b.example.net")
    for host in ("a.example.com", "x.example.org", "b.example.net"):
        assert origins.covers(host)
    for host in ("b.example.com", "example.org", "example.net", "x.b.example.net"):
        assert not origins.covers(host)


@walk(
    "pattern",
    [
        "",
        "*",
        "*.",
        "*.com",
        "*.*.example.com",
        "a.*.example.com",
        "*example.com",
        "**.example.com",
        "*.example.com.",
        ".example.com",
        "example.com.",
        "https://example.com",
        "example.com:443",
        "example.com/path",
        "user@example.com",
        "exa mple.com",
        "exämple.com",
        "*.[::1]",
        "[::1",
        "example..com",
        "192.0.513",
        "0xc0000201",
        "[::ffff:192.0.2.1]",
        "[2001:db8]",
        "*.192.0.2.1",
        "*.2.1",
    ],
)
def test_a_pattern_that_is_no_host_is_a_mistake(pattern: str) -> None:
    with pytest.raises(ConfigurationError, match="write"):
        Origins("good.example.com", pattern)


def test_origins_that_cover_nothing_are_a_mistake_that_tells_the_unsafe_name() -> None:
    with pytest.raises(ConfigurationError, match=r"covers no host.*UnsafeAnyOrigin\(\)"):
        Origins()


def test_origins_are_equal_when_they_cover_the_same() -> None:
    one, same = Origins("a.example.com", "*.example.org"), Origins("*.EXAMPLE.org", "A.example.com")
    assert one == same
    assert hash(one) == hash(same)
    assert one != Origins("a.example.com")
    assert one != "a.example.com"  # type: ignore[comparison-overlap]
    assert Origins("[2001:db8:0::1]").patterns == Origins("[2001:DB8::1]").patterns == ("[2001:db8::1]",)
    assert repr(one) == "Origins('a.example.com', '*.example.org')"


def test_any_origin_is_a_named_unsafe_choice() -> None:
    assert UnsafeAnyOrigin().covers("anything.example")
    assert UnsafeAnyOrigin() == UnsafeAnyOrigin()
    assert UnsafeAnyOrigin() != Origins("a.example.com")  # type: ignore[comparison-overlap]
    assert {UnsafeAnyOrigin(): 1}[UnsafeAnyOrigin()] == 1
    assert repr(UnsafeAnyOrigin()) == "UnsafeAnyOrigin()"


@walk(
    ("one", "other", "is_shared"),
    [
        (Origins("a.example.com"), Origins("b.example.com", "A.example.com"), True),
        (Origins("a.example.com"), Origins("*.example.com"), True),
        (Origins("*.a.example.com"), Origins("*.example.com"), True),
        (Origins("a.example.com"), UnsafeAnyOrigin(), True),
        (Origins("a.example.com"), Origins("b.example.com"), False),
        (Origins("example.com"), Origins("*.example.com"), False),
        (Origins("*.a.example.com"), Origins("a.example.com", "*.b.example.com"), False),
    ],
)
def test_origins_overlap_if_both_cover_a_host(one: Origins, other: Origins | UnsafeAnyOrigin, is_shared: bool) -> None:
    assert overlap(one, other) == overlap(other, one) == is_shared
