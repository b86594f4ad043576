"""Secrets in the place of file names, which no output may show: the one rule for arguments, variables and lists."""

from __future__ import annotations

import os
import re

NOT_SHOWN = (
    "no such file; its name looks like a secret, so it is not shown. Name a file, or, to sign, set A2A_SIGN_KEY to the "
    "key"
)
# Patterns are compiled on first use: at import they would take 3 % of --help, which needs none of them.
#: Certainly secrets: a PEM, a JWK, a URL with a password.
_CERTAIN = r'-----BEGIN|\{\s*"|://[^\s/]*@'
_URL = r"\s*[A-Za-z][A-Za-z0-9+.-]*://"
_WORD = r"[A-Za-z0-9+=_-]{40}"
_CHANGE_OF_CASE = r"[a-z](?=[A-Z])|[A-Z](?=[a-z])"
_CHANGES_IN_KEYS = 6
"""Of 500 keys in base64, one changes its case less often, and one of 170 has fewer than two digits."""
_IN_TEXT = r'(?s)-----BEGIN.*|\{\s*\\?".*|://[^\s/]*@|[A-Za-z0-9+/=_-]{32,}(?:\.[A-Za-z0-9_-]+)*'


def is_secret(name: str, *, may_be_new: bool = False, may_be_database: bool = False) -> bool:
    """Whether there is no file of that name, and the name looks like a secret.

    - A long word is one, too. In the name of a file that ``may_be_new`` it must change its case often, as people name
      reports after a commit.
    - If it ``may_be_database``, a URL is none: errors about databases show no password, and say where it belongs.
    """
    if len(name) < 12 or os.path.lexists(name) or (may_be_database and re.match(_URL, name)):
        return False
    if re.search(_CERTAIN, name):
        return True
    if re.match(_URL, name):
        return False
    from a2a_trust.lint.secret_shapes import looks_random, secret_kind  # slow to import, and few files are missing

    folder, _, last = name.rpartition("/")
    word = last if folder and os.path.isdir(folder) else name  # noqa: PTH112  a name may have a NUL in it
    long = re.search(_WORD, word)
    is_long = long and (not may_be_new or len(re.findall(_CHANGE_OF_CASE, long[0])) >= _CHANGES_IN_KEYS)
    return bool(is_long) or secret_kind(name) is not None or looks_random(word)


def without_secrets(text: str) -> str:
    """The text of an error about arguments, without the parts that look like secrets."""
    return re.sub(_IN_TEXT, "(not shown)", text)
