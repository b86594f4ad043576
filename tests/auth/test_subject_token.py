"""The access token of a caller: what it shows. ``tests/middleware/test_caller.py`` is about where it is found."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial

import pytest

from a2a_trust.auth.principal import SubjectToken

TEXT = "eyJhbGciOiJFUzI1NiJ9.secret.secret"


def made(text: str = TEXT) -> SubjectToken:
    return SubjectToken(text, issuer="https://login.example", subject="ann", expires_at=17.5)


def test_only_reveal_gives_the_text() -> None:
    token = made()
    assert token.reveal() == TEXT
    assert (token.issuer, token.subject, token.expires_at) == ("https://login.example", "ann", 17.5)
    shown = "SubjectToken(issuer='https://login.example', subject='ann', expires_at=17.5)"
    assert [repr(token), str(token), f"{token}", f"{[token]}"] == [shown, shown, shown, f"[{shown}]"]


def test_tokens_of_one_text_are_not_equal() -> None:
    assert made() != made()
    assert len({made(), made()}) == 2


def test_it_is_neither_copied_nor_pickled() -> None:
    actions: list[Callable[[object], object]] = [copy.copy, copy.deepcopy]
    actions += [partial(pickle.dumps, protocol=version) for version in range(pickle.HIGHEST_PROTOCOL + 1)]
    for action in actions:
        with pytest.raises(TypeError, match=r"^a SubjectToken is not pickled or copied: it holds an access token"):
            action(made())
