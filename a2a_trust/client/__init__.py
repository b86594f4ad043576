"""Clients of agents: verify a card, and compare it with remembered cards, before anything in it is used."""

from a2a_trust.exports import lazy

__getattr__, __dir__ = lazy(__name__, __file__)
