"""A browser looks at each page of the site, as files and without a network: at a desk and on a phone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.interop.sdk_process import SdkUnavailableError, node_environment
from tests.tiers import missing

PROGRAM = (ROOT / "tests" / "docs" / "site.mjs").read_text(encoding="utf-8")
BUILDER = ROOT / ".sdk" / "docs" / "bin" / "mkdocs"
TARGET = "real-packaging"
SMALLEST_LETTERS = 12
#: The contrast that WCAG 2.2 asks for text (1.4.3).
CONTRAST = 4.5
#: What a reader searches, and the pages of which one is among the first three.
SEARCHES = {
    "healthz": {"docs/deployment.html", "docs/operations.html", "docs/protect.html", "docs/requests.html"},
    "basicConfig": {"docs/rejections.html"},
    "401": {"docs/rejections.html"},
    "metrics": {"docs/telemetry.html"},
    "azure": {"docs/providers/entra-id.html"},
}
#: Pages with a diagram that is wider than the screen and scrolls: to become fewer.
WIDER = {
    "desk": {"docs/architecture.html"},
    "phone": {
        "docs/architecture.html",
        "docs/deployment.html",
        "docs/threat-model.html",
        "examples/production/index.html",
    },
}
pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not BUILDER.exists():
        missing("the builder of the site", TARGET)
    folder = tmp_path_factory.mktemp("site")
    command = [str(BUILDER), "build", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
    return folder


@pytest.fixture(scope="module")
def seen(site: Path) -> dict[str, Any]:
    """What the browser saw."""
    browser = shutil.which("chromium")
    if browser is None:
        missing("chromium", TARGET)
    try:
        node, environment = node_environment(ROOT / "tests" / "docs" / "playwright-1.65.1")
    except SdkUnavailableError as error:
        missing(f"playwright-core ({error})", TARGET)
    pages = sorted(page.relative_to(site).as_posix() for page in site.rglob("*.html"))
    pages.remove("404.html")  # which servers show, with addresses from their root
    assert len(pages) > 80
    wanted = {"folder": str(site), "program": browser, "pages": pages, "words": list(SEARCHES)}
    done = subprocess.run(
        [node, "--input-type=module", "--eval", PROGRAM],
        cwd=environment,
        input=json.dumps(wanted),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("screen", ["desk", "phone"])
def test_each_page_is_without_faults(seen: dict[str, Any], screen: str) -> None:
    pages = seen[screen]
    assert {name: page["problems"] for name, page in pages.items() if page["problems"]} == {}
    assert {name: page["broken"] for name, page in pages.items() if page["broken"]} == {}
    assert {name: page["overflow"] for name, page in pages.items() if page["overflow"] > 0} == {}


@pytest.mark.parametrize("screen", ["desk", "phone"])
def test_the_letters_of_each_diagram_can_be_read(seen: dict[str, Any], screen: str) -> None:
    letters = {name: [each["letters"] for each in page["diagrams"]] for name, page in seen[screen].items()}
    assert sum(map(len, letters.values())) > 5
    assert {name: sizes for name, sizes in letters.items() if sizes and min(sizes) < SMALLEST_LETTERS} == {}


@pytest.mark.parametrize("screen", ["desk", "phone"])
def test_diagrams_are_as_wide_as_the_screen_at_most(seen: dict[str, Any], screen: str) -> None:
    wider = {name for name, page in seen[screen].items() if any(each["wider"] > 0 for each in page["diagrams"])}
    assert wider - WIDER[screen] == set()


def test_the_menu_of_a_phone_opens_where_the_reader_is(seen: dict[str, Any]) -> None:
    assert [name for name, page in seen["phone"].items() if not page["menu"]] == []


def test_each_page_leads_to_its_neighbors(seen: dict[str, Any]) -> None:
    assert [name for name, page in seen["desk"].items() if page["neighbors"] == 0] == []


@pytest.mark.parametrize("word", SEARCHES)
def test_the_search_finds(seen: dict[str, Any], word: str) -> None:
    found = seen["searches"][word]
    assert found["problems"] == []
    assert SEARCHES[word] & set(list(dict.fromkeys(found["links"]))[:3]), found["links"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_bars_of_the_benchmarks_are_seen(seen: dict[str, Any], scheme: str) -> None:
    front, back = map(luminance, seen["bars"][scheme])
    assert (max(front, back) + 0.05) / (min(front, back) + 0.05) >= CONTRAST


def luminance(color: list[float]) -> float:
    """Relative luminance of red, green and blue from 0 to 255 (WCAG 2.2)."""
    red, green, blue = (
        part / 255 / 12.92 if part / 255 <= 0.04045 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in color
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
