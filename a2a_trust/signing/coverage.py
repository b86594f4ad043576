"""How much of a card a signature covers: which tool drops which members, and what shows that nothing was dropped.

The removal of a member leaves no trace. The server of a card that was signed in a pruned form can remove the members
that the signer dropped, and the rest has exactly the signed bytes. Three things show that a signature covers the whole
card: a form marker in the signature (``signature.FORM_MARKERS``), a trust entry that says so, and a signed empty value
that every known pruner drops (``shows_whole``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from a2a_trust.base.strict_json import JSON, JSONObject
from a2a_trust.card.ambiguity import UnambiguousCard, is_full
from a2a_trust.card.schema import MESSAGES, MESSAGES_0_3, Field, Kind
from a2a_trust.card.view import interface_urls
from a2a_trust.errors import FailureReason, InvalidSignatureError
from a2a_trust.keys.jwk import PublicKey
from a2a_trust.keys.jws import signing_input, verify_signed
from a2a_trust.keys.trust.store import SigningTool
from a2a_trust.signing.forms import Form, Messages, Projection, pointers_of, project
from a2a_trust.signing.signature import RejectedError, Signature

_FORMS_OF: Final[Mapping[SigningTool | None, tuple[Form, ...]]] = {
    SigningTool.A2A_PYTHON: (Form.V0_3_PYTHON, Form.PRUNED_LEGACY, Form.PRUNED),
    SigningTool.A2A_JS: (Form.PRUNED,),
}
"""The pruned forms of each SDK, weakest first."""

#: SERVED before SPEC: they prove the same, and if their bytes are equal, the simpler name is reported.
_FULL: Final = (Form.SERVED, Form.SPEC)
_FORMS: Final = (*_FULL, Form.V0_3_PYTHON, Form.PRUNED_LEGACY, Form.PRUNED)


class CardForms:
    """The forms of one card, made on first use."""

    __slots__ = ("_made", "_served", "_signed")

    def __init__(self, served: UnambiguousCard) -> None:
        self._served = served
        self._made: dict[Form, Projection] = {}
        #: Several entries may trust one key; its signature is verified once.
        self._signed: dict[tuple[str, str, str], Projection | None] = {}

    def signed_by(self, signature: Signature, key: PublicKey, signer: SigningTool | None) -> Projection:
        """A form of the card that the key signed: the marked form, or else any form, the forms of ``signer`` first."""
        asked = (signature.protected, signature.signature, key.thumbprint)
        if asked not in self._signed:
            self._signed[asked] = self._find_signed(signature, key, signer)
        signed = self._signed[asked]
        if signed is None:
            raise RejectedError(
                FailureReason.BAD_SIGNATURE,
                "not a signature by this key over this card"
                + (" in any form" if signature.marker is None else f" in the form {signature.marker}, which it names")
                + "; the card or the signature was changed",
            )
        return signed

    def interfaces(self, projection: Projection) -> list[tuple[str, str]]:
        if projection.payload is self._served.payload:
            return self._served.interfaces
        return interface_urls(projection.members)

    def with_bytes_of(self, signed: Projection, forms: Iterable[Form]) -> Projection | None:
        """The first of the forms that has the same bytes, which the signature covers, too."""
        return next((made for made in self._in(forms) if made.payload == signed.payload), None)

    def _in(self, forms: Iterable[Form]) -> Iterator[Projection]:
        """The card in each of the forms. A card of 1.0 has no form of 0.3."""
        for form in forms:
            if form is not Form.V0_3_PYTHON or self._served.generation.is_legacy:
                yield self._project(form)

    def _find_signed(self, signature: Signature, key: PublicKey, signer: SigningTool | None) -> Projection | None:
        forms = (*_FORMS_OF.get(signer, ()), *_FORMS) if signature.marker is None else (signature.marker,)
        tried: list[bytes] = []
        for made in self._in(forms):
            if made.payload in tried:
                continue
            tried.append(made.payload)
            signed = signing_input(signature.protected, made.payload)
            try:
                verify_signed(signature.header, signature.signature, signed, key)
            except InvalidSignatureError:
                continue
            return made
        return None

    def _project(self, form: Form) -> Projection:
        made = self._made.get(form)
        if made is None:
            served = self._served
            if served.payload is not None and (form is Form.SPEC or (form is Form.SERVED and not served.dropped)):
                made = Projection(form, served.generation, served.payload, pointers_of(served.dropped))
            elif served.has_one_form and (  # the card has nothing that any form would drop
                form in (Form.SPEC, Form.PRUNED) or (form is Form.PRUNED_LEGACY and served.is_printed_alike)
            ):
                made = self._project(Form.SERVED).as_form(form)
            else:
                made = project(served.card, form, generation=served.generation, plain=served.is_plain)
            self._made[form] = made
        return made


def find_coverage(
    signed: Projection, forms: CardForms, marker: Form | None, signer: SigningTool | None
) -> tuple[Projection, bool]:
    """The signed form, and whether it is the whole card; RejectedError if the trust entry does not allow a part.

    A signer that drops members may have dropped some before the card was served. Then the served card has exactly the
    signed bytes, and nothing shows that members are missing: so a form of an SDK that prunes counts as a part.
    """
    if marker is not None:
        return signed, True
    full = forms.with_bytes_of(signed, _FULL)
    if full is not None and (
        signer is SigningTool.WHOLE or (signer is not SigningTool.A2A_TRUST and shows_whole(full))
    ):
        return full, True
    if pruned := forms.with_bytes_of(signed, _FORMS_OF.get(signer, ())):
        return pruned, False
    if full is not None and signer in _FORMS_OF:
        # A newer SDK may know members that are unknown here, and still prune others.
        return full.as_form(Form.PRUNED), False
    if signer is SigningTool.A2A_TRUST:
        detail = (
            "a valid signature without the mark of a2a-trust, which the trust entry demands: its signer is "
            '"a2a-trust". If another tool signs with the key, name that tool as signer'
        )
    elif signer is not None:
        detail = (
            f"a valid signature in the form {signed.form}, which {signer}, the signer of the trust entry, does "
            "not use; name the tool that signs with the key as signer"
        )
    else:
        detail = (
            "a valid signature, but nothing shows that it covers the whole card: members that SDKs drop before they "
            "sign may have been removed. To accept this, name the signer in the trust entry: "
            '"a2a-python" or "a2a-js", or "whole" if the owner of the key signs complete cards'
        )
    raise RejectedError(FailureReason.PARTIAL, detail)


def shows_whole(projection: Projection) -> bool:
    """Whether the members hold an empty value that both known pruners drop. Then the signer drops no members.

    Only members of our schema count: a requirement without scopes, a mutual TLS scheme without description, any empty
    list, string or object. Unknown members and ``params`` show nothing, because a newer SDK may know them and still
    prune the rest.
    """
    messages = MESSAGES_0_3 if projection.generation.is_legacy else MESSAGES
    return _holds_empty(projection.members, messages, "AgentCard")


def _holds_empty(members: JSONObject, messages: Messages, message: str) -> bool:
    fields = messages[message]
    return any(_is_dropped_empty(value, messages, fields[name]) for name, value in members.items() if name in fields)


def _is_dropped_empty(value: JSON, messages: Messages, field: Field) -> bool:
    """Whether the value of a field is empty, or holds such a value outside ``params`` and unknown members."""
    if value in ("", [], {}):
        return True
    if field.kind is Kind.STRUCT:
        return field.name == "security" and value is not None and not is_full(value)
    if field.kind is Kind.MESSAGE:
        return type(value) is dict and _holds_empty(value, messages, field.message)
    items: list[JSON] = list(value.values()) if type(value) is dict else value if type(value) is list else []
    if field.kind in (Kind.MESSAGES, Kind.MESSAGE_MAP):
        return any(item == {} or (type(item) is dict and _holds_empty(item, messages, field.message)) for item in items)
    return "" in items
