"""An agent of pydantic-ai, served by fasta2a, behind ``protect``. fasta2a makes the card in its endpoint.

``ORIGIN`` is where it is called. Run by a server of fasta2a's own environment, never imported by a test.
"""

# mypy: disable-error-code="import-not-found, misc, unused-ignore"

from __future__ import annotations

import os

from fasta2a.pydantic_ai import agent_to_a2a
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from tests.frameworks.guide import names_for, run_lines

adder = Agent(TestModel(custom_output_text="four"), name="adder")
names = {**names_for("read", os.environ["ORIGIN"]), "agent_to_a2a": agent_to_a2a, "agent": adder}
run_lines("fasta2a and pydantic-ai", names)
app = names["app"]
