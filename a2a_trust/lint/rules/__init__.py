"""The rules of lint: each with id, severity, description and section of A2A 1.0.1."""

from __future__ import annotations

from types import MappingProxyType, ModuleType
from typing import Final

from a2a_trust.lint.rules import forms, members, requirements, secrets, texts, urls
from a2a_trust.lint.findings import Rule


def rules_of(theme: ModuleType) -> tuple[Rule, ...]:
    """The rules that a module defines, in its order; it may use rules of others."""
    return tuple(
        each for each in vars(theme).values() if isinstance(each, Rule) and each.check.__module__ == theme.__name__
    )


_THEMES: Final = (members, forms, requirements, urls, texts, secrets)

RULES: Final = MappingProxyType({rule.id: rule for theme in _THEMES for rule in rules_of(theme)})
"""Every rule by its id, in the order in which findings of one severity are reported."""
