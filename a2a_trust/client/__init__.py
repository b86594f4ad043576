"""Clients of agents: a card is proven, and compared with what is remembered, before anything in it is used."""
