"""Callers of the running example, which call it all the time while a drill goes on, and note every answer."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Self

import httpx

from a2a_trust import Fetcher, Origins, TrustedKey, TrustFile, TrustStore, generate_signer, verify_card
from a2a_trust.client import (
    CardAuth,
    ClientCredentials,
    ClientSecret,
    CredentialsError,
    CredentialsRejectedError,
    FetchOptions,
    OAuthClient,
    SecretFile,
    fetch_card,
)
from a2a_trust.keys import read_jwks

CALL = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {}}
PAUSE = 0.02
KEY_SET_SECONDS = 30.0  # its max-age
WAIT_SECONDS = 120.0  # only a defect takes so long


class DrillError(Exception):
    """A promise was broken."""


def check(is_so: bool, promise: str) -> None:
    if not is_so:
        raise DrillError(promise)


def until(happens: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not happens():
        check(time.monotonic() < end, f"waited for {WAIT_SECONDS:.0f} s: {what}")
        time.sleep(0.05)


@dataclass(frozen=True)
class Answer:
    """What a caller got: 0 is no answer. ``replica`` answered, if it was 200."""

    caller: str
    began: float
    status: int
    replica: str = ""
    retry_after: str = ""
    sent: dict[str, str] = field(default_factory=dict, repr=False)


class Recording(httpx.HTTPTransport):
    """A network that notes the credential of each request as it is sent, so that a drill can send it once more."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        lines = {name.lower().decode(): value.decode() for name, value in request.headers.raw}
        answer = super().handle_request(request)
        answer.extensions["sent"] = {name: lines[name] for name in ("authorization", "dpop") if name in lines}
        return answer


class Example:
    """The example that runs in a folder, as its callers see it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = dict(line.split("=", 1) for line in (folder / "settings.env").read_text().splitlines())
        self.url, self.issuer = self.settings["AGENT_URL"], self.settings["ISSUER"]
        self.replicas = {str(n): f"http://127.0.0.1:{self.settings[f'REPLICA_{n}_PORT']}" for n in (1, 2, 3)}

    def tls(self) -> ssl.SSLContext:
        """Settings for one client: httpcore changes them for each connection, which other threads must not see."""
        return ssl.create_default_context(cafile=self.folder / "tls" / "ca.pem")

    def client(self, url: str = "") -> httpx.Client:
        network = Recording(verify=self.tls())
        return httpx.Client(base_url=url or self.url, transport=network, trust_env=False, timeout=60)

    def token_client(self, name: str) -> httpx.Client:
        """A client of the provider, whose tokens are bound to its key."""
        login = OAuthClient(
            issuer=self.issuer,
            token_endpoint=f"{self.issuer}/token",
            client_id=name,
            authentication=ClientSecret(SecretFile(self.folder / "secrets" / "clients" / name)),
            dpop=generate_signer("ES256"),
            fetcher=Fetcher(private_origins=[self.issuer], ssl_context=self.tls(), timeout=60),
        )
        credential = ClientCredentials(login, origins=[self.url], allowed_scopes=["invoices"], resource=self.url)
        trust = TrustFile(self.folder / "callers" / "trust.toml")
        fetcher = Fetcher(private_origins=[self.url], ssl_context=self.tls(), timeout=60)
        card = fetch_card(self.url, trust, FetchOptions(fetcher=fetcher))
        http = self.client()
        http.auth = CardAuth(card, {"login": credential}, trust=trust)
        return http

    def kids(self, replica: str) -> frozenset[str]:
        """The keys that signed the card that this replica serves, by the trust file of the callers."""
        with self.client(self.replicas[replica]) as http:
            card = http.get("/.well-known/agent-card.json").raise_for_status().content
        return self.signers(card, TrustFile(self.folder / "callers" / "trust.toml"))

    def signers(self, card: bytes, trust: TrustFile | TrustStore) -> frozenset[str]:
        """The trusted keys that signed the card. TrustError: there is none."""
        return frozenset(key.kid for key in verify_card(card, trust, origin=self.url).keys)


def ask(http: httpx.Client, agent: str, caller: str, headers: dict[str, str]) -> Answer:
    """One call of the agent at this URL."""
    began = time.monotonic()
    try:
        answer = http.post(f"{agent}/rpc", json=CALL, headers={"A2A-Version": "1.0", **headers})
    except CredentialsRejectedError as error:
        answer = error.response
    except httpx.TransportError:
        return Answer(caller, began, 0)
    text = answer.json()["result"]["message"]["parts"][0]["text"] if answer.status_code == 200 else ""
    retry_after, sent = answer.headers.get("Retry-After", ""), answer.extensions.get("sent", {})
    return Answer(caller, began, answer.status_code, text[-1:], retry_after, sent)


class Load:
    """While the block runs: callers call without end, and verifiers verify the card without end.

    At the end, what was acknowledged must be in the audit log, and no verifier may have rejected a card.
    """

    def __init__(self, example: Example, keys: dict[str, Path], *, tokens: tuple[str, ...] = ("reports",)) -> None:
        self.example, self.keys, self.tokens = example, keys, tokens
        self.answers: list[Answer] = []
        #: When each card was fetched, the keys that signed it, and whether the verifier has a copy of the keys.
        self.signers: list[tuple[float, frozenset[str], bool]] = []
        self.failures: list[str] = []
        self._is_over = Event()
        self._threads: list[Thread] = []
        self._audited_before = self._audited()

    def __enter__(self) -> Self:
        work = [(self._call_by_key, (name, path)) for name, path in self.keys.items()]
        work += [(self._call_by_token, (name,)) for name in self.tokens]
        work += [(self._verify, (is_copy,)) for is_copy in (True, False)]
        self._threads = [Thread(target=self._guarded, args=each) for each in work]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        if kind is None:
            check(not self.failures, f"a caller or verifier failed: {self.failures[:3]}")
            audited = self._audited()
            for caller in {each.caller for each in self.answers}:
                admitted, logged = len(self.of(caller, 200)), audited[caller] - self._audited_before[caller]
                check(admitted <= logged, f"{caller}: {admitted} calls were answered, the audit log has {logged}")

    def of(self, caller: str, status: int = 0, since: float = 0.0) -> list[Answer]:
        return [
            each
            for each in [*self.answers]
            if each.caller == caller and each.began >= since and status in (0, each.status)
        ]

    def sees(self, caller: str, status: int) -> None:
        """Wait until this caller gets this status, for a call that it makes after this moment."""
        since = time.monotonic()
        self._until(lambda: bool(self.of(caller, status, since)), f"{caller} gets {status}")

    def sees_all_replicas(self, caller: str) -> None:
        """Wait until each replica answers this caller, after this moment."""
        since = time.monotonic()
        enough = set(self.example.replicas)
        self._until(
            lambda: {each.replica for each in self.of(caller, 200, since)} == enough, f"all replicas admit {caller}"
        )

    def sees_verifiers(self) -> None:
        """Wait until verifiers have verified some cards that they fetched after this moment."""
        since = time.monotonic()
        self._until(lambda: sum(began > since for began, *_ in self.signers) > 10, "verifiers verify")

    def _until(self, happens: Callable[[], bool], what: str) -> None:
        until(lambda: bool(self.failures) or happens(), what)
        check(not self.failures, f"a caller or verifier failed: {self.failures[:3]}")

    def _guarded(self, work: Callable[..., None], arguments: tuple[object, ...]) -> None:
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001  every failure is told
            self.failures.append(f"{work.__name__}{arguments}: {error!r}")

    def _call_by_key(self, caller: str, path: Path) -> None:
        headers = {"X-API-Key": path.read_text().strip()}
        with self.example.client() as http:
            while not self._is_over.wait(PAUSE):
                self.answers.append(ask(http, self.example.url, caller, headers))

    def _call_by_token(self, caller: str) -> None:
        while not self._is_over.is_set():
            with self.example.token_client(caller) as http, suppress(CredentialsError):  # its card's key was revoked
                while not self._is_over.wait(PAUSE):
                    self.answers.append(ask(http, self.example.url, caller, {}))

    def _verify(self, is_copy: bool) -> None:
        """With a copy of the keys, or with the key set that the agent publishes, which is kept for its max-age."""
        trust: TrustFile | TrustStore = TrustFile(self.example.folder / "callers" / "trust.toml")
        fetched = -KEY_SET_SECONDS
        with self.example.client() as http:
            while not self._is_over.wait(5 * PAUSE):
                if not is_copy and time.monotonic() - fetched > KEY_SET_SECONDS:
                    fetched = time.monotonic()
                    keys = read_jwks(http.get("/.well-known/jwks.json").raise_for_status().content).keys
                    trust = TrustStore(TrustedKey(key=key, origins=Origins("localhost")) for key in keys)
                began = time.monotonic()
                card = http.get("/.well-known/agent-card.json").raise_for_status().content
                self.signers.append((began, self.example.signers(card, trust), is_copy))

    def _audited(self) -> dict[str, int]:
        """The number of admitted calls in the audit log, by caller."""
        counted = dict.fromkeys([*self.keys, *self.tokens], 0)
        for path in (self.example.folder / "logs").glob("audit-*.jsonl"):
            for line in path.read_text().splitlines():
                event = json.loads(line)
                name = event.get("caller", "").partition("@")[0]
                counted[name] = counted.get(name, 0) + (event["event"] == "allowed")
        return counted
