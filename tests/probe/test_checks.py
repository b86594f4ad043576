"""The form of answers: each server here enforces its card, and fails exactly one check."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from a2a_trust import Fetcher, Origins, TrustedKey, TrustStore, generate_signer, sign_card
from a2a_trust.probe import ProbeOptions, ProbeReport, Verdict, probe_agent
from tests.base.net.test_fetcher import Authority, Names
from tests.client.agents import Page, serving_agent
from tests.probe.agents import KEY, LOGIN, Agent, Asked, Reply, by_key, by_token, card_of, rejection, result, serving

TOKENS: dict[str, Any] = {
    "securitySchemes": {"login": LOGIN},
    "securityRequirements": [{"schemes": {"login": {"list": ["read"]}}}],
}


def rules(report: ProbeReport) -> set[str]:
    return {each.rule for each in report.findings}


def guarding(change: Callable[[Asked, Reply], Reply], by: Callable[[Asked], Reply | None] = by_key) -> Any:
    def guard(asked: Asked) -> Reply | None:
        rejected = by(asked)
        return None if rejected is None else change(asked, rejected)

    return guard


def with_challenge(value: str) -> Callable[[Asked, Reply], Reply]:
    return lambda _, reply: replace(reply, headers={"WWW-Authenticate": value} if value else {})


FORMS: dict[str, tuple[Callable[[Asked, Reply], Reply], str]] = {
    "no challenge": (with_challenge(""), "no-challenge"),
    "a malformed one": (with_challenge('Bearer realm="a'), "malformed-challenge"),
    "no error object": (lambda _, reply: replace(reply, body={"detail": "Not authenticated"}), "rejection-body"),
    "no JSON": (lambda _, reply: replace(reply, body=b"Unauthorized"), "rejection-body"),
}


@pytest.mark.parametrize(("change", "rule"), FORMS.values(), ids=FORMS)
def test_rejections_in_another_form_are_found(change: Callable[[Asked, Reply], Reply], rule: str) -> None:
    with serving(guard=guarding(change)) as served:
        report = served.probe(KEY)
    assert (report.verdict, rules(report)) == (Verdict.ENFORCED, {rule})


CHALLENGES = {
    "of another scheme": ('Basic realm="a2a"', {"other-challenge"}),
    "with an error without a token": ('Bearer error="invalid_token"', {"error-without-token"}),
    "without an error for a wrong token": ("Bearer", {"no-error-code"}),
    "of DPoP": ('DPoP algs="ES256", error="invalid_token"', {"error-without-token"}),
}


@pytest.mark.parametrize(("challenge", "found"), CHALLENGES.values(), ids=CHALLENGES)
def test_challenges_for_tokens_are_compared_with_rfc_6750(challenge: str, found: set[str]) -> None:
    with serving(guard=guarding(with_challenge(challenge), by_token(lambda _: False)), card=TOKENS) as served:
        report = served.probe()
    assert report.verdict is Verdict.ENFORCED
    assert rules(report) - {"metadata"} == found


def test_a_rejection_by_an_error_of_the_application_is_found_with_a_credential() -> None:
    def unusual(asked: Asked, _: Reply) -> Reply:
        return Reply(body={"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "Unauthorized"}})

    with serving(guard=guarding(unusual), card={"supportedInterfaces": []}) as served:
        served.agent.card = {"supportedInterfaces": card_of(served.url)["supportedInterfaces"][:1]}
        report = served.probe(KEY)
        assert (report.verdict, rules(report)) == (Verdict.ENFORCED, {"other-rejection"})
        assert served.probe().verdict is Verdict.CANNOT_TELL


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (-32001, "Unauthorized"),
        (-32001, "Invalid key"),
        (-32001, "Rejected"),
        (-32602, "Missing token"),
        (-32602, "header x_api_key: field required"),
        (-32600, "Forbidden"),
        (-32000, "Error"),
    ],
)
def test_no_code_of_an_application_is_taken_for_an_answer_if_it_may_be_a_rejection(code: int, message: str) -> None:
    def unusual(asked: Asked, _: Reply) -> Reply:
        return Reply(body={"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": message}})

    with serving(guard=guarding(unusual)) as served:
        assert served.probe().verdict is Verdict.CANNOT_TELL


def test_a_missing_header_is_no_mistake_in_the_parameters() -> None:
    def unusual(asked: Asked, _: Reply) -> Reply:
        return Reply(status=422, body={"detail": [{"loc": ["header", "x_api_key"], "msg": "Field required"}]})

    with serving(guard=guarding(unusual)) as served:
        assert (served.probe(KEY).verdict, served.probe().verdict) == (Verdict.ENFORCED, Verdict.CANNOT_TELL)


def test_an_extended_card_that_shared_caches_keep_is_found() -> None:
    answers = {"GetExtendedAgentCard": lambda asked: result(asked, {"name": "Ledger", "skills": []})}
    with serving(answers=answers) as served:
        report = served.probe(KEY)
        assert (report.verdict, rules(report)) == (Verdict.ENFORCED, {"cached-extended-card"})
        assert rules(served.probe()) == set()


def test_every_site_with_credentials_is_found() -> None:
    def guard(asked: Asked) -> Reply | None:
        origin = asked.headers.get("origin")
        headers = {"Access-Control-Allow-Origin": origin or "", "Access-Control-Allow-Credentials": "true"}
        return Reply(status=204, headers=headers) if asked.method == "OPTIONS" else by_key(asked)

    with serving(guard=guard) as served:
        assert rules(served.probe()) == {"cors-with-credentials"}
    with serving(guard=guard, headers={"Access-Control-Allow-Origin": "*"}) as served:
        served.agent.guard = by_key
        assert rules(served.probe()) == set()
    with serving(guard=lambda asked: Reply(body={}) if asked.method == "OPTIONS" else by_key(asked)) as served:
        assert (served.probe().verdict, rules(served.probe())) == (Verdict.ENFORCED, set())


# --- push notifications


@pytest.mark.parametrize("accepts", [True, False])
def test_a_push_url_that_leads_to_the_agent_must_be_rejected(accepts: bool) -> None:
    tasks: list[str] = []

    def send(asked: Asked) -> Reply:
        if "message" not in asked.params:
            return Agent().answer(asked)
        tasks.append("created")
        return result(asked, {"task": {"id": "../task", "status": {"state": "TASK_STATE_WORKING"}}})

    def push(asked: Asked) -> Reply:
        return result(asked, asked.params) if accepts else Reply(status=400, body={"error": {"code": 400}})

    def cancel(asked: Asked) -> Reply:
        tasks.append("canceled" if "../task" in (asked.params.get("id"), asked.path) else "other")
        return Agent().answer(asked)

    answers = {"SendMessage": send, "CreateTaskPushNotificationConfig": push, "CancelTask": cancel}
    with serving(answers=answers) as served:
        served.agent.card = {"supportedInterfaces": card_of(served.url)["supportedInterfaces"][:1]}
        report = served.probe(KEY, allow_tasks=True)
    assert rules(report) == ({"push-to-loopback"} if accepts else set())
    assert [each for each in tasks if each != "other"] == ["created", "canceled"]


def test_without_permission_no_task_is_created() -> None:
    with serving() as served:
        served.probe(KEY)
        assert not [each for each in served.agent.asked if "message" in each.params]


# --- the card, its keys, its metadata


def signed(agent: Agent, kid: str = "owner") -> tuple[Any, TrustStore]:
    signer = generate_signer("ES256", kid=kid)
    trust = TrustStore([TrustedKey(key=signer.public_key, origins=Origins("127.0.0.1"))])
    card = sign_card(
        agent.document(), signer, iat=int(time.time()), jku=f"{agent.url}/keys.json".replace("http:", "https:")
    )
    agent.pages["/.well-known/agent-card.json"] = card.card
    return signer, trust


def test_a_card_is_verified_with_the_given_keys() -> None:
    with serving() as served:
        assert served.probe().card == "not signed"
        _, trust = signed(served.agent)
        assert served.probe().card == "signatures not checked"
        assert served.probe(trust=trust).card == "verified"
        report = served.probe(trust=TrustStore([]))
        assert report.card == "not verified"
        assert "card-not-verified" in rules(report)


def test_a_card_with_errors_is_found() -> None:
    with serving(card={"version": None, "name": "Ledger"}) as served:
        assert rules(served.probe()) == {"card-problems"}


METADATA: dict[str, tuple[Any, str]] = {
    "fitting": ({"issuer": "ISSUER"}, ""),
    "of another issuer": ({"issuer": "https://evil.example"}, "names another issuer"),
    "no metadata": ([], "cannot be fetched"),
}


@pytest.mark.parametrize(("document", "message"), METADATA.values(), ids=METADATA)
def test_the_metadata_of_the_issuer_must_fit(document: Any, message: str) -> None:
    with serving(guard=by_token(lambda _: False)) as served:
        issuer = served.url
        login = {"openIdConnectSecurityScheme": {"openIdConnectUrl": f"{issuer}/.well-known/openid-configuration"}}
        served.agent.card = {**TOKENS, "securitySchemes": {"login": login}}
        said = json.loads(json.dumps(document).replace("ISSUER", issuer))
        served.agent.pages["/.well-known/openid-configuration"] = said
        report = served.probe()
    messages = [each.message for each in report.findings]
    assert [message in each for each in messages] == ([True] if message else [])


@pytest.mark.parametrize(("resource", "fits"), [("HERE", True), ("HERE/rpc", False), ("https://evil.example", False)])
def test_the_metadata_in_a_challenge_must_be_about_the_interface(resource: str, fits: bool) -> None:
    with serving() as served:
        place = f"{served.url}/.well-known/oauth-protected-resource"
        served.agent.guard = guarding(with_challenge(f'Bearer resource_metadata="{place}"'))
        served.agent.pages["/.well-known/oauth-protected-resource"] = {"resource": resource.replace("HERE", served.url)}
        report = served.probe()
    assert rules(report) == (set() if fits else {"metadata"})


# --- TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


def over_tls(authority: Authority, tls: ssl.SSLContext) -> ProbeReport:
    with serving_agent(tls) as agent:
        url = agent.origin()
        names = Names(agent_test=[["127.0.0.1"]])
        fetcher = Fetcher(private_origins=[url], ssl_context=authority.client(), resolver=names, timeout=60)
        agent.pages["/.well-known/agent-card.json"] = json.dumps(card_of(url)).encode()
        body = json.dumps(rejection(Asked(method="POST", path="/rpc", headers={})).body).encode()
        agent.pages["/rpc"] = Page(body=body, status=401, headers={"WWW-Authenticate": "ApiKey"})
        return probe_agent(url, ProbeOptions(fetcher=fetcher))


def test_old_versions_of_tls_are_found(authority: Authority) -> None:
    tls = authority.server("agent.test")
    assert "old-tls" not in rules(over_tls(authority, tls))
    tls.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        tls.minimum_version = ssl.TLSVersion.TLSv1
    report = over_tls(authority, tls)
    assert "old-tls" in rules(report)
    assert {each.interface.binding: each.verdict.value for each in report.requirements}["JSONRPC"] == "enforced"


def test_a_certificate_that_ends_soon_is_found(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a2a_trust.base.net.fetcher.ssl.cert_time_to_seconds", lambda _: time.time() + 86_400)
    assert "certificate-ends" in rules(over_tls(authority, authority.server("agent.test")))


def test_a_certificate_that_is_rejected_ends_the_probe(authority: Authority, tmp_path: Path) -> None:
    from a2a_trust.errors import FetchError

    other = Authority(tmp_path)
    with pytest.raises(FetchError, match="its certificate is rejected"):
        over_tls(other, authority.server("agent.test"))
