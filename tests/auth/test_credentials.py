"""Credentials come from where the card says and nowhere else, once, in one piece."""

from __future__ import annotations

from typing import Any

import pytest

from a2a_trust.auth.credentials import (
    CertificateChain,
    Extractor,
    HeaderLines,
    HttpAuthorization,
    InCookie,
    InHeader,
    InQuery,
    extractor_for,
)
from a2a_trust.card.view import (
    ApiKeyScheme,
    HttpScheme,
    NamedScheme,
    OAuth2Scheme,
    OpenIdConnectScheme,
    SecurityScheme,
)
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError
from tests.tables import walk


def scope(*headers: tuple[str, bytes], query: bytes = b"") -> dict[str, Any]:
    return {"headers": [(name.encode(), value) for name, value in headers], "query_string": query}


def extract(place: Extractor, scope: dict[str, Any]) -> str | CertificateChain | None:
    """What a place gives of a request, as the guard asks for it."""
    lines = HeaderLines([] if place.header is None else [place.header]).find(scope["headers"])
    return place.take(lines.get(place.header or b"", []), scope)


KEY, TOKEN = InHeader("X-API-Key"), HttpAuthorization("bearer")


# Headers


@walk("name", ["x-api-key", "X-API-Key", "X-Api-KEY"])
@walk("value", [b"secret", b" secret", b"secret ", b"\tsecret \t"])
def test_a_header_is_found_in_any_case_and_blanks_around_it_mean_nothing(name: str, value: bytes) -> None:
    assert extract(KEY, scope(("accept", b"*/*"), (name, value))) == "secret"


@walk("header", ["x-api", "x-api-keys", "api-key", "x-api-key2", "authorization", "xapikey"])
def test_other_headers_are_not_looked_at(header: str) -> None:
    assert extract(KEY, scope((header, b"secret"))) is None
    assert extract(KEY, scope(query=b"x-api-key=secret&X-API-Key=secret")) is None
    assert extract(KEY, scope(("cookie", b"X-API-Key=secret"))) is None


def test_what_is_inside_a_header_is_not_taken_apart() -> None:
    assert extract(KEY, scope(("x-api-key", b"good, good"))) == "good, good"
    assert extract(KEY, scope(("x-api-key", b"Bearer good"))) == "Bearer good"
    assert extract(KEY, scope(("x-api-key", b'"good"'))) == '"good"'


@walk("values", [(b"a", b"a"), (b"a", b"b"), (b"", b"a"), (b"a", b"")])
def test_a_header_that_came_twice_is_refused(values: tuple[bytes, bytes]) -> None:
    with pytest.raises(InvalidCredentialsError, match="more than once"):
        extract(KEY, scope(("x-api-key", values[0]), ("X-Api-Key", values[1])))


@walk("alias", ["x_api_key", "X_API_KEY", "x-api_key", "x_api-key"])
def test_an_alias_with_underscores_is_refused_alone_and_beside_the_real_one(alias: str) -> None:
    for headers in ([(alias, b"a")], [(alias, b"a"), ("x-api-key", b"a")], [("x-api-key", b"a"), (alias, b"a")]):
        with pytest.raises(InvalidCredentialsError, match="underscores"):
            extract(KEY, scope(*headers))


@walk("value", [b"", b" ", b"\t", b"\xff", "schlüssel".encode(), "schlüssel".encode("latin-1")])
def test_an_empty_or_non_ascii_header_is_a_bad_credential_and_not_an_absent_one(value: bytes) -> None:
    with pytest.raises(InvalidCredentialsError, match="empty, or not ASCII"):
        extract(KEY, scope(("x-api-key", value)))


# Authorization


@walk("scheme", [b"Bearer", b"bearer", b"BEARER", b"bEaReR"])
@walk("token", ["abc", "a.b-c_d~e+f/g==", "A" * 20_000])
def test_the_scheme_is_matched_in_any_case_and_the_token_taken_as_it_is(scheme: bytes, token: str) -> None:
    assert extract(TOKEN, scope(("Authorization", scheme + b" " + token.encode()))) == token


@walk(
    "value",
    [b"", b"Basic YTpi", b"Bearertoken", b"Bearer\ttoken", b"Bear er token", b"token", b",Bearer token", b"Digest a=b"],
)
def test_another_scheme_is_no_bearer_token(value: bytes) -> None:
    assert extract(TOKEN, scope(("authorization", value))) is None


@walk(
    "value",
    [
        b"Bearer",
        b"Bearer ",
        b"Bearer  token",
        b"Bearer \ttoken",
        b"Bearer token token",
        b"Bearer token, Bearer token",
        b"Bearer token,token",
        b"Bearer token;x",
        b'Bearer "token"',
        b"Bearer token=x",
        b"Bearer ===",
        b"Bearer t\xc3\xb6ken",
        b"Bearer to\0ken",
        b"Bearer token\r\nX: y",
        b"Bearer token\n",
        b"Bearer token=\t=",
    ],
)
def test_oddly_written_bearer_tokens_are_refused(value: bytes) -> None:
    if value == b"Bearer token\n":
        value += b"x"
    with pytest.raises(InvalidCredentialsError, match="expected a scheme, one blank and one credential"):
        extract(TOKEN, scope(("authorization", value)))


def test_a_newline_behind_a_token_is_no_part_of_it() -> None:
    with pytest.raises(InvalidCredentialsError, match="one credential"):
        extract(TOKEN, scope(("authorization", b"Bearer token\n")))


@walk("other", [b"Bearer good", b"Bearer other", b"Basic YTpi", b""])
def test_two_authorization_lines_are_refused_whatever_they_say(other: bytes) -> None:
    for lines in ([b"Bearer good", other], [other, b"Bearer good"]):
        with pytest.raises(InvalidCredentialsError, match="more than once"):
            extract(TOKEN, scope(*(("authorization", line) for line in lines)))


def test_a_bearer_token_elsewhere_is_not_looked_at() -> None:
    assert extract(TOKEN, scope(("proxy-authorization", b"Bearer a"), query=b"access_token=a")) is None


# Query


def test_a_parameter_has_a_bounded_number_of_escapes() -> None:
    assert extract(InQuery("key"), scope(query=b"key=" + b"%61" * 1_024)) == "a" * 1_024
    with pytest.raises(InvalidCredentialsError, match="more than 1024"):
        extract(InQuery("key"), scope(query=b"key=" + b"%61" * 1_025))


@walk(
    "query",
    [b"key=secret", b"a=1&key=secret&b=2", b"%6Bey=secret", b"key=%73ecret", b"%6b%65%79=secret", b"key=secret&KEY=x"],
)
def test_a_parameter_is_found_as_the_application_would_find_it(query: bytes) -> None:
    assert extract(InQuery("key"), scope(query=query)) == "secret"


@walk("query", [b"", b"keys=a", b"a=key", b"Key=a", b"key%00=a", b"a=1;key=b", b"%256Bey=a", b"+key=a"])
def test_other_parameters_are_not_looked_at(query: bytes) -> None:
    assert extract(InQuery("key"), scope(("key", b"secret"), query=query)) is None


@walk("query", [b"key=a&key=a", b"key=a&key=", b"key&key=a", b"key=a&%6bey=b", b"k%65y=a&ke%79=b", b"key=a&x=1&key=b"])
def test_a_parameter_that_came_twice_in_any_spelling_is_refused(query: bytes) -> None:
    with pytest.raises(InvalidCredentialsError, match="more than once"):
        extract(InQuery("key"), scope(query=query))


@walk("query", [b"key=", b"key", b"key=&a=b", b"key=%C3%BC", b"%6bey=", b"key=\xff", b"key=%ff", b"a=b&key"])
def test_an_empty_or_non_ascii_parameter_is_a_bad_credential(query: bytes) -> None:
    with pytest.raises(InvalidCredentialsError, match="empty, or not ASCII"):
        extract(InQuery("key"), scope(query=query))


@walk("value", [b"a%", b"a%6", b"%zz", b"%%61", b"% 61", b"%u0061"])
def test_a_parameter_with_a_broken_escape_is_a_bad_credential(value: bytes) -> None:
    with pytest.raises(InvalidCredentialsError, match="not followed by two hexadecimal digits"):
        extract(InQuery("key"), scope(query=b"key=" + value))


@walk(
    "other", [b"q=%FF", b"%ff", b"q=\xff", b"q=%", b"q=%zz", b"&&", b"=", b"q", b"keys=a", b"&x=1" * 257, b"%" * 65_536]
)
def test_whatever_else_the_query_holds_changes_nothing(other: bytes) -> None:
    for query in (b"key=a+b%2B&%b", b"%b&key=a+b%%2B"):
        assert extract(InQuery("key"), scope(query=query.replace(b"%b", other).replace(b"%%", b"%"))) == "a b+"
    assert extract(InQuery("key"), scope(query=other)) is None


def test_a_name_is_read_as_text_and_not_as_a_pattern() -> None:
    place = InQuery("a.b~c")
    assert extract(place, scope(query=b"a.b%7Ec=1")) == "1"
    assert extract(place, scope(query=b"axb~c=1")) is None


def test_a_scope_without_a_query_has_no_parameter() -> None:
    assert extract(InQuery("key"), {"headers": []}) is None


# Cookies


@walk(
    "lines",
    [[b"key=secret"], [b"a=b; key=secret; c=d"], [b"a=b;key=secret"], [b"a=b", b"key=secret"], [b"\tkey=secret "]],
)
def test_a_cookie_is_found(lines: list[bytes]) -> None:
    assert extract(InCookie("key"), scope(*(("Cookie", line) for line in lines))) == "secret"


@walk("line", [b"", b"key", b"KEY=a", b"keys=a", b"a=key=b", b"a=b; ckey=d", b"a, key=secret"])
def test_other_cookies_are_not_looked_at(line: bytes) -> None:
    assert extract(InCookie("key"), scope(("cookie", line), ("key", b"secret"), query=b"key=secret")) is None


@walk("lines", [[b"key=a; key=a"], [b"key=a", b"key=b"], [b"key=; key=a"], [b"key=a;x=y;key=b"]])
def test_a_cookie_that_came_twice_is_refused(lines: list[bytes]) -> None:
    with pytest.raises(InvalidCredentialsError, match="more than once"):
        extract(InCookie("key"), scope(*(("cookie", line) for line in lines)))


@walk("line", [b"key=", b"key=\xff", b"key=; a=b"])
def test_an_empty_or_non_ascii_cookie_is_a_bad_credential(line: bytes) -> None:
    with pytest.raises(InvalidCredentialsError, match="empty, or not ASCII"):
        extract(InCookie("key"), scope(("cookie", line)))


def test_a_request_has_a_bounded_number_of_cookies() -> None:
    line = b"a=b;" * 510
    assert extract(InCookie("key"), scope(("cookie", line + b"a=b"), ("cookie", b"key=secret"))) == "secret"
    for lines in ([line + b"a=b;a=b", b"key=secret"], [b"key=secret", *([b"a=b"] * 512)]):
        with pytest.raises(InvalidCredentialsError, match="more than 512 cookies"):
            extract(InCookie("key"), scope(*(("cookie", each) for each in lines)))


def test_the_value_of_a_cookie_is_all_behind_the_first_equals_sign() -> None:
    assert extract(InCookie("key"), scope(("cookie", b"key=a=b=; c=d"))) == "a=b="


# From the card


def api_key(location: str, parameter: str) -> ApiKeyScheme:
    return ApiKeyScheme(name="k", location=location, parameter=parameter)


@walk(
    ("scheme", "place"),
    [
        (api_key("header", "X-API-Key"), InHeader("X-API-Key")),
        (api_key("query", "api_key"), InQuery("api_key")),
        (api_key("cookie", "sid"), InCookie("sid")),
        (HttpScheme(name="b", scheme="bearer"), HttpAuthorization("bearer")),
        (OAuth2Scheme(name="o", flows=(), metadata_url=None), HttpAuthorization("bearer")),
        (OpenIdConnectScheme(name="o", discovery_url="https://i/d"), HttpAuthorization("bearer")),
    ],
)
def test_the_card_says_where(scheme: SecurityScheme, place: object) -> None:
    assert extractor_for(scheme) == place


@walk(
    "name",
    [
        "Host",
        "cookie",
        "Set-Cookie",
        "Authorization",
        "Proxy-Authorization",
        "Connection",
        "Transfer-Encoding",
        "Content-Length",
        "content-type",
        "Upgrade",
        "TE",
        "Accept",
        "Accept-Encoding",
        "Forwarded",
        "X-Forwarded-For",
        "X-Forwarded-Anything",
        "X-Real-IP",
        "Via",
        "Origin",
        "Sec-WebSocket-Protocol",
        "A2A-Version",
        "X_API_Key",
        "X-API-Key\r\nX-Evil",
        "X API Key",
        " X-API-Key",
        "X-API-Key:",
        "X-Schlüssel",
        "",
        "X-API-Key\n",
        '"',
    ],
)
def test_a_key_in_an_unsafe_header_does_not_start_and_the_text_mends_it(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        extractor_for(api_key("header", name))
    assert '{"location": "header", "name": "X-API-Key"}' in str(caught.value)
    assert "\r" not in str(caught.value)


@walk("location", ["query", "cookie"])
@walk("name", ["a b", "a=b", "a&b", "a;b", "ü", "a%62", "a\n", "", "a+b", "a,b", "a[]"])
def test_an_ambiguous_name_of_a_parameter_does_not_start(location: str, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"use letters, digits and - \. _ ~"):
        extractor_for(api_key(location, name))


@walk(
    "scheme",
    [
        HttpScheme(name="s", scheme="digest"),
        HttpScheme(name="s", scheme="dpop"),
        NamedScheme(name="s"),
    ],
)
def test_what_cannot_be_enforced_does_not_start(scheme: SecurityScheme) -> None:
    with pytest.raises(ConfigurationError, match=r"scheme s: .* cannot be enforced; declare an API key, HTTP bearer"):
        extractor_for(scheme)


# Basic

BASIC = HttpAuthorization("basic")


@walk("scheme", [b"Basic", b"basic", b"BASIC"])
def test_the_credential_of_basic_is_taken_as_it_came(scheme: bytes) -> None:
    assert extractor_for(HttpScheme(name="s", scheme="basic")) == BASIC
    assert str(BASIC) == "Authorization: basic"
    assert extract(BASIC, scope(("Authorization", scheme + b" YTpi"))) == "YTpi"
    assert extract(BASIC, scope(("Authorization", b"Bearer YTpi"))) is None
    assert extract(TOKEN, scope(("Authorization", scheme + b" YTpi"))) is None


@walk("value", [b"Basic", b"Basic  YTpi", b"Basic YTpi, Basic YTpi", b"Basic a:b", b'Basic "YTpi"'])
def test_oddly_written_credentials_of_basic_are_refused(value: bytes) -> None:
    with pytest.raises(InvalidCredentialsError, match="expected a scheme, one blank and one credential"):
        extract(BASIC, scope(("authorization", value)))
