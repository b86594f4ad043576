"""Which webhooks callers may register for push notifications.

A caller chooses where the agent sends its notifications, so without a rule any caller makes the agent send requests to
any address. The rule is checked where a webhook is registered: by an operation of its own, or with a message. The
delivery must check the address again (``a2a_trust.push``), because the answer of the DNS may change, and must not
follow redirects. Source: A2A 1.0.1 3.1.7, 13.2.
"""

from __future__ import annotations

from inspect import isawaitable
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any, Final

from a2a_trust.auth.principal import Anonymous, Principal
from a2a_trust.base.net.urls import DEFAULT_PORTS, read_url
from a2a_trust.card.operations import Operation
from a2a_trust.card.view import CardView
from a2a_trust.errors import ConfigurationError, FetchError, MalformedError
from a2a_trust.keys.trust.origins import Origins
from a2a_trust.middleware.calls import Call, CallRejectedError
from a2a_trust.middleware.options import UnsafeAnyWebhook, Webhooks, allows
from a2a_trust.middleware.rejection import LATE, Error

if TYPE_CHECKING:
    from a2a_trust.base.net.fetcher import Fetcher

WEBHOOK: Final = Error(
    400, -32602, "INVALID_ARGUMENT", "INVALID_PARAMS",
    "This webhook may not be registered. Ask the agent's operator which hosts are allowed; only https is.",
)  # fmt: skip
NO_PUSH: Final = Error(
    400, -32003, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED", "The agent sends no push notifications."
)
_LOOK_UPS: Final = 16
_MOST: Final = 10


class WebhookRules:
    """The rule for the webhooks of an agent. ConfigurationError: its card promises push notifications, and there is no
    rule."""

    def __init__(self, card: CardView, rule: Webhooks | UnsafeAnyWebhook | None) -> None:
        if rule is None and card.has_push_notifications:
            raise ConfigurationError(
                "/capabilities/pushNotifications: no rule says which webhooks callers may register, so the agent would "
                "send requests to any address; pass rules=RequestRules(webhooks=Webhooks(…)), or UnsafeAnyWebhook() if "
                "the application itself checks them"
            )
        self._rule, self._has_push = rule, card.has_push_notifications
        hosts: Any = rule.hosts if isinstance(rule, Webhooks) else None
        self._hosts = Origins(*hosts) if isinstance(hosts, tuple) else hosts
        self._fetcher: Fetcher | None = None

    async def check(self, call: Call, caller: Principal | Anonymous | None) -> None:
        """Return when the caller may register the webhooks that the call names; CallRejectedError."""
        call_id = call.call_id or b"null"
        if not self._has_push:
            raise CallRejectedError(NO_PUSH, "a webhook is registered, and the card promises no push", call_id)
        if not isinstance(self._rule, Webhooks):
            return
        if len(call.webhooks) != 1 or len(call.webhook_tasks) > 1:
            raise CallRejectedError(WEBHOOK, "the call names no URL of a webhook, or several URLs or tasks", call_id)
        (url,) = call.webhooks
        why = await self._objection(self._rule, url, caller, call_id)
        if why:
            raise CallRejectedError(WEBHOOK, f"the webhook: {why}", call_id)
        task = next(iter(call.webhook_tasks), "") or call.task_id
        if task:
            key = (caller.id if isinstance(caller, Principal) else "", task)
            count = (self._rule.counts.get(key) or 0) + 1
            if count > _MOST:
                raise CallRejectedError(WEBHOOK, f"the task has {_MOST} webhooks of the caller", call_id)
            self._rule.counts.put(key, count)

    async def _objection(self, rule: Webhooks, url: str, caller: Any, call_id: bytes) -> str:
        try:
            parts = read_url(url)
        except MalformedError as error:
            return str(error)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme, 0)
        if port not in rule.ports:
            return f"port {port} is not among Webhooks(ports=…)"
        hosts = self._hosts
        if isinstance(hosts, Origins):
            allowed: object = hosts.covers(parts.host)
        else:
            allowed = True if hosts is None else caller is not None and hosts(caller, parts.host)
        if isawaitable(allowed):
            allowed = await allows(allowed)
            if allowed is None:
                raise CallRejectedError(LATE, "the rule for hosts does not answer in time", call_id)
        if allowed is not True:
            return f"{parts.host[:128]!a} is not allowed for this caller by Webhooks(hosts=…)"
        try:
            await self._fetch_by(rule).resolve(url, configured=True)
        except FetchError as error:
            return str(error)
        return ""

    def _fetch_by(self, rule: Webhooks) -> Fetcher:
        from a2a_trust.base.net.fetcher import Fetcher, SystemResolver  # slow to import, and most agents send nothing

        if self._fetcher is None:  # names that never answer delay no look-up of verifiers
            own = SystemResolver(BoundedSemaphore(_LOOK_UPS))
            self._fetcher = rule.fetcher or Fetcher(resolver=own)
        return self._fetcher


def registers(call: Call) -> bool:
    """Whether the call registers a webhook, by an operation of its own or with a message."""
    return bool(call.webhooks and call.operation) or call.operation is Operation.CREATE_PUSH_CONFIG
