"""The command ``a2a-sign``: one module per command, imported when its arguments are good."""
