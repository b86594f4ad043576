"""A probe of an application in memory, for unit tests of agents."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from a2a_trust import strict_json
from a2a_trust.card.given import GivenCard, given_card
from a2a_trust.card.view import read_card
from a2a_trust.client.answer import Credentials, check_credentials
from a2a_trust.client.destinations import Destination
from a2a_trust.errors import FetchError
from a2a_trust.middleware.documents import ASGIApp
from a2a_trust.net.fetcher import AnyAnswer
from a2a_trust.probe.probing import Prober, Session
from a2a_trust.probe.requests import ProbeRequest
from a2a_trust.probe.verdicts import Verdict
from a2a_trust.testing.agents import memory_client

_SECONDS: Final = 10.0
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


async def assert_enforced(app: ASGIApp, *, card: GivenCard, credentials: Credentials = _NOTHING) -> None:
    """Probe ``app`` at the interfaces of ``card``, as ``a2a-sign probe`` does, without a server.

    ``credentials`` are valid ones by the names of schemes. AssertionError: a requirement is not enforced, or the probe
    cannot tell; the text has the exchanges that show it.
    """
    check_credentials(credentials)
    given = given_card(card)
    parsed = strict_json.parse(given, what="card") if isinstance(given, bytes) else dict(given)
    view = read_card(parsed)
    origin = Destination.origin_of(view.interfaces[0].url) if view.interfaces else "https://agent.test"
    async with memory_client(app, base_url=origin) as http:

        async def send(request: ProbeRequest, url: str, headers: dict[str, str]) -> AnyAnswer:
            json_type = {"Content-Type": "application/json"} if request.content is not None else {}
            call = http.request(request.method, url, headers={**json_type, **headers}, content=request.content)
            try:
                answer = await asyncio.wait_for(call, _SECONDS)
            except Exception as error:  # noqa: BLE001  of the application, or a stream without end
                raise FetchError(f"{request.operation}: no answer ({type(error).__name__})") from None
            named = {name.lower(): value for name, value in answer.headers.items()}
            return AnyAnswer(status=answer.status_code, headers=named, body=answer.content)

        session = Session(send, until=math.inf, interval=0.0)
        report = await Prober(view=view, card=parsed, session=session, origins={origin}, given=credentials).run(
            origin, ""
        )
    lines = [
        f"{row.interface.binding} {row.interface.url}, {row.requirement or 'no requirement'}: "
        f"{row.verdict}: {row.reason}" + "".join(f"\n    {proof}" for proof in row.proof)
        for row in report.requirements
        if row.verdict is not Verdict.ENFORCED
    ]
    if report.verdict is not Verdict.ENFORCED:
        raise AssertionError("\n".join(["the card is not enforced", *lines]))
