"""``a2a-sign serve``: the card of any agent enforced in front of it, by one configuration file."""

from a2a_trust.base.exports import TYPE_CHECKING, lazy

if TYPE_CHECKING:
    from a2a_trust.serve.application import ServedAgent as ServedAgent
    from a2a_trust.serve.caller_token import VerifiedCaller as VerifiedCaller
    from a2a_trust.serve.forward_auth import ForwardAuth as ForwardAuth, ForwardForm as ForwardForm
    from a2a_trust.serve.caller_token import verify_caller_token as verify_caller_token
else:
    __getattr__, __dir__ = lazy(__name__, {
        "serve.application": "ServedAgent",
        "serve.caller_token": "VerifiedCaller verify_caller_token",
        "serve.forward_auth": "ForwardAuth ForwardForm",
    })  # fmt: skip
