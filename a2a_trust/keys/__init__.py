"""What a key is and what a key does: algorithms, JWK and PEM, key sets, JWS, signers, trust, files."""

from a2a_trust.exports import lazy

__getattr__, __dir__ = lazy(__name__, __file__)
