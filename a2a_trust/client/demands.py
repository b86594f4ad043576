"""The demands of a verified card, the credentials that satisfy them, and how a request is sent with them.

``answer`` chooses the credentials: if they satisfy no alternative, the request is not sent. ``decisions`` says after an
answer of 401 or 403 whether to send it once more.
"""

from __future__ import annotations

from collections.abc import Callable

from a2a_trust.card.view import CardView, read_card
from a2a_trust.client.answer import Answer, Credentials, answer_for, demands_of
from a2a_trust.client.credentials import CredentialValue
from a2a_trust.client.decisions import NO_SCOPES, Again, MoreScopes, RejectingReply, attachment_of, once_more, unite
from a2a_trust.client.destinations import Destination, Destinations
from a2a_trust.client.flow import Flow
from a2a_trust.client.messages import NOTHING, Attachment, Close, NoReply, NoReplyReason, Reply, Request
from a2a_trust.client.verification import VERIFY_AGAIN_SECONDS, Verification
from a2a_trust.errors import CardVerificationError, TrustError
from a2a_trust.keys.trust.store import TrustStore
from a2a_trust.signing.verify import VerifiedCard


class _Sent:
    """The credentials of requests to one origin, for as long as their values are valid."""

    def __init__(self, answer: Answer, values: list[CredentialValue], more_scopes: MoreScopes) -> None:
        self.answer, self.values, self.more_scopes = answer, values, more_scopes
        self.is_for_one_request = any(part.credential.depends_on_request for part in answer.parts)
        self.proofs = [value.proofs for value in values if value.proofs is not None]
        #: The same for every request; None before the first one, and where each needs its own proofs.
        self._made: Attachment | None = None

    def attachment(self, request: Request, origin: str) -> Attachment:
        attachment = self._made or attachment_of(request, self.answer, self.values, origin)
        if not self.proofs:
            self._made = attachment
        return attachment

    def is_same(self, values: list[CredentialValue]) -> bool:
        return [each.text for each in values] == [each.text for each in self.values]

    def renew(self) -> bool:
        renewed = [part.credential.renew(value) for part, value in zip(self.answer.parts, self.values, strict=True)]
        return any(renewed)


class Demands:
    """The demands of a verified card, and the credentials that are sent for them. Threads may share one."""

    def __init__(self, view: CardView, credentials: Credentials, skills: tuple[str, ...], *, is_whole: bool) -> None:
        self._view, self._credentials, self._is_whole = view, credentials, is_whole
        self._demands = demands_of(view, skills)
        #: Origin -> the credentials of the last request.
        self._sent: dict[str, _Sent] = {}
        #: Scopes beyond those that the card demands, for further requests. It is replaced and never changed.
        self._more_scopes: MoreScopes = {}

    def send(
        self, request: Request, origin: str, now: Callable[[], float], send: Callable[[Attachment], Flow[Reply]]
    ) -> Flow[Reply]:
        """The answer to a request, which ``send`` sends. RejectedCredentials: the agent rejects all that fit."""
        try:
            sent = self._sent.get(origin)
            moment = now()
            if sent is None or sent.is_for_one_request or not all(moment < value.until for value in sent.values):
                sent = yield from self._obtain(origin, None if sent is None else sent.answer, self._more_scopes)
            tried: set[Again] = set()
            while True:
                reply = yield from send(sent.attachment(request, origin))
                if reply.is_elsewhere:
                    return reply
                for proofs in sent.proofs:
                    proofs.learn(origin, reply.headers.get_list("DPoP-Nonce"))
                if reply.status not in (401, 403):
                    return reply
                try:
                    again = yield from self._once_more(request, origin, sent, reply, tried, now())
                except BaseException:
                    yield Close(reply)
                    raise
                if again is None:
                    return reply
                yield Close(reply)
                sent = again
        except TrustError as error:
            raise NoReply.of(NoReplyReason.NO_CREDENTIALS, request.address, error) from None

    def _obtain(self, origin: str, answer: Answer | None, more_scopes: MoreScopes) -> Flow[_Sent]:
        if answer is None:
            answer = answer_for(self._view, self._demands, self._credentials, origin, is_whole=self._is_whole)
        values: list[CredentialValue] = []
        for part in answer.parts:
            scopes = part.scopes | more_scopes.get(part.name, NO_SCOPES)
            values.append((yield from part.credential.obtain(scopes)))
        sent = self._sent[origin] = _Sent(answer, values, more_scopes)
        return sent

    def _once_more(
        self, request: Request, origin: str, sent: _Sent, reply: Reply, tried: set[Again], now: float
    ) -> Flow[_Sent | None]:
        """The credentials for sending the request once more; None: the answer is passed on."""
        rejection = RejectingReply(self._view, self._demands, sent.answer, sent.values, request, reply, now)
        again, more_scopes = once_more(rejection, sent.more_scopes, tried)
        if again is None or (again is Again.WITH_OTHER_VALUES and not sent.renew()):
            if reply.status == 403 and not rejection.is_for_scopes:
                return None
            raise rejection.error()
        tried.add(again)
        if again is not Again.WITH_NONCE:
            sent = yield from self._obtain(origin, sent.answer, more_scopes)
            if more_scopes is not self._more_scopes:  # asked for from now on, but not for another caller
                names = [part.name for part in sent.answer.parts if not part.credential.depends_on_request]
                kept = {name: more_scopes[name] for name in names if name in more_scopes}
                self._more_scopes = unite(self._more_scopes, kept)
        if request.body is None:
            raise rejection.error("; the body is a stream, which cannot be sent twice: make the request again")
        if again is Again.WITH_OTHER_VALUES and sent.is_same(rejection.values):
            raise rejection.error()
        return sent


class GivenCard:
    """A verified card that the program has, and its demands: the door of ``CardAuth``, which permits every request.

    The card is verified again when the trusted keys change, when its signatures or keys expire, and every 5 minutes,
    because key sets of others change, too. If it is no longer verified, the request is not sent.
    """

    def __init__(
        self, card: VerifiedCard, verification: Verification, credentials: Credentials, skills: tuple[str, ...]
    ) -> None:
        view = read_card(card.card)
        self._card, self._verification = card, verification
        self._demands = Demands(view, credentials, skills, is_whole=not card.unverified)
        self._destinations = Destinations.of(view, "")
        #: The trusted keys that verified the card last, and from when until when it counts. It is replaced.
        self._verified: tuple[TrustStore | None, float, float] = None, 0.0, 0.0

    def exchange(
        self, request: Request, send: Callable[[Attachment], Flow[Reply]], origin: str | None = None
    ) -> Flow[Reply]:
        """``origin``: where the request goes, to an interface of the card. None: its URL says where."""

        def sent(attachment: Attachment) -> Flow[Reply]:
            yield from self._verify_again()  # a token was fetched meanwhile, or the agent has answered
            return (yield from send(attachment))

        try:
            yield from self._verify_again()
            if origin is None:
                called = Destination.of(request.url)
                if not self._destinations.cover(called):
                    return (yield from send(NOTHING))
                origin = called.origin
            return (yield from self._demands.send(request, origin, self._verification.clock, sent))
        except TrustError as error:
            raise NoReply.of(NoReplyReason.NO_CREDENTIALS, request.address, error) from None

    def _verify_again(self) -> Flow[None]:
        store, since, until = self._verified
        now = self._verification.clock()
        if since <= now < until and self._verification.trust.trust_store() is store:
            return
        try:
            card, store = yield from self._verification.verify_again(self._card)
        except CardVerificationError as error:
            raise NoReply(
                NoReplyReason.NO_CREDENTIALS,
                "the request is not sent, because the card is not verified any more; call fetch_card again, and make a "
                f"new CardAuth: {error}",
                error,
            ) from None
        self._verified = store, now, min(card.valid_until, now + VERIFY_AGAIN_SECONDS)
