"""Keys, key sets, key rings, signers, and which keys are trusted for which hosts."""

from a2a_trust.exports import lazy

__getattr__, __dir__ = lazy(__name__, __file__)
