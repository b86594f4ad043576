"""Client certificates that a proxy has taken: what each proxy writes of them, and who may be the proxy."""
