"""The command ``a2a-sign``: one module per command, imported after its arguments were read."""
