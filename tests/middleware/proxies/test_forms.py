"""Every form in which a proxy tells of a certificate: round trips, the words for none, and all the rest."""

from __future__ import annotations

import base64
import re
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.auth.certificate.proxy_forms import Apache, AwsAlb, Caddy, HAProxy, Nginx, ProxyForm, Rfc9440, Traefik
from a2a_trust.errors import InvalidCredentialsError
from tests.middleware.proxies.told import ANN, BOB, FORMS, TOLD, Headers, Told, b64, certificate, chain, escaped, pem
from tests.tables import walk


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
            with pytest.raises(InvalidCredentialsError, match="did not send its verdict"):
                chain(told.form, rest)
            for bad in ("", "NONE", "GENEROUS", "FAILED:unable to verify", "success", "10", "00", "(null)", "SUCCES"):
                with pytest.raises(InvalidCredentialsError, match=r"the proxy.s verdict is"):
                    chain(told.form, [*rest, (name, bad)])


@pytest.mark.parametrize("form", [Nginx(), HAProxy(), Apache()], ids=repr)
def test_a_good_verdict_without_a_certificate(form: ProxyForm) -> None:
    told = next(told for told in TOLD.values() if told.form == form)
    verdicts = told.tell((ANN,))[1:]
    for headers in (verdicts, [("X-SSL-Client-Cert", ""), *verdicts]):
        with pytest.raises(InvalidCredentialsError):
            chain(form, headers)


@walk(
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


def test_other_names_for_the_headers() -> None:
    form = Nginx(certificate="Ssl-Client-Cert", verdict="Ssl-Client-Verify")
    assert chain(form, [("SSL-Client-Cert", escaped(ANN)), ("SSL-Client-Verify", "SUCCESS")]) == (ANN,)
