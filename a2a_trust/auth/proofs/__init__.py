"""Which DPoP proofs were used: in memory, in SQLite, in Redis and in PostgreSQL."""
