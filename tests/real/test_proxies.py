"""The agent behind nginx, HAProxy, Apache, Caddy and Envoy, with real certificates over real TLS."""

from __future__ import annotations

import hashlib
import json
import ssl
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from tests.certificates import SERVER, Authority, Leaf
from tests.middleware.proxies.told import TOLD, xfcc
from tests.real.proxy_processes import PROXIES, Answer, ProxiedAgent, Proxy, ask, proxied_agent, running_proxy
from tests.servers.serving import ROOT, SERVERS, free_port, serving

STRANGER = "127.0.0.2"  # an address of this machine that is not the proxy's

#: What a proxy that is set up so passes on although it is bad; what it does not pass on, it refuses itself.
PASSED_ON = {
    "nginx": {"other authority"},
    "haproxy": {"other authority", "expired", "for servers"},
    "apache": {"other authority"},
    "caddy": {"other authority", "expired", "for servers"},
    "envoy": {"other authority", "expired", "for servers"},
}


@dataclass(frozen=True)
class World:
    """An authority that the agent believes, its clients, and others."""

    folder: Path
    authority: Authority
    ann: Leaf
    bob: Leaf
    bad: dict[str, Leaf]

    def tls(self, leaf: Leaf | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.authority.pem.decode())
        context.maximum_version = version
        return context if leaf is None else leaf.load_into(context, self.folder)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    authority = Authority()
    ann, bob = (x509.UniformResourceIdentifier(f"spiffe://agents.example/{name}") for name in ("ann", "bob"))
    bad = {
        "other authority": Authority().issue(ann),
        "expired": authority.issue(ann, lifetime=timedelta(seconds=-60)),
        "for servers": authority.issue(ann, usage=SERVER),
    }
    return World(tmp_path_factory.mktemp("certificates"), authority, authority.issue(ann), authority.issue(bob), bad)


@pytest.fixture(scope="module")
def agent(world: World) -> Iterator[ProxiedAgent]:
    trusted = world.folder / "authority.pem"
    trusted.write_bytes(world.authority.pem)
    with proxied_agent(trusted, world.folder) as running:
        yield running


@pytest.fixture(scope="module", params=PROXIES)
def proxy(
    request: pytest.FixtureRequest, agent: ProxiedAgent, world: World, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    yield from _proxy(request.param, agent, world, tmp_path_factory.mktemp(request.param))


def _proxy(name: str, agent: ProxiedAgent, world: World, folder: Path) -> Iterator[Proxy]:
    server = world.authority.issue(x509.DNSName("localhost"), usage=SERVER)
    chain, key = server.write(folder, "server")
    both = folder / "both.pem"
    both.write_bytes(server.pem + server.key_pem)
    files = {"AUTHORITY": world.folder / "authority.pem", "SERVER": chain, "SERVER_KEY": key, "SERVER_BOTH": both}
    with running_proxy(name, agent, files, folder) as running:
        yield running


def assert_is(answer: Answer, leaf: Leaf) -> None:
    """The agent knows this client, and saw nothing of what the proxy says of its certificate."""
    assert answer.status == 200
    assert answer.said["certificate"] == hashlib.sha256(leaf.der).hexdigest()
    assert [name for name in answer.said["headers"] if "cert" in name or "ssl" in name or "secret" in name] == []


def told(proxy: Proxy, leaf: Leaf) -> list[str]:
    """The lines in which the proxy tells of a certificate, as anybody can write them."""
    return [f"{name}: {value}" for name, value in TOLD[proxy.name].tell((leaf.der,))]


def test_a_good_certificate(proxy: Proxy, world: World) -> None:
    for port in (proxy.strict, proxy.lax):
        names = []
        for leaf in (world.ann, world.bob):
            answer = ask(port, f"/{proxy.name}", tls=world.tls(leaf))
            assert_is(answer, leaf)
            names.append(answer.said["user"])
        assert len(set(names)) == 2


def test_no_certificate(proxy: Proxy, world: World) -> None:
    for port in (proxy.strict, proxy.lax):
        assert ask(port, f"/{proxy.name}", tls=world.tls(None)).status == 401


@pytest.mark.parametrize("bad", ["other authority", "expired", "for servers"])
def test_a_bad_certificate(proxy: Proxy, world: World, bad: str) -> None:
    tls = world.tls(world.bad[bad])
    assert ask(proxy.strict, f"/{proxy.name}", tls=tls).status in (None, 400)
    passed_on = bad in PASSED_ON[proxy.name]
    assert ask(proxy.lax, f"/{proxy.name}", tls=tls).status in ((401,) if passed_on else (None, 400))


def test_a_client_that_writes_the_header_itself(proxy: Proxy, world: World) -> None:
    lines = told(proxy, world.bob)
    for port in (proxy.strict, proxy.lax):
        for more in (lines, lines[:1], lines[1:], lines * 2, [line.upper() for line in lines]):
            assert ask(port, f"/{proxy.name}", *more, tls=world.tls(None)).status == 401
            assert_is(ask(port, f"/{proxy.name}", *more, tls=world.tls(world.ann)), world.ann)


def test_a_client_that_writes_an_alias_with_underscores(proxy: Proxy, world: World) -> None:
    for line in told(proxy, world.bob):
        name, _, value = line.partition(":")
        alias = f"{name.replace('-', '_')}:{value}"
        assert ask(proxy.strict, f"/{proxy.name}", alias, tls=world.tls(None)).status == 401
        assert ask(proxy.strict, f"/{proxy.name}", alias, tls=world.tls(world.ann)).status == 401


def test_a_client_that_has_the_header_taken_away(proxy: Proxy, world: World) -> None:
    """``Connection`` names headers that a proxy removes before it passes a request on (RFC 9110 7.6.1)."""
    lines = told(proxy, world.bob)
    for line in lines:
        connection = f"Connection: close, {line.partition(':')[0]}"
        answer = ask(proxy.strict, f"/{proxy.name}", connection, *lines, tls=world.tls(world.ann))
        assert answer.status in (200, 400, 401)
        if answer.status == 200:
            assert_is(answer, world.ann)
        assert ask(proxy.strict, f"/{proxy.name}", connection, *lines, tls=world.tls(None)).status in (400, 401)


def test_a_client_that_writes_the_header_after_its_body(agent: ProxiedAgent, proxy: Proxy, world: World) -> None:
    lines = told(proxy, world.bob)
    trailers = "".join(f"{line}\r\n" for line in lines)
    body, announced = f"2\r\n{{}}\r\n0\r\n{trailers}\r\n", f"Trailer: {lines[0].partition(':')[0]}"
    for more in ([], [announced], [announced, "TE: trailers", "Connection: close, TE"]):
        for port in (proxy.strict, proxy.lax):
            assert ask(port, f"/{proxy.name}", *more, body=body, tls=world.tls(None)).status in (400, 401)
            answer = ask(port, f"/{proxy.name}", *more, body=body, tls=world.tls(world.ann))
            assert answer.status in (200, 400)
            if answer.status == 200:
                assert_is(answer, world.ann)
        for port in (agent.port, agent.h11_port):
            assert ask(port, f"/{proxy.name}", *more, body=body).status == 401


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda version: version.name)
def test_a_resumed_session(proxy: Proxy, world: World, version: ssl.TLSVersion) -> None:
    tls = world.tls(world.ann, version)
    session = ask(proxy.strict, f"/{proxy.name}", tls=tls).session
    answer = ask(proxy.strict, f"/{proxy.name}", tls=tls, session=session)
    assert answer.was_resumed
    assert_is(answer, world.ann)
    nobody = world.tls(None, version)
    session = ask(proxy.strict, f"/{proxy.name}", tls=nobody).session
    assert ask(proxy.strict, f"/{proxy.name}", *told(proxy, world.ann), tls=nobody, session=session).status == 401


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda version: version.name)
@pytest.mark.parametrize("bad", ["other authority", "expired", "for servers"])
def test_a_bad_certificate_is_no_better_in_a_resumed_session(
    proxy: Proxy, world: World, bad: str, version: ssl.TLSVersion
) -> None:
    tls = world.tls(world.bad[bad], version)
    first = ask(proxy.lax, f"/{proxy.name}", tls=tls)
    again = ask(proxy.lax, f"/{proxy.name}", tls=tls, session=first.session)
    # Apache says SUCCESS of another authority's here, with TLS 1.2: it is the verifier that refuses that one.
    assert again.status == first.status
    assert again.status in (None, 400, 401)
    assert again.was_resumed or again.status is None


def test_a_certificate_of_an_authority_below_the_trusted_one(proxy: Proxy, world: World) -> None:
    below = Authority("Below", world.authority)
    tls = world.tls(below.issue(x509.UniformResourceIdentifier("spiffe://agents.example/cat")))
    # Only Envoy was asked for the whole chain. Of the leaf alone nobody can tell, so the agent has to trust the lower
    # authority itself; it must not believe that the proxy has seen the rest.
    assert ask(proxy.strict, f"/{proxy.name}", tls=tls).status == 401
    assert ask(proxy.lax, f"/{proxy.name}", tls=tls).status == (200 if proxy.name == "envoy" else 401)


def test_a_peer_that_is_not_the_proxy(agent: ProxiedAgent, proxy: Proxy, world: World) -> None:
    lines = told(proxy, world.ann)
    for port in (agent.port, agent.h11_port):
        assert ask(port, f"/{proxy.name}", *lines).status == 200  # this is what the proxy's own address may say
        for more in ([], ["X-Forwarded-For: 127.0.0.1"], ["Forwarded: for=127.0.0.1", "X-Real-IP: 127.0.0.1"]):
            assert ask(port, f"/{proxy.name}", *lines, *more, from_address=STRANGER).status == 401
        for line in lines:
            assert ask(port, f"/{proxy.name}", *lines, line).status == 401


def test_a_server_that_believes_forwarded_headers_and_records_nobody(
    agent: ProxiedAgent, proxy: Proxy, world: World
) -> None:
    lines = told(proxy, world.ann)
    for address in (STRANGER, "127.0.0.1"):
        answer = ask(agent.plain_port, f"/{proxy.name}", *lines, "X-Forwarded-For: 127.0.0.1", from_address=address)
        assert answer.status == 503
    assert ask(agent.plain_port, f"/{proxy.name}").status == 401


@pytest.fixture(scope="module")
def nginx(agent: ProxiedAgent, world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    yield from _proxy("nginx", agent, world, tmp_path_factory.mktemp("nginx"))


def test_the_proxy_by_its_unix_socket(agent: ProxiedAgent, nginx: Proxy, world: World) -> None:
    assert_is(ask(nginx.unix, "/nginx-unix", tls=world.tls(world.ann)), world.ann)
    assert ask(nginx.unix, "/nginx-unix", tls=world.tls(None)).status == 401
    assert ask(nginx.strict, "/nginx-unix", tls=world.tls(world.ann)).status == 401  # that one comes over the network
    assert ask(agent.port, "/nginx-unix", *told(nginx, world.ann)).status == 401


def test_the_proxy_by_its_secret(agent: ProxiedAgent, nginx: Proxy, world: World) -> None:
    assert_is(ask(nginx.secret, "/nginx-secret", tls=world.tls(world.ann)), world.ann)
    assert ask(nginx.secret, "/nginx-secret", tls=world.tls(None)).status == 401
    assert ask(nginx.strict, "/nginx-secret", tls=world.tls(world.ann)).status == 401
    lines = told(nginx, world.ann)
    for port in (agent.port, agent.plain_port):  # a secret is a proof whatever the server records
        assert ask(port, "/nginx-secret", *lines).status == 401
        assert ask(port, "/nginx-secret", *lines, "X-Proxy-Secret: of-the-proxy").status == 401
        assert_is(ask(port, "/nginx-secret", *lines, f"X-Proxy-Secret: {agent.secret}"), world.ann)
    twice = ask(nginx.secret, "/nginx-secret", f"X_Proxy_Secret: {agent.secret}", tls=world.tls(world.ann))
    assert twice.status == 401


@pytest.mark.parametrize("server", ["daphne", "granian"])
def test_servers_that_tell_of_nothing_stand_behind_a_proxy_with_a_secret(
    server: str, agent: ProxiedAgent, world: World, tmp_path: Path
) -> None:
    there = replace(agent, port=free_port())
    settings = {"secret": there.secret, "authority": str(world.folder / "authority.pem")}
    command = [sys.executable, "-m", *SERVERS[server]("tests.real.proxied_app:app", there.port)]
    with serving(command, f"http://127.0.0.1:{there.port}", {"PROXIED": json.dumps(settings)}, ROOT):
        for nginx in _proxy("nginx", there, world, tmp_path):
            assert_is(ask(nginx.secret, "/nginx-secret", tls=world.tls(world.ann)), world.ann)
            assert ask(nginx.secret, "/nginx-secret", tls=world.tls(None)).status == 401
            lines = told(nginx, world.ann)
            assert ask(there.port, "/nginx-secret", *lines).status == 401
            # By its address nobody can know the proxy here, and the operator is told so.
            assert ask(nginx.strict, "/nginx", tls=world.tls(world.ann)).status == 503


@pytest.fixture(scope="module")
def envoy(agent: ProxiedAgent, world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    yield from _proxy("envoy", agent, world, tmp_path_factory.mktemp("envoy"))


def test_a_certificate_whose_uri_is_written_like_an_element_of_envoy(envoy: Proxy, world: World) -> None:
    uri = f"spiffe://agents.example/eve,{xfcc(world.ann.der)}"
    eve = world.authority.issue(x509.UniformResourceIdentifier(uri))
    tls = world.tls(eve)
    assert ask(envoy.lax, "/envoy", tls=tls).status == 401  # there it tells of URIs: the last element is all Ann's
    assert ask(envoy.strict, "/envoy", tls=tls).status == 401  # no SPIFFE ID
