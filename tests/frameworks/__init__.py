"""Agents of frameworks behind ``protect`` and ``protect_agents``, each called by its framework's own client."""
