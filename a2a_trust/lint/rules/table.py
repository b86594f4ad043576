"""The table of the rules: each with id, severity, description and section of A2A 1.0.1."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from a2a_trust.lint.rules import flows, forms, members, requirements, secrets, texts, urls

_THEMES: Final = (members, forms, requirements, urls, flows, texts, secrets)

RULES: Final = MappingProxyType({rule.id: rule for theme in _THEMES for rule in theme.RULES})
"""Every rule by its id, in the order in which findings of one severity are reported."""
