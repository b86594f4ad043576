"""Probes an agent: sends the requests, and collects exchanges, verdicts and findings.

The steps:

1. Fetch the card, verify it with the keys that the operator trusts, and lint it.
2. Ask each interface of JSON-RPC and HTTP+JSON: every operation without a credential, with the given one, and with a
   random one; then one operation with each other wrong credential.
3. Check the answers, the connection, and the key sets and metadata that the card names.

The limits: 60 requests for an interface, 10 requests a second, 4 interfaces, 25 seconds, 64 KiB of an answer, 40 MB.
Redirects are not followed. An interface at an origin that neither the operator nor a verified card names is not asked,
because an unsigned card can name any host.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from typing import Final, TypeAlias
from urllib.parse import quote
from uuid import uuid4

from a2a_trust.base import strict_json
from a2a_trust.base.net.addresses import is_this_machine
from a2a_trust.base.net.fetcher import AnyAnswer, Fetcher
from a2a_trust.base.net.urls import read_url
from a2a_trust.base.strict_json import JSONObject
from a2a_trust.card.operations import Binding, Operation
from a2a_trust.card.view import Alternative, ApiKeyScheme, CardView, Interface, read_card
from a2a_trust.client.answer import Credentials, check_credentials
from a2a_trust.client.destinations import Destination
from a2a_trust.client.fetching import finding as finding_card
from a2a_trust.client.flow import run_async, waited
from a2a_trust.client.messages import NOTHING, Attachment
from a2a_trust.client.verification import Verification
from a2a_trust.errors import FetchError, TrustError
from a2a_trust.keys.trust.store import TrustSource
from a2a_trust.lint.findings import Severity
from a2a_trust.lint.linter import lint_card
from a2a_trust.probe.answers import Kind, content_of, read
from a2a_trust.probe.checks import Fits, checks_of, documents_of, resource_of
from a2a_trust.probe.forgeries import Form, Own, forged, forms_for, own_of
from a2a_trust.probe.push import push_to_loopback
from a2a_trust.probe.requests import SENDING, UNKNOWN, ProbeRequest, requests_of
from a2a_trust.probe.rules import ProbeFinding, finding
from a2a_trust.probe.verdicts import Exchange, Row, Verdict, findings_of, of_agent, row_of

_MOST_REQUESTS: Final = 60
_MOST_INTERFACES: Final = 4
_MOST_DOCUMENTS: Final = 5
_MOST_BYTES: Final = 40_000_000
_SECONDS: Final = 25.0
"""After this time no request begins; with the last ones, a probe takes 30 seconds."""
_AT_ONCE: Final = 8
INTERVAL: Final = 0.1
"""Seconds between two requests."""
Sender: TypeAlias = Callable[[ProbeRequest, str, dict[str, str]], Awaitable[AnyAnswer]]
"""Sends a request to that URL, the request's own with credentials, and with these headers; FetchError: no answer."""
_Step: TypeAlias = tuple[ProbeRequest, Form, Alternative | None, Own | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """How an agent is probed.

    - ``trust``: the keys that verify the card.
    - ``credentials``: the operator's credentials by the names of schemes. Each goes only to its own origins.
    - ``lacking``: valid credentials that lack a required scope, and must be rejected.
    - ``origins``: further origins whose interfaces are asked.
    - ``fetcher``: the private origins, and the time limit of one request.
    - ``allow_tasks``: create one task, and cancel it, to see whether push notifications to 127.0.0.1 are accepted.
    """

    trust: TrustSource | None = None
    credentials: Credentials = field(default_factory=dict)
    lacking: Credentials = field(default_factory=dict)
    origins: Iterable[str] = ()
    fetcher: Fetcher | None = None
    allow_tasks: bool = False

    def __post_init__(self) -> None:
        check_credentials(self.credentials)
        check_credentials(self.lacking)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """The result for one agent. ``card`` says whether its card is verified; ``requests`` is their number."""

    url: str
    name: str
    card: str
    verdict: Verdict
    requests: int
    requirements: tuple[Row, ...]
    findings: tuple[ProbeFinding, ...]


def probe_agent(url: str, options: ProbeOptions = ProbeOptions()) -> ProbeReport:
    """Probe the agent at that URL. FetchError, MalformedError: its card cannot be fetched or read."""
    return waited(partial(async_probe_agent, url, options))


async def async_probe_agent(url: str, options: ProbeOptions = ProbeOptions()) -> ProbeReport:
    """As ``probe_agent``, on the running event loop."""
    return await probed(url, options, lambda _: (options.credentials, options.lacking))


async def probed(
    url: str, options: ProbeOptions, given: Callable[[CardView], tuple[Credentials, Credentials]]
) -> ProbeReport:
    """As ``async_probe_agent``, with credentials, and lacking ones, that depend on the card."""
    until, fetcher = time.monotonic() + _SECONDS, options.fetcher or Fetcher()
    place, fetched = await run_async(finding_card(url), fetcher)
    view = read_card(fetched.body)
    state, problems = await _judged(fetched.body, place, options.trust, fetcher)
    listed = with_this_machine({Destination.origin_of(url), *options.origins})
    signed = {Destination.origin_of(each.url) for each in view.interfaces} if state == "verified" else set()
    credentials, lacking = given(view)
    prober = Prober(
        view=view,
        card=strict_json.parse(fetched.body, what="card"),
        session=Session(_over(fetcher, listed), until=until, interval=INTERVAL),
        origins=listed | signed,
        given=credentials,
        lacking=lacking,
        fetcher=fetcher,
    )
    report = await prober.run(url, state, allow_tasks=options.allow_tasks)
    with suppress(FetchError):
        if url.startswith("https:") and time.monotonic() < until:
            old = await fetcher.with_old_tls().exchange("GET", place, configured=True, headers={})
            problems.append(finding("old-tls", "", old.tls))
    return replace(report, findings=(*problems, *report.findings))


async def _judged(
    document: bytes, place: str, trust: TrustSource | None, fetcher: Fetcher
) -> tuple[str, list[ProbeFinding]]:
    """Whether the card is verified, in words, and its problems."""
    errors = sorted({each.rule for each in lint_card(document) if each.severity is Severity.ERROR})
    found = [finding("card-problems", "", message=f"lint finds {', '.join(errors)}")] if errors else []
    if trust is None:
        return ("signatures not checked" if b'"signatures"' in document else "not signed"), found
    try:
        verified = await run_async(Verification(trust=trust).verify(document, place), fetcher)
    except TrustError as error:
        found.append(finding("card-not-verified", "/signatures", error.code))
        return "not verified", found
    return ("verified in part" if verified.unverified else "verified"), found


def with_this_machine(origins: Iterable[str]) -> set[str]:
    """The origins; those on this machine also by its other names."""
    found = set(origins)
    for parts in map(read_url, origins):
        if is_this_machine(parts.host):
            found |= {parts._replace(host=host).origin for host in ("localhost", "127.0.0.1", "[::1]")}
    return found


def _over(fetcher: Fetcher, listed: Iterable[str]) -> Sender:
    name = f"a2a-trust-probe/{version('a2a-trust')} (security test, started by an operator)"
    own = {"User-Agent": name, "Accept": "application/json, application/a2a+json, text/event-stream"}

    async def send(request: ProbeRequest, url: str, headers: dict[str, str]) -> AnyAnswer:
        is_listed, headers = Destination.origin_of(url.partition("?")[0]) in listed, {**headers, **own}
        return await fetcher.exchange(
            request.method, url, configured=is_listed, headers=headers, content=request.content
        )

    return send


class Session:
    """Sends requests, at most one in ``interval`` seconds, and none after ``until`` of the monotonic clock."""

    def __init__(self, send: Sender, *, until: float, interval: float) -> None:
        self.count: int = 0
        self._send, self._until, self._interval = send, until, interval
        self._next, self._bytes = 0.0, 0
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def answer(self, request: ProbeRequest, attachment: Attachment = NOTHING) -> AnyAnswer | None:
        """The answer; None: there is none."""
        now = time.monotonic()
        at = max(now, self._next)
        self._next = at + self._interval
        await asyncio.sleep(at - now)
        async with self._slots:
            if time.monotonic() > self._until or self._bytes > _MOST_BYTES:
                return None
            self.count += 1
            headers = {**request.headers, **{name.decode(): value.decode() for name, value in attachment.headers}}
            if attachment.cookies:
                headers["cookie"] = "; ".join(f"{name}={value}" for name, value in attachment.cookies)
            pairs = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in attachment.parameters)
            url = f"{request.url}{'&' if '?' in request.url else '?'}{pairs}" if pairs else request.url
            try:
                answer = await self._send(request, url, headers)
            except FetchError:
                return None
            self._bytes += 2 * len(answer.body) + sum(map(len, answer.headers.values()))
            return answer


@dataclass(slots=True, kw_only=True)
class Prober:
    """One probe of one agent, whose interfaces are asked at ``origins``."""

    view: CardView
    card: JSONObject
    session: Session
    origins: set[str]
    given: Credentials = field(repr=False)
    lacking: Credentials = field(default_factory=dict, repr=False)
    fetcher: Fetcher | None = None

    async def run(self, url: str, state: str, *, allow_tasks: bool = False) -> ProbeReport:
        """The report. ``state`` says whether the card is verified."""
        rows: list[Row] = []
        findings: list[ProbeFinding] = []
        asked: list[Interface] = []
        for interface in self.view.interfaces:
            verdict, reason = self._why_not(interface, len(asked))
            if verdict is not None:
                rows.append(Row(interface=interface, requirement="", verdict=verdict, reason=reason))
                findings += [finding("not-asked", interface.pointer, message=reason)]
                continue
            asked.append(interface)
            exchanges = await self._exchanges(interface)
            rows += [row_of(interface, each, exchanges, self._needed()) for each in self.view.requirements or ()]
            findings += findings_of(interface, exchanges)
            findings += checks_of(interface, self.view, exchanges, time.time())
            findings += await self._unfit(each for each in resource_of(interface, exchanges) if self._is_named(each[1]))
            if allow_tasks:
                findings += await push_to_loopback(interface, self._with_given)
        findings += await self._unfit([*documents_of(self.card, self.view)][:_MOST_DOCUMENTS])
        return ProbeReport(
            url=url,
            name=self.view.name,
            card=state,
            verdict=of_agent(rows),
            requests=self.session.count,
            requirements=tuple(rows),
            findings=tuple(findings),
        )

    def _needed(self) -> tuple[Operation, ...]:
        capabilities = self.card.get("capabilities")
        return SENDING if isinstance(capabilities, dict) and capabilities.get("streaming") is True else SENDING[:1]

    def _is_named(self, url: str) -> bool:
        return Destination.origin_of(url.partition("?")[0]) in self.origins

    def _why_not(self, interface: Interface, asked: int) -> tuple[Verdict | None, str]:
        """The verdict on an interface that is not asked, and why."""
        if not self.view.requirements or any(each.is_anonymous for each in self.view.requirements):
            return Verdict.NOTHING_DEMANDED, "the card admits callers without a credential"
        if interface.binding not in (Binding.JSONRPC, Binding.HTTP_JSON):
            return Verdict.CANNOT_TELL, "not asked: its binding is not JSON-RPC or HTTP+JSON"
        if not self._is_named(interface.url):
            return Verdict.CANNOT_TELL, "not asked: it is at another origin; name it with --interface-origin"
        if asked >= _MOST_INTERFACES:
            return Verdict.CANNOT_TELL, f"not asked: it is beyond the limit of {_MOST_INTERFACES} interfaces"
        return None, ""

    async def _exchanges(self, interface: Interface) -> list[Exchange]:
        alternatives, origin = self.view.requirements or (), Destination.origin_of(interface.url.partition("?")[0])
        owns = {each: [*own_of(self.view, each, self.given, self.lacking, origin)] for each in alternatives}
        requests = [*requests_of(interface, str(uuid4()))]
        named = [each for each in requests if not each.is_other]
        found = await self._all([(each, Form.NOTHING, None, None) for each in requests])
        wrong = next((each for each in alternatives if forms_for(self.view, each)), None)
        good = next((each for each, own in owns.items() if own), None)
        plan: list[_Step] = [] if good is None else [(each, Form.GOOD, good, owns[good][0]) for each in named]
        plan += [] if wrong is None else [(each, Form.WRONG, wrong, None) for each in named]
        target = _target(found)
        for each in alternatives:
            plan += [
                (target, form, each, None) for form in forms_for(self.view, each) if (form, each) != (Form.WRONG, wrong)
            ]
            plan += [(target, own.form, each, own) for own in owns[each] if (own.form, each) != (Form.GOOD, good)]
        return found + await self._all(plan[: _MOST_REQUESTS - len(found)])

    async def _all(self, plan: Sequence[_Step]) -> list[Exchange]:
        return [*await asyncio.gather(*(self._exchange(*each) for each in plan))]

    async def _exchange(
        self, request: ProbeRequest, form: Form, alternative: Alternative | None, own: Own | None
    ) -> Exchange:
        answer, attachment = None, NOTHING
        with suppress(TrustError):  # the credential cannot be obtained, or cannot stand in a request
            if own is not None:
                attachment = await own.attachment(request, self.fetcher)
            elif alternative is not None:
                attachment = forged(self.view, alternative, form, request)
            answer = await self.session.answer(request, attachment)
        places = [each.parameter for each in self.view.schemes.values() if isinstance(each, ApiKeyScheme)]
        reading = read(request, answer, places, self.card)
        return Exchange(request=request, form=form, alternative=alternative, answer=answer, reading=reading)

    async def _with_given(self, request: ProbeRequest) -> Exchange:
        """The exchange with the given credential, or without one if none is given."""
        origin = Destination.origin_of(request.url.partition("?")[0])
        for each in self.view.requirements or ():
            for own in own_of(self.view, each, self.given, {}, origin):
                return await self._exchange(request, Form.GOOD, each, own)
        return await self._exchange(request, Form.NOTHING, None, None)

    async def _unfit(self, named: Iterable[tuple[str, str, Fits]]) -> list[ProbeFinding]:
        found = []
        for where, url, fits in named:
            asked = ProbeRequest(operation="metadata", binding=Binding.HTTP_JSON, method="GET", url=url)
            answer = await self.session.answer(asked)
            body = None if answer is None or answer.status != 200 else content_of(answer)
            wrong = fits(body) if isinstance(body, dict) else "the document that it names cannot be fetched from here"
            found += [finding("metadata", where, message=wrong)] if wrong else []
        return found


def _target(found: Sequence[Exchange]) -> ProbeRequest:
    """The operation for all forms of wrong credentials: one that rejects callers without a credential."""
    named = [each for each in found if not each.request.is_other and each.request.operation != UNKNOWN]
    rejecting = [each for each in named if each.reading.kind is Kind.REJECTED] or named
    return max(rejecting, key=lambda each: each.request.operation == Operation.GET_TASK).request
