"""Which keys are trusted, for which hosts, and how many parties must sign."""
