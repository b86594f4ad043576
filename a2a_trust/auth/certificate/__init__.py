"""Client certificates: trusted authorities, identities, and who may call."""
