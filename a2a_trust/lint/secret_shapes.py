"""Texts that look like secrets: keys and tokens of known kinds, and words that are too random to be written by people.

Only the kind is reported, never the text.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Final

_KINDS: Final = (
    ("a private key in PEM", r"-----BEGIN (?:[A-Z0-9]{1,16} ){0,4}PRIVATE KEY-----"),
    ("a JSON Web Token", r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{16,}"),
    ("a password in a URL", r"[A-Za-z][A-Za-z0-9+.-]{0,15}://[^\s/?#:@]{0,256}:[^\s/?#@]{1,256}@"),
    ("a key of AWS", r"A(?:KIA|SIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("a key of Google", r"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    ("a client secret of Google", r"GOCSPX-[A-Za-z0-9_-]{20,}"),
    ("a token of GitHub", r"(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})"),
    ("a token of GitLab", r"gl(?:pat|ptt|rt)-[A-Za-z0-9_-]{20,}"),
    ("a token of Slack", r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("a key of Stripe", r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    ("a key of OpenAI or Anthropic", r"sk-(?:proj-|ant-|svcacct-)?[A-Za-z0-9_-]{32,}"),
    ("a token of Hugging Face", r"hf_[A-Za-z0-9]{30,}"),
    ("a token of npm", r"npm_[A-Za-z0-9]{36,}"),
    ("a token of PyPI", r"pypi-AgE[A-Za-z0-9_-]{50,}"),
    ("a key of SendGrid", r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    # As `a2a-sign api-key create` makes them: prefix, id, secret with checksum.
    ("an API key", r"[a-z][a-z0-9]{1,15}_[A-Za-z0-9]{12}_[A-Za-z0-9]{38}(?![A-Za-z0-9])"),
)
#: A secret begins where no pattern can go on from before, so that the search takes linear time.
_SECRET: Final = re.compile("(?<![A-Za-z0-9_-])(?:" + "|".join(f"({pattern})" for _, pattern in _KINDS) + ")")

_SECRET_NAME: Final = re.compile(
    r"(?:^|[_. -])(?:password|passwd|secret|secret_key|api_?key|access_key|(?:access|refresh|auth|bearer)_token|token"
    r"|private_key|credentials?)$"
)
_WORD: Final = re.compile(r"[A-Za-z0-9+/_=-]{32,}")
_PLACEHOLDER: Final = re.compile(
    r"your|example|sample|placeholder|change.?me|redacted|dummy|todo|xxxx|\*\*|[<>{}$%]|1234567|abcdef", re.IGNORECASE
)
_URI: Final = re.compile(r"[a-z][a-z0-9+.-]{0,31}:\S")
_QUERY_SECRET: Final = re.compile(r"[?&][a-z_-]{0,32}(?:key|token|secret|password|sig)=([^&#\s]{12,})", re.IGNORECASE)
#: Hexadecimal, base32 and UUIDs, which have no capital beside small letters.
_LONG_WORD: Final = re.compile(r"[A-Za-z0-9]{20,}|[A-Fa-f0-9-]{32,}")
_HAS_BOTH: Final = re.compile(r"(?=.*[A-Za-z])(?:.*[0-9]){2}")
_ENTROPY: Final = 4.3
"""Bits per character: above what hexadecimal (4.0) and words joined by dashes reach, below 32 random characters of
base64 (4.5 or so)."""


def secret_kind(text: str) -> str | None:
    """The kind of secret that is certainly in the text; None without one."""
    if len(text) < 15 and "://" not in text:  # no secret is shorter, and most names are
        return None
    for match in _SECRET.finditer(text):
        if not _PLACEHOLDER.search(match[0]):
            return _KINDS[(match.lastindex or 1) - 1][0]
    return None


def is_private_jwk(members: dict[str, object]) -> str | None:
    """The first private member of a JWK (RFC 7518 6, RFC 8037 2); None for a public JWK, and for other objects."""
    if not isinstance(members.get("kty"), str):
        return None
    return next((name for name in ("d", "k", "priv", "p", "q", "dp", "dq", "qi", "oth") if name in members), None)


def is_secret_name(name: str) -> bool:
    """Whether people use members of this name for secrets."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[:128]).lower().replace("-", "_")
    return _SECRET_NAME.search(words) is not None


def stands_as_secret(text: str) -> bool:
    """Whether the text, below a name that suggests a secret, is a generated one."""
    return len(text) >= 12 and not re.search(r"\s|://", text) and _is_generated(text)


def has_secret_query(text: str) -> bool:
    """Whether a parameter in the query of a URL has the name of a secret and a generated value."""
    return "?" in text and _URI.match(text) is not None and any(map(_is_generated, _QUERY_SECRET.findall(text)))


def looks_random(text: str) -> bool:
    """Whether the text has a word that only a generator writes. URLs, DIDs and chain ids are full of public ones."""
    if _PLACEHOLDER.search(text) or _URI.match(text):
        return False
    return any(_is_mixed(word) and _entropy(word) >= _ENTROPY for word in _WORD.findall(text))


def _is_generated(text: str) -> bool:
    is_generated = any(map(_HAS_BOTH.match, _LONG_WORD.findall(text))) or _is_mixed(text)
    return is_generated and not _PLACEHOLDER.search(text) and _entropy(text) >= 3.0


def _is_mixed(word: str) -> bool:
    return bool(re.search("[0-9].*[0-9]", word) and re.search("[a-z]", word) and re.search("[A-Z]", word))


def _entropy(word: str) -> float:
    """Bits per character by the frequencies of its characters."""
    counts = Counter(word).values()
    return -sum(count / len(word) * math.log2(count / len(word)) for count in counts)
