"""The command ``a2a-sign``: one module per command, heavy imports inside the commands."""
