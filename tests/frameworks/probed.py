"""Hello worlds of SDKs and frameworks, as they are and behind ``protect``, and what a probe says of them.

``python -m tests.frameworks.probed`` writes the table of docs/probe.md; a test compares it with the servers.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from a2a_trust import Fetcher, SqliteApiKeys
from a2a_trust.client import ApiKey
from a2a_trust.probe import ProbeOptions, ProbeReport, probe_agent
from tests.frameworks.parties import FOLDER
from tests.interop.sdk_process import SDKS, node_environment
from tests.servers.environments import python_of
from tests.servers.serving import ROOT, SERVERS, free_port, serving

__all__ = ["BEGIN", "DOCUMENT", "END", "FRAMEWORKS", "Framework", "Probed", "printed", "probed"]

DOCUMENT: Final = ROOT / "docs" / "probe.md"
BEGIN: Final = "<!-- made by python -m tests.frameworks.probed: begin -->"
END: Final = "<!-- made by python -m tests.frameworks.probed: end -->"


class Framework(NamedTuple):
    """A framework: its environment, the function of ``probed_agent`` that makes its agent, and the agent's path."""

    title: str
    environment: str
    function: str
    path: str = ""
    settings: tuple[tuple[str, str], ...] = ()


FRAMEWORKS: Final = (
    Framework("a2a-sdk 1.3.0", "server-1.3.0", "sdk_1"),
    Framework("a2a-sdk 0.3.26", "server-0.3.26", "sdk_0"),
    Framework("a2a-sdk 0.2.16", "server-0.2.16", "sdk_0", settings=(("CARD_OF_0_2", "1"),)),
    Framework("@a2a-js/sdk 1.3.0", "js-1.3.0", ""),
    Framework("python-a2a 0.5.10", "python-a2a-0.5.10", "python_a2a"),
    Framework("fasta2a 2.1.1", "pydantic-ai-2.68.0", "fasta2a"),
    Framework("Google ADK 2.13.0", "google-adk-2.13.0", "google_adk"),
    Framework("Agno 3.1.10", "agno-3.1.10", "agno", "/a2a/agents/hello", (("AGNO_TELEMETRY", "false"),)),
)


class Probed(NamedTuple):
    """The reports on the agent as it is, behind ``protect``, and behind ``protect`` with a key for the probe.

    ``protect`` is not for servers that are not written in Python.
    """

    bare: ProbeReport
    protected: ProbeReport | None = None
    with_key: ProbeReport | None = None


@contextmanager
def agents(framework: Framework, folder: Path) -> Iterator[tuple[str, str, str]]:
    """The URLs of the bare and the protected agent, which serve while the block runs, and a key."""
    store = folder / "keys.db"
    key = SqliteApiKeys(store, create=True).create(owner="ann").text
    with ExitStack() as stack:
        urls = []
        for guarded in ({}, {"API_KEYS": str(store)}):
            port = free_port()
            origin = f"http://127.0.0.1:{port}"
            command = [str(python_of(framework.environment)), "-m"]
            command += SERVERS["uvicorn-h11"]("tests.frameworks.probed_agent:app", port)
            settings = {"AGENT_URL": origin, "FRAMEWORK": framework.function, **dict(framework.settings), **guarded}
            stack.enter_context(serving(command, origin, settings, FOLDER))
            urls.append(f"{origin}{framework.path}")
        yield urls[0], urls[1], key


def report_on(url: str, key: str | None = None) -> ProbeReport:
    """The report on an agent on this machine, with or without a key."""
    origin = "/".join(url.split("/")[:3])
    fetcher = Fetcher(private_origins=[origin, origin.replace("127.0.0.1", "localhost")])
    credentials = {} if key is None else {"key": ApiKey(key, origins=[origin])}
    return probe_agent(url, ProbeOptions(fetcher=fetcher, credentials=credentials))


def probed(framework: Framework, folder: Path) -> Probed:
    """The reports on the agents of a framework."""
    if not framework.function:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        program = (FOLDER / "probed_js.mjs").read_text(encoding="utf-8")
        node, packages = node_environment(SDKS / framework.environment)
        command = [node, "--input-type=module", "--eval", program]
        with serving(command, url, {"PORT": str(port)}, packages):
            return Probed(report_on(url))
    with agents(framework, folder) as (bare, protected, key):
        return Probed(report_on(bare), report_on(protected), report_on(protected, key))


def row(framework: Framework, found: Probed) -> str:
    """The framework's row of the table."""
    names = [f"{each.interface.binding} {each.interface.generation}" for each in found.bare.requirements]
    bare, protected, with_key = (each.verdict.value if each is not None else "–" for each in found)
    return f"| {framework.title} | {', '.join(dict.fromkeys(names))} | {bare} | {protected} | {with_key} |"


def printed(rows: list[str]) -> str:
    """The table in Markdown."""
    head = "| server | interfaces | as it is | behind `protect` | the same, with a key |\n|---|---|---|---|---|"
    return "\n".join([BEGIN, "", head, *rows, "", END])


def _main() -> None:
    rows = []
    for framework in FRAMEWORKS:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(row(framework, probed(framework, Path(folder))))
        print(rows[-1], file=sys.stderr, flush=True)
    text = DOCUMENT.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    DOCUMENT.write_text(before + printed(rows) + after, encoding="utf-8")


if __name__ == "__main__":
    _main()
