"""Rules for secrets: keys, tokens and passwords in a card, which everybody can read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from a2a_trust.base.strict_json.pointer import Path
from a2a_trust.lint import secret_shapes
from a2a_trust.lint.document import Subject, pointer_of
from a2a_trust.lint.findings import Problem, Severity, rule


@rule(Severity.ERROR, "A key, token or password is in the card, which everybody can read.", "13.4")
def secret(subject: Subject) -> Iterator[Problem]:
    fix = "Remove it. If it was published, revoke it, too: everybody may know it."
    for path, value in subject.values:
        private = secret_shapes.is_private_jwk(value) if type(value) is dict else None
        if private is not None and path is None:
            yield Problem(
                pointer_of((path, private)),
                "this file is a private key in JWK form, and not a card",
                "Keep the key outside of the folders with cards. If it was published, revoke it and make a new key.",
            )
        elif private is not None:
            yield Problem(pointer_of((path, private)), "this is a private key, and everybody can read the card", fix)
    for path, text, is_name in subject.texts():
        kind = secret_shapes.secret_kind(text)
        if kind is not None:
            where = "the name of a member" if is_name else "the text"
            yield Problem(pointer_of(path), f"{where} looks like {kind}, and everybody can read it", fix)
        elif not is_name and secret_shapes.stands_as_secret(text) and _is_below_secret_name(path):
            yield Problem(pointer_of(path), "a generated text stands where secrets do, and everybody can read it", fix)
        elif not is_name and secret_shapes.has_secret_query(text):
            yield Problem(pointer_of(path), "the query of the URL has a secret, and everybody can read it", fix)


#: Ends of names of members with random texts that are public. Names of one or two letters are members of public JWKs.
_PUBLIC: Final = ("key", "hash", "digest", "signature", "address", "fingerprint", "thumbprint", "did", "cid", "id")


@rule(Severity.WARNING, "A text is as random as a key or token.", "13.4")
def possible_secret(subject: Subject) -> Iterator[Problem]:
    for path, text, is_name in subject.texts():
        name = _member_name(path)
        if is_name or name.lower().endswith(_PUBLIC) or len(name) <= 2 or _is_signature(path):
            continue
        if not secret_shapes.looks_random(text) or _is_below_secret_name(path):
            continue
        if secret_shapes.secret_kind(text) is None:
            yield Problem(
                pointer_of(path),
                "the text looks like a secret, and everybody can read the card",
                "If it is a secret, remove it; if it was published, revoke it, too.",
            )


def _is_below_secret_name(path: Path) -> bool:
    """Whether people write secrets there: below such a name, or as the value of a scheme."""
    name = _member_name(path)
    if name == "value" and path is not None and path[0] is not None:
        parent = path[0][0]
        return parent in ((None, "securitySchemes"), (None, "security_schemes"))
    return secret_shapes.is_secret_name(name)


def _is_signature(path: Path) -> bool:
    while path is not None and path[0] is not None:
        path = path[0]
    return path == (None, "signatures")


def _member_name(path: Path) -> str:
    """The name of the innermost member on the way."""
    while path is not None:
        path, step = path
        if isinstance(step, str):
            return step
    return ""
