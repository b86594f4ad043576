"""The elements of Envoy's header: which one counts, and which prove nothing."""

from __future__ import annotations

import contextlib
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.auth.certificate.proxy_forms import Envoy
from a2a_trust.errors import InvalidCredentialsError
from tests.middleware.proxies.told import ANN, BOB, chain, escaped, xfcc
from tests.tables import walk

GOOD = xfcc(ANN)


@walk(
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


@walk(
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
