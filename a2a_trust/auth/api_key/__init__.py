"""API keys: their records, the verifier, and the store in SQLite."""
