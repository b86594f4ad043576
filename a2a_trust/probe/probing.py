"""Probes an agent: sends the requests, and collects exchanges, verdicts and findings.

The steps:

1. Fetch the card, verify it with the keys that the operator trusts, and lint it.
2. Ask each interface of JSON-RPC and HTTP+JSON at the origins that the operator named: every operation without a
   credential, with the given one, and with a random one; then one operation with each other wrong credential.
3. Check the answers, the connection, and the key sets and metadata that the card names.

The limits: 60 requests for an interface, 10 requests a second, 4 interfaces, 25 seconds, 64 KiB of an answer. Redirects
are not followed. Interfaces at other origins are not asked, because any card can name any host.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

from a2a_trust import strict_json
from a2a_trust.card.operations import Binding, Operation
from a2a_trust.card.view import Alternative, ApiKeyScheme, CardView, Interface, read_card
from a2a_trust.client.answer import Credentials, check_credentials
from a2a_trust.client.destinations import Destination
from a2a_trust.client.fetching import finding as finding_card
from a2a_trust.client.flow import run_async, waited
from a2a_trust.client.messages import NOTHING, Attachment
from a2a_trust.client.verification import Verification
from a2a_trust.errors import FetchError, TrustError
from a2a_trust.keys.trust import TrustSource
from a2a_trust.lint.findings import Severity
from a2a_trust.lint.linter import lint_card
from a2a_trust.net.addresses import is_this_machine
from a2a_trust.net.fetcher import AnyAnswer, Fetcher
from a2a_trust.net.urls import read_url
from a2a_trust.probe import checks
from a2a_trust.probe.answers import Kind, Sender, read
from a2a_trust.probe.forgeries import Form, Own, forged, forms_for, own_of
from a2a_trust.probe.push import push_to_loopback
from a2a_trust.probe.requests import SENDING, UNKNOWN, ProbeRequest, preflight, requests_of
from a2a_trust.probe.rules import ProbeFinding, finding
from a2a_trust.probe.verdicts import Exchange, Row, Verdict, findings_of, of_agent, row_of

_MOST_REQUESTS: Final = 60
_MOST_INTERFACES: Final = 4
_MOST_DOCUMENTS: Final = 5
_SECONDS: Final = 25.0
"""After this time no request begins; with the last ones, a probe takes 30 seconds."""
_AT_ONCE: Final = 8
INTERVAL: Final = 0.1
"""Seconds between two requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """How an agent is probed.

    - ``trust``: the keys that verify the card. An interface is asked at hosts of a verified card, too.
    - ``credentials``: the operator's credentials by the names of schemes. Each goes only to its own origins.
    - ``lacking``: valid credentials that lack a required scope, and must be rejected.
    - ``origins``: further origins whose interfaces are asked.
    - ``fetcher``: the limits of fetching, and the private origins; its time limit is that of one request.
    - ``allow_tasks``: create one task, and cancel it, to see which URLs for push notifications are accepted.
    """

    trust: TrustSource | None = None
    credentials: Credentials = field(default_factory=dict)
    lacking: Credentials = field(default_factory=dict)
    origins: tuple[str, ...] = ()
    fetcher: Fetcher | None = None
    allow_tasks: bool = False

    def __post_init__(self) -> None:
        check_credentials(self.credentials)
        check_credentials(self.lacking)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """The result for one agent. ``signature`` says whether the card is verified; ``requests`` is their number."""

    url: str
    name: str
    signature: str
    rows: tuple[Row, ...]
    findings: tuple[ProbeFinding, ...]
    requests: int

    @property
    def verdict(self) -> Verdict:
        return of_agent(self.rows)


def probe_agent(url: str, options: ProbeOptions = ProbeOptions()) -> ProbeReport:
    """Probe the agent at that URL. FetchError, MalformedError: its card cannot be fetched or read."""
    return waited(partial(async_probe_agent, url, options))


async def async_probe_agent(url: str, options: ProbeOptions = ProbeOptions()) -> ProbeReport:
    """As ``probe_agent``, on the running event loop."""
    return await probed(url, options, lambda _: options.credentials, lambda _: options.lacking)


async def probed(
    url: str,
    options: ProbeOptions,
    given: Callable[[CardView], Credentials],
    lacking: Callable[[CardView], Credentials],
) -> ProbeReport:
    """As ``async_probe_agent``, with credentials that depend on the card."""
    fetcher = Fetcher() if options.fetcher is None else options.fetcher
    until = time.monotonic() + _SECONDS
    place, fetched = await run_async(finding_card(url), fetcher)
    view = read_card(fetched.body)
    signature, problems, is_verified = await _judged(fetched.body, place, options.trust, fetcher)
    listed = with_this_machine({Destination.origin_of(url), *options.origins})
    origins = {Destination.origin_of(each.url) for each in view.interfaces} if is_verified else set()
    prober = Prober(
        view=view,
        card=strict_json.parse(fetched.body, what="card"),
        session=Session(_over(fetcher, listed), until=until, interval=INTERVAL),
        origins=listed | origins,
        given=given(view),
        lacking=lacking(view),
        fetcher=fetcher,
    )
    rows, findings = await prober.run(allow_tasks=options.allow_tasks)
    if url.startswith("https:"):
        problems += await _old_tls(place, fetcher, configured=Destination.origin_of(place) in listed)
    return ProbeReport(
        url=url,
        name=view.name,
        signature=signature,
        rows=rows,
        findings=(*problems, *findings),
        requests=prober.session.count,
    )


async def _judged(
    document: bytes, place: str, trust: TrustSource | None, fetcher: Fetcher
) -> tuple[str, list[ProbeFinding], bool]:
    """Whether the card is verified, as a text and as a bool, and its problems."""
    found = []
    errors = sorted({each.rule for each in lint_card(document) if each.severity is Severity.ERROR})
    if errors:
        found.append(finding("card-problems", "", f"run a2a-sign lint for {', '.join(errors)}"))
    if trust is None:
        is_signed = b'"signatures"' in document
        return ("signatures not checked" if is_signed else "not signed"), found, False
    try:
        verified = await run_async(Verification(trust=trust).verify(document, place), fetcher)
    except TrustError as error:
        found.append(finding("card-not-verified", "/signatures", f"the card is not verified ({error.code})"))
        return "not verified", found, False
    return ("verified in part" if verified.unverified else "verified"), found, not verified.unverified


def with_this_machine(origins: Iterable[str]) -> set[str]:
    """The origins; those on this machine also by its other names."""
    found = set(origins)
    for origin in origins:
        parts = read_url(origin)
        if is_this_machine(parts.host):
            found |= {parts._replace(host=host).origin for host in ("localhost", "127.0.0.1", "[::1]")}
    return found


def _over(fetcher: Fetcher, listed: Iterable[str]) -> Sender:
    name = f"a2a-trust-probe/{version('a2a-trust')} (a security test that the operator of a client started)"

    async def send(request: ProbeRequest, url: str, headers: dict[str, str]) -> AnyAnswer:
        own = {"User-Agent": name, "Accept": "application/json, application/a2a+json, text/event-stream"}
        is_listed = Destination.origin_of(url.partition("?")[0]) in listed
        return await fetcher.exchange(
            request.method, url, configured=is_listed, headers={**headers, **own}, content=request.content
        )

    return send


async def _old_tls(url: str, fetcher: Fetcher, *, configured: bool) -> list[ProbeFinding]:
    try:
        answer = await fetcher.with_old_tls().exchange("GET", url, configured=configured, headers={})
    except FetchError:
        return []
    return [finding("old-tls", "", f"{answer.tls} is accepted")]


class Session:
    """Sends requests, at most one in ``interval`` seconds, and none after ``until`` of the monotonic clock."""

    def __init__(self, send: Sender, *, until: float, interval: float) -> None:
        self.count: int = 0
        self._send, self._until, self._interval = send, until, interval
        self._next = 0.0
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def answer(self, request: ProbeRequest, attachment: Attachment = NOTHING) -> AnyAnswer | None:
        """The answer; None: there is none."""
        now = time.monotonic()
        self._next = max(now, self._next) + self._interval
        await asyncio.sleep(max(0.0, self._next - self._interval - now))
        async with self._slots:
            if time.monotonic() > self._until:
                return None
            self.count += 1
            headers = {**request.headers, **{name.decode(): value.decode() for name, value in attachment.headers}}
            if attachment.cookies:
                headers["cookie"] = "; ".join(f"{name}={value}" for name, value in attachment.cookies)
            pairs = [f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in attachment.parameters]
            separator = "&" if "?" in request.url else "?"
            url = f"{request.url}{separator}{'&'.join(pairs)}" if pairs else request.url
            try:
                return await self._send(request, url, headers)
            except FetchError:
                return None


@dataclass(slots=True, kw_only=True)
class Prober:
    """One probe of one agent, whose card is ``card``. Interfaces are asked at ``origins``."""

    view: CardView
    card: Any
    session: Session
    origins: set[str]
    given: Credentials = field(repr=False)
    lacking: Credentials = field(default_factory=dict, repr=False)
    fetcher: Fetcher | None = None

    async def run(self, *, allow_tasks: bool) -> tuple[tuple[Row, ...], tuple[ProbeFinding, ...]]:
        """The verdicts on all requirements at all interfaces, and the findings."""
        alternatives = self.view.requirements or ()
        rows: list[Row] = []
        findings: list[ProbeFinding] = []
        asked = 0
        for interface in self.view.interfaces:
            reason = self._why_not(interface, asked)
            if not alternatives or any(each.is_anonymous for each in alternatives):
                reason = "the card admits callers without a credential"
                rows.append(_not_asked(interface, Verdict.NOTHING_DEMANDED, reason))
            elif reason:
                rows.append(_not_asked(interface, Verdict.CANNOT_TELL, f"not asked: {reason}"))
                findings.append(finding("not-asked", interface.pointer, reason))
            else:
                asked += 1
                exchanges = await self._exchanges(interface, alternatives)
                rows += [row_of(interface, each, exchanges, self._needed()) for each in alternatives]
                findings += findings_of(interface, exchanges)
                findings += checks.checks_of(interface, self.view, exchanges, time.time())
                options = await self.session.answer(preflight(interface))
                findings += checks.check_preflight(interface.pointer, options)
                findings += await self._resource(interface, exchanges)
                if allow_tasks:
                    findings += await push_to_loopback(interface, partial(self._with_good, interface))
        return tuple(rows), (*findings, *await self._documents())

    def _needed(self) -> tuple[Operation, ...]:
        capabilities = self.card.get("capabilities")
        streams = isinstance(capabilities, dict) and capabilities.get("streaming") is True
        return SENDING if streams else SENDING[:1]

    def _why_not(self, interface: Interface, asked: int) -> str:
        if interface.binding not in (Binding.JSONRPC, Binding.HTTP_JSON):
            return "its binding is not JSON-RPC or HTTP+JSON"
        if Destination.origin_of(interface.url) not in self.origins:
            return "it is at another origin than the agent; to ask it, name the origin"
        return "it is beyond the fourth interface" if asked >= _MOST_INTERFACES else ""

    async def _exchanges(self, interface: Interface, alternatives: Sequence[Alternative]) -> list[Exchange]:
        origin = Destination.origin_of(interface.url)
        owns = {each: [*own_of(self.view, each, self.given, self.lacking, origin)] for each in alternatives}
        requests = requests_of(interface, str(uuid4()))
        named = [each for each in requests if not each.is_other_name]
        found = await self._all([(each, Form.NOTHING, None, None) for each in requests])
        wrong = next((each for each in alternatives if forms_for(self.view, each)), None)
        good = next((each for each, own in owns.items() if own), None)
        plan: list[_Step] = [] if good is None else [(each, Form.GOOD, good, owns[good][0]) for each in named]
        plan += [] if wrong is None else [(each, Form.WRONG, wrong, None) for each in named]
        target = _target(found)
        for each in alternatives:
            forms = forms_for(self.view, each)
            plan += [(target, Form.WRONG, each, None)] if forms and each != wrong else []
            plan += [(target, form, each, None) for form in forms]
            plan += [(target, own.form, each, own) for own in owns[each] if own.form is not Form.GOOD or each != good]
        return found + await self._all(plan[: _MOST_REQUESTS - len(found) - 1])

    async def _all(self, plan: Sequence[_Step]) -> list[Exchange]:
        return [*await asyncio.gather(*(self._exchange(*each) for each in plan))]

    async def _exchange(
        self, request: ProbeRequest, form: Form, alternative: Alternative | None, own: Own | None
    ) -> Exchange:
        origin = Destination.origin_of(request.url.partition("?")[0])
        answer, attachment = None, NOTHING
        try:
            if own is not None:
                attachment = await own.attachment(request, origin, self.fetcher)
            elif alternative is not None:
                attachment = forged(self.view, alternative, form, request.url)
            answer = await self.session.answer(request, attachment)
        except TrustError:  # the credential cannot be obtained, or cannot stand in a request
            pass
        places = [each.parameter for each in self.view.schemes.values() if isinstance(each, ApiKeyScheme)]
        reading = read(request, answer, places)
        return Exchange(request=request, form=form, alternative=alternative, answer=answer, reading=reading)

    async def _with_good(self, interface: Interface, request: ProbeRequest) -> AnyAnswer | None:
        """The answer to a request with the given credential, or without one if none is given."""
        origin = Destination.origin_of(interface.url)
        for each in self.view.requirements or ():
            for own in own_of(self.view, each, self.given, {}, origin):
                return (await self._exchange(request, Form.GOOD, each, own)).answer
        return await self.session.answer(request)

    async def _resource(self, interface: Interface, exchanges: Sequence[Exchange]) -> list[ProbeFinding]:
        url = checks.resource_metadata(exchanges)
        if not url or Destination.origin_of(url) not in self.origins:
            return []
        return await self._document(interface.pointer, url, partial(checks.check_resource, interface))

    async def _documents(self) -> list[ProbeFinding]:
        named: list[tuple[str, str, Callable[[bytes], Iterable[ProbeFinding]]]] = [
            (where, url, partial(checks.check_metadata, where, scheme))
            for where, scheme, url in checks.metadata_urls(self.view)
        ]
        named += [
            (where, url, partial(checks.check_key_set, where, kid))
            for where, kid, url in checks.key_set_urls(self.card)
        ]
        found = await asyncio.gather(*(self._document(*each) for each in named[:_MOST_DOCUMENTS]))
        return [each for some in found for each in some]

    async def _document(
        self, where: str, url: str, check: Callable[[bytes], Iterable[ProbeFinding]]
    ) -> list[ProbeFinding]:
        asked = ProbeRequest(operation="metadata", binding=Binding.HTTP_JSON, method="GET", url=url)
        answer = await self.session.answer(asked)
        if answer is None or answer.status != 200:
            return [finding("metadata", where, "the document that it names cannot be fetched from here")]
        return [*check(answer.body)]


_Step = tuple[ProbeRequest, Form, Alternative | None, Own | None]


def _not_asked(interface: Interface, verdict: Verdict, reason: str) -> Row:
    return Row(interface=interface, requirement="", verdict=verdict, reason=reason)


def _target(found: Sequence[Exchange]) -> ProbeRequest:
    """The operation for all forms of wrong credentials: one that rejects callers without a credential."""
    named = [each for each in found if not each.request.is_other_name and each.request.operation != UNKNOWN]
    rejecting = [each.request for each in named if each.reading.kind is Kind.REJECTED]
    wanted = [each for each in rejecting or [each.request for each in named] if each.operation == Operation.GET_TASK]
    return (wanted or rejecting or [named[0].request])[0]
