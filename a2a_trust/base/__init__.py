"""The ground floor: strict JSON, files, databases, the network, caches and workers."""
