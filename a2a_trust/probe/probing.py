"""Probes an agent: sends the requests, and collects exchanges, verdicts and findings.

The steps:

1. Fetch the card, verify it with the keys that the operator trusts, and lint it.
2. Ask each interface: every operation without a credential, with the given one, and with a
   random one; then one operation with each other wrong credential.
3. Check the answers, the connection, and the key sets and metadata that the card names.

The limits: 60 requests for an interface, 10 requests a second, 4 interfaces, 25 seconds, 64 KiB of an answer, 40 MB.
Redirects are not followed. An interface at an origin that neither the operator nor a verified card names is not asked,
because an unsigned card can name any host.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Final, TypeAlias
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
from a2a_trust.client.flow import run_async, run_on_new_loop
from a2a_trust.client.messages import NOTHING, Attachment
from a2a_trust.client.verification import Verification
from a2a_trust.client.verification import finding as finding_card
from a2a_trust.errors import FetchError, TrustError
from a2a_trust.keys.trust.store import TrustSource
from a2a_trust.lint.findings import Severity
from a2a_trust.lint.linter import lint_card
from a2a_trust.probe import requests, verdicts
from a2a_trust.probe.requests import SENDING, UNKNOWN, Attempt, ProbeRequest, Trial
from a2a_trust.probe.verdicts import AnswerKind, Exchange, ProbeFinding, Row, Verdict, content_of, read

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
_Step: TypeAlias = tuple[ProbeRequest, Trial]


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
    return run_on_new_loop(partial(async_probe_agent, url, options))


async def async_probe_agent(url: str, options: ProbeOptions = ProbeOptions()) -> ProbeReport:
    """As ``probe_agent``, on the running event loop."""
    return await probe_with(url, options, lambda _: (options.credentials, options.lacking))


async def probe_with(
    url: str, options: ProbeOptions, make: Callable[[CardView], tuple[Credentials, Credentials]]
) -> ProbeReport:
    """As ``async_probe_agent``, with credentials, and lacking ones, that depend on the card."""
    until, fetcher = time.monotonic() + _SECONDS, options.fetcher or Fetcher()
    place, fetched = await run_async(finding_card(url, fetcher))
    view = read_card(fetched.body)
    view = view._replace(interfaces=tuple(map(requests.with_web_url, view.interfaces)))
    state, problems = await _judge_card(fetched.body, place, options.trust)
    listed = with_this_machine({Destination.origin_of(url), *options.origins})
    signed = {Destination.origin_of(each.url) for each in view.interfaces} if state == "verified" else set()
    given, lacking = make(view)
    name = f"a2a-trust-probe/{version('a2a-trust')} (security test, started by an operator)"
    own = {"User-Agent": name, "Accept": "application/json, application/a2a+json, text/event-stream"}

    async def send(request: ProbeRequest, url: str, headers: dict[str, str]) -> AnyAnswer:
        is_listed = _origin_of(url) in listed
        if request.binding is Binding.GRPC:
            from a2a_trust.probe.grpc import ask  # the extra grpc is there

            return await ask(url, {name.lower(): each for name, each in headers.items()}, fetcher, configured=is_listed)
        headers = {**headers, **own}
        return await fetcher.exchange(
            request.method, url, configured=is_listed, headers=headers, content=request.content
        )

    prober = Prober(
        view=view,
        card=strict_json.parse(fetched.body, what="card"),
        send=send,
        until=until,
        interval=INTERVAL,
        origins=listed | signed,
        given=given,
        lacking=lacking,
        asks_grpc=find_spec("grpc") is not None,
    )
    rows, found = await prober.run(allow_tasks=options.allow_tasks)
    with suppress(FetchError):
        if url.startswith("https:") and time.monotonic() < until:
            old = await fetcher.with_old_tls().exchange("GET", place, configured=True, headers={})
            problems.append(verdicts.finding("old-tls", "", old.tls))
    seen = {each.verdict for each in rows} or {Verdict.CANNOT_TELL}
    return ProbeReport(
        url=url,
        name=view.name,
        card=state,
        verdict=next(each for each in Verdict if each in seen),
        requests=prober.count,
        requirements=tuple(rows),
        findings=(*problems, *found),
    )


async def _judge_card(document: bytes, place: str, trust: TrustSource | None) -> tuple[str, list[ProbeFinding]]:
    """Whether the card is verified, in words, and its problems."""
    errors = sorted({each.rule for each in lint_card(document) if each.severity is Severity.ERROR})
    found = [verdicts.finding("card-problems", "", message=f"lint finds {', '.join(errors)}")] if errors else []
    if trust is None:
        return ("signatures not checked" if b'"signatures"' in document else "not signed"), found
    try:
        verified = await run_async(Verification(trust=trust).verify(document, place))
    except TrustError as error:
        return "not verified", [*found, verdicts.finding("card-not-verified", "/signatures", error.code)]
    return ("verified in part" if verified.unverified else "verified"), found


def with_this_machine(origins: Iterable[str]) -> set[str]:
    """The origins; those on this machine also by its other names."""
    found = set(origins)
    for parts in map(read_url, origins):
        if is_this_machine(parts.host):
            found |= {parts._replace(host=host).origin for host in ("localhost", "127.0.0.1", "[::1]")}
    return found


def _origin_of(url: str) -> str:
    return Destination.origin_of(url.partition("?")[0])


@dataclass(slots=True, kw_only=True)
class Prober:
    """Probes one agent. Only interfaces at ``origins`` get requests.

    It sends at most one request in ``interval`` seconds, and none after ``until`` of the monotonic clock.
    """

    view: CardView
    card: JSONObject
    send: Sender
    until: float = math.inf
    interval: float = 0.0
    origins: set[str]
    given: Credentials = field(repr=False)
    lacking: Credentials = field(default_factory=dict, repr=False)
    asks_grpc: bool = False
    count: int = field(init=False, default=0)
    _next: float = field(init=False, default=0.0)
    _bytes: int = field(init=False, default=0)
    _slots: asyncio.Semaphore = field(init=False, default_factory=partial(asyncio.Semaphore, _AT_ONCE))

    async def run(self, *, allow_tasks: bool = False) -> tuple[list[Row], list[ProbeFinding]]:
        """The verdicts on all requirements at all interfaces, and the findings."""
        rows, findings, asked = list[Row](), list[ProbeFinding](), 0
        capabilities = self.card.get("capabilities")
        streams = isinstance(capabilities, dict) and capabilities.get("streaming") is True
        for interface in self.view.interfaces:
            if why := self._why_not(interface, asked):
                rows.append(Row(interface=interface, requirement="", verdict=why[0], reason=why[1]))
                findings.append(verdicts.finding("not-asked", interface.pointer, message=why[1]))
                continue
            asked += 1
            exchanges = await self._exchanges(interface)
            needed = SENDING if streams else SENDING[:1]
            rows += [verdicts.row_of(interface, each, exchanges, needed) for each in self.view.requirements or ()]
            findings += verdicts.open_findings(interface, exchanges)
            if interface.binding == Binding.GRPC:  # the rest is about HTTP
                continue
            findings += verdicts.checks_of(interface, self.view, exchanges, time.time())
            documents = verdicts.resource_of(interface, exchanges)
            findings += await self._unfit(each for each in documents if _origin_of(each[1]) in self.origins)
            if allow_tasks:
                findings += await self._push_to_loopback(interface)
        findings += await self._unfit([*verdicts.documents_of(self.card, self.view)][:_MOST_DOCUMENTS])
        return rows, findings

    def _why_not(self, interface: Interface, asked: int) -> tuple[Verdict, str] | None:
        """The verdict on an interface that is not asked, and why."""
        if not self.view.requirements or any(each.is_anonymous for each in self.view.requirements):
            return Verdict.NOTHING_DEMANDED, "the card admits callers without a credential"
        if interface.binding == Binding.GRPC and not self.asks_grpc:
            return Verdict.CANNOT_TELL, "not asked: gRPC needs the extra grpc"
        if interface.binding not in tuple(Binding):
            return Verdict.CANNOT_TELL, "not asked: its binding is not one of A2A"
        if _origin_of(interface.url) not in self.origins:
            return Verdict.CANNOT_TELL, "not asked: it is at another origin; name it with --interface-origin"
        many = f"not asked: it is beyond the limit of {_MOST_INTERFACES} interfaces"
        return (Verdict.CANNOT_TELL, many) if asked >= _MOST_INTERFACES else None

    def _own(self, alternative: Alternative, url: str) -> list[Trial]:
        return [*requests.own_of(self.view, alternative, self.given, self.lacking, _origin_of(url))]

    async def _exchanges(self, interface: Interface) -> list[Exchange]:
        asked = [*requests.requests_of(interface, str(uuid4()))]
        found = [*await asyncio.gather(*(self._exchange(each, Trial(Attempt.NOTHING)) for each in asked))]
        named = [each for each in found if not each.request.is_other]
        known = [each for each in named if each.request.operation != UNKNOWN]
        rejecting = [each for each in known if each.kind is AnswerKind.REJECTED] or known
        target = max(rejecting, key=lambda each: each.request.operation == Operation.GET_TASK).request
        plan: list[_Step] = []
        for steps in self._steps([each.request for each in named], target):
            if len(found) + len(plan) + len(steps) > _MOST_REQUESTS:
                break  # an alternative that is tried in part would look enforced
            plan += steps
        return verdicts.discount([*found, *await asyncio.gather(*(self._exchange(*step) for step in plan))])

    def _steps(self, named: Sequence[ProbeRequest], target: ProbeRequest) -> Iterator[list[_Step]]:
        """Two credentials for every operation, and then all others of each alternative for one that rejects callers."""
        alternatives = self.view.requirements or ()
        good = next((each for each in alternatives if self._own(each, target.url)), None)
        wrong = next((each for each in alternatives if requests.wrong_of(self.view, each, target.url)), None)
        if good is not None:
            yield [(each, self._own(good, each.url)[0]) for each in named]
        if wrong is not None:
            yield [(each, requests.wrong_of(self.view, wrong, each.url)[0]) for each in named]
        for each in alternatives:
            trials = [*requests.wrong_of(self.view, each, target.url), *self._own(each, target.url)]
            tried = ((Attempt.GOOD, good), (Attempt.WRONG, wrong))
            yield [(target, trial) for trial in trials if (trial.attempt, each) not in tried]

    async def _exchange(self, request: ProbeRequest, trial: Trial) -> Exchange:
        answer = None
        with suppress(TrustError):  # the credential cannot be obtained, or cannot stand in a request
            answer = await self._answer(request, await trial.attachment(request))
        places = [each.parameter for each in self.view.schemes.values() if isinstance(each, ApiKeyScheme)]
        kind, text = read(request, answer, places, self.card)
        attempt, alternative = trial.attempt, trial.alternative
        return Exchange(request=request, attempt=attempt, alternative=alternative, answer=answer, kind=kind, text=text)

    async def _answer(self, request: ProbeRequest, attachment: Attachment = NOTHING) -> AnyAnswer | None:
        """The answer; None: there is none."""
        now = time.monotonic()
        at = max(now, self._next)
        if at > self.until:
            return None
        self._next = at + self.interval
        await asyncio.sleep(at - now)
        async with self._slots:
            if time.monotonic() > self.until or self._bytes > _MOST_BYTES:
                return None
            self.count += 1
            headers = {**request.headers, **{name.decode(): value.decode() for name, value in attachment.headers}}
            if attachment.cookies:
                headers["cookie"] = "; ".join(f"{name}={value}" for name, value in attachment.cookies)
            pairs = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in attachment.parameters)
            url = f"{request.url}{'&' if '?' in request.url else '?'}{pairs}" if pairs else request.url
            try:
                answer = await self.send(request, url, headers)
            except FetchError:
                return None
            self._bytes += 2 * len(answer.body) + sum(map(len, answer.headers.values()))
            return answer

    async def _push_to_loopback(self, interface: Interface) -> list[ProbeFinding]:
        """The finding, if the agent accepts for a new task a URL that leads to itself (A2A 1.0.1 13.2; 0.3 7.5)."""
        trials = (
            each for alternative in self.view.requirements or () for each in self._own(alternative, interface.url)
        )
        trial = next(trials, Trial(Attempt.NOTHING))

        async def result(operation: Operation, task: str, params: dict[str, Any]) -> tuple[Any, str]:
            for request in requests.request_of(interface, operation, task, params):
                exchange = await self._exchange(request, trial)
                if exchange.answer is not None and exchange.answer.status < 300:
                    body = content_of(exchange.answer)
                    is_result = isinstance(body, dict) and "error" not in body
                    return (body.get("result", body) if is_result else None), str(exchange)
            return None, ""

        is_1_0, url = not interface.is_legacy, {"url": "http://127.0.0.1:9/"}
        part = {"text": "A security test; please ignore."} | ({} if is_1_0 else {"kind": "text"})
        message = {"messageId": str(uuid4()), "role": "ROLE_USER" if is_1_0 else "user", "parts": [part]}
        at_once = {"returnImmediately": True} if is_1_0 else {"blocking": False}
        params = {"message": message | ({} if is_1_0 else {"kind": "message"}), "configuration": at_once}
        made, _ = await result(Operation.SEND_MESSAGE, "", params)
        made = made.get("task", made) if isinstance(made, dict) else None
        if not isinstance(made, dict) or not isinstance(made.get("id"), str) or "status" not in made:
            return []  # the agent has answered with a message
        task = made["id"][:128]
        config = {"taskId": task, **(url if is_1_0 else {"pushNotificationConfig": url})}
        accepted, proof = await result(Operation.CREATE_PUSH_CONFIG, task, config)
        await result(Operation.CANCEL_TASK, task, {"id": task})
        return [] if accepted is None else [verdicts.finding("push-to-loopback", interface.pointer, proof)]

    async def _unfit(self, named: Iterable[tuple[str, str, verdicts.Fits]]) -> list[ProbeFinding]:
        found = []
        for where, url, fits in named:
            asked = ProbeRequest(operation="metadata", binding=Binding.HTTP_JSON, method="GET", url=url)
            answer = await self._answer(asked)
            body = None if answer is None or answer.status != 200 else content_of(answer)
            wrong = fits(body) if isinstance(body, dict) else "the document that it names cannot be fetched from here"
            found += [verdicts.finding("metadata", where, message=wrong)] if wrong else []
        return found
