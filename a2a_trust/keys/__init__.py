"""What a key is and what a key does: algorithms, JWK and PEM, key sets, JWS, signers, trust, files."""
