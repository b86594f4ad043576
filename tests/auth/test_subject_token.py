"""The token that is kept for one request: what it shows, where it is found, and how long it stays."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import Request as FastApiRequest
from starlette.authentication import AuthCredentials
from starlette.requests import Request
from starlette.websockets import WebSocket

from a2a_trust.auth import subject_token
from a2a_trust.auth.subject_token import SubjectToken, keep_for, subject_token_of
from a2a_trust.errors import ConfigurationError, MissingCredentialsError

TEXT = "eyJhbGciOiJFUzI1NiJ9.secret.secret"


def made(text: str = TEXT) -> SubjectToken:
    return SubjectToken(text, issuer="https://login.example", subject="ann", expires_at=17.5)


async def nothing(*_: Any) -> Any: ...


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


def contexts(auth: Any) -> dict[str, Any]:
    """All that handlers have of a request with those credentials."""
    scope = {"type": "http", "headers": [], "auth": auth}
    call_context = SimpleNamespace(state={"auth": auth, "headers": {}}, user=None)
    return {
        "scope": scope,
        "Starlette": Request(scope),
        "FastAPI": FastApiRequest(scope),
        "websocket": WebSocket({**scope, "type": "websocket"}, nothing, nothing),
        "another framework": SimpleNamespace(scope=scope, state=SimpleNamespace(auth="mine")),
        "ServerCallContext": call_context,
        "RequestContext": SimpleNamespace(call_context=call_context, state="of the application"),
    }


@pytest.mark.parametrize("kind", contexts(None))
def test_the_token_of_a_request_is_found_in_whatever_a_handler_has(kind: str) -> None:
    token, auth = made(), AuthCredentials(["read"])
    keep_for(auth, token)
    assert subject_token_of(contexts(auth)[kind]) is token
    keep_for(other := AuthCredentials(["read"]), None)
    with pytest.raises(MissingCredentialsError, match="this caller has no access token"):
        subject_token_of(contexts(other)[kind])
    with pytest.raises(ConfigurationError, match=r"pass rules=RequestRules\(keep_subject_token=True\)"):
        subject_token_of(contexts(AuthCredentials(["read"]))[kind])
    with pytest.raises(ConfigurationError, match="has not authenticated this request, or its path is public"):
        subject_token_of(contexts(None)[kind])


@pytest.mark.parametrize("context", [None, "x", object(), {}, [], SimpleNamespace(call_context=None), made()])
def test_what_is_no_context_of_a_request_is_refused(context: Any) -> None:
    with pytest.raises(ConfigurationError, match="pass the request, its scope, or the context that the a2a-sdk gives"):
        subject_token_of(context)


@pytest.mark.parametrize("auth", ["x", ["read"], {"a": 1}, 7])
def test_credentials_that_somebody_else_has_put_there_are_of_no_token(auth: Any) -> None:
    with pytest.raises(ConfigurationError, match='do not replace scope\\["auth"\\]'):
        subject_token_of({"auth": auth})


class AllAlike(AuthCredentials):
    """Credentials that compare by what they hold, as dataclasses do."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AllAlike)

    def __hash__(self) -> int:
        return 1


def test_equal_credentials_of_two_requests_are_two_tokens() -> None:
    (ann, bob), (first, second) = (made("ann"), made("bob")), (AllAlike(["read"]), AllAlike(["read"]))
    keep_for(first, ann)
    keep_for(second, bob)
    assert [subject_token_of({"auth": each}).reveal() for each in (first, second)] == ["ann", "bob"]
    with pytest.raises(ConfigurationError):
        subject_token_of({"auth": AllAlike(["read"])})
    with pytest.raises(ConfigurationError):
        subject_token_of({"auth": copy.copy(first)})


def test_a_token_goes_with_the_credentials_of_its_request() -> None:
    gc.collect()
    before = len(subject_token._KEPT)
    auth = AuthCredentials()
    keep_for(auth, made())
    assert len(subject_token._KEPT) == before + 1
    del auth
    gc.collect()
    assert len(subject_token._KEPT) == before
