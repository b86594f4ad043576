"""HTTP Basic: what a request carries, slow hashes of passwords, their records and stores, and the verifier."""
