"""Find problems of cards before they are signed and published."""

from a2a_trust.exports import lazy

__getattr__, __dir__ = lazy(__name__, __file__)
