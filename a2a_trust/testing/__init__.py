"""For tests of agents and of clients: callers, tokens, and agents in memory. Nothing here authenticates anybody."""

from a2a_trust.exports import lazy

__getattr__, __dir__ = lazy(__name__, __file__)
