"""Mutants that no test can notice, and why: by module, class or function, and change."""

# ruff: noqa: E501  the changes are as the report has them

from __future__ import annotations

from typing import Final

__all__ = ["UNKILLABLE"]

_ONLY_TIME: Final = "only time is lost: what it would skip finds nothing"
_LONG_WAY: Final = "only time is lost: the longer way has the same result"
_REAL: Final = "only with a real Redis: tests/auth/test_token_cache.py notices it in `make test-real`"

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
        "Guard._caller_by",
        "alternatives[0] if len(alternatives) == 1 else min(alternatives, key=self._rank)  ->  min(alternatives, key=self._rank)",
    ): "only time is lost: one alternative needs no rank",
    ("auth/guard.py", "Guard._caller_by", "1  ->  0"): "only time is lost: one alternative needs no rank",
    ("auth/guard.py", "Guard._caller_by", "0  ->  -1"): "the first of one alternative is the last",
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
        "signature.algorithm is None or signature.algorithm.name != trusted.key.alg  ->  "
        "signature.algorithm.name != trusted.key.alg",
    ): "an unknown algorithm has no candidates; for the type checker",
    ("signing/signature.py", "parse_signature", "condition unprotected is not None is True"): _ONLY_TIME,
    ("signing/coverage.py", "CardForms.signed_by", "condition asked not in self._signed is True"): _ONLY_TIME,
    ("signing/coverage.py", "CardForms._project", "condition made is None is True"): _ONLY_TIME,
    (
        "signing/coverage.py",
        "CardForms._project",
        "condition served.has_one_form and (form in (Form.SPEC, Form.PRUNED) or "
        "(form is Form.PRUNED_LEGACY and served.is_printed_alike)) is False",
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
    ("signing/verify.py", "_groups", "condition other != group is True"): "a group is joined with itself",
    (
        "base/strict_json/jcs.py",
        "",
        "{dict, list, str, int, float, bool, type(None)}  ->  {dict, list, str, int, float, type(None)}",
    ): _LONG_WAY,
    (
        "base/strict_json/jcs.py",
        "_canonicalize",
        "text if plain is Plain.YES else without_whole_fractions(text)  ->  without_whole_fractions(text)",
    ): _LONG_WAY,
    ("base/strict_json/jcs.py", "_plainness", "condition _CONTAINERS.isdisjoint(kinds) is False"): _LONG_WAY,
    ("base/strict_json/jcs.py", "_plainness", "max(letters) <= '\\uffff'  ->  max(letters) < '\\uffff'"): _LONG_WAY,
    ("base/strict_json/jcs.py", "_plainness", "return Plain.NO  ->  return None"): "both are false",
    (
        "base/strict_json/reader.py",
        "",
        "char in '-0123456789'  ->  char in '-0123456789x'",
    ): "letters are deleted before",
    (
        "base/strict_json/reader.py",
        "",
        "ord(char) if char in '\":' else ord(' ')  ->  ord(char)",
    ): "nothing else is searched for",
    (
        "signing/coverage.py",
        "CardForms._project",
        "form in (Form.SPEC, Form.PRUNED) or (form is Form.PRUNED_LEGACY and served.is_printed_alike)  ->  form in (Form.SPEC, Form.PRUNED)",
    ): _LONG_WAY,
    (
        "signing/coverage.py",
        "CardForms._project",
        "form is Form.SPEC or (form is Form.SERVED and (not served.dropped))  ->  form is Form.SPEC",
    ): _LONG_WAY,
    (
        "signing/sign.py",
        "_without_moments",
        "'iat' in signature.header  ->  'iat' not in signature.header",
    ): "two results are compared, and either way they are equal or not",
    ("keys/jws.py", "cached_if_small", "1024  ->  1025"): "any number of cached headers does",
    ("keys/jws.py", "cached_if_small", "1024  ->  1023"): "any number of cached headers does",
    ("auth/guard.py", "Guard._verify_guesses", "condition evidence.failed is True"): _ONLY_TIME,
    ("auth/introspection.py", "", "512  ->  513"): "any estimate does",
    ("auth/introspection.py", "", "512  ->  511"): "any estimate does",
    (
        "auth/introspection.py",
        "IntrospectionVerifier.__init__",
        "signed_answers is not None  ->  signed_answers is None",
    ): "either way the two configurations differ",
    (
        "auth/introspection.py",
        "IntrospectionVerifier.forget",
        "dropped: self._not_shared.put(signed_part(credential), True, until=time.monotonic() + MAX_REMEMBERED + _REPLICA_SKEW)",
    ): _REAL,
    ("middleware/calls.py", "check_media_type", "0  ->  -1"): "the list has one value",
    ("middleware/calls.py", "_read_json_rpc", "condition not method is True"): _LONG_WAY,
    ("middleware/calls.py", "_members", "type(text) is bytes  ->  type(text) is not bytes"): _LONG_WAY,
    ("middleware/calls.py", "_simple_members", "0  ->  -1"): _LONG_WAY,
    ("middleware/decision.py", "Access.admit_public", "condition self._certificate_headers is True"): _ONLY_TIME,
    (
        "middleware/decision.py",
        "CallRules.body_rule",
        "len(path) + len(method or '') > _LONGEST_CACHED  ->  len(path) + len(method or '') >= _LONGEST_CACHED",
    ): "any limit of that size does",
    ("keys/jws.py", "", "512  ->  513"): "any limit of that size does",
    ("keys/jws.py", "", "512  ->  511"): "any limit of that size does",
    (
        "keys/jws.py",
        "cached_if_small.read_any",
        "read_cached(protected) if len(protected) <= _MAX_CACHED_HEADER else read(protected)  ->  read(protected)",
    ): _LONG_WAY,
    (
        "keys/jws.py",
        "cached_if_small.read_any",
        "len(protected) <= _MAX_CACHED_HEADER  ->  len(protected) < _MAX_CACHED_HEADER",
    ): "any limit of that size does",
    (
        "keys/jws.py",
        "verify_signed",
        "dropped: except ValueError",
    ): "with the cryptography that is tested no signature or key raises it; others may",
    (
        "keys/jws.py",
        "verify_signed",
        "dropped: except UnsupportedAlgorithm",
    ): "with the cryptography that is tested no signature or key raises it; others may",
    (
        "keys/jws.py",
        "check_unprotected",
        "{'alg', 'kid', 'crit', 'b64'}  ->  {'kid', 'crit', 'b64'}",
    ): "every protected header has alg, so the rule before rejects a second one",
}
