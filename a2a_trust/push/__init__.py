"""Push notifications: delivered to checked addresses and signed, and received only from the agent that was called."""

from a2a_trust.base.exports import TYPE_CHECKING, lazy

if TYPE_CHECKING:
    from a2a_trust.push.httpx import PushTransport as PushTransport, SignedPush as SignedPush
    from a2a_trust.push.receiver import PushNotification as PushNotification, PushProof as PushProof
    from a2a_trust.push.receiver import PushReceiver as PushReceiver, UnsafeTokenOnly as UnsafeTokenOnly
else:
    __getattr__, __dir__ = lazy(__name__, {
        "push.httpx": "PushTransport SignedPush",
        "push.receiver": "PushNotification PushProof PushReceiver UnsafeTokenOnly",
    })  # fmt: skip
