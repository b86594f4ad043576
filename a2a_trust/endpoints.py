"""The parts of ``protect`` as ASGI applications of their own, and the sources of a public card."""

from a2a_trust.base.exports import TYPE_CHECKING, lazy

if TYPE_CHECKING:
    from a2a_trust.middleware.card import CardFile as CardFile, CardSignedHere as CardSignedHere
    from a2a_trust.middleware.card import CardSigner as CardSigner, FixedCard as FixedCard, PublicCard as PublicCard
    from a2a_trust.middleware.extended_card import ExtendedCardEndpoint as ExtendedCardEndpoint
    from a2a_trust.middleware.documents import JwksEndpoint as JwksEndpoint, ProtectedResource as ProtectedResource
else:
    __getattr__, __dir__ = lazy(__name__, {
        "middleware.card": "CardFile CardSignedHere CardSigner FixedCard PublicCard",
        "middleware.extended_card": "ExtendedCardEndpoint", "middleware.metadata": "JwksEndpoint ProtectedResource",
    })  # fmt: skip
