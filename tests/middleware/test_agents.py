"""Several agents in one application: whose request it is, their documents, and paths of no agent."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import fields
from inspect import signature
from typing import Any

import httpx
import pytest

from a2a_trust.auth.certificate.from_proxy import FromProxy, ProxySecret
from a2a_trust.auth.certificate.proxy_forms import Nginx
from a2a_trust.auth.credentials import FromTls
from a2a_trust.auth.peers import Networks
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys.signer import generate_signer
from a2a_trust.middleware.card import CardReaders
from a2a_trust.middleware.protection import CardServing, ProtectedAgent, protect, protect_agents
from tests.middleware.agent import CALL, Agent
from tests.middleware.several import ALL, agent_at, asked, card_of, judged_by, running
from tests.middleware.test_protection import PATHS, ask
from tests.peers import with_peer
from tests.tables import walk

pytestmark = pytest.mark.anyio

CARD, OLD_CARD = PATHS


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


MOUNTED = Agent()


def three(inner: Any = None, **options: Any) -> Any:
    agents = {prefix: agent_at(prefix) for prefix in ("/billing", "/billing/eu", "/ops")}
    return protect_agents(inner or Agent(), agents, **options)


def with_root(inner: Any = None, **options: Any) -> Any:
    agents = {"/": agent_at(""), "/billing": agent_at("/billing"), "/ops": agent_at("/ops")}
    return protect_agents(inner or Agent(), agents, **options)


@walk(
    ("path", "judge"),
    [
        ("/billing", "X-billing"),
        ("/billing/", "X-billing"),
        ("/billing/rpc", "X-billing"),
        ("/billing/eux/rpc", "X-billing"),
        ("/billing/eu", "X-eu"),
        ("/billing/eu/rpc", "X-eu"),
        ("/ops/x/billing/rpc", "404"),  # FastAPI may take /ops/x off
        ("/ops" + "/a" * 4_000, "X-ops"),
        ("/ops" + "/a" * 20_000, "404"),
        ("/billings/rpc", "404"),
        ("/bill", "404"),
        ("/", "404"),
        ("", "404"),
        ("/rpc", "404"),
        ("/eu/rpc", "404"),
        ("/a" * 30_000, "404"),
    ],
)
async def test_the_longest_prefix_says_whose_card_judges(path: str, judge: str) -> None:
    inner = Agent()
    app = three(inner)
    assert judged_by(await asked(app, path)) == judge
    assert judged_by(await asked(app, path, type="websocket")) == "closed 1008"
    assert inner.scopes == []


@walk(
    "path",
    [
        "/Billing/rpc",
        "//billing/rpc",
        "/./billing/rpc",
        "/ops/../billing/rpc",
        "/ops/..;/billing/rpc",
        "/ops/%2e%2e/billing/rpc",
        "/ops\\..\\billing/rpc",
        "/billing;x/rpc",
        "/billing /rpc",
        "/billing\n",
        "/%62illing/rpc",
        "/billing%2frpc",
        "/billing%2f..%2fops",
        "/\uff42illing/rpc",
        "/x\uff0f..\uff0fbilling",
        "/bill\u0130ng/../billing",
        "/ops/" + "\u00e9" * 2_100,
        "/ops/%41" + "a" * 2_100,
    ],
)
async def test_a_path_that_a_lenient_router_takes_for_another_agents_is_404(path: str) -> None:
    for app in (three(), with_root()):
        assert judged_by(await asked(app, path, raw_path=b"/")) == "404"
        assert judged_by(await asked(app, path, type="websocket")) == "closed 1008"


async def test_the_agent_at_the_root_has_what_no_other_has() -> None:
    app = with_root()
    for path, judge in (("/", "X-root"), ("/rpc", "X-root"), ("/billings/x", "X-root"), ("/billing/x", "X-billing")):
        assert judged_by(await asked(app, path)) == judge
    assert judged_by(await asked(app, CARD)) == "200"


@pytest.mark.parametrize("root", ["/api", "/billing", "/api/billing"])
async def test_paths_are_those_behind_the_root_path(root: str) -> None:
    app = three()
    assert judged_by(await asked(app, f"{root}/ops/rpc", root_path=root)) == "X-ops"
    assert judged_by(await asked(app, f"{root}/ops{CARD}", root_path=root)) == "200"
    assert judged_by(await asked(app, root, root_path=root)) == "404"
    assert judged_by(await asked(app, "/ops/rpc", root_path=root)) == "X-ops"
    assert judged_by(await asked(app, "/apix/ops/rpc", root_path=root)) == "404"


async def test_a_caller_of_one_agent_is_a_stranger_to_the_others() -> None:
    inner = Agent()
    app = three(inner)
    for prefix, header in (("/billing", "X-billing"), ("/billing/eu", "X-eu"), ("/ops", "X-ops")):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent.example") as http:
            for other in ("/billing", "/billing/eu", "/ops"):
                answer = await http.post(f"{other}/rpc", json=CALL, headers={header: ALL})
                assert answer.status_code == (200 if other == prefix else 401)
    assert inner.paths == ["/billing/rpc", "/billing/eu/rpc", "/ops/rpc"]


def test_paths_of_no_interface_must_be_named() -> None:
    inner = Agent()
    agents = {"/billing": agent_at("/billing", other_paths=["/billing/files/"], public_paths=["/billing/healthz"])}
    app = protect_agents(inner, agents)
    good = {"X-billing": ALL}
    assert ask(app, "GET", "/billing/files/1", headers=good).status_code == 200
    assert ask(app, "GET", "/billing/files/1").status_code == 401
    assert ask(app, "GET", "/billing/healthz").status_code == 200
    assert ask(app, "GET", "/billing/other", headers=good).status_code == 404
    assert inner.paths == ["/billing/files/1", "/billing/healthz"]


async def test_a_scope_of_an_unknown_type_is_rejected() -> None:
    inner = Agent()
    for app in (three(inner), three(inner, unguarded_paths=["/x/"])):
        with pytest.raises(ConfigurationError, match="ASGI scope type 'webtransport' is not understood"):
            await asked(app, "/x/y", type="webtransport")
    assert inner.scopes == []


def test_unguarded_paths_reach_the_application_unchecked_and_others_do_not() -> None:
    inner = Agent()
    app = three(inner, unguarded_paths=["/healthz", "/docs/", "/tasks/{id}"])
    passed = ("/healthz", "/docs/a/b", "/tasks/5")
    for path in passed:
        for method in ("GET", "POST", "OPTIONS"):
            assert ask(app, method, path).status_code == 200, path
    for path in ("/healthz/", "/healthz/x", "/docs", "/docs/a//b", "/docs/%2525", "/tasks/5/6", "/HEALTHZ"):
        assert ask(app, "GET", path).status_code == 404, path
    assert inner.paths == [path for path in passed for _ in range(3)]


def test_the_path_of_an_agent_within_an_unguarded_subtree_is_404_unless_it_is_named() -> None:
    inner = Agent()
    app = three(inner, unguarded_paths=["/docs/", "/docs/ops"])
    for path in ("/docs/ops/rpc", "/docs/x/billing", "/docs/v1/OPS/x", "/docs/x/billing;a/y"):
        assert ask(app, "GET", path).status_code == 404, path
    for path in ("/docs/ops", "/docs/opsx", "/docs/xops/y"):
        assert ask(app, "GET", path).status_code == 200, path
    assert inner.paths == ["/docs/ops", "/docs/opsx", "/docs/xops/y"]


def raising(query: Mapping[str, str]) -> str | None:
    return f"/{int(query['id'])}"


@walk("card_of", [raising, lambda query: 5, lambda query: [], lambda query: None, lambda query: "ops"])
def test_a_query_that_card_of_does_not_expect_names_no_agent(card_of: Any) -> None:
    assert ask(three(card_of=card_of), "GET", f"{CARD}?id=ops").status_code == 404


def test_card_of_gets_no_query_of_very_many_parameters_or_escapes() -> None:
    given: list[int] = []

    def by_id(query: Mapping[str, str]) -> str:
        given.append(len(query))
        return "/ops"

    app = three(card_of=by_id)
    for query in ("&".join(f"{number}=" for number in range(65)), "%61" * 64, "a" * 9_000):
        assert ask(app, "GET", f"{CARD}?{query}").status_code == 200
    for query in ("&".join(f"{number}=" for number in range(66)), "%61" * 65, "%61&" * 33):
        assert ask(app, "GET", f"{CARD}?{query}").status_code == 404
    assert given == [65, 1, 1]


async def test_a_websocket_passes_at_an_unguarded_path_only() -> None:
    inner = Agent()
    app = three(inner, unguarded_paths=["/docs/"])
    user = type("User", (), {"display_name": "nobody"})()
    sent = await asked(app, "/docs/live", type="websocket", user=user)
    assert sent[0]["type"] == "websocket.accept"
    assert judged_by(await asked(app, "/live", type="websocket")) == "closed 1008"


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/x", '"/x" belongs to no agent; if it is public, write unguarded_paths=["/x"]'),
        (CARD, "belongs to no agent; write card_of="),
        ("/x/agent.json", "ends like the path of a card, and belongs to no agent"),
        ("/Billing", "could be read as the path of another agent"),
    ],
)
async def test_the_audit_says_what_to_write(path: str, detail: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "a2a_trust.audit")
    await asked(three(unguarded_paths=["/x/"]), path)
    (record,) = caplog.records
    event = record.__dict__["audit"]
    assert (event["event"], event["reason"]) == ("refused", "undeclared-path")
    assert detail in event["detail"]


def test_each_agent_has_its_documents_below_its_prefix() -> None:
    signer = generate_signer()
    serving = CardServing(signer=signer, card_paths=["/billing/analysis/card.json"])
    agents = {
        "/billing": agent_at("/billing", url="https://agent.example/billing", serving=serving),
        "/ops": agent_at("/ops"),
    }
    app = protect_agents(Agent(), agents)
    cards = [ask(app, "GET", f"/billing{path}") for path in (*PATHS, "/analysis/card.json")]
    assert [card.content for card in cards] == [cards[0].content] * 3
    assert {**card_of("/billing"), "signatures": cards[0].json()["signatures"]} == cards[0].json()
    assert ask(app, "GET", f"/ops{CARD}").json() == card_of("/ops")
    keys = ask(app, "GET", "/billing/.well-known/jwks.json")
    assert [key["kid"] for key in keys.json()["keys"]] == [signer.kid]
    metadata = "/.well-known/oauth-protected-resource/billing"
    assert ask(app, "GET", metadata).json()["resource"] == "https://agent.example/billing"
    for path in (CARD, "/.well-known/jwks.json", "/ops/.well-known/jwks.json", "/.well-known/oauth-protected-resource"):
        assert ask(app, "GET", path).status_code in (401, 404), path
    for path in (f"/billing{CARD}", metadata):
        assert ask(app, "HEAD", path).content == b""
        assert ask(app, "POST", path).status_code in (401, 404)
        preflight = {"Origin": "https://page.example", "Access-Control-Request-Method": "GET"}
        assert ask(app, "OPTIONS", path, headers=preflight).status_code == 204


def test_documents_of_a_url_that_a_proxy_changes() -> None:
    url, serving = "https://agent.example/public", CardServing(signer=generate_signer())
    served_at = {"http://agent.example/billing/rpc": "/billing/rpc"}
    agents = {"/billing": agent_at("/billing", url=url, serving=serving, served_at=served_at)}
    app = protect_agents(Agent(), agents)
    assert ask(app, "GET", "/billing/.well-known/oauth-protected-resource/public").json()["resource"] == url
    assert ask(app, "GET", "/billing/.well-known/jwks.json").status_code == 200
    assert ask(app, "GET", "/.well-known/oauth-protected-resource/public").status_code == 404
    assert ask(app, "GET", "/public/.well-known/jwks.json").status_code == 404
    below = {"/billing": agent_at("/billing", url="https://agent.example/public/billing", serving=serving)}
    app = protect_agents(Agent(), below)
    for path in ("/billing", "/public/billing"):
        assert ask(app, "GET", f"{path}/.well-known/jwks.json").status_code == 200
    assert ask(app, "GET", "/.well-known/oauth-protected-resource/public/billing").status_code == 200


def by_id(query: Mapping[str, str]) -> str | None:
    return f"/{query['id']}"


@pytest.mark.parametrize("path", PATHS)
def test_a_query_names_the_agent_whose_card_is_read(path: str) -> None:
    inner = Agent()
    app = three(inner, card_of=by_id)
    assert ask(app, "GET", f"{path}?id=billing").json() == card_of("/billing")
    assert ask(app, "HEAD", f"{path}?id=ops&x=").status_code == 200
    assert ask(app, "GET", f"{path}?id=billing/eu").json() == card_of("/billing/eu")
    for query in ("", "?", "?id", "?id=", "?id=none", "?id=ops&id=billing", "?id=ops&id=ops", "?ID=ops", "?id=ops/"):
        assert ask(app, "GET", f"{path}{query}").status_code == 404, query
    preflight = {"Origin": "https://page.example", "Access-Control-Request-Method": "GET"}
    assert ask(app, "OPTIONS", f"{path}?id=ops", headers=preflight).status_code == 204
    assert ask(app, "POST", f"{path}?id=ops", headers={"X-ops": ALL}).status_code == 404
    assert inner.scopes == []


async def test_a_query_names_no_agent_in_another_spelling_or_on_a_websocket() -> None:
    app = three(card_of=by_id)
    query = {"query_string": b"id=ops"}
    assert judged_by(await asked(app, f"/api{CARD}", root_path="/api", **query)) == "200"
    assert judged_by(await asked(app, CARD, raw_path=b"/%2e" + CARD[2:].encode(), **query)) == "404"
    assert judged_by(await asked(app, CARD.upper(), **query)) == "404"
    assert judged_by(await asked(app, CARD, type="websocket", **query)) == "closed 1008"


def test_the_readers_of_a_card_are_those_of_its_agent_whatever_path_names_it() -> None:
    agents = {
        "/billing": agent_at("/billing", readers=CardReaders.CALLERS, card_paths=["/billing/card.json"]),
        "/ops": agent_at("/ops", readers=Networks("10.0.0.0/8")),
    }
    app = protect_agents(Agent(), agents, card_of=by_id)
    for path in (f"/billing{CARD}", f"{CARD}?id=billing", "/billing/card.json"):
        assert ask(app, "GET", path).status_code == 401
        assert ask(app, "GET", path, headers={"X-ops": ALL}).status_code == 401
        assert ask(app, "GET", path, headers={"X-billing": ALL}).json() == card_of("/billing")
    for path in (f"/ops{CARD}", f"{CARD}?id=ops"):
        assert ask(app, "GET", path).status_code == 403
        assert ask(with_peer(app, "192.0.2.1"), "GET", path).status_code == 403
        assert ask(with_peer(app, "10.0.0.1"), "GET", path).json() == card_of("/ops")


@walk(
    ("agents", "options", "words"),
    [
        ({}, {}, r'agents: write {"/prefix": ProtectedAgent'),
        ([], {}, r'agents: write {"/prefix": ProtectedAgent'),
        ({"billing": agent_at("")}, {}, "agents: a prefix begins with a slash: '/billing'"),
        ({5: agent_at("")}, {}, "agents: a prefix begins with a slash: '/5'"),
        ({"/a//b": agent_at("")}, {}, "agents: '/a//b' is not an exact path"),
        ({"/{x}": agent_at("")}, {}, "is not an exact path; write it as in requests"),
        ({"/\u00e4": agent_at("")}, {}, "is not an exact path"),
        ({"/billing/": agent_at("/billing")}, {}, "without a slash at its end: '/billing'"),
        ({"/billing": card_of("/billing")}, {}, r"agents: '/billing' is a dict; write ProtectedAgent\("),
        (
            {"/billing": agent_at("/billing"), "/Billing": agent_at("/Billing")},
            {},
            "agents: two prefixes differ only in their spelling",
        ),
        (
            {"/ops": agent_at("/billing")},
            {},
            "agent '/ops': the card has an interface at '/billing/rpc', which is not below",
        ),
        (
            {"/ops": agent_at("/ops", other_paths=["/files"])},
            {},
            "other_paths: '/files' is not below the prefix of its agent, '/ops'",
        ),
        (
            {"/ops": agent_at("/ops", public_paths=["/opsx"])},
            {},
            "public_paths: '/opsx' is not below the prefix of its agent, '/ops'",
        ),
        (
            {"/ops": agent_at("/ops", card_paths=["/card.json"])},
            {},
            "card_paths: '/card.json' is not below the prefix of its agent, '/ops'",
        ),
        (
            {"/ops": agent_at("/ops", card_paths=[f"/ops{CARD}"])},
            {},
            r"card_paths: the card is served at .* anyway, and CardServing\(readers=",
        ),
        (
            {"/ops": agent_at("/ops", card=card_of("/ops/eu")), "/ops/eu": agent_at("/ops/eu")},
            {},
            "'/ops/eu/rpc', in the card or the rules of the agent '/ops', is a path of another agent",
        ),
        (
            {"/ops": agent_at("/ops", other_paths=["/ops/eu/files/"]), "/ops/eu": agent_at("/ops/eu")},
            {},
            "'/ops/eu/files/', in the card or the rules of the agent '/ops', is a path of another",
        ),
        (
            {"/": agent_at("", card=card_of("/v1/ops")), "/ops": agent_at("/ops")},
            {},
            "'/v1/ops/rpc', in the card or the rules of the agent '/', .*, or could be read as one",
        ),
        (
            {"/": agent_at("", other_paths=["/docs/OPS"]), "/ops": agent_at("/ops")},
            {},
            "'/docs/OPS', in the card or the rules of the agent '/'",
        ),
        (
            {"/": agent_at("", public_paths=["/ops/healthz"]), "/ops": agent_at("/ops")},
            {},
            "'/ops/healthz', in the card or the rules of the agent '/'",
        ),
        (
            {"/ops": agent_at("/ops"), "/": agent_at("", card_paths=["/ops/card.json"])},
            {},
            "the agent '/' would have a document at '/ops/card.json', which belongs to '/ops'",
        ),
        (
            {prefix: agent_at(prefix, url="https://agent.example/x/a") for prefix in ("/a", "/x/a")},
            {},
            "'/x/a' and '/a' have the same url=",
        ),
        (
            {
                "/": agent_at("", url="http://agent.example/ops"),
                "/ops": agent_at("/ops", url="https://agent.example/ops"),
            },
            {},
            "'/ops' would have a document at '/.well-known/oauth-protected-resource/ops', which belongs to '/'",
        ),
        ({"/ops": agent_at("/ops", card={**card_of("/ops"), "skills": 5})}, {}, "agent '/ops': card: /skills"),
        ({"/ops": agent_at("/ops")}, {"unguarded_paths": "/docs"}, r"unguarded_paths: write a list, even of one"),
        ({"/ops": agent_at("/ops")}, {"unguarded_paths": ["docs"]}, "unguarded_paths: 'docs' is not a path"),
        (
            {"/ops": agent_at("/ops")},
            {"unguarded_paths": ["/ops/docs"]},
            "unguarded_paths: '/ops/docs' is a path of the agent '/ops', or could be read as one of an agent",
        ),
        ({"/ops": agent_at("/ops")}, {"unguarded_paths": ["/Ops/x"]}, "or could be read as one of an agent"),
        ({"/ops": agent_at("/ops")}, {"unguarded_paths": ["/docs/ops/"]}, "or could be read as one of an agent"),
        ({"/ops": agent_at("/ops")}, {"unguarded_paths": ["/ops/"]}, "is a path of the agent '/ops'"),
        ({"/": agent_at("")}, {"unguarded_paths": ["/docs"]}, "is a path of the agent '/'"),
        ({"/ops": agent_at("/ops")}, {"unguarded_paths": [CARD]}, "ends like the path of a card"),
        ({"/ops": agent_at("/ops")}, {"unguarded_paths": ["/x/Agent.JSON"]}, "ends like the path of a card"),
        ({"/": agent_at("")}, {"card_of": by_id}, "card_of: the agent at '/' has its card at the root"),
        ({"/ops": agent_at("/ops")}, {"card_of": "/ops"}, "card_of: write a plain function"),
        ({"/ops": agent_at("/ops")}, {"lifespans": ["main:app"]}, "lifespans: 'main:app' is not an ASGI application"),
        ({"/ops": agent_at("/ops")}, {"lifespans": 5}, "lifespans: write a list, even of one"),
        ({"/ops": agent_at("/ops")}, {"lifespans": [lambda app: app]}, "write the application that is mounted"),
        ({"/ops": agent_at("/ops")}, {"lifespans": [MOUNTED, MOUNTED]}, "lifespans: an application is listed twice"),
        ({"/ops": agent_at("/ops")}, {"card_of": asyncio.sleep}, "card_of: write a plain function"),
        (
            {"/team/ops": agent_at("/team/ops")},
            {"unguarded_paths": ["/ops/rpc"]},
            "unguarded_paths: with a root path, '/ops/rpc' would open '/team/ops/rpc' of the agent '/team/ops'",
        ),
        ({"/team/ops": agent_at("/team/ops")}, {"unguarded_paths": ["/ops/"]}, "'/ops/' would open '/team/ops/rpc'"),
        ({"/ops": agent_at("/ops")}, {"unguarded_paths": ["/api/ops/rpc"]}, "'/api/ops/rpc' would open '/ops/rpc'"),
        (
            {"/ops": agent_at("/ops", url="https://agent.example")},
            {},
            "url='https://agent.example' does not end with the prefix '/ops'; make both alike",
        ),
        (
            {"/ops": agent_at("/ops", client_certificates=FromTls)},
            {},
            r"agent '/ops': client_certificates: write FromTls\(\)",
        ),
        ({"/ops": agent_at("/ops", card_paths=["/ops/rpc"])}, {}, "card_paths: '/ops/rpc' is the path of an interface"),
        (
            {
                "/ops": agent_at(
                    "/ops",
                    url="https://agent.example/ops",
                    signer=generate_signer(),
                    card_paths=["/ops/.well-known/jwks.json"],
                )
            },
            {},
            "card_paths: '/ops/.well-known/jwks.json' is the path of an interface",
        ),
    ],
)
def test_what_cannot_be_meant_does_not_start(agents: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        protect_agents(Agent(), agents, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"serving": "key.pem"}, r"serving: write CardServing\(…\)"),
        ({"rules": {"other_paths": []}}, r"rules: write RequestRules\(…\)"),
        ({"security": {}}, r"security: write CardSecurity\(schemes="),
    ],
)
def test_the_groups_of_options_have_their_types(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        agent_at("/ops", **options)


@pytest.mark.parametrize("app", [None, "main:app"])
def test_what_is_no_application_has_no_agents(app: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not an ASGI application"):
        protect_agents(app, {"/ops": agent_at("/ops")})


@pytest.mark.parametrize("path", [f"/billing{CARD}", f"/billing{OLD_CARD}"])
def test_one_agent_has_its_card_at_further_paths_too(path: str) -> None:
    serving = CardServing(card_paths=[path])
    app = protect(Agent(), card=card_of(""), verifiers=agent_at("").verifiers, serving=serving)
    assert ask(app, "GET", path).content == ask(app, "GET", CARD).content
    assert ask(app, "GET", f"{path}/").status_code == 401
    with pytest.raises(ConfigurationError, match="the card is served at"):
        protect(Agent(), card=card_of(""), verifiers=agent_at("").verifiers, serving=CardServing(card_paths=[CARD]))
    for wrong in ("card.json", "/{x}", "/x?y", 5):
        with pytest.raises(ConfigurationError, match=r"card_paths: .* is not an exact path"):
            CardServing(card_paths=[wrong])  # type: ignore[list-item]


async def test_the_lifespan_runs_and_ends_with_the_guards_of_all_agents() -> None:
    inner = Agent()
    async with running(three(inner)) as lifespan:
        assert lifespan.kinds == ["startup.complete"]
    assert lifespan.kinds == ["startup.complete", "shutdown.complete"]
    assert [scope["type"] for scope in inner.scopes] == ["lifespan"]


def test_bodies_of_unknown_paths_are_errors_of_the_protocol() -> None:
    answer = ask(three(), "GET", "/x")
    assert (answer.status_code, json.loads(answer.content)["error"]["code"]) == (404, 404)
    assert answer.headers["cache-control"] == "private, no-store"


async def test_a_template_of_one_agent_admits_no_path_of_another() -> None:
    """FastAPI, made with root_path="/x", would run /ops/rpc for it."""
    agents = {"/x": agent_at("/x", other_paths=["/x/{kind}/{id}"]), "/ops": agent_at("/ops")}
    inner = Agent()
    app = protect_agents(inner, agents)
    good = {"headers": [(b"x-x", ALL.encode())]}
    assert judged_by(await asked(app, "/x/a/b", **good)) == "200"
    for path in ("/x/ops/rpc", "/x/ops/b", "/x/OPS/b", "/x/a/ops"):
        assert judged_by(await asked(app, path, **good)) == "404", path
    assert inner.paths == ["/x/a/b"]


async def test_what_a_proxy_says_of_certificates_is_for_the_agent_that_verifies_them() -> None:
    """Its secret, too, which would let whoever reads it speak for any client."""
    source = FromProxy(Nginx(), peers=ProxySecret(header="X-Proxy-Secret", secret="s" * 32))
    agents = {"/x": agent_at("/x", client_certificates=source), "/ops": agent_at("/ops")}
    inner = Agent()
    app = protect_agents(inner, agents, unguarded_paths=["/healthz"])
    lines = [(name, b"forged") for name in sorted(source.headers)]
    assert len(lines) >= 2
    for path in ("/healthz", "/ops/rpc"):  # GET of the latter is the application's own
        await asked(app, path, headers=[*lines, (b"x-ops", ALL.encode())])
    assert "/healthz" in inner.paths
    for scope in inner.scopes:
        assert not source.headers & {name for name, _ in scope["headers"]}


def test_one_agent_among_several_has_all_options_of_one_alone() -> None:
    alone = signature(protect).parameters.keys() - {
        "app",
        "clock",
        "observer",
    }  # one observer gets the decisions of all
    assert {each.name for each in fields(ProtectedAgent)} == alone


def test_an_unguarded_path_that_begins_like_a_segment_of_an_interface_is_another_path() -> None:
    agents = {prefix: agent_at(prefix) for prefix in ("/x/healthcheck", "/x/docs-of-ops")}
    app = protect_agents(Agent(), agents, unguarded_paths=["/health", "/docs/", "/rp"])
    for path in ("/health", "/docs/a", "/rp"):
        assert ask(app, "GET", path).status_code == 200
