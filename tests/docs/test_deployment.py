"""docs/deployment.md is true: its agent runs and writes its audit log, and nginx takes its settings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.certificates import SERVER, Authority
from tests.docs.newcomer import Newcomer
from tests.docs.pages import PAGES
from tests.tiers import missing

PAGE = PAGES["docs/deployment.md"]


@pytest.mark.real
def test_the_agent_runs_as_the_page_says(tmp_path: Path) -> None:
    Newcomer(tmp_path, Path(sys.executable).parent, 8000).follow(PAGE.partition("## The proxy")[0])


@pytest.mark.real
def test_nginx_takes_the_settings(tmp_path: Path) -> None:
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
    if nginx is None:
        missing("nginx", "real-proxies")
    (settings,) = re.findall(r"(?ms)^```nginx\n(.*?)^```$", PAGE)
    certificate, key = Authority().issue(subject="agent.example.com", usage=SERVER).write(tmp_path, "server")
    assert (certificate.name, key.name) == ("server.pem", "server.key")
    (tmp_path / "nginx.conf").write_text(
        f"pid {tmp_path}/nginx.pid;\nevents {{}}\nhttp {{\naccess_log off;\n{settings}}}\n"
    )
    command = [nginx, "-t", "-p", str(tmp_path), "-e", "stderr", "-c", "nginx.conf"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
