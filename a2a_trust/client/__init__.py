"""Clients of agents: a card is verified, and compared with what is remembered, before anything in it is used."""

from a2a_trust.exports import lazy

__getattr__, __dir__ = lazy(__name__, __file__)
