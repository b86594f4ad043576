"""Drills of the running example: ``python examples/production/drill.py FOLDER revoked-team``.

Each drill breaks something while callers call and verifiers verify, and repairs it with the commands that it shows. It
fails if anything was accepted that must not be, or lost that was acknowledged.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from callers import Answer, DrillError, Example, Load, ask, check, until

HERE = Path(__file__).resolve().parent
STALE_SECONDS = 10.0  # stale_if_error of replica.py
WINDOW_SECONDS = 10.0  # window of replica.py
TRUST_SECONDS = 1.0  # how often a program looks at its trust file
REJECTED = {401, 429}
UNTRUSTED, INPUT_OUTPUT = 4, 6  # exit codes of a2a-sign


class Drill:
    """One drill: what it says, the commands that it runs, and what it finds."""

    def __init__(self, example: Example) -> None:
        self.example, self.folder = example, example.folder
        self.teams = {
            owner: self.folder / "callers" / "keys" / number
            for number, _, owner in (
                line.split("\t") for line in (self.folder / "callers" / "keys" / "index.tsv").read_text().splitlines()
            )
        }
        self.environment = {
            **os.environ,
            **example.settings,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PGPASSFILE": "secrets/owner.pgpass",
            "SSL_CERT_FILE": "tls/ca.pem",
        }
        self.pids = self._pids()
        self.began = time.time()
        self.started = 0.0
        self.stopped: list[Path] = []

    def say(self, text: str) -> None:
        print(text, flush=True)

    def run(self, command: str, *, code: int = 0) -> str:
        """Run a command in the folder of the example, and show it. What it printed."""
        self.say(f"  $ {command}")
        done = subprocess.run(
            ["/bin/bash", "-c", command.replace("examples/production", str(HERE))],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        check(done.returncode == code, f"code {done.returncode}, not {code}: {command}\n{done.stdout}{done.stderr}")
        return done.stdout

    def stop(self, *names: str) -> None:
        """As a crash: the supervisor ends them without a farewell, and leaves them down."""
        self.stopped += [self.folder / "stop" / name for name in names]
        self.run(f"touch {' '.join(f'stop/{name}' for name in names)}")
        pids = [int((self.folder / "stop" / f"{name}.pid").read_text()) for name in names]
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), f"{names} end")

    def start(self, *names: str) -> None:
        self.started = time.monotonic()
        self.run(f"rm {' '.join(f'stop/{name}' for name in names)}")

    def new_key(self, owner: str) -> Path:
        create = 'a2a-sign api-key create --store "$OWNER_DATABASE" --scope invoices'
        self.run(f"{create} --owner {owner} -q > callers/{owner}.key")
        return self.folder / "callers" / f"{owner}.key"

    def revoke(self, owner: str) -> None:
        self.run(f'a2a-sign api-key revoke --store "$OWNER_DATABASE" --owner {owner}')

    def keys(self) -> dict[str, str]:
        """The state of each API key in the store."""
        listed = json.loads(self.run('a2a-sign api-key list --store "$OWNER_DATABASE" --json'))["keys"]
        return {each["id"]: f"{each['owner']} {each['state']}" for each in listed}

    def each_replica(self, headers: dict[str, str]) -> list[Answer]:
        answers = []
        for name, origin in self.example.replicas.items():
            with self.example.client(origin) as http:
                answers.append(ask(http, origin, name, headers))
        return answers

    def statuses(self, key: Path) -> set[int]:
        """What the replicas answer to an API key."""
        return {each.status for each in self.each_replica({"X-API-Key": key.read_text().strip()})}

    def replayed(self, used: list[Answer]) -> set[int]:
        """What the replicas answer to proofs that were accepted before."""
        check(all("dpop" in each.sent for each in used) and bool(used), "there are proofs to replay")
        return {answer.status for each in used for answer in self.each_replica(each.sent)}

    def ring(self) -> list[dict[str, str]]:
        listed = subprocess.run(
            [Path(sys.executable).with_name("a2a-sign"), "keys", "list", "signing/ring.json", "--json"],
            cwd=self.folder, env=self.environment, capture_output=True, check=True,
        )  # fmt: skip
        keys: list[dict[str, str]] = json.loads(listed.stdout)["keys"]
        return keys

    def audited(self, event: str) -> bool:
        """Whether each replica has logged this event since the drill began."""
        logs = [self.folder / "logs" / f"audit-{number}.jsonl" for number in self.example.replicas]
        events = ([json.loads(line) for line in log.read_text().splitlines()] for log in logs)
        return all(any(each["event"] == event and each["time"] > self.began for each in log) for log in events)

    def check_cards(self) -> None:
        """The callers of each replica get a card that they verify."""
        check(all(map(self.example.kids, self.example.replicas)), "each replica serves a verified card")

    def redis_answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", int(self.example.settings["REDIS_PORT"])), timeout=5).close()
        except OSError:
            return False
        return True

    def check_ready(self) -> None:
        for name, origin in self.example.replicas.items():
            with self.example.client(origin) as http:
                check(http.get("/readyz").status_code == 200, f"replica {name} stays ready")

    def check_not_restarted(self) -> None:
        check(self._pids() == self.pids, "no replica was started again")

    def alert_query_finds(self, alert: str) -> bool:
        with self.example.client(f"http://127.0.0.1:{self.example.settings['PROMETHEUS_PORT']}") as http:
            groups = http.get("/api/v1/rules").json()["data"]["groups"]
            (query,) = (rule["query"] for group in groups for rule in group["rules"] if rule["name"] == alert)
            return bool(http.get("/api/v1/query", params={"query": query}).json()["data"]["result"])

    def _pids(self) -> list[str]:
        return [(self.folder / "stop" / f"replica-{number}.pid").read_text() for number in self.example.replicas]


def callers_stay(load: Load, *callers: str, since: float = 0.0) -> None:
    """These callers were never rejected. 503 says that a server was too busy, and when to call again."""
    for caller in callers:
        answers = load.of(caller, since=since)
        found = {each.status for each in answers}
        check(200 in found and found <= {200, 503}, f"{caller} is admitted, and got {found}")
        check(all(each.retry_after for each in answers if each.status == 503), f"{caller}: 503 says when to come again")


def revoked_team(drill: Drill) -> None:
    """A team leaves: its keys are rejected by every replica, and stay rejected."""
    leaver = drill.new_key("leaver")
    with Load(drill.example, {**drill.teams, "leaver": leaver}) as load:
        load.sees_all_replicas("leaver")
        drill.revoke("leaver")
        acknowledged = time.monotonic()
        until(lambda: drill.statuses(leaver) <= REJECTED, "all replicas reject the key")
        rejected = time.monotonic()
        drill.say(f"  all replicas reject the key after {rejected - acknowledged:.1f} s")
        for _ in range(10):
            check(drill.statuses(leaver) <= REJECTED, "the key stays rejected")
        until(lambda: bool(load.of("leaver", since=rejected)), "the team calls again")
    check(not load.of("leaver", 200, since=rejected), "no call was admitted after the replicas rejected the key")
    check(not load.of("leaver", 200, since=acknowledged + STALE_SECONDS), "no call was admitted ten seconds later")
    callers_stay(load, *drill.teams)


def leaked_key(drill: Drill) -> None:
    """A thief has the ring and signs a card. The key is revoked, and no caller is rejected meanwhile."""
    (kid,) = (each["kid"] for each in drill.ring() if each["state"] == "active")
    drill.run("cp signing/ring.json callers/stolen.json")
    drill.run("sed 's/about invoices/about your passwords/' agent/card.json > callers/forged.json")
    drill.run("a2a-sign callers/forged.json --key callers/stolen.json --expires 365d -q")
    verify = 'a2a-sign verify callers/forged.json --trust callers/trust.toml --origin "$AGENT_URL" -q'
    drill.run(verify)
    drill.say("  the forged card is verified; now the five commands:")
    with Load(drill.example, drill.teams) as load:
        drill.run(f"a2a-sign keys revoke signing/ring.json {kid}")
        drill.run("sh examples/production/renew.sh")
        until(
            lambda: all(kid not in drill.example.kids(each) for each in drill.example.replicas),
            "the new card is served",
        )
        drill.run(f'a2a-sign trust revoke agent/trust.toml {kid} --reason "the ring was read"')
        drill.run(f'a2a-sign trust revoke callers/trust.toml {kid} --reason "the ring was read"')
        drill.run(
            'a2a-sign verify "$AGENT_URL" --trust callers/trust.toml --private-origins --memory callers/cards.db -q'
        )
        revoked = time.monotonic()
        drill.say("  the forged card is rejected, and no replica serves it:")
        drill.run(verify, code=UNTRUSTED)
        # Even in its place the forged card is not served.
        drill.run("cp agent/card.json signing/card.signed.json && cp callers/forged.json agent/card.json")
        until(lambda: drill.audited("not-reloaded"), "the replicas do not load the card of the thief")
        drill.check_cards()
        drill.run("mv signing/card.signed.json agent/card.json")
        until(lambda: drill.audited("reloaded"), "the replicas load the card")
        load.sees_verifiers()
    trusted = [kids for began, kids, is_copy in load.signers if is_copy and began > revoked + TRUST_SECONDS]
    check(
        bool(trusted) and all(kid not in kids for kids in trusted), "no verifier trusts the leaked key a second later"
    )
    callers_stay(load, *drill.teams)


def rotation(drill: Drill) -> None:
    """The next key is published, and signs after the overlap. No verifier and no caller notices."""
    (old,) = (each["kid"] for each in drill.ring() if each["state"] == "active")
    with Load(drill.example, drill.teams) as load:
        drill.run("a2a-sign keys rotate signing/ring.json --overlap 1m --keep 10m")
        drill.run("sh examples/production/renew.sh")
        ((new, signs_from),) = (
            (each["kid"], datetime.fromisoformat(each["active_from"]))
            for each in drill.ring()
            if each["state"] == "next"
        )
        load.sees_verifiers()
        until(lambda: datetime.now(UTC) > signs_from, "the new key signs")
        drill.run("sh examples/production/renew.sh")
        until(lambda: all(new in drill.example.kids(each) for each in drill.example.replicas), "the new card is served")
        load.sees_verifiers()
    signers = set().union(*(kids for _, kids, _ in load.signers))
    check({old, new} <= signers, f"both keys signed: {signers}")
    callers_stay(load, *drill.teams)


def lost_postgresql(drill: Drill) -> None:
    """Known keys are valid for ten seconds, others get 503, tokens are not affected, and no restart is needed."""
    newcomer, former = drill.new_key("newcomer"), drill.new_key("former")
    drill.revoke("former")
    keys = drill.keys()
    with Load(drill.example, {**drill.teams, "former": former}) as load:
        for caller in [*drill.teams, "reports"]:
            load.sees_all_replicas(caller)
        until(lambda: drill.statuses(former) <= REJECTED, "the revoked key is rejected")
        began = time.monotonic()
        drill.stop("postgres")
        lost = time.monotonic()
        check(drill.statuses(newcomer) == {503}, "a key that no replica knows gets 503")
        drill.run('a2a-sign api-key create --store "$OWNER_DATABASE" --owner nobody -q', code=INPUT_OUTPUT)
        for caller in drill.teams:
            load.sees(caller, 503)
            check(bool(load.of(caller, 200, since=lost)), f"{caller} was admitted in the outage")
        until(lambda: drill.alert_query_finds("AgentStoreLost"), "the alert for a lost store")
        drill.check_ready()
        drill.start("postgres")
        for caller in [*drill.teams, "reports"]:
            load.sees_all_replicas(caller)
        until(lambda: drill.statuses(newcomer) == {200}, "the key from before the outage is admitted")
        back = time.monotonic()
    for caller in drill.teams:
        callers_stay(load, caller)
        late = load.of(caller, 200, since=lost + STALE_SECONDS)
        check(all(each.began > drill.started for each in late), f"{caller} was admitted for ten seconds, no longer")
    callers_stay(load, "reports", since=began)
    check(not load.of("former", 200), "the revoked key was never admitted")
    check(drill.keys() == keys, "the store has the acknowledged keys, and no other")
    drill.say(f"  PostgreSQL was lost for {back - lost:.0f} s")


def lost_redis(drill: Drill) -> None:
    """API keys are not affected. Proofs get 503, also for a time after Redis is back: none is accepted twice."""
    with Load(drill.example, drill.teams) as load:
        for caller in [*drill.teams, "reports"]:
            load.sees_all_replicas(caller)
        drill.stop("redis")
        lost = time.monotonic()
        used = load.of("reports", 200)[-5:]
        load.sees("reports", 503)
        check(drill.replayed(used) <= {401, 429, 503}, "no proof is accepted twice in the outage")
        wrong = [each.status for _ in range(3) for each in drill.each_replica({"X-API-Key": "wrong"})]
        check(set(wrong) <= REJECTED, f"a wrong key is rejected in the outage: {wrong}")
        for caller in drill.teams:
            load.sees(caller, 200)
        drill.check_ready()
        drill.start("redis")
        until(drill.redis_answers, "Redis answers")
        check(drill.replayed(used) <= {401, 429, 503}, "no proof from before is accepted by an empty Redis")
        back = time.monotonic()
        load.sees_all_replicas("reports")
    callers_stay(load, *drill.teams, "reports")
    late = [each for each in load.of("reports", 200, since=lost) if each.began < back + WINDOW_SECONDS]
    check(not late, "no proof was accepted before all earlier proofs had ended")
    check(drill.replayed(used) <= REJECTED, "no proof from before is accepted later")


def restore(drill: Drill) -> None:
    """The disk of PostgreSQL is lost. Every acknowledged change comes back, also a change after the backup."""
    dismissed = drill.new_key("dismissed")
    drill.run("sh examples/production/backup.sh")
    joiner = drill.new_key("joiner")
    drill.revoke("dismissed")
    keys = drill.keys()
    with Load(drill.example, drill.teams) as load:
        load.sees_all_replicas("search")
        drill.stop("postgres", "receive-wal")
        drill.run("rm -r postgres")
        drill.run("sh examples/production/restore.sh")
        drill.start("postgres", "receive-wal")
        until(lambda: drill.statuses(joiner) == {200}, "the key from after the backup is admitted")
        until(lambda: drill.statuses(dismissed) <= REJECTED, "the key that was revoked after the backup is rejected")
        for caller in [*drill.teams, "reports"]:
            load.sees_all_replicas(caller)
        check(drill.keys() == keys, "the store has the acknowledged keys, in their states")
        drill.run("sh examples/production/backup.sh")
    callers_stay(load, *drill.teams, "reports")


DRILLS: dict[str, Callable[[Drill], None]] = {
    "revoked-team": revoked_team,
    "leaked-key": leaked_key,
    "rotation": rotation,
    "lost-postgresql": lost_postgresql,
    "lost-redis": lost_redis,
    "restore": restore,
}


def main() -> int:
    names = sys.argv[2:] or list(DRILLS)
    if len(sys.argv) < 2 or not set(names) <= DRILLS.keys():
        sys.exit(f"drill.py: write the folder of run.py, and drills: drill.py demo {' '.join(DRILLS)}")
    example = Example(Path(sys.argv[1]).resolve())
    for name in names:
        drill = Drill(example)
        drill.say(f"{name}: {' '.join((DRILLS[name].__doc__ or '').split())}")
        try:
            DRILLS[name](drill)
            drill.check_not_restarted()
        except DrillError as error:
            drill.say(f"{name}: FAILED: {error}")
            return 1
        finally:
            for stopped in drill.stopped:
                stopped.unlink(missing_ok=True)
        drill.say(f"{name}: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
