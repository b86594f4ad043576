"""The parts of ``protect`` as ASGI applications of their own, and the sources of a public card."""

from a2a_trust.middleware.card import CardFile as CardFile
from a2a_trust.middleware.card import CardSignedHere as CardSignedHere
from a2a_trust.middleware.card import CardSigner as CardSigner
from a2a_trust.middleware.card import FixedCard as FixedCard
from a2a_trust.middleware.card import PublicCard as PublicCard
from a2a_trust.middleware.extended_card import ExtendedCardEndpoint as ExtendedCardEndpoint
from a2a_trust.middleware.metadata import JwksEndpoint as JwksEndpoint
from a2a_trust.middleware.metadata import ProtectedResource as ProtectedResource
