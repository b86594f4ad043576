"""Read a simple card, as most cards are: it has a single meaning.

A card that ``read_simple_card`` does not accept is read by ``card.ambiguity``, which is the definition and decides. It
is fast because msgspec checks the card while it reads it, with a Struct for each message of
the schema:

- Members of 1.0 only, under their JSON names, of the right types; none is null, unknown, or at a default.
- Nothing is empty, except ``capabilities``, and lists of scopes in requirements of the card, which the ``spec`` form
  drops.
- Exactly one variant of a oneof. Nothing that is nested deeper than the schema, except in ``params``.
- Each signature is an object of two texts.

The fields of a Struct are in the order of their names, so printing it prints the canonical form (RFC 8785): there are
no numbers. ``params`` of extensions may have numbers, so they are read, checked and printed by the definition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from operator import attrgetter
from threading import Lock
from typing import Annotated, Any, Final, Union

from msgspec import UNSET, Meta, MsgspecError, Raw, Struct, UnsetType, defstruct, to_builtins
from msgspec.json import Decoder, Encoder

from a2a_trust.base import strict_json
from a2a_trust.base.strict_json import JSON, MAX_BYTES, MAX_DEPTH, has_plain_names
from a2a_trust.base.strict_json.jcs import canonicalize_parsed
from a2a_trust.base.strict_json.pointer import Path
from a2a_trust.card.schema import MESSAGES, Field, Kind, Presence
from a2a_trust.errors import MalformedError

_Text = Annotated[str, Meta(min_length=1)]
_Texts = Annotated[list[_Text], Meta(min_length=1)]
_TextMap = Annotated[dict[str, _Text], Meta(min_length=1)]
_SIMPLE: Final[dict[Kind, Any]] = {
    Kind.STRING: _Text,
    Kind.BOOL: bool,
    Kind.STRINGS: _Texts,
    Kind.STRING_MAP: _TextMap,
    Kind.STRUCT: Raw,
}
#: These messages may be empty by the schema. Without such a member an object of theirs is not simple.
_NEEDED: Final = {
    "AgentExtension": "uri",
    "SecurityRequirement": "schemes",
    "MutualTlsSecurityScheme": "description",
    "ImplicitOAuthFlow": "scopes",
    "PasswordOAuthFlow": "scopes",
}


class _Signature(Struct, forbid_unknown_fields=True, gc=False):
    protected: str
    signature: str


class SimpleCard(Struct, frozen=True, gc=False):
    """A simple card: its ``spec`` form, what that drops, its signatures, and the URLs of its interfaces.

    ``has_one_form``: nothing is empty. ``is_plain``: it has no ``params``, so no numbers.
    """

    payload: bytes
    dropped: list[Path]
    has_one_form: bool
    signatures: list[dict[str, str]] | None
    interfaces: list[tuple[str, str]]
    is_plain: bool


def read_simple_card(document: bytes, are_simple_params: Callable[[JSON], bool]) -> SimpleCard | None:
    """The card, if it is simple; None does not mean that it is ambiguous.

    ``are_simple_params`` is the check of ``params``: whether they are unambiguous, and have nothing empty in them.
    """
    if len(document) > MAX_BYTES:
        return None
    try:
        card = _decoder().decode(document)
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    signatures = None if card.signatures is UNSET else to_builtins(card.signatures)
    card.signatures = UNSET
    with_params = [each for each in card.capabilities.extensions or () if each.params is not UNSET]
    if not all(_put_canonical_params(each, are_simple_params) for each in with_params):
        return None
    for skill in card.skills:
        if skill.securityRequirements and _without_scopes(skill.securityRequirements):
            return None
    without_scopes = _without_scopes(card.securityRequirements or ())
    dropped: list[Path] = []
    for at, name, scopes in without_scopes:
        if scopes.list == []:
            scopes.list = UNSET
            dropped.append((((((None, "securityRequirements"), at), "schemes"), name), "list"))
    payload = _encode(card)
    if with_params or len(document) != len(payload) + _length(signatures):
        # msgspec keeps the last of two members with one name, and leaves out members at a default: then quotation marks
        # are missing. One that is escaped in this spelling would be printed as another one.
        quotes = payload.count(b'"') + 2 * len(dropped) + (0 if signatures is None else 2 + 8 * len(signatures))
        if document.count(b'"') != quotes or b"\\u0022" in document:
            return None
    if b"__proto__" in payload or not has_plain_names(payload):
        return None
    return SimpleCard(
        payload,
        dropped,
        not without_scopes and _encode(card.capabilities) != b"{}",
        signatures,
        [(f"/supportedInterfaces/{at}/url", each.url) for at, each in enumerate(card.supportedInterfaces)],
        not with_params,
    )


def _length(signatures: list[dict[str, str]] | None) -> int:
    """How long the member ``signatures`` is in print. Without numbers no text of a card is shorter than its print, so a
    document that is only as long as its print has nothing else in it."""
    lengths = [len('{"protected":"","signature":""},') + sum(map(len, each.values())) for each in signatures or ()]
    return 0 if signatures is None else len('"signatures":[],') - 1 + sum(lengths)


def _without_scopes(requirements: Iterable[Any]) -> list[tuple[int, str, Any]]:
    """The index of the requirement, the scheme and its ``StringList``, for each scheme that is without scopes."""
    return [
        (at, name, scopes)
        for at, requirement in enumerate(requirements)
        for name, scopes in requirement.schemes.items()
        if not scopes.list
    ]


def _put_canonical_params(extension: Any, are_simple: Callable[[JSON], bool]) -> bool:
    """Put the canonical form of its ``params`` in their place; False if they are not simple."""
    text = bytes(extension.params)
    if text.count(b"{") + text.count(b"[") > MAX_DEPTH // 2:  # then they are not too deep, wherever they are
        return False
    try:
        value, is_plain = strict_json.read(text)
    except MalformedError:
        return False
    if not are_simple(value):
        return False
    extension.params = Raw(canonicalize_parsed(value, plain=is_plain))
    return True


@cache
def _decoder() -> Decoder[Any]:
    """Made on first use: it takes a millisecond, and few commands read a card."""
    with _MAKING:
        return Decoder(_struct("AgentCard"))


#: Held while a decoder is made: msgspec crashes if two threads make decoders for the same Struct.
_MAKING: Final = Lock()
_encode: Final = Encoder(order="deterministic").encode


@cache
def _struct(message: str) -> type[Struct]:
    """The Struct of a message, with its fields in the order of their names."""
    fields = MESSAGES[message]
    types = {name: _type_of(field) for name, field in fields.items()}
    if message == "AgentCard":
        types["signatures"] = list[_Signature]
    if message == "StringList":
        types["list"] = list[_Text]
    defined = [
        (name, types[name])
        if name == _NEEDED.get(message) or (name in fields and fields[name].presence is Presence.REQUIRED)
        else (name, bool, False)
        if types[name] is bool and fields[name].presence is Presence.IMPLICIT
        else (name, Union[types[name], UnsetType], UNSET)  # noqa: UP007  a type at run time, which need not have the operator
        for name in sorted(types)
    ]
    variants = [name for name, field in fields.items() if field.oneof]
    values_of = attrgetter(*variants) if variants else None

    def check_variant(self: Struct) -> None:
        if values_of is not None and values_of(self).count(UNSET) != len(variants) - 1:
            raise ValueError("exactly one variant is needed")

    return defstruct(
        message,
        defined,
        namespace={"__post_init__": check_variant} if variants else {},
        forbid_unknown_fields=True,
        omit_defaults=True,
        kw_only=True,
        gc=False,
    )


def _type_of(field: Field) -> Any:
    if field.kind in _SIMPLE:
        return _SIMPLE[field.kind]
    inner = _struct(field.message)
    if field.kind is Kind.MESSAGES:
        return Annotated[list[inner], Meta(min_length=1)]  # type: ignore[valid-type]
    if field.kind is Kind.MESSAGE_MAP:
        return Annotated[dict[str, inner], Meta(min_length=1)]  # type: ignore[valid-type]
    return inner
