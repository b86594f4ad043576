"""Words that readers did not understand, or read in two ways, do not come back: in the package, and on the pages.

The test of plain English has the words of everyday English. These are the words for things of this project.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import ROOT
from tests.docs.pages import PAGES
from tests.docs.test_english import MODULES, texts_of, without_code

#: What stood in the texts -> what to write.
INSTEAD = {
    r"(?<!round )\btrips?\b": "round trip",
    r"\bquestions?\b": "introspection request, or what the question is",
    r"\b[Rr]ooms?\b": "package, capacity, limit, space",
    r"\bways? out\b": "hint",
    r"\btells\b": "logs, audits, names, says",
    r"\b(?:usual|bare)\b": "simple, plain, typical",
    r"\bjunk\b": "invalid",
    r"\bstrangers?\b": "unknown party, another user; untrusted",
    r"\bnobody (?:can|knows?)\b": "unknown; no caller, no client",
    r"\brefus(?:e[ds]?|ing|als?)\b": "reject",
    r"\bthe ones? that\b": "the noun again",
    r"\b(?:that|those) of\b": "the noun again",
    r"\bmay speak for\b": "is trusted for",
    r"\bin secret\b": "silent",
    r"\bnone that was\b": "unknown, expired",
    r"\bthan any of\b": "later than now and the tolerance",
    r"\bAPI keys? (?:is|are) not concerned\b": "this rule does not apply to API keys",
    r"\bmembers without a meaning\b": "empty members",
    r"^\s*type:(?! ignore)": "another first word: tools read it as a type comment",
}
WORDS = re.compile("|".join(INSTEAD), re.IGNORECASE | re.MULTILINE)
#: Names of modules and classes, stable words of reports, and the make variable ROOM.
NAMES = re.compile(r"\bROOM=|^refused(?:$| (?=%))|[|:] bare(?: Starlette)? \|", re.MULTILINE)


def words_of(text: str) -> list[str]:
    text = NAMES.sub("", text)
    return [text[max(match.start() - 30, 0) : match.end() + 20] for match in WORDS.finditer(text)]


def name_of(module: Path) -> str:
    return module.relative_to(ROOT).as_posix()


def test_the_modules_have_none_of_these_words() -> None:
    found = {name_of(module): words_of(texts_of(module)) for module in MODULES}
    assert {name: each for name, each in found.items() if each} == {}


def test_the_pages_have_none_of_these_words() -> None:
    found = {name: words_of(without_made_parts(without_code(page))) for name, page in PAGES.items()}
    assert {name: each for name, each in found.items() if each} == {}


def without_made_parts(page: str) -> str:
    """A page without the tables that programs write."""
    return re.sub(r"(?s)<!-- made by .*?: begin -->.*?<!-- .*?end -->", "", page)


def test_the_words_are_found() -> None:
    assert (
        len(words_of("A stranger's card is refused. It saves a trip. Nobody can tell. The key may speak for it.")) == 5
    )
    assert words_of("The card is rejected. It saves a round trip, and the key is trusted for the host.") == []
