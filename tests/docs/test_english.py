"""The texts are in plain American English: pages, docstrings, messages and comments of the package.

Readers stumbled over the words below, or read them in two ways. CONTRIBUTING.md says how to write instead.
"""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

from tests.conftest import ROOT
from tests.docs.pages import PAGES

WORDS = re.compile(
    r"""(?ix)\b(?:
    anew | lest | whom | whoever | mend(?:s|ed|ing)? | vouch(?:es|ed|ing)? | by\ way\ of | for\ sure
    | (?:is|are|was|were)\ told | counts?\ for | takes?\ (?:\w+\ )?for\ (?!one|each|every|\d) | out\ of\ reach | no\ end
    | good\ (?:key|credential|token|proof|signature|certificate|password)s?
    | licence | defence | behaviour | colour\w* | honour\w* | favour\w*
    | (?:canonical|normal|serial|recogn|author|initial|summar|organ|minim|maxim|optim|util|emphas|general|special)
      is(?:e|es|ed|ing|ation)
    )\b"""
)
#: Beginnings that turn a sentence around. In a question they are plain.
BEGINNINGS = re.compile(
    r"(?:^|[.:!] |\| |- |\d\. |\*\*)((?:What|Whatever|Of|Whoever|Nobody|None) [a-z][^.?!]{0,200})(?=[.?!]|$)",
    re.MULTILINE,
)
MODULES = sorted((ROOT / "a2a_trust").glob("**/*.py"))
LONGEST = 140
#: Words of a sentence.
LONGEST_SENTENCE = 35


def without_code(page: str) -> str:
    """A page without blocks, inline code and addresses, its paragraphs in one line each."""
    page = re.sub(r"(?ms)^( *)```.*?^\1```$", "", page)
    page = re.sub(r"`[^`\n]*(?:\n[^`\n]*)?`|https?://\S+|\]\([^)]*\)", "`", page)
    return re.sub(r"(?<=\S)\n(?=\w)", " ", page)


def texts_of(module: Path) -> str:
    """Strings, docstrings and comments of a module, without what stands in double backticks."""
    tokens = tokenize.generate_tokens(io.StringIO(module.read_text(encoding="utf-8")).readline)
    texts = [token.string for token in tokens if token.type in (tokenize.STRING, tokenize.COMMENT)]
    lines = "\n\n".join(re.sub(r"^(?:#:? |[rbf]*\"+|[rbf]*')|\"+$|'$", "", text) for text in texts)
    return re.sub(r"(?<=\S)\n *(?=\w)", " ", re.sub(r"``.*?``", "`", lines))


def faults(text: str) -> list[str]:
    beginnings = [match[1] for match in BEGINNINGS.finditer(text) if text[match.end() : match.end() + 1] != "?"]
    return [text[max(match.start() - 30, 0) : match.end() + 20] for match in WORDS.finditer(text)] + beginnings


def test_the_pages_are_in_plain_english() -> None:
    found = {name: faults(without_code(page)) for name, page in PAGES.items()}
    assert {name: each for name, each in found.items() if each} == {}


def test_the_modules_are_in_plain_english() -> None:
    found = {module.relative_to(ROOT).as_posix(): faults(texts_of(module)) for module in MODULES}
    assert len(found) > 200
    assert {name: each for name, each in found.items() if each} == {}


def test_the_lines_of_the_pages_can_be_read_as_they_are() -> None:
    too_long = []
    for name, page in PAGES.items():
        text = re.sub(r"(?ms)^( *)```.*?^\1```$", "", page)  # a command is not broken to be shown
        text = re.sub(r"(?s)<!-- made by .*?: begin -->.*?<!-- .*?end -->", "", text)  # each SDK is a column
        too_long += [f"{name}: {line}" for line in text.splitlines() if len(line) > LONGEST]
    assert too_long == []


def sentences(page: str) -> list[str]:
    """The sentences of a page without code; each item of a list, each cell and each heading ends one."""
    text = re.sub(r"(?s)<!-- made by .*?: begin -->.*?<!-- .*?end -->", "", page)
    text = re.sub(r"(?ms)^( *)```.*?^\1```$", "\n\n", text)
    text = re.sub(r"`[^`\n]*(?:\n[^`\n]*)?`", "`", re.sub(r"\]\([^)]*\)", "]", text))
    text = re.sub(r"(?m)^\|.*$", lambda row: "\n\n" + row[0].replace("|", "\n\n") + "\n\n", text)
    text = re.sub(r"(?m)^( *(?:-|\d+\.|#+) .*)", r"\n\n\1", re.sub(r"(?m)^(#+ .*)$", r"\1\n\n", text))
    parts = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text)]
    return [each for part in parts if part for each in re.split(r"(?<=[.!?])[*)\"]*\s+(?=[A-Z`\[*(\"])", part)]


def words_of(sentence: str) -> int:
    return len(re.findall(r"\S*[\w`]\S*", sentence))


def test_no_sentence_of_the_pages_is_too_long() -> None:
    found = {
        name: long
        for name, page in PAGES.items()
        if (long := [each for each in sentences(page) if words_of(each) > LONGEST_SENTENCE])
    }
    assert found == {}


def test_the_faults_are_found() -> None:
    page = "# A b\n\nOne `two\nthree` four. Five.\n- six\n| x | y z |\n"
    assert [words_of(each) for each in sentences(page)] == [2, 3, 1, 1, 1, 2]
    assert len(faults("Whoever signs is told. What counts is the licence. He mends it. What is it?")) == 6
    assert faults("Sign the card. It is canonicalized for each key, and takes two for one.") == []
