"""Fetches the extended card with credentials, and verifies it: it must not lead further than the public card.

The credentials go to one URL: an interface of the verified card, over https, on the host of the card. Over http they go
only to this machine, if the card has no https interface there, and if the fetcher permits it. The paths and methods are
those of ``a2a_trust.middleware.extended_card``. Source: A2A 1.0.1 3.1.11, 13.3.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from a2a_trust import strict_json
from a2a_trust.card.operations import EXTENDED_CARD_0_2, EXTENDED_CARD_METHODS, EXTENDED_CARD_PATHS, Binding
from a2a_trust.card.schema import Generation
from a2a_trust.card.view import Interface, read_card
from a2a_trust.client.destinations import Reach, check_extension
from a2a_trust.client.flow import Flow, Get, HiddenHeaders, run, run_async
from a2a_trust.client.verification import DEFAULTS, FetchOptions, Verification
from a2a_trust.errors import ConfigurationError, FetchError, MalformedError
from a2a_trust.keys.origins import interface_host, is_unencrypted, url_of
from a2a_trust.keys.trust import TrustSource
from a2a_trust.net.addresses import is_this_machine
from a2a_trust.net.urls import has_dot_segment
from a2a_trust.signing.verify import VerifiedCard

_VERSION: Final = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}")
_CALL_ID: Final = "extended-card"


def fetch_extended_card(
    card: VerifiedCard,
    trust: TrustSource,
    *,
    credentials: Mapping[str, str],
    tenant: str = "",
    options: FetchOptions = DEFAULTS,
) -> VerifiedCard:
    """The extended card of the agent whose public card is ``card``, to use in its place.

    ``credentials`` are headers, such as ``{"Authorization": "Bearer …"}``; they are sent only to one interface of the
    card. ``tenant`` is the tenant, unless the card names one. ``trust`` and ``options`` are as in ``fetch_card``.

    FetchError: the card promises no extended card, or it cannot be fetched (``status`` 401 or 403: not with these
    credentials). MalformedError, CardVerificationError: one of the two cards is not verified now, or the extended one
    names origins of interfaces, or URLs for credentials, that the public card does not name.
    """
    credentials = HiddenHeaders(credentials)
    return run(_extending(card, Verification.by(options, trust), credentials, tenant), options.fetcher)


async def async_fetch_extended_card(
    card: VerifiedCard,
    trust: TrustSource,
    *,
    credentials: Mapping[str, str],
    tenant: str = "",
    options: FetchOptions = DEFAULTS,
) -> VerifiedCard:
    """As ``fetch_extended_card``, on the running event loop."""
    credentials = HiddenHeaders(credentials)
    return await run_async(_extending(card, Verification.by(options, trust), credentials, tenant), options.fetcher)


def _extending(
    card: VerifiedCard, verification: Verification, credentials: Mapping[str, str], tenant: str
) -> Flow[VerifiedCard]:
    verification = verification.without_memory()
    card, _ = yield from verification.verify_again(card)  # the request has credentials for what it names
    request = _request(card, credentials, tenant)
    fetched = yield request
    document = fetched.body if request.content is None else _result(fetched.body)
    public = Reach.of(read_card(card.card))
    extended, _ = yield from verification.verify_signatures(document, request.url)
    check_extension(public, Reach.of(read_card(extended.card)))
    return extended


def _request(card: VerifiedCard, credentials: Mapping[str, str], tenant: str) -> Get:
    """The request for the extended card."""
    if card.origin is None:
        raise ConfigurationError(
            "card: it was verified without a host, so credentials cannot be bound to it; verify it with its URL as "
            "origin=, and with keys that have origins"
        )
    view = read_card(card.card)
    if not view.has_extended_card:
        raise FetchError("the card promises no extended card (capabilities.extendedAgentCard)")
    for interface in sorted(view.interfaces, key=lambda interface: is_unencrypted(interface.url)):
        scheme, host = url_of(interface.url).scheme, interface_host(interface.url)
        is_safe = scheme == "https" or (scheme == "http" and is_this_machine(host))
        if host == card.origin and is_safe and interface.binding in (Binding.JSONRPC, Binding.HTTP_JSON):
            url, headers, content = _asked(interface, tenant)
            return Get(url=url, headers={**headers, **credentials}, content=content)
    raise FetchError(
        f"the card has no interface of HTTP+JSON or JSON-RPC over https on its own host {card.origin}, and credentials "
        "are sent to no other host"
    )


def _asked(interface: Interface, tenant: str) -> tuple[str, dict[str, str], bytes | None]:
    """URL, headers and body of the request to this interface for the extended card."""
    named = interface.tenant or tenant
    generation = Generation.V0_3 if interface.is_legacy else Generation.V1_0  # one of 0.1 is asked as one of 0.3
    headers: dict[str, str] = {}
    call: dict[str, Any] = {"jsonrpc": "2.0", "id": _CALL_ID, "method": EXTENDED_CARD_METHODS[generation]}
    path = EXTENDED_CARD_0_2 if interface.version.startswith("0.2") else EXTENDED_CARD_PATHS[generation]
    if not interface.is_legacy:
        # The header by which servers know a client of 1.0 (A2A 1.0.1 3.6.1).
        headers["A2A-Version"] = interface.version if _VERSION.fullmatch(interface.version) else "1.0"
        call["params"] = {"tenant": named} if named else {}
        path = f"/{quote(named, safe='')}{path}" if named else path
    if interface.binding == Binding.JSONRPC:
        return interface.url, headers, json.dumps(call).encode()
    if has_dot_segment(path):
        raise (MalformedError if interface.tenant else ConfigurationError)(
            f"tenant: {ascii(named)[:80]} makes the URL ambiguous, because it has a dot segment; write another name"
        )
    return f"{interface.url.rstrip('/')}{path}", headers, None


def _result(body: bytes) -> dict[str, Any]:
    """The card in an answer of JSON-RPC; FetchError for an error in its place."""
    answer = strict_json.parse(body, what="answer")
    if type(answer) is not dict or (answer.get("result") is None) == (answer.get("error") is None):
        raise MalformedError("answer: it is not JSON-RPC: expected either a result or an error")
    error = answer.get("error")
    if error is not None:
        code = error.get("code") if type(error) is dict else None
        raise FetchError(
            f"the agent has no extended card for these credentials (error {code if type(code) is int else '?'})"
        )
    result = answer["result"]
    if answer.get("id") != _CALL_ID or type(result) is not dict:
        raise MalformedError("answer: its id is that of another request, or its result is not a card")
    return result
