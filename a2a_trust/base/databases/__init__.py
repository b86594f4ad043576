"""Connections to PostgreSQL and Redis, which the processes and machines of one agent share."""
