"""R5: the signing job of the GitLab template runs in a pipeline whose PYTHONPATH is a folder of the repository."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.pipelines.pipelines import commit
from tests.pipelines.test_gitlab import PROTECTED, gitlab, make_repository

pytestmark = pytest.mark.real


def test_no_code_of_the_repository_runs_in_the_job_that_has_the_key(tmp_path: Path) -> None:
    """Every Python that reads PYTHONPATH imports ``sitecustomize``, which would find the key in the job's shell."""
    repository, key = make_repository(tmp_path, "agents")
    trace = tmp_path / "imported"
    (repository / "src").mkdir()
    (repository / "src" / "sitecustomize.py").write_text(
        f"import sys\nopen({str(trace)!r}, 'a').write(sys.executable)\n"
    )
    commit(repository)
    secret = base64.b64encode(key.read_bytes()).decode()
    done = gitlab(repository, "a2a-sign", variables=(PROTECTED, f"PYTHONPATH={repository / 'src'}"), secret=secret)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "agents/card.json: verified: signed by" in said
    assert not trace.exists()
