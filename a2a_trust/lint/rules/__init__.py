"""The rules of lint, by what they look at; all of them in one table."""
