"""Which names are within a service mesh, and which addresses they may have."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest
from httpcore import AnyIOBackend, AsyncNetworkStream, ConnectError

from a2a_trust import Fetcher, FetchError
from a2a_trust.base.net.urls import NO_MESH, HttpWithin, check_private
from a2a_trust.errors import ConfigurationError
from tests.base.net.test_fetcher import Names, answer, serving
from tests.tables import walk

MESH = "svc.cluster.local"
NAME = f"agent.team.{MESH}"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@walk(
    "suffix",
    [
        "local", "", ".", ".svc.cluster.local", "svc.cluster.local.", "*.cluster.local", "*", "SVC.cluster.local",
        "svc..local", "10.0.0.1", "10.1", "a.0x7f", "[::1]", "::1", "[::ffff:10.0.0.1]", "svc.cluster.local:80",
        "http://svc.cluster.local", "svc.cluster.local/", "a@svc.cluster.local", "svc cluster.local", "svç.local",
        "svc.cluster.local\n", "com", "a" * 64 + ".local", 1, None, b"svc.cluster.local", ["svc.cluster.local"],
    ],
)  # fmt: skip
def test_a_suffix_is_a_name_of_two_labels_in_lower_case(suffix: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^http_within: .*write a name of two labels or more"):
        Fetcher(http_within=["svc.cluster.local", suffix])


@walk("suffixes", ["svc.cluster.local", True, None, 7])
def test_suffixes_are_a_list_even_of_one(suffixes: Any) -> None:
    with pytest.raises(ConfigurationError, match=r'^http_within: write a list, as in \["svc\.cluster\.local"\], not '):
        HttpWithin(suffixes)


@walk("host", ["svc.cluster.local", "a.svc.cluster.local", NAME, "xn--bcher-kva.svc.cluster.local"])
def test_the_suffix_and_names_below_it_are_within(host: str) -> None:
    assert HttpWithin(["mesh.internal", "svc.cluster.local"]).covers(host)
    assert not HttpWithin(["mesh.internal"]).covers(host)
    assert not NO_MESH.covers(host)


@walk(
    "host",
    ["evilsvc.cluster.local", "svc.cluster.local.evil.com", "cluster.local", "local", f"{NAME}.", "", "10.0.0.1",
     "[::1]", "svc-cluster.local", "svc.cluster.localhost", "a.svc.cluster.local:80"],
)  # fmt: skip
def test_look_alikes_are_not(host: str) -> None:
    assert not HttpWithin([MESH]).covers(host)


def test_one_address_outside_spoils_a_name() -> None:
    good = [*map(ip_address, ("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd12::1", "::1"))]
    check_private("http://a.b", good)
    for bad in ("8.8.8.8", "2606:4700::1111", "169.254.169.254", "fe80::1", "100.100.100.200", "fd00:ec2::254",
                "168.63.129.16", "0.0.0.0", "::ffff:10.0.0.1", "64:ff9b::a00:1", "192.0.2.1", "224.0.0.1"):  # fmt: skip
        with pytest.raises(FetchError, match=f"private addresses only, and the name has the address {ip_address(bad)}"):
            check_private("http://a.b", [*good, ip_address(bad)])


@pytest.mark.anyio
async def test_a_fetcher_asks_a_name_within_over_http() -> None:
    async with serving(answer()) as server:
        names = Names(**{NAME: [["127.0.0.1"]]})
        fetcher = Fetcher(http_within=[MESH], resolver=names)
        url = f"http://{NAME}:{server.port}/jwks"
        assert (await fetcher.fetch(url, configured=True)).body == b'{"keys": []}'
        assert (await fetcher.fetch(url.upper().replace("JWKS", "jwks"), configured=True)).body == b'{"keys": []}'
        assert f"Host: {NAME}:{server.port}\r\n".encode() in server.requests[0]
        with pytest.raises(FetchError, match="not a public one"):  # https is as it was
            await fetcher.fetch(f"https://{NAME}:{server.port}/jwks", configured=True)
        with pytest.raises(FetchError, match="the name has no address"):
            await fetcher.fetch(f"http://other.{MESH}/jwks", configured=True)
    assert names.asked == [NAME] * 3 + [f"other.{MESH}"]


@pytest.mark.anyio
async def test_the_addresses_of_the_cluster_are_connected_to() -> None:
    tried: list[str] = []

    async def connect(_: AnyIOBackend, host: str, *rest: Any) -> AsyncNetworkStream:
        tried.append(host)
        raise ConnectError

    with pytest.MonkeyPatch.context() as patch:  # there is no cluster here
        patch.setattr(AnyIOBackend, "connect_tcp", connect)
        fetcher = Fetcher(http_within=[MESH], resolver=Names(**{NAME: [["10.1.2.3", "fd12::1"]]}))
        with pytest.raises(FetchError, match="it cannot be reached"):
            await fetcher.fetch(f"http://{NAME}/jwks", configured=True)
    assert tried == ["10.1.2.3", "fd12::1"]
