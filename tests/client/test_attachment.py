"""Credentials go out with a request, and are in no copy, text or repr of it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import httpx
import pytest

from a2a_trust import MalformedError, generate_signer
from a2a_trust.auth.credentials import InCookie, InHeader, InQuery
from a2a_trust.card.view import ApiKeyScheme, HttpScheme, NamedScheme, SecurityScheme
from a2a_trust.client.answer import Answer, Part
from a2a_trust.client.attachment import attach, sent_to
from a2a_trust.client.credentials import ApiKey, CredentialValue, DPoPProofs
from a2a_trust.client.decisions import attachment_of
from a2a_trust.client.messages import Attachment, Request

ORIGIN = "https://agent.example"
KEY = "k3y-4f1b9d"


def part(place: InHeader | InQuery | InCookie | None, scheme: SecurityScheme | None = None) -> Part:
    scheme = scheme or ApiKeyScheme(name="s", location="header", parameter="X-API-Key")
    credential = ApiKey(KEY, origins=[ORIGIN])
    return Part(name="s", scheme=scheme, credential=credential, scopes=frozenset(), place=place)


def sent(request: httpx.Request, name: str) -> list[str]:
    """What a transport sends in the lines of that header."""
    return [value.decode() for line, value in request.headers.raw if line.lower() == name.encode()]


def request_to(url: str = f"{ORIGIN}/rpc", **options: Any) -> httpx.Request:
    return httpx.Request("POST", url, json={"a": 1}, **options)


def values_of(request: httpx.Request) -> Request:
    return Request(method=request.method, url=sent_to(request), headers=request.headers, timeout={})


def test_a_header_replaces_that_of_the_program() -> None:
    request = request_to(headers=[("X-API-KEY", "mine"), ("x-api-key", "other"), ("Accept", "a/b")])
    attach(request, Attachment(headers=((b"x-api-key", KEY.encode()),)))
    assert sent(request, "x-api-key") == [KEY]
    assert sent(request, "accept") == ["a/b"]
    assert request.headers.get_list("x-api-key") == ["mine", "other"]  # what httpx sees


def test_a_cookie_joins_those_of_the_program() -> None:
    request = request_to(headers=[("Cookie", "a=1; key=mine;; key =x"), ("cookie", " b=2 ; c ")])
    attach(request, Attachment(cookies=(("key", KEY),)))
    assert sent(request, "cookie") == [f"a=1; b=2; c; key={KEY}"]
    alone = request_to()
    attach(alone, Attachment(cookies=(("key", KEY),)))
    assert sent(alone, "cookie") == [f"key={KEY}"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "key=a%20b%26c%3D"),
        ("?", "key=a%20b%26c%3D"),
        ("?x=1&x=2", "x=1&x=2&key=a%20b%26c%3D"),
        ("?key=mine&x=1&%6bey=also&k%65y", "x=1&key=a%20b%26c%3D"),
        ("?keys=1&&x=%26key%3D1", "keys=1&x=%26key%3D1&key=a%20b%26c%3D"),
    ],
)
def test_a_parameter_replaces_those_of_its_name(query: str, expected: str) -> None:
    request = request_to(f"{ORIGIN}/rpc{query}")
    shown = str(request.url)
    attach(request, Attachment(parameters=(("key", "a b&c="),)))
    assert request.url.raw_path.decode() == f"/rpc?{expected}"
    assert str(request.url) == shown


def test_what_is_attached_later_replaces_what_was_attached() -> None:
    request = request_to()
    for key in ("first", "second"):
        attach(
            request,
            Attachment(headers=((b"x-api-key", key.encode()),), cookies=(("key", key),), parameters=(("key", key),)),
        )
    assert (sent(request, "x-api-key"), sent(request, "cookie")) == (["second"], ["key=second"])
    assert request.url.raw_path == b"/rpc?key=second"
    attach(request, Attachment())
    assert (sent(request, "x-api-key"), sent(request, "cookie")) == ([], [])


def test_copies_texts_and_reprs_have_nothing() -> None:
    request = request_to()
    attachment = Attachment(
        headers=((b"x-api-key", KEY.encode()),), cookies=(("key", KEY),), parameters=(("key", KEY),)
    )
    attach(request, attachment)
    copies = httpx.Headers(request.headers), request.headers.copy(), httpx.URL(request.url), request.url.join("/a")
    rebuilt = httpx.Request(request.method, request.url, headers=request.headers)
    shown = [
        *map(repr, [request, request.headers, request.url, attachment, *copies]),
        *map(str, [request.url, request.headers, *copies]),
        repr([*request.headers.items(), *request.headers.multi_items(), dict(request.headers)]),
        repr([rebuilt.headers.raw, rebuilt.url.raw_path, [each.raw for each in copies[:2]]]),
        repr([each.raw_path for each in copies[2:]]),
        repr([*map(pickle.dumps, [request, httpx.Response(401, request=request)])]),
        repr([copy.deepcopy(request.headers).raw, copy.copy(request.url).raw_path]),
    ]
    assert not [each for each in shown if KEY in each]
    assert KEY.encode() in request.url.raw_path
    again = pickle.loads(pickle.dumps(request))
    assert (again.url, again.headers) == (request.url, request.headers)


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        (HttpScheme(name="s", scheme="bearer"), f"Bearer {KEY}"),
        (HttpScheme(name="s", scheme="basic"), f"Basic {KEY}"),
        (NamedScheme(name="Bearer"), f"Bearer {KEY}"),
        (NamedScheme(name="Basic"), f"Basic {KEY}"),
    ],
)
def test_the_word_in_authorization(scheme: SecurityScheme, expected: str) -> None:
    attachment = attachment_of(
        values_of(request_to()), Answer(parts=(part(None, scheme),)), [CredentialValue(KEY)], ORIGIN
    )
    assert attachment == Attachment(headers=((b"authorization", expected.encode()),))


def test_every_place_at_once() -> None:
    places = [part(each) for each in (InHeader("X-API-Key"), InQuery("key"), InCookie("Key"))]
    values = [CredentialValue(text) for text in ("a", "b", "c")]
    attachment = attachment_of(values_of(request_to()), Answer(parts=tuple(places)), values, ORIGIN)
    assert attachment == Attachment(
        headers=((b"x-api-key", b"a"),), parameters=(("key", "b"),), cookies=(("Key", "c"),)
    )


@pytest.mark.parametrize("text", ["a;b", "a b", "a,b", 'a"b', "a\\b"])
def test_a_key_that_no_cookie_can_have(text: str) -> None:
    with pytest.raises(MalformedError, match="a cookie must not have") as refused:
        attachment_of(values_of(request_to()), Answer(parts=(part(InCookie("key")),)), [CredentialValue(text)], ORIGIN)
    assert text not in str(refused.value)


def test_a_proof_is_for_the_path_that_is_sent() -> None:
    value = CredentialValue("t0ken", DPoPProofs(generate_signer("ES256")))
    request = request_to(f"{ORIGIN}/a%2Fb?x=1")
    attachment = attachment_of(
        values_of(request), Answer(parts=(part(None, HttpScheme(name="s", scheme="bearer")),)), [value], ORIGIN
    )
    (_, authorization), (name, proof) = attachment.headers
    assert (authorization, name, proof.count(b".")) == (b"DPoP t0ken", b"dpop", 2)


def test_the_url_that_a_request_is_sent_to() -> None:
    assert sent_to(request_to(f"{ORIGIN}/rpc?a=b#c")) == f"{ORIGIN}/rpc?a=b#c"
    assert sent_to(request_to("https://agent.example:443")) == f"{ORIGIN}/"
    assert sent_to(request_to(f"{ORIGIN}/%C3%BC?a=%20#%C3%BC%0A?b#c")) == f"{ORIGIN}/%C3%BC?a=%20#%C3%BC%0A?b#c"
    with pytest.raises(MalformedError, match="no host"):
        sent_to(httpx.Request("GET", "/rpc"))
    with pytest.raises(MalformedError, match="extension target"):
        sent_to(httpx.Request("GET", f"{ORIGIN}/rpc", extensions={"target": b"/other"}))


def test_a_credential_value_is_not_copied_into_a_pickle() -> None:
    value = CredentialValue(KEY)
    assert KEY not in repr(value)
    for refused in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled"):
            refused(value)
