"""The rules of lint, in a module for each part of a card; ``table`` has all of them."""
