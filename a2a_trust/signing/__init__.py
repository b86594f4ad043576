"""Sign and verify Agent Cards."""

from a2a_trust.exports import lazy

__getattr__, __dir__ = lazy(__name__, __file__)
