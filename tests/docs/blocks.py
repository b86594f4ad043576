"""Whether every block of code on every page is run by a test: ``python -m tests.docs.blocks [page …]``.

Each block is broken, one at a time, in a copy of the project; the tests of its page must fail then. The copy leaves the
project as it is. `make blocks` does so for all pages; tests/docs/test_blocks.py checks that every page has its tests.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.conftest import ROOT
from tests.docs.pages import PAGES

__all__ = ["LANGUAGES", "RUN_BY", "blocks_of"]

#: Page, or folder of pages -> the tests that run its blocks.
RUN_BY: Final = {
    "CHANGELOG.md": ["tests/auth/test_principal.py"],
    "README.md": ["tests/cli/test_readme.py"],
    "docs/a2a-sign.md": ["tests/cli/test_card_pages.py"],
    "docs/agents.md": ["tests/docs/test_page_examples.py", "tests/examples/test_agents_guide.py"],
    "docs/api-keys.md": ["tests/docs/test_page_examples.py"],
    "docs/api.md": ["tests/test_architecture.py"],
    "docs/audit.md": ["tests/docs/test_page_examples.py"],
    "docs/backup.md": ["tests/docs/test_page_examples.py"],
    "docs/browsers.md": ["tests/docs/test_page_examples.py"],
    "docs/callers.md": ["tests/docs/test_page_examples.py", "tests/examples/test_protect_guide.py"],
    "docs/canonical-forms.md": ["tests/docs/test_canonical_forms.py"],
    "docs/capacity.md": ["tests/docs/test_page_examples.py"],
    "docs/cards.md": ["tests/serving_cards/test_cards_guide.py"],
    "docs/client-tokens.md": ["tests/examples/test_credentials_guide.py"],
    "docs/clients.md": ["tests/client/test_clients_guide.py"],
    "docs/credentials.md": ["tests/examples/test_credentials_guide.py"],
    "docs/decisions.md": ["tests/docs/test_decisions.py"],
    "docs/dpop.md": ["tests/docs/test_page_examples.py", "tests/examples/test_dpop_guide.py"],
    "docs/errors.md": ["tests/docs/test_reference.py"],
    "docs/failed-credentials.md": ["tests/docs/test_page_examples.py", "tests/examples/test_protect_guide.py"],
    "docs/files.md": ["tests/docs/test_page_examples.py"],
    "docs/first-use.md": ["tests/client/test_clients_guide.py"],
    "docs/forward-auth.md": ["tests/real/test_forward_auth.py"],
    **{
        f"docs/frameworks/{page.name}": [f"tests/frameworks/test_{page.stem.replace('-', '_')}.py"]
        for page in (ROOT / "docs" / "frameworks").glob("*.md")
        if page.name != "README.md"
    },
    "docs/frameworks/README.md": ["tests/frameworks/test_starlette.py"],
    "docs/github.md": ["tests/pipelines/test_release.py"],
    "docs/gitlab.md": ["tests/pipelines/test_release.py"],
    "docs/grpc.md": ["tests/frameworks/test_grpc.py", "tests/real/test_grpc_pass.py"],
    "docs/interop.md": ["tests/cli/test_card_pages.py"],
    "docs/keys.md": ["tests/cli/test_card_pages.py"],
    "docs/lint.md": ["tests/docs/test_pages.py"],
    "docs/many-cards.md": ["tests/docs/test_many_cards.py"],
    "docs/memory-stores.md": ["tests/cli/test_card_pages.py", "tests/client/test_clients_guide.py"],
    "docs/memory.md": ["tests/client/test_clients_guide.py"],
    "docs/mtls-callers.md": ["tests/examples/test_mtls_guide.py"],
    "docs/mtls-clients.md": ["tests/examples/test_mtls_guide.py", "tests/docs/test_schemes.py"],
    "docs/mtls-proxies.md": ["tests/examples/test_mtls_guide.py", "tests/real/test_proxies.py"],
    "docs/mtls.md": ["tests/examples/test_mtls_guide.py"],
    "docs/opaque-tokens.md": ["tests/examples/test_tokens_guide.py"],
    "docs/operations.md": ["tests/docs/test_page_examples.py", "tests/docs/test_pages.py"],
    "docs/outages.md": ["tests/docs/test_page_examples.py"],
    "docs/passwords.md": ["tests/docs/test_page_examples.py", "tests/examples/test_protect_guide.py"],
    "docs/pipeline-keys.md": ["tests/pipelines/test_release.py"],
    "docs/pipelines.md": ["tests/pipelines/test_release.py"],
    "docs/pre-commit.md": ["tests/pipelines/test_release.py"],
    "docs/probe.md": ["tests/probe/test_page.py"],
    "docs/protect.md": ["tests/docs/test_page_examples.py", "tests/examples/test_protect_guide.py"],
    "docs/providers/": ["tests/examples/test_provider_pages.py"],
    "docs/push.md": ["tests/docs/test_page_examples.py", "tests/push/test_page.py"],
    "docs/rejections.md": ["tests/docs/test_page_examples.py"],
    "docs/replicas.md": ["tests/docs/test_replicas.py"],
    "docs/requests.md": ["tests/docs/test_page_examples.py"],
    "docs/rollover.md": ["tests/docs/test_page_examples.py"],
    "docs/schemes.md": ["tests/docs/test_schemes.py"],
    "docs/sdk-clients.md": ["tests/client/test_clients_guide.py"],
    "docs/serve.md": ["tests/serve/test_page.py"],
    "docs/service-mesh.md": ["tests/client/test_clients_guide.py"],
    "docs/sign.md": ["tests/cli/test_card_pages.py"],
    "docs/signatures.md": ["tests/examples/test_signatures_guide.py"],
    "docs/startup.md": ["tests/docs/test_page_examples.py"],
    "docs/streams.md": ["tests/docs/test_page_examples.py"],
    "docs/telemetry.md": ["tests/docs/test_page_examples.py", "tests/docs/test_telemetry_page.py"],
    "docs/testing.md": ["tests/docs/test_page_examples.py", "tests/examples/test_testing_guide.py"],
    "docs/tokens.md": ["tests/examples/test_tokens_guide.py"],
    "docs/trust.md": ["tests/examples/test_trust_guide.py"],
    "docs/tutorial.md": ["tests/docs/test_tutorial.py"],
    "docs/verifiers.md": ["tests/docs/test_page_examples.py", "tests/examples/test_protect_guide.py"],
    "docs/verify.md": ["tests/cli/test_card_pages.py"],
    "examples/README.md": ["tests/examples"],
    "examples/production/README.md": ["tests/real/test_production.py"],
}

_BROKEN_SETTING: Final = "{broken: [\n"
#: Language of a block that runs or that a program reads -> its text with a mistake at its start.
LANGUAGES: Final = {
    "apache": _BROKEN_SETTING,
    "caddyfile": _BROKEN_SETTING,
    "console": "$ a2a-sign --no-such-option; exit 97\n",
    "haproxy": _BROKEN_SETTING,
    "json": _BROKEN_SETTING,
    "nginx": _BROKEN_SETTING,
    "python": "raise RuntimeError('this block runs')\n",
    "sql": "NO SUCH STATEMENT;\n",
    "toml": _BROKEN_SETTING,
    "yaml": _BROKEN_SETTING,
}


def blocks_of(page: str) -> list[tuple[int, str]]:
    """Where each block that runs starts in the text of a page, below its fence, and its language."""
    fences = re.finditer(r"(?m)^ *```(\w+)(?: .*)?\n", page)
    return [(fence.end(), fence[1]) for fence in fences if fence[1] in LANGUAGES]


def runners_of(name: str) -> list[str]:
    """The tests that run the blocks of a page."""
    return next(
        tests for page, tests in RUN_BY.items() if name == page or (page.endswith("/") and name.startswith(page))
    )


def main() -> int:
    """Break the blocks of the named pages, or of all; 1 when tests passed all the same."""
    parser = argparse.ArgumentParser(prog="python -m tests.docs.blocks", description=main.__doc__)
    parser.add_argument("pages", nargs="*", metavar="page", help="docs/protect.md; all pages without one")
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = _copy(Path(folder) / "a2a-trust")
        for name in parser.parse_args().pages or PAGES:
            for start, language in blocks_of(PAGES[name]):
                line = PAGES[name][:start].count("\n")
                broken = PAGES[name][:start] + LANGUAGES[language] + PAGES[name][start:]
                noticed = not _pass(copy, name, broken)
                survivors += not noticed
                print(f"{name}:{line} {language}: {'runs' if noticed else 'NO TEST RUNS IT'}", flush=True)
    return 1 if survivors else 0


def _copy(folder: Path) -> Path:
    """The files of the project that git knows, as they are now."""
    for name in subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True).split():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    for name in (".sdk", ".venv"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def _pass(copy: Path, name: str, text: str) -> bool:
    """Whether the tests of a page pass with another text in its place."""
    (copy / name).write_text(text, encoding="utf-8")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-m", "", "-p", "no:cacheprovider", *runners_of(name)],
            cwd=copy,
            capture_output=True,
            check=False,
        )
    finally:
        (copy / name).write_text(PAGES[name], encoding="utf-8")
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
