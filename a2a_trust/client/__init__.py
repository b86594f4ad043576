"""Clients of agents: a card is verified, and compared with what is remembered, before anything in it is used."""
