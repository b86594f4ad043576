"""ASGI: the guard in front of an agent."""

from a2a_trust.base.exports import TYPE_CHECKING, lazy

if TYPE_CHECKING:
    from a2a_trust.middleware.application import FromApplication as FromApplication
    from a2a_trust.middleware.audit import Decision as Decision, Observer as Observer, Reason as Reason
    from a2a_trust.base.state_changes import StateChange as StateChange, StateKind as StateKind
    from a2a_trust.middleware.caller import CallerRejectedError as CallerRejectedError, acting_for as acting_for
    from a2a_trust.middleware.caller import current_principal as current_principal, principal_of as principal_of
    from a2a_trust.middleware.caller import reject_caller as reject_caller, require_skill as require_skill
    from a2a_trust.middleware.caller import subject_token_of as subject_token_of
    from a2a_trust.middleware.calls import Call as Call, call_of as call_of
    from a2a_trust.middleware.card import CardReaders as CardReaders, CardSignedHere as CardSignedHere
    from a2a_trust.middleware.card import CardSigner as CardSigner, FixedCard as FixedCard, PublicCard as PublicCard
    from a2a_trust.auth.credentials import FromTls as FromTls
    from a2a_trust.middleware.documents import JwksEndpoint as JwksEndpoint, ProtectedResource as ProtectedResource
    from a2a_trust.middleware.door import CardEnforcementMiddleware as CardEnforcementMiddleware, Readiness as Readiness
    from a2a_trust.middleware.extended_card import ExtendedCard as ExtendedCard
    from a2a_trust.middleware.extended_card import ExtendedCardEndpoint as ExtendedCardEndpoint
    from a2a_trust.middleware.options import ActorRules as ActorRules, GuardRules as GuardRules
    from a2a_trust.middleware.options import RequestRules as RequestRules
    from a2a_trust.middleware.options import SkillRule as SkillRule, TenantRule as TenantRule
    from a2a_trust.middleware.options import UnsafeAnyWebhook as UnsafeAnyWebhook, WebhookHostRule as WebhookHostRule
    from a2a_trust.middleware.options import Webhooks as Webhooks
    from a2a_trust.auth.peers import Networks as Networks
    from a2a_trust.middleware.protection import CardServing as CardServing, ProtectedAgent as ProtectedAgent
    from a2a_trust.middleware.door import readiness as readiness
    from a2a_trust.middleware.protection import protect as protect, protect_agents as protect_agents
else:
    __getattr__, __dir__ = lazy(__name__, {
        "middleware.application": "FromApplication", "middleware.audit": "Decision Observer Reason",
        "base.state_changes": "StateChange StateKind",
        "middleware.caller": "CallerRejectedError acting_for current_principal principal_of reject_caller "
        "require_skill subject_token_of", "middleware.calls": "Call call_of",
        "middleware.card": "CardReaders CardSignedHere CardSigner FixedCard PublicCard",
        "auth.credentials": "FromTls", "middleware.documents": "JwksEndpoint ProtectedResource",
        "middleware.door": "CardEnforcementMiddleware Readiness readiness",
        "middleware.extended_card": "ExtendedCard ExtendedCardEndpoint",
        "middleware.options": "ActorRules GuardRules RequestRules SkillRule TenantRule UnsafeAnyWebhook "
        "WebhookHostRule Webhooks", "auth.peers": "Networks",
        "middleware.protection": "CardServing ProtectedAgent protect protect_agents",
    })  # fmt: skip
