"""Every form in which a proxy tells of a client's certificate: round trips, the words for none, and all the rest."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from urllib.parse import quote, unquote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, KeySourceUnavailableError
from a2a_trust.middleware.peer import Networks, with_peer
from a2a_trust.middleware.proxies.certificate_only import AwsAlb, Caddy, Rfc9440, Traefik
from a2a_trust.middleware.proxies.envoy import Envoy
from a2a_trust.middleware.proxies.form import ProxyForm
from a2a_trust.middleware.proxies.from_proxy import FromProxy, ProxySecret, UnixSocket
from a2a_trust.middleware.proxies.with_verdict import Apache, HAProxy, Nginx

SECRET = "0123456789abcdef0123456789abcdef"
_KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))  # the same certificates, and so names of tests, in every run
_FROM = datetime(2026, 1, 1, tzinfo=UTC)


def certificate(payload: bytes = b"") -> bytes:
    """A certificate, DER, with these bytes in it."""
    name = x509.Name([])
    built = x509.CertificateBuilder(name, name, _KEY.public_key(), 1, _FROM, _FROM + timedelta(1))
    built = built.add_extension(x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), payload), critical=False)
    return built.sign(_KEY, None).public_bytes(Encoding.DER)


ANN, BOB = certificate(b"ann"), certificate(b"bob")


def b64(der: bytes) -> str:
    return base64.b64encode(der).decode()


def pem(*ders: bytes, newline: str = "\n") -> str:
    lines = []
    for der in ders:
        text = b64(der)
        body = [text[at : at + 64] for at in range(0, len(text), 64)]
        lines += ["-----BEGIN CERTIFICATE-----", *body, "-----END CERTIFICATE-----"]
    return newline.join([*lines, ""])


def escaped(*ders: bytes) -> str:
    return quote(pem(*ders), safe="")


def xfcc(der: bytes, *more: str) -> str:
    return ";".join([f"Hash={hashlib.sha256(der).hexdigest()}", f'Cert="{escaped(der)}"', *more])


Headers = list[tuple[str, str]]


@dataclass(frozen=True)
class Told:
    """How a form tells of a chain, written here without its decoder, and its words for none."""

    form: ProxyForm
    tell: Callable[[tuple[bytes, ...]], Headers]
    none: tuple[Headers, ...]
    chains: bool = False


NGINX_NONE: Headers = [("X-SSL-Client-Verify", "NONE")]
TOLD: dict[str, Told] = {
    "rfc9440": Told(
        Rfc9440(),
        lambda chain: (
            [("Client-Cert", f":{b64(chain[0])}:")]
            + ([("Client-Cert-Chain", ", ".join(f":{b64(der)}:" for der in chain[1:]))] if chain[1:] else [])
        ),
        ([],),
        chains=True,
    ),
    "nginx": Told(
        Nginx(),
        lambda chain: [("X-SSL-Client-Cert", escaped(chain[0])), ("X-SSL-Client-Verify", "SUCCESS")],
        ([], NGINX_NONE, [*NGINX_NONE, ("X-SSL-Client-Cert", "")]),
    ),
    "haproxy": Told(
        HAProxy(),
        lambda chain: [
            ("X-SSL-Client-Cert", b64(chain[0])),
            ("X-SSL-Client-Used", "1"),
            ("X-SSL-Client-Verify", "0"),
        ],
        (
            [],
            [("X-SSL-Client-Cert", ""), ("X-SSL-Client-Used", "0"), ("X-SSL-Client-Verify", "0")],
            [("X-SSL-Client-Cert", "::"), ("X-SSL-Client-Used", "0"), ("X-SSL-Client-Verify", "0")],
            [("X-SSL-Client-Cert", ""), ("X-SSL-Client-Used", ""), ("X-SSL-Client-Verify", "")],
        ),
    ),
    "haproxy-colons": Told(
        HAProxy(),
        lambda chain: [
            ("X-SSL-Client-Cert", f":{b64(chain[0])}:"),
            ("X-SSL-Client-Used", "1"),
            ("X-SSL-Client-Verify", "0"),
        ],
        (),
    ),
    "apache": Told(
        Apache(),
        lambda chain: [("X-SSL-Client-Cert", pem(chain[0], newline=" ")), ("X-SSL-Client-Verify", "SUCCESS")],
        (
            [],
            [("X-SSL-Client-Cert", "(null)"), ("X-SSL-Client-Verify", "NONE")],
            [("X-SSL-Client-Cert", "(null)"), ("X-SSL-Client-Verify", "(null)")],
            [("X-SSL-Client-Cert", ""), ("X-SSL-Client-Verify", "NONE")],
        ),
    ),
    "caddy": Told(
        Caddy(),
        lambda chain: [("X-SSL-Client-Cert", b64(chain[0]))],
        (
            [],
            [("X-SSL-Client-Cert", "")],
            [("X-SSL-Client-Cert", "{http.request.tls.client.certificate_der_base64}")],
        ),
    ),
    "envoy": Told(Envoy(), lambda chain: [("X-Forwarded-Client-Cert", xfcc(chain[0]))], ([],)),
    "envoy-chain": Told(
        Envoy(),
        lambda chain: [
            (
                "X-Forwarded-Client-Cert",
                xfcc(chain[0], f'Chain="{escaped(*chain)}"', 'Subject="CN=a\\"b\\,c\\;d\\\\"', "URI=spiffe://a/b"),
            )
        ],
        (),
        chains=True,
    ),
    "traefik": Told(
        Traefik(),
        lambda chain: [("X-Forwarded-Tls-Client-Cert", ",".join(map(b64, chain)))],
        ([("X-Forwarded-Tls-Client-Cert", "none")],),
        chains=True,
    ),
    "aws": Told(
        AwsAlb(),
        lambda chain: [("X-Amzn-Mtls-Clientcert-Leaf", quote(pem(chain[0]), safe="+=/"))],
        ([],),
    ),
}
FORMS = pytest.mark.parametrize("told", TOLD.values(), ids=TOLD)
HEADERS = sorted({name for told in TOLD.values() for name in told.form.names})


def scope(headers: Headers, **more: Any) -> dict[str, Any]:
    lines = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    return {"type": "http", "headers": lines, **more}


def source(form: ProxyForm) -> FromProxy:
    return FromProxy(form, peers=ProxySecret(secret=SECRET))


def chain(form: ProxyForm, headers: Headers) -> tuple[bytes, ...]:
    return source(form).chain(scope([("X-Proxy-Secret", SECRET), *headers]))


@FORMS
@given(payload=st.binary(max_size=2000))
def test_what_the_proxy_was_shown_comes_out(told: Told, payload: bytes) -> None:
    der = certificate(payload)
    assert chain(told.form, told.tell((der,))) == (der,)
    if told.chains:
        assert chain(told.form, told.tell((der, ANN, BOB))) == (der, ANN, BOB)


@FORMS
def test_its_words_for_none(told: Told) -> None:
    for headers in told.none:
        assert chain(told.form, headers) == ()


_VALUES = st.one_of(
    st.sampled_from(
        [
            "",
            "NONE",
            "SUCCESS",
            "GENEROUS",
            "FAILED:expired",
            "0",
            "1",
            "::",
            ":",
            "(null)",
            "none",
            "None",
            "{}",
            "null",
        ]
    ),
    st.text(st.characters(max_codepoint=255), max_size=60),
    st.sampled_from([value for told in TOLD.values() for _, value in told.tell((ANN,))]),
)


@FORMS
@given(data=st.data())
def test_anything_else_is_refused(told: Told, data: st.DataObject) -> None:
    drawn = data.draw(st.dictionaries(st.sampled_from(told.form.names), _VALUES, min_size=1))
    try:
        found = chain(told.form, [*drawn.items()])
    except InvalidCredentialsError:
        return
    (name, _), *verdicts = told.tell((ANN,))
    if found:
        assert set(found) == {ANN}
        assert {(verdict, drawn[verdict].strip(" \t")) for verdict, _ in verdicts} == set(verdicts)
    else:
        words = [value for headers in told.none for of, value in headers if of == name]
        assert drawn.get(name, "").strip(" \t") in ("", "::", *words)


@FORMS
@given(data=st.data())
def test_what_comes_out_is_what_stands_there(told: Told, data: st.DataObject) -> None:
    headers = told.tell((ANN,))
    index = data.draw(st.integers(0, len(headers) - 1))
    name, value = headers[index]
    at = data.draw(st.integers(0, len(value)))
    text = data.draw(st.text(st.characters(max_codepoint=255), max_size=2))
    changed = value[:at] + text + value[at + data.draw(st.integers(0, 2)) :]
    try:
        found = chain(told.form, [*headers[:index], (name, changed), *headers[index + 1 :]])
    except InvalidCredentialsError:
        return
    stands = re.sub("[\n ]", "", unquote(changed)) if index == 0 else unquote(headers[0][1]).replace("\n", "")
    assert [der for der in found if b64(der) not in stands.replace(" ", "")] == []


@FORMS
def test_a_header_that_came_twice(told: Told) -> None:
    for headers in (told.tell((ANN,)), *told.none):
        for line in headers:
            with pytest.raises(InvalidCredentialsError, match="more than once"):
                chain(told.form, [*headers, line])


@FORMS
def test_an_underscore_for_a_hyphen(told: Told) -> None:
    for headers in (told.tell((ANN,)), []):
        for name in told.form.names:
            for alias in (name.replace("-", "_"), name.replace("-", "_", 1)):
                with pytest.raises(InvalidCredentialsError, match="underscores"):
                    chain(told.form, [*headers, (alias, "x")])


@FORMS
def test_a_verdict_that_is_missing_or_bad(told: Told) -> None:
    headers = told.tell((ANN,))
    for index, (name, _) in enumerate(headers):
        if name in ("X-SSL-Client-Verify", "X-SSL-Client-Used"):
            rest = [*headers[:index], *headers[index + 1 :]]
            with pytest.raises(InvalidCredentialsError, match="does not say"):
                chain(told.form, rest)
            for bad in ("", "NONE", "GENEROUS", "FAILED:unable to verify", "success", "10", "00", "(null)", "SUCCES"):
                with pytest.raises(InvalidCredentialsError, match="the proxy says"):
                    chain(told.form, [*rest, (name, bad)])


@pytest.mark.parametrize("form", [Nginx(), HAProxy(), Apache()], ids=repr)
def test_a_good_verdict_without_a_certificate(form: ProxyForm) -> None:
    told = next(told for told in TOLD.values() if told.form == form)
    verdicts = told.tell((ANN,))[1:]
    for headers in (verdicts, [("X-SSL-Client-Cert", ""), *verdicts]):
        with pytest.raises(InvalidCredentialsError):
            chain(form, headers)


@pytest.mark.parametrize(
    ("form", "headers"),
    [
        (Rfc9440(), [("Client-Cert-Chain", f":{b64(ANN)}:")]),
        (Rfc9440(), [("Client-Cert", "::")]),
        (Rfc9440(), [("Client-Cert", ":")]),
        (Rfc9440(), [("Client-Cert", f":{b64(ANN)}:;a=1")]),
        (Rfc9440(), [("Client-Cert", f":{b64(ANN)}:, :{b64(BOB)}:")]),
        (Rfc9440(), [("Client-Cert", f":{b64(ANN)}:"), ("Client-Cert-Chain", "")]),
        (Rfc9440(), [("Client-Cert", f":{b64(ANN)}:"), ("Client-Cert-Chain", f":{b64(BOB)}:,")]),
        (Nginx(), [("X-SSL-Client-Cert", escaped(ANN, BOB)), ("X-SSL-Client-Verify", "SUCCESS")]),
        (Nginx(), [("X-SSL-Client-Cert", "(null)"), ("X-SSL-Client-Verify", "NONE")]),
        (Nginx(), [("X-SSL-Client-Cert", escaped(ANN)), ("X-SSL-Client-Verify", "NONE")]),
        (Nginx(), [("X-SSL-Client-Cert", pem(ANN, newline=" ")), ("X-SSL-Client-Verify", "SUCCESS")]),
        (Nginx(), [("X-SSL-Client-Cert", escaped(ANN) + "%"), ("X-SSL-Client-Verify", "SUCCESS")]),
        (Nginx(), [("X-SSL-Client-Cert", escaped(ANN).replace("%20", " ")), ("X-SSL-Client-Verify", "SUCCESS")]),
        (AwsAlb(), [("X-Amzn-Mtls-Clientcert-Leaf", escaped(ANN, BOB))]),
        (AwsAlb(), [("X-Amzn-Mtls-Clientcert-Leaf", "")]),
        (AwsAlb(), [("X-Amzn-Mtls-Clientcert-Leaf", escaped(ANN).replace("%20", "+"))]),
        (Caddy(), [("X-SSL-Client-Cert", "{http.request.tls.client.certificate_pem}")]),
        (Caddy(), [("X-SSL-Client-Cert", b64(ANN + b"\0"))]),
        (Caddy(), [("X-SSL-Client-Cert", b64(ANN + BOB))]),
        (Caddy(), [("X-SSL-Client-Cert", b64(ANN[:-1]))]),
        (Caddy(), [("X-SSL-Client-Cert", b64(b"0\0"))]),
        (Caddy(), [("X-SSL-Client-Cert", base64.b64encode(ANN).hex())]),
        (Caddy(), [("X-SSL-Client-Cert", base64.urlsafe_b64encode(certificate(b"\xff\xfe" * 9)).decode())]),
        (Traefik(), [("X-Forwarded-Tls-Client-Cert", "")]),
        (Traefik(), [("X-Forwarded-Tls-Client-Cert", f"{b64(ANN)},none")]),
        (Traefik(), [("X-Forwarded-Tls-Client-Cert", f"none,{b64(ANN)}")]),
        (Traefik(), [("X-Forwarded-Tls-Client-Cert", f"{b64(ANN)}, {b64(BOB)}")]),
        (HAProxy(), [("X-SSL-Client-Used", "1"), ("X-SSL-Client-Verify", "0")]),
        (HAProxy(), [("X-SSL-Client-Cert", b64(ANN)), ("X-SSL-Client-Used", "0"), ("X-SSL-Client-Verify", "0")]),
    ],
)  # fmt: skip
def test_what_is_no_word_of_the_proxy(form: ProxyForm, headers: Headers) -> None:
    with pytest.raises(InvalidCredentialsError):
        chain(form, headers)


@pytest.mark.parametrize("name", ["rfc9440", "haproxy", "caddy", "traefik"])
def test_base64_has_one_spelling(name: str) -> None:
    told = TOLD[name]
    der = next(der for size in range(3) if b64(der := certificate(bytes(size))).endswith("=="))
    (header, value), *rest = told.tell((der,))
    end = value.index("==")
    for last in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/":
        other = f"{value[: end - 1]}{last}{value[end:]}"
        if base64.b64decode(other.strip(":")) == der and other != value:
            with pytest.raises(InvalidCredentialsError):
                chain(told.form, [(header, other), *rest])
    for other in (value.replace("=", ""), value.replace("==", "="), value.replace("==", "===")):
        with pytest.raises(InvalidCredentialsError):
            chain(told.form, [(header, other), *rest])
    assert chain(told.form, [(header, value), *rest]) == (der,)


GOOD = xfcc(ANN)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "none",
        "URI=spiffe://ann",
        f"Hash={hashlib.sha256(ANN).hexdigest()};URI=spiffe://ann",  # without Cert it proves no certificate
        f'Cert="{escaped(ANN)}"',
        f'Hash={hashlib.sha256(BOB).hexdigest()};Cert="{escaped(ANN)}"',
        f'Hash=;Cert="{escaped(ANN)}"',
        f'{GOOD};Cert="{escaped(BOB)}"',
        f'{GOOD};cert="{escaped(ANN)}"',
        f"{GOOD};Hash={hashlib.sha256(BOB).hexdigest()}",
        f'{GOOD};Chain="{escaped(BOB, ANN)}"',
        f'{GOOD};Chain=""',
        f'{GOOD};Chain="{escaped(ANN, BOB)}";Chain="{escaped(ANN)}"',
        xfcc(ANN).replace(escaped(ANN), escaped(ANN, BOB)),
        f"{GOOD},",
        f"{GOOD};",
        f",{GOOD}",
        f"{GOOD},By=spiffe://proxy",
        f'{GOOD};Subject="CN=ann',
        f'{GOOD};Subject="CN=ann"x',
        f'{GOOD};Subject=CN="ann"',
        f'{GOOD};Subject="CN=a"b"',
        f"{GOOD};URI",
        f"{GOOD} ",
        # What a certificate for such a URI makes Envoy write.
        f"{xfcc(BOB)};URI=spiffe://x,{GOOD}",
        f"{xfcc(BOB)};DNS=x,{GOOD}",
        f"Hash={hashlib.sha256(BOB).hexdigest()};URI=spiffe://x,{GOOD}",
        f"{xfcc(BOB)};URI=spiffe://x;Cert=\"{escaped(ANN)}\"",
    ],
)  # fmt: skip
def test_elements_of_envoy_that_prove_nothing(value: str) -> None:
    if value == f"{GOOD} ":
        assert chain(Envoy(), [("X-Forwarded-Client-Cert", value)]) == (ANN,)  # blanks around a value mean nothing
        return
    with pytest.raises(InvalidCredentialsError):
        chain(Envoy(), [("X-Forwarded-Client-Cert", value)])


@pytest.mark.parametrize(
    "value",
    [
        f"{xfcc(BOB)},{GOOD}",
        f'By=spiffe://edge;Hash=00;Subject="CN=a,b;c=\\"",{GOOD}',
        f'{GOOD};Subject="O=a, b,Hash=1;Cert=2"',
        f"By=spiffe://proxy/a=b;{GOOD}",
        f"{GOOD};URI=spiffe://a?b=c;URI=spiffe://d;DNS=a;DNS=b",
        GOOD.replace("Hash=", "hash=").replace("Cert=", "CERT="),
        GOOD.replace(hashlib.sha256(ANN).hexdigest(), hashlib.sha256(ANN).hexdigest().upper()),
    ],
)
def test_the_last_element_of_envoy_counts_and_quoted_commas_split_nothing(value: str) -> None:
    assert chain(Envoy(), [("X-Forwarded-Client-Cert", value)]) == (ANN,)


@given(before=st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S", "Zs"]), max_size=80))
def test_nothing_in_front_of_an_appended_element_changes_whose_it_is(before: str) -> None:
    """Where Envoy appends, the client has written what comes before."""
    for value in (f"{before},{GOOD}", f"{xfcc(BOB)}{before},{GOOD}", f'{before}",{GOOD}'):
        with contextlib.suppress(InvalidCredentialsError):
            assert chain(Envoy(), [("X-Forwarded-Client-Cert", value)]) == (ANN,)


# Who sent it


def recorded(address: str | None, *, unix: bool = False) -> dict[str, Any]:
    """The extensions that a server of ours writes."""
    seen: dict[str, Any] = {}

    async def app(scope: Any, *_: Any) -> None:
        seen.update(scope["extensions"])

    none: Any = None
    asyncio.run(cast("Any", with_peer(app, address, unix=unix)({"type": "http"}, none, none)))
    return seen


TELLING = TOLD["nginx"].tell((ANN,))
INNER = FromProxy(Nginx(), peers=Networks("10.0.0.5", "fd00::/8"))


@pytest.mark.parametrize("address", ["10.0.0.5", "fd00::1", "::ffff:10.0.0.5"])
def test_the_proxy_by_its_address(address: str) -> None:
    assert INNER.chain(scope(TELLING, extensions=recorded(address))) == (ANN,)


@pytest.mark.parametrize("address", ["10.0.0.6", "127.0.0.1", "::1", "fe80::1%eth0", None])
def test_another_peer_that_tells_of_a_certificate(address: str | None) -> None:
    for headers in (TELLING, NGINX_NONE, [("X_SSL_Client_Cert", "x")]):
        with pytest.raises(InvalidCredentialsError, match="is not the proxy"):
            INNER.chain(scope(headers, extensions=recorded(address), client=("10.0.0.5", 1)))
    assert INNER.chain(scope([], extensions=recorded(address))) == ()


@pytest.mark.parametrize("extensions", [None, {}, {"tls": {"client_cert_chain": []}}])
@pytest.mark.parametrize("peers", [Networks("10.0.0.5"), UnixSocket()], ids=repr)
def test_a_server_that_records_no_peer_is_no_refusal(peers: Any, extensions: Any) -> None:
    told = scope(TELLING, extensions=extensions, client=("10.0.0.5", 1))
    with pytest.raises(KeySourceUnavailableError, match=r"a2a_trust\.servers\.uvicorn:HttpToolsProtocol"):
        FromProxy(Nginx(), peers=peers).chain(told)
    assert FromProxy(Nginx(), peers=peers).chain(scope([], extensions=extensions)) == ()


def test_the_proxy_by_its_unix_socket() -> None:
    by_socket = FromProxy(Nginx(), peers=UnixSocket())
    assert by_socket.chain(scope(TELLING, extensions=recorded(None, unix=True))) == (ANN,)
    for address in ("127.0.0.1", None):  # a connection that is gone has no address either
        with pytest.raises(InvalidCredentialsError, match="no unix socket"):
            by_socket.chain(scope(TELLING, extensions=recorded(address)))


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [("X-Proxy-Secret", "")],
        [("X-Proxy-Secret", SECRET[:-1])],
        [("X-Proxy-Secret", SECRET + "0")],
        [("X-Proxy-Secret", SECRET.upper())],
        [("X-Proxy-Secret", SECRET), ("X-Proxy-Secret", SECRET)],
        [("X-Proxy-Secret", "other"), ("X-Proxy-Secret", SECRET)],
        [("X-Proxy-Secret", SECRET), ("X_Proxy_Secret", SECRET)],
        [("X_Proxy_Secret", SECRET)],
        [("X-Proxy-Secret", f"{SECRET}, {SECRET}")],
        [("X-Other-Secret", SECRET)],
    ],
)
def test_a_wrong_secret(lines: Headers) -> None:
    with pytest.raises(InvalidCredentialsError, match="X-Proxy-Secret") as refused:
        source(Nginx()).chain(scope([*TELLING, *lines], extensions=recorded("127.0.0.1")))
    assert SECRET not in str(refused.value)


def test_trailers_of_a_server_that_may_take_them_for_headers() -> None:
    told = [*TELLING, ("X-Proxy-Secret", SECRET), ("Transfer-Encoding", "chunked")]
    with pytest.raises(KeySourceUnavailableError, match="trailer of the body"):
        source(Nginx()).chain(scope(told))
    assert source(Nginx()).chain(scope(told, extensions=recorded(None))) == (ANN,)
    assert source(Nginx()).chain(scope(told[2:])) == ()


def test_the_secret_is_in_no_text() -> None:
    given = source(Nginx())
    assert SECRET not in repr(given) + repr(ProxySecret(secret=SECRET)) + str(given)
    with pytest.raises(ConfigurationError) as refused:
        ProxySecret(secret=SECRET[:-1])
    assert SECRET[:-1] not in str(refused.value)


@pytest.mark.parametrize(
    "secret", [None, b"a" * 32, "", "a" * 31, "a" * 31 + " ", "a" * 32 + "\n", "ä" * 32, "a" * 32 + "\0"]
)
def test_secrets_that_are_none(secret: Any) -> None:
    with pytest.raises(ConfigurationError, match="too short"):
        ProxySecret(secret=secret)


@FORMS
def test_the_application_sees_neither_the_headers_nor_the_secret(told: Told) -> None:
    assert {name.lower().encode() for name in (*told.form.names, "X-Proxy-Secret")} <= source(told.form).headers
    assert {name.lower().encode() for name in HEADERS} <= source(told.form).headers  # those of other proxies claim too


def test_traefik_must_show_that_it_overwrites_what_clients_write() -> None:
    for peers in (Networks("10.0.0.5"), UnixSocket()):
        with pytest.raises(ConfigurationError, match="passes a client's own header on; write peers=ProxySecret"):
            FromProxy(Traefik(), peers=peers)
    with pytest.raises(KeySourceUnavailableError, match="it does not overwrite that of its clients"):
        chain(Traefik(), [])
    assert source(Traefik()).chain(scope([])) == ()  # nobody that the proxy sent
    with pytest.raises(InvalidCredentialsError):
        source(Traefik()).chain(scope([("X-Forwarded-Tls-Client-Cert", b64(ANN))]))


def test_other_names_for_the_headers() -> None:
    form = Nginx(certificate="Ssl-Client-Cert", verdict="Ssl-Client-Verify")
    assert chain(form, [("SSL-Client-Cert", escaped(ANN)), ("SSL-Client-Verify", "SUCCESS")]) == (ANN,)


ANY: Any = FromProxy  # called as the type checker would not let us


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: ANY(Nginx, peers=UnixSocket()), "name the proxy's form"),
        (lambda: ANY("nginx", peers=UnixSocket()), "name the proxy's form"),
        (lambda: ANY(Nginx(), peers=UnixSocket), "say who proves to be the proxy"),
        (lambda: ANY(Nginx(), peers="10.0.0.5"), "say who proves to be the proxy"),
        (lambda: ANY(Nginx(), peers=None), "say who proves to be the proxy"),
        (lambda: Nginx(certificate="X_SSL_Client_Cert"), "letters, digits and hyphens"),
        (lambda: Nginx(certificate=""), "letters, digits and hyphens"),
        (lambda: Nginx(certificate="X-SSL-Client-Verify"), "name a header for each"),
        (lambda: HAProxy(used="x-ssl-client-verify"), "name a header for each"),
        (lambda: Apache(verdict="a:b"), "letters, digits and hyphens"),
        (lambda: Caddy(certificate="ä"), "letters, digits and hyphens"),
        (lambda: ProxySecret(secret=SECRET, header="X Secret"), "letters, digits and hyphens"),
        (
            lambda: FromProxy(Caddy(), peers=ProxySecret(secret=SECRET, header="X-SSL-Client-Cert")),
            "its header is one of the certificate's",
        ),
    ],
)
def test_wrong_use_is_told_at_start_up(wrong: Callable[[], Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        wrong()
