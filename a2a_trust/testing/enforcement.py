"""A probe of an application in memory, for unit tests of agents."""

from __future__ import annotations

import asyncio
from typing import Final

from a2a_trust.base import strict_json
from a2a_trust.base.net.fetcher import AnyAnswer
from a2a_trust.card.given import GivenCard, read_given
from a2a_trust.card.view import read_card
from a2a_trust.client.answer import Credentials, check_credentials
from a2a_trust.client.destinations import Destination
from a2a_trust.errors import FetchError
from a2a_trust.middleware.documents import ASGIApp
from a2a_trust.probe.probing import Prober
from a2a_trust.probe.requests import ProbeRequest
from a2a_trust.testing.agents import memory_client

_SECONDS: Final = 10.0


async def assert_enforced(app: ASGIApp, *, card: GivenCard, credentials: Credentials | None = None) -> None:
    """Probe ``app`` at the interfaces of ``card``, as ``a2a-sign probe`` does, without a server.

    ``credentials`` are valid ones by the names of schemes. AssertionError: a requirement is not enforced, or the probe
    cannot tell; the text has the exchanges that show it.
    """
    check_credentials(credentials or {})
    document = read_given(card)
    parsed = strict_json.parse(document, what="card") if isinstance(document, bytes) else dict(document)
    view = read_card(parsed)
    origin = Destination.origin_of(view.interfaces[0].url) if view.interfaces else "https://agent.test"
    async with memory_client(app, base_url=origin) as http:

        async def send(request: ProbeRequest, url: str, headers: dict[str, str]) -> AnyAnswer:
            headers = {"Content-Type": "application/json", **headers}
            call = http.request(request.method, url, headers=headers, content=request.content)
            try:
                answer = await asyncio.wait_for(call, _SECONDS)
            except Exception as error:  # noqa: BLE001  of the application, or a stream without end
                raise FetchError(f"{request.operation}: no answer ({type(error).__name__})") from None
            return AnyAnswer(status=answer.status_code, headers=dict(answer.headers), body=answer.content)

        prober = Prober(view=view, card=parsed, send=send, origins={origin}, given=credentials or {})
        rows, _ = await prober.run()
    doubtful = [row for row in rows if row.verdict != "enforced"]
    if doubtful or not rows:
        lines = [f"{row.requirement} at {row.interface.url}: {row.verdict}: {row.reason}" for row in doubtful]
        proofs = ["".join(f"\n    {proof}" for proof in row.proof) for row in doubtful]
        raise AssertionError("\n".join(["the card is not enforced", *map(str.__add__, lines, proofs)]))
