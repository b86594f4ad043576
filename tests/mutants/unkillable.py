"""Mutants that no test can notice, and why: by module, class or function, and change."""

# ruff: noqa: E501  the changes are as the report has them

from __future__ import annotations

from typing import Final

__all__ = ["UNKILLABLE"]

_ONLY_TIME: Final = "only time is lost: what it would skip finds nothing"

UNKILLABLE: Final[dict[tuple[str, str, str], str]] = {
    ("auth/guard.py", "_Evidence", "False  ->  True"): _ONLY_TIME,
    (
        "auth/guard.py",
        "Guard.authenticate",
        "evidence.rejected and (rejected := (await self._reject_invalid(evidence, carried, scope)))  ->  "
        "(rejected := (await self._reject_invalid(evidence, carried, scope)))",
    ): _ONLY_TIME,
    ("auth/guard.py", "Guard.authenticate", "condition evidence.is_bound or evidence.dpop_token is True"): _ONLY_TIME,
    ("auth/guard.py", "Guard._collect", "condition found is _NO_LINES and scheme.header is False"): _ONLY_TIME,
    ("auth/guard.py", "Guard._collect", "dropped: continue"): _ONLY_TIME,
    (
        "auth/guard.py",
        "Guard._without_credentials",
        "place.header or b''  ->  place.header",
    ): "no header has the name None either; for the type checker",
    (
        "auth/guard.py",
        "Guard._key_without_proof",
        "others or self.dpop is None  ->  others",
    ): "without dpop no token comes by DPoP, and was refused before; for the type checker",
    (
        "auth/guard.py",
        "Guard._without_credentials",
        "line and line.lower().startswith(b'dpop ')  ->  line.lower().startswith(b'dpop ')",
    ): "a name without a dash has no alias, so no line is None; for the type checker",
    (
        "auth/guard.py",
        "_find_outage",
        "unknown or evidence.undecided[name]  ->  evidence.undecided[name]",
    ): "either outage is a true answer",
    ("signing/verify_signature.py", "", "0  ->  -1"): "only the order of the ranks counts",
    ("signing/verify_signature.py", "", "2  ->  3"): "only the order of the ranks counts",
    (
        "signing/verify_signature.py",
        "_check_header",
        "algorithm is None or algorithm.name != trusted.key.alg  ->  algorithm.name != trusted.key.alg",
    ): "an unknown algorithm has no candidates; for the type checker",
    ("signing/coverage.py", "CardForms.signed_by", "condition asked not in self._signed is True"): _ONLY_TIME,
    ("signing/coverage.py", "CardForms._project", "condition made is None is True"): _ONLY_TIME,
    (
        "signing/coverage.py",
        "CardForms._project",
        "condition served.has_one_form and is_one is False",
    ): _ONLY_TIME,
    (
        "signing/coverage.py",
        "CardForms._project",
        "form in (Form.SPEC, Form.PRUNED)  ->  form in (Form.PRUNED,)",
    ): _ONLY_TIME,
    (
        "signing/coverage.py",
        "CardForms._project",
        "form in (Form.SPEC, Form.PRUNED)  ->  form in (Form.SPEC,)",
    ): _ONLY_TIME,
    ("signing/coverage.py", "CardForms._project", "dropped: self._made[form] = made"): _ONLY_TIME,
    ("signing/verify_signature.py", "_failure", "64  ->  65"): "any short length does",
    ("signing/verify_signature.py", "_failure", "64  ->  63"): "any short length does",
    ("signing/verify.py", "_policies_of_store", "condition not trust.policies is False"): _ONLY_TIME,
    ("signing/verify.py", "_covered_by_all", "True  ->  False"): "the order only saves comparisons",
    (
        "signing/verify.py",
        "_covered_by_all",
        "signature.projection.payload == other.projection.payload or is_within(signature.projection.members, other.projection.mem  ->  is_within(signature.projection.members, other.projection.members)",
    ): "equal payloads have equal members; only time is lost",
    ("signing/verify.py", "_covered_by_all", "dropped: if other is not signature"): "a signature covers what it covers",
    ("auth/token_claims.py", "moments_of", "0  ->  1"): "a second of the year 1970",
    ("auth/token_claims.py", "moments_of", "0  ->  -1"): "a second of the year 1970",
    ("auth/jwt.py", "", "16384  ->  16383"): "any limit of that size does",
    ("auth/jwt.py", "", "16384  ->  16385"): "any limit of that size does",
    ("auth/token_claims.py", "", "96  ->  95"): "any estimate does",
    ("auth/token_claims.py", "", "96  ->  97"): "any estimate does",
    ("auth/token_claims.py", "", "4096  ->  4095"): "any limit of that size does",
    ("auth/token_claims.py", "", "4096  ->  4097"): "any limit of that size does",
    ("auth/token_claims.py", "shorten", "200  ->  199"): "any short length does",
    ("auth/token_claims.py", "shorten", "200  ->  201"): "any short length does",
    (
        "auth/guard.py",
        "Guard._without_credentials",
        "self.dpop is None and any((line and line.lower().startswith(b'dpop ') for line in came))  ->  any((line and line.lower().startswith(b'dpop ') for line in came))",
    ): "with dpop, what comes as DPoP is a credential",
    ("signing/coverage.py", "CardForms._find_signed", "condition made.payload in tried is False"): _ONLY_TIME,
    ("signing/coverage.py", "CardForms._find_signed", "dropped: tried.append(made.payload)"): _ONLY_TIME,
    (
        "client/memory.py",
        "Admission._end_first_use",
        "self._past.on_first_use and (not self._verified.on_first_use)  ->  self._past.on_first_use",
    ): "rule 2 has rejected other keys of first use",
    ("client/memory.py", "TableCardMemory._reading", "dropped: raise NotImplementedError"): "every memory has its own",
    ("client/memory.py", "TableCardMemory._writing", "dropped: raise NotImplementedError"): "every memory has its own",
    ("signing/parties.py", "_groups", "condition other != group is True"): "a group is joined with itself",
}
