"""S16: a card that an SDK signed in its pruned form, stripped to exactly what was signed, is not reported as whole.

Measured here: an API key AND mutual TLS, neither with scopes. SDKs drop the whole requirement before they sign, so a
server can take it out, and the rest of the card is what was signed. Whether a signature covers everything has to be
shown by its mark, by the trust entry, or by the signed bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from a2a_trust import Origins, TrustedKey, TrustStore, publish_jwks, sign_card
from a2a_trust.cli.main import main
from a2a_trust.client import TrustOnFirstUse
from a2a_trust.errors import CardVerificationError, FailureReason, PartialSignatureError, UncoveredFieldsError
from a2a_trust.keys import LocalSigner, SigningTool
from a2a_trust.keys.jwk import private_key_to_jwk
from a2a_trust.signing import Coverage
from tests.attacks.forgery import (
    JSONObject,
    b64,
    canonical,
    entry,
    pruned,
    served,
    signs,
    unb64,
    without_signatures,
)
from tests.attacks.verifying import HOST, ORIGIN, refusal, verified
from tests.interop.conftest import js_1_3_0, python_1_3_0
from tests.interop.sdk_process import SdkProcess
from tests.tables import walk

__all__ = ["js_1_3_0", "python_1_3_0"]

PARTIAL = FailureReason.PARTIAL
TOOLS = (None, *SigningTool)


@pytest.fixture
def card(card: JSONObject) -> JSONObject:
    """Callers need an API key and a client certificate; there is nothing else in it that pruning drops."""
    demanded: JSONObject = {"schemes": {"key": {}, "mtls": {}}}
    skills = [{name: value for name, value in card["skills"][1].items() if name != "securityRequirements"}]
    return {
        **card,
        "capabilities": {"streaming": True},
        "securitySchemes": {**card["securitySchemes"], "mtls": {"mtlsSecurityScheme": {"description": "ours"}}},
        "securityRequirements": [demanded],
        "skills": skills,
    }


@pytest.fixture
def by_sdk(card: JSONObject, owner: LocalSigner) -> JSONObject:
    """The owner's signature as the SDKs make it."""
    return entry({"alg": "ES256", "kid": "owner", "typ": "JOSE"}, canonical(pruned(card)), signs_of(owner))


def signs_of(owner: LocalSigner) -> Any:
    return signs(owner.private_key, "ES256")


def trusting(owner: LocalSigner, tool: SigningTool | None) -> TrustStore:
    return TrustStore([TrustedKey(key=owner.public_key, origins=Origins(HOST), signer=tool)])


def test_the_stripped_card_is_no_proof_unless_the_trust_entry_names_such_an_sdk(
    card: JSONObject, by_sdk: JSONObject, owner: LocalSigner
) -> None:
    stripped = pruned(card)
    assert "securityRequirements" not in stripped  # what the attacker gained
    document = served(stripped, by_sdk)
    for tool in (None, SigningTool.A2A_TRUST):
        refusal(PartialSignatureError, document, trusting(owner, tool), PARTIAL)
    for tool in (SigningTool.A2A_PYTHON, SigningTool.A2A_JS):
        result = verified(document, trusting(owner, tool))
        assert "/securityRequirements" in result.unverified
        assert result.warnings


def test_the_genuine_card_is_refused_with_the_way_to_accept_it_and_not_as_forged(
    card: JSONObject, by_sdk: JSONObject, owner: LocalSigner
) -> None:
    document = served(card, by_sdk)
    for tool in (None, SigningTool.A2A_TRUST, SigningTool.WHOLE):
        refusal(PartialSignatureError, document, trusting(owner, tool), PARTIAL)
    sdk = trusting(owner, SigningTool.A2A_PYTHON)
    refusal(UncoveredFieldsError, document, sdk)
    part = verified(document, sdk, coverage=Coverage.SIGNED_PART_ONLY)
    assert part.card == pruned(card)
    assert "/securityRequirements" in part.unverified


def test_signed_part_only_does_not_stand_in_for_the_trust_entry(
    card: JSONObject, by_sdk: JSONObject, owner: LocalSigner
) -> None:
    for shown in (card, pruned(card)):
        document = served(shown, by_sdk)
        refusal(PartialSignatureError, document, trusting(owner, None), PARTIAL, coverage=Coverage.SIGNED_PART_ONLY)


@pytest.mark.real
@pytest.mark.parametrize("sdk", ["python_1_3_0", "js_1_3_0"])
def test_what_released_sdks_signed_is_not_whole_once_it_is_stripped(
    sdk: str, card: JSONObject, owner: LocalSigner, request: pytest.FixtureRequest
) -> None:
    process: SdkProcess = request.getfixturevalue(sdk)
    jwk = private_key_to_jwk(owner.private_key, alg=owner.alg, kid=owner.kid)
    signed = json.loads(process.sign(json.dumps(card), jwk, reader="plain", wire="printed") or "")
    stripped = served(pruned(signed), *signed["signatures"])
    assert process.refusal(stripped.decode(), owner.public_key.to_jwk()) is None  # the SDK itself sees nothing
    refusal(PartialSignatureError, stripped, trusting(owner, None), PARTIAL)
    tool = SigningTool.A2A_JS if sdk.startswith("js") else SigningTool.A2A_PYTHON
    assert verified(stripped, trusting(owner, tool)).unverified


def test_the_command_does_not_call_it_verified(
    card: JSONObject,
    by_sdk: JSONObject,
    owner: LocalSigner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("card.json").write_bytes(served(pruned(card), by_sdk))
    Path("keys.json").write_text(json.dumps(publish_jwks([owner.public_key])))
    keys = ["--jwks", "keys.json", "--origin", ORIGIN]
    for command in ("verify", "inspect"):
        assert main([command, "card.json", *keys]) == 5
        out = capsys.readouterr().out
        assert "NOT VERIFIED (uncovered)" in out
        assert "; covers the whole card" not in out
        assert main([command, "card.json", *keys, "--signer", "a2a-python"]) == 0
        out, err = capsys.readouterr()
        assert "unverified" in out
        assert "; covers the whole card" not in out
        assert ": verified: " not in out
        assert command != "verify" or "warning:" in err


def test_inspect_leaves_open_what_the_signature_leaves_open(
    card: JSONObject,
    by_sdk: JSONObject,
    owner: LocalSigner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Else people and programs read that a stripped card is verified and that anybody may call."""
    monkeypatch.chdir(tmp_path)
    Path("keys.json").write_text(json.dumps(publish_jwks([owner.public_key])))
    keys = ["--jwks", "keys.json", "--origin", ORIGIN, "--signer", "a2a-python"]

    def inspected(document: bytes) -> tuple[str, Any]:
        Path("card.json").write_bytes(document)
        assert main(["inspect", "card.json", *keys]) == 0
        out = capsys.readouterr().out
        assert main(["inspect", "card.json", *keys, "--json"]) == 0
        return out, json.loads(capsys.readouterr().out)["results"][0]

    out, told = inspected(served(pruned(card), by_sdk))
    assert "callers need: unknown: not verified by this signature\n" in out
    assert "trusted:      verified in part, " in out
    assert "anybody may call" not in out
    assert (told["authentication"], told["anonymous"]) == ("unknown: not verified by this signature", None)
    assert "/securityRequirements" in told["unverified"]
    assert [skill["authentication"] for skill in told["skills"]] == ["unknown: not verified by this signature"]
    # A requirement that was signed is shown as what it is: the least.
    scoped = pruned({**card, "securityRequirements": [{"schemes": {"key": {"list": ["read"]}}}]})
    signed = entry({"alg": "ES256", "kid": "owner"}, canonical(scoped), signs_of(owner))
    out, told = inspected(served(scoped, signed))
    assert "callers need: at least an API key in the header" in out
    assert told["anonymous"] is False
    # Control: a whole signature proves that nothing is demanded.
    out, told = inspected(json.dumps(sign_card(pruned(card), owner).card).encode())
    assert "trusted:      verified, " in out
    assert (told["anonymous"], told["unverified"]) == (True, [])


def test_first_use_follows_the_same_rule(card: JSONObject, by_sdk: JSONObject, owner: LocalSigner) -> None:
    first = TrustOnFirstUse().trust_store([owner.public_key], ORIGIN, TrustStore([]))
    refusal(PartialSignatureError, served(pruned(card), by_sdk), first, PARTIAL)
    refusal(PartialSignatureError, served(card, by_sdk), first, PARTIAL)
    assert verified(sign_card(card, owner).card, first).unverified == ()  # control: our mark shows it


#: What a newer SDK may know and sign although it is unknown here, in every place where members may stand.
NEWER: dict[str, JSONObject] = {
    "a member of the card": {"trustLevel": "gold"},
    "an empty member of the card": {"trustLevels": []},
    "a member with empty values within": {"trustMarks": {"issuer": "", "marks": [], "more": {}}},
    "a member of a scheme": {
        "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X", "v": ""}}}
    },
    "params": {"capabilities": {"extensions": [{"uri": "https://x.example", "params": {"allow": [], "level": ""}}]}},
}


@walk("name", NEWER)
def test_a_signer_whose_schema_has_one_more_field_is_not_taken_for_one_that_drops_nothing(
    name: str, card: JSONObject, owner: LocalSigner
) -> None:
    newer = {**pruned(card), **NEWER[name]}  # its pruner knows the member and keeps it, and drops the requirement
    signed = entry({"alg": "ES256", "kid": "owner"}, canonical(newer), signs_of(owner))
    document = served(newer, signed)
    refusal(PartialSignatureError, document, trusting(owner, None), PARTIAL)
    result = verified(document, trusting(owner, SigningTool.A2A_PYTHON))
    assert result.unverified
    assert result.form.is_lossy


def test_marks_that_the_owner_did_not_protect_change_nothing(
    card: JSONObject, by_sdk: JSONObject, owner: LocalSigner
) -> None:
    stripped, mark = pruned(card), {"cty": "application/json;a2a-form=spec"}
    refusal(PartialSignatureError, served(stripped, {**by_sdk, "header": mark}), trusting(owner, None), PARTIAL)
    header = b64(json.dumps({**json.loads(unb64(by_sdk["protected"])), **mark}).encode())
    refusal(
        CardVerificationError,
        served(stripped, {**by_sdk, "protected": header}),
        trusting(owner, None),
        FailureReason.BAD_SIGNATURE,
    )


@walk("tool", TOOLS)
def test_our_mark_over_the_bytes_of_another_form_is_a_bad_signature(
    tool: SigningTool | None, card: JSONObject, owner: LocalSigner
) -> None:
    """Callers of an SDK can set any header; what the mark says is what is checked."""
    for form in ("spec", "served"):
        header = {"alg": "ES256", "kid": "owner", "cty": f"application/json;a2a-form={form}"}
        signed = entry(header, canonical(pruned(card)), signs_of(owner))
        bad = FailureReason.BAD_SIGNATURE
        refusal(
            CardVerificationError, served(card, signed), trusting(owner, tool), bad, coverage=Coverage.SIGNED_PART_ONLY
        )


def _relabelled(signature: JSONObject) -> Iterator[JSONObject]:
    header = json.loads(unb64(signature["protected"]))
    for cty in ("application/json;a2a-form=spec", "application/json;a2a-form=served", "application/json", None):
        changed = {name: value for name, value in header.items() if name != "cty"} | ({"cty": cty} if cty else {})
        yield {**signature, "protected": b64(json.dumps(changed, sort_keys=True, separators=(",", ":")).encode())}


@walk("tool", TOOLS)
def test_our_own_companion_stays_one(tool: SigningTool | None, card: JSONObject, owner: LocalSigner) -> None:
    """Whoever serves the card deletes the full signature, and the companion's mark."""
    signed = sign_card(card, owner, companion=True).card
    _, companion = signed["signatures"]
    stripped = pruned(without_signatures(signed))
    with pytest.raises(CardVerificationError) as error:
        verified(served(stripped, companion), trusting(owner, tool), coverage=Coverage.SIGNED_PART_ONLY)
    assert [failure.reason for failure in error.value.failures] == [FailureReason.COMPANION]
    for changed in _relabelled(companion):
        with pytest.raises(CardVerificationError) as error:
            verified(served(stripped, changed), trusting(owner, tool), coverage=Coverage.SIGNED_PART_ONLY)
        assert [failure.reason for failure in error.value.failures] == [FailureReason.BAD_SIGNATURE]
