"""The pages of the site, their order, what they load, and the pages of the reference.

The site has the tree of the repository, so that a link between two Markdown files works in the site as it works in the
files. docs/README.md is the navigation. The pages of the reference do not exist as files: docs/api.md names what is on
them.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT: Final = Path(__file__).resolve().parents[2]
_PAGES: Final = ("*.md", "docs/**/*.md", "tests/attacks/README.md")
_LINKED: Final = (
    "docs/*.svg",
    "llms.txt",
    "examples/**/*",
    "templates/*",
    "action.yml",
    ".pre-commit-hooks.yaml",
    "Containerfile",
)
_CONTENTS: Final = "docs/README.md"
_API: Final = "docs/api.md"
_DRAWING: Final = ("docs/site/mermaid.js", "docs/site/diagrams.js")
_MODULES: Final = ROOT / ".sdk" / "docs" / "node_modules"
#: What pages load. Nothing comes from another host, since pages are read without a network, too.
_LOADED: Final = {
    "docs/site/mermaid.js": _MODULES / "@mermaid-js" / "tiny" / "dist" / "mermaid.tiny.js",
    "docs/site/iframe-worker.js": _MODULES / "iframe-worker" / "shim" / "index.js",
    **{f"docs/site/{name}": ROOT / "docs" / "site" / name for name in ("diagrams.js", "menu.js", "site.css")},
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The navigation: home, then the headings of docs/README.md with their links."""
    sections: list[dict[str, Any]] = [{"Home": ["README.md", _CONTENTS]}]
    for section in re.split(r"(?m)^## ", (ROOT / _CONTENTS).read_text(encoding="utf-8"))[1:]:
        links = re.findall(r"(?m)^- \[(.+?)\]\((.+?)\)", section)
        pages = [{title: _with_its_folder(posixpath.normpath(f"docs/{path}"))} for title, path in links]
        sections.append({section.partition("\n")[0]: pages})
    sections[-2]["Reference"].append({"Docstrings": [f"docs/reference/{package}.md" for package in _public_names()]})
    config.nav = sections
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of the repository that are pages or that pages link to, and the pages of the reference."""
    found = [file for file in files if file.src_uri.startswith("assets/")]  # those of the theme
    paths = {path for pattern in (*_PAGES, *_LINKED) for path in ROOT.glob(pattern) if path.is_file()}
    uris = [path.relative_to(ROOT).as_posix() for path in sorted(paths) if "__pycache__" not in path.parts]
    found += [File.generated(config, uri, abs_src_path=str(ROOT / uri)) for uri in uris]
    found += [File.generated(config, uri, abs_src_path=str(path)) for uri, path in _LOADED.items()]
    found.append(File.generated(config, "llms.txt", content=_of_site((ROOT / "llms.txt").read_text(encoding="utf-8"))))
    for package, names in _public_names().items():
        text = f"# `{package}`\n\n" + "".join(f"::: {package}.{name}\n\n" for name in names)
        found.append(File.generated(config, f"docs/reference/{package}.md", content=text))
    return Files(found)


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Diagrams from top to bottom, for phones; docs/api.md with a link from each name to its place in the reference."""
    markdown = markdown.replace("```mermaid\nflowchart LR\n", "```mermaid\nflowchart TD\n")
    if page.file.src_uri != _API:
        return markdown
    parts = re.split(r"(?m)^(## `(a2a_trust[\w.]*)`)$", markdown)
    text = parts[0]
    for heading, package, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        text += heading + re.sub(r"(?m)^\| `(\w+)` \|", rf"| [`\1`][{package}.\1] |", body)
    return text


def on_page_content(html: str, *, page: Page, **_: Any) -> str:
    """A page with a diagram loads what draws it, and the search leaves out the source of functions."""
    html = html.replace(
        '<details class="mkdocstrings-source">', '<details class="mkdocstrings-source" data-search-exclude>'
    )
    if '<pre class="diagram">' not in html:
        return html
    return html + "".join(f'\n<script src="{get_relative_url(uri, page.file.url)}"></script>' for uri in _DRAWING)


def _of_site(index: str) -> str:
    """An index of Markdown files with links to their pages in the site."""
    return re.sub(r"\.md\)", ".html)", re.sub(r"\bREADME\.md\)", "index.html)", index))


def _with_its_folder(path: str) -> str | list[str]:
    """A page; for the README of a folder of pages, with the other pages of the folder below it."""
    if not (path.startswith("docs/") and path.endswith("/README.md")):
        return path
    others = sorted(other.relative_to(ROOT).as_posix() for other in (ROOT / path).parent.glob("*.md"))
    return [path, *(other for other in others if other != path)]


def _public_names() -> dict[str, list[str]]:
    """Package -> its public names, as docs/api.md lists them."""
    parts = re.split(r"(?m)^## `(a2a_trust[\w.]*)`$", (ROOT / _API).read_text(encoding="utf-8"))
    return {
        package: re.findall(r"(?m)^\| `(\w+)` \|", body) for package, body in zip(parts[1::2], parts[2::2], strict=True)
    }
