"""docs/replicas.md is true: three replicas behind nginx run as the page says, and share what it says."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from a2a_trust.keys.jwk import publish_jwks
from tests.auth.proofs import bound_token, by_dpop, proof
from tests.auth.test_jwt import EC
from tests.databases import PostgresServer, RedisServer, installed
from tests.docs.newcomer import Newcomer
from tests.docs.pages import PAGES
from tests.middleware.agent import CALL

pytestmark = pytest.mark.real

SECTION = PAGES["docs/replicas.md"].partition("## Three replicas behind nginx\n")[2]
ISSUER, URL = "https://login.example.com", "https://agent.example.com"


class Follower(Newcomer):
    """Asks the replicas with proofs before the page ends them."""

    def _compare(self, command: str, shown: str) -> None:
        super()._compare(command, shown)
        if command.startswith("curl") and shown == "ok\n":
            self.check_proofs()

    def check_proofs(self) -> None:
        now = int(time.time())
        token = bound_token(iss=ISSUER, aud=URL, iat=now, nbf=now, exp=now + 600)
        answers: Counter[tuple[int, ...]] = Counter()
        with httpx.Client(base_url=f"http://127.0.0.1:{self._here['8000']}", trust_env=False) as client:
            end = time.monotonic() + 60
            while answers[200, 401, 401] < 6:
                assert time.monotonic() < end, answers
                used = proof(token, htu=f"{URL}/rpc", iat=int(time.time()))
                # nginx takes the next replica each time
                statuses = [client.post("/rpc", headers=by_dpop(token, used), json=CALL).status_code for _ in range(3)]
                answers[tuple(statuses)] += 1
        assert all(503 in each for each in answers if each != (200, 401, 401))  # of a machine that is busy


def test_three_replicas_behind_nginx_run_as_the_page_says(
    tmp_path: Path,
    postgres: PostgresServer,
    redis_server: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nginx = Path(installed("nginx", "nginx-light", "/usr/sbin")).parent
    monkeypatch.setenv("PATH", f"{nginx}:{os.environ['PATH']}")
    place = f"127.0.0.1:{postgres.port}"
    postgres.sql("CREATE ROLE owner LOGIN CREATEDB")
    postgres.sql("CREATE DATABASE agents OWNER owner")
    redis_server.has_run_for_long()
    (tmp_path / "issuer.json").write_text(json.dumps(publish_jwks([EC.public_key])))
    (statements,) = re.findall(r"(?ms)^```sql\n(.*?)^```$", SECTION)
    before, after = SECTION.split("**2. ")
    environment = {"AGENT_REDIS": redis_server.url, "AGENT_DATABASE": f"postgresql://agent@{place}/agents"}
    ports = (8000, 8001, 8002, 8003)
    follower = Follower(tmp_path, Path(sys.executable).parent, *ports, **environment)
    follower.follow(before.replace("db.example.com:5432", place))
    for statement in filter(str.strip, statements.split(";\n")):
        postgres.sql(statement, "agents")
    follower.follow(after.replace("db.example.com:5432", place))
    ((last_used,),) = postgres.sql("SELECT last_used FROM a2a_trust.api_key", "agents")
    assert time.time() - 60 < last_used  # which the servers have the right to write
