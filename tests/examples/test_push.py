"""The example of push notifications, by the commands of examples/README.md, with a2a-sdk 1.3.0."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.readme import typed
from tests.servers.environments import python_of

pytestmark = pytest.mark.real


def test_the_caller_prints_the_notifications_that_the_readme_shows(tmp_path: Path) -> None:
    with typed("push", "9999", python_of("server-1.3.0"), tmp_path) as session:
        assert session.printed == session.expected != ""
