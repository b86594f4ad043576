"""The network: the fetcher, and which addresses are public."""
