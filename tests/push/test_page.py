"""The programs of docs/push.md for the SDK run as they stand. tests/docs/test_page_examples.py runs the webhook."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from a2a_trust.keys.ring_file import save_key_ring
from a2a_trust.keys.rotation import KeyRing
from tests.client.agents import OWNER
from tests.conftest import ROOT
from tests.servers.environments import answer_of, python_of

RULE, STORE, DELIVER, _ = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "push.md").read_text(encoding="utf-8"), re.DOTALL
)


@pytest.mark.real
def test_the_sender_of_the_sdk_takes_the_client(tmp_path: Path) -> None:
    save_key_ring(tmp_path / "ring.json", KeyRing.begin(OWNER, 0.0))
    for environment in ("server-0.2.16", "server-0.3.26", "server-1.3.0"):
        command = [str(python_of(environment)), "-c", f"{DELIVER}\nprint(type(sender).__name__)"]
        done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, check=False)
        assert done.stdout == b"BasePushNotificationSender\n", done.stderr.decode()


@pytest.mark.real
@pytest.mark.parametrize("environment", ["server-0.2.16", "server-0.3.26"])
def test_a_store_by_the_caller_keeps_webhooks_from_the_tasks_of_others(environment: str) -> None:
    script = str(ROOT / "tests" / "middleware" / "sdk_owned_tasks.py")
    found = answer_of(environment, script, {"recipe": STORE}, PYTHONPATH=str(ROOT))
    assert found.pop("plain") == {"set": True, "get": True, "own": True}  # the attack works against the SDK alone
    assert list(found.values()) == [{"set": False, "get": False, "own": True}] * 2


#: Two callers, each with its own tasks, and in the stores of both versions.
ASKING = """
import asyncio
from a2a.types import Task, TaskState, TaskStatus
from a2a_trust import acting_for
from a2a_trust.testing import fake_principal

async def main():
    store, task = TasksOfCallers(), Task(id="t", context_id="c", status=TaskStatus(state=TaskState.working))
    with acting_for(fake_principal("ann")):
        await store.save(task)
        assert (await store.get("t")).id == "t"
    with acting_for(fake_principal("bob")):
        assert await store.get("t") is None
        await store.delete("t")
    with acting_for(fake_principal("ann")):
        assert (await store.get("t")).id == "t"

asyncio.run(main())
print("kept apart")
"""


@pytest.mark.real
@pytest.mark.parametrize("environment", ["server-0.2.16", "server-0.3.26"])
def test_tasks_are_kept_by_caller(environment: str, tmp_path: Path) -> None:
    command = [str(python_of(environment)), "-c", STORE + ASKING]
    done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, check=False)
    assert done.stdout == b"kept apart\n", done.stderr.decode()


def test_the_rule_is_valid() -> None:
    names: dict[str, Any] = {}
    exec(RULE, names)
    assert names["rules"].webhooks.hosts == ("*.example.com",)
