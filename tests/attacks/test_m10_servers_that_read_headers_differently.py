"""M10: servers keep or lose blanks, join or drop lines; what one of them lets in another one refuses.

Seen with httptools and others. The same bytes go to uvicorn (h11, httptools), hypercorn, granian, daphne and the
reverse proxy. A server that refuses by itself, with 400, has refused as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.servers.guarded_servers import SHELLS, GuardedServers, guarded_servers
from tests.tables import walk

CLOSE = "Connection: close\r\n"


@pytest.fixture(scope="module", params=SHELLS)
def servers(request: pytest.FixtureRequest) -> Iterator[GuardedServers]:
    with guarded_servers(*request.param) as running:
        yield running


SERVED = [
    "Authorization: Bearer {token}",
    "Authorization:Bearer {token}",
    "Authorization:   Bearer {token}   ",
    "Authorization: Bearer {token}\t",
    "Authorization:\tBearer {token}",
    "Authorization: \t Bearer {token} \t ",
    "AUTHORIZATION: bEARER {token}",
    "X-API-Key: {key}",
    "x-api-key:{key}",
    "X-API-Key: \t {key} \t",
    "Cookie: sid={key}",
    "Cookie: a=b; sid={key}",
    "Cookie: a=b;sid={key};",
    "Cookie:\tsid={key}\t",
    "Cookie: a=b\r\nCookie: sid={key}",
    "X-API-Key: {key}\r\nAuthorization: Bearer {token}",
    "X-API-Key: {key}\r\nAuthorization: Basic YTpi",
]

REFUSED = [
    "X-Other: {key}",
    "Authorization: Bearer  {token}",
    "Authorization: Bearer\t{token}",
    "Authorization: Bearer \t{token}",
    "Authorization: Bearer{token}",
    "Authorization: {token}",
    "Authorization : Bearer {token}",
    "Authorization\t: Bearer {token}",
    " Authorization: Bearer {token}",
    "\tAuthorization: Bearer {token}",
    *(f"Authorization: Bearer {{token}}{char}" for char in "\x00\x0b\x0c\x1c\x1f\x7f\x80\x85\xa0\xad"),
    *(f"Authorization: {char}Bearer {{token}}" for char in "\x00\x0b\x0c\x1c\x1f\x7f\x80\x85\xa0\xad"),
    *(f"X-API-Key: {{key}}{char}" for char in "\x00\x0b\x0c\x1c\x1f\x7f\x80\x85\xa0\xad"),
    "Authorization: Bearer {token}\r\nAuthorization: Bearer {token}",
    "Authorization: Bearer {token}\r\nAuthorization: Bearer other",
    "Authorization: Bearer other\r\nAuthorization: Bearer {token}",
    "Authorization: Bearer {token}\r\nAuthorization:",
    "Authorization:\r\nAuthorization: Bearer {token}",
    "Authorization: Basic YTpi\r\nauthorization: Bearer {token}",
    "Authorization: Bearer {token}, Bearer {token}",
    "Authorization: Bearer {token},",
    "Authorization: ,Bearer {token}",
    "Authorization: Basic YTpi, Bearer {token}",
    "X-API-Key: {key}\r\nX-API-Key: {key}",
    "X-API-Key: {key}\r\nX-API-Key:",
    "X-API-Key: {key}\r\nx-api-key: other",
    "X-API-Key: {key}, {key}",
    "X-API-Key: {key},",
    'X-API-Key: "{key}"',
    "X-API-Key: {key_a} {key_b}",
    "X-API-Key: {key_a}\r\n {key_b}",
    "X-API-Key : {key}",
    "X-API-Key\x00: {key}",
    "\x00X-API-Key: {key}",
    "X-API-Key",
    "X-API-Key:",
    "X-API-Key: \t ",
    "X_API_KEY: {key}",
    "X-API_Key: {key}",
    "X.API.Key: {key}",
    "X-\xc1PI-Key: {key}",
    "Cookie: sid={key}\r\nCookie: sid={key}",
    "Cookie: sid={key}; sid=other",
    "Cookie: sid=other; sid={key}",
    "Cookie: sid ={key}",
    "Cookie: sid= {key}",
    'Cookie: sid="{key}"',
    "Cookie: a=b, sid={key}",
    "Cookie: Sid={key}",
    "Cookie: $sid={key}",
    "X-API-Key: {key}\r\nAuthorization: Bearer other",
    "X-API-Key: {key}\r\nCookie: sid=other",
    "Authorization: Bearer {token}\rX-Other: 1",
    "X-Other: 1\rAuthorization: Bearer {token}",
    "X-Other: 1\r\n Authorization: Bearer {token}",
    "Authorization: Bearer {token}\r\n x",
]


@walk("lines", SERVED)
def test_a_plain_credential_is_taken_by_every_server(servers: GuardedServers, lines: str) -> None:
    answers = servers.answers(CLOSE + servers.lines(lines))
    assert {name: status for name, (status, _) in answers.items()} == dict.fromkeys(servers.origins, 200)
    (caller,) = {json.loads(body)["user"] for _, body in answers.values()}
    assert caller.startswith("ann@")


@walk("lines", REFUSED)
def test_an_odd_one_is_taken_by_none(servers: GuardedServers, lines: str) -> None:
    answers = servers.answers(CLOSE + servers.lines(lines))
    assert {name: status for name, (status, _) in answers.items() if status not in (400, 401)} == {}


@walk(
    ("target", "is_served"),
    [
        ("/rpc?key={key}", True),
        ("/rpc?a=b&key={key}", True),
        ("/rpc?%6bey={key}", True),
        ("/rpc?&&key={key}", True),
        ("/rpc?key={key}&key={key}", False),
        ("/rpc?key={key}&key=", False),
        ("/rpc?key={key}&%6Bey=other", False),
        ("/rpc?key={key}%00", False),
        ("/rpc?key=+{key}", False),
        ("/rpc?key=%20{key}", False),
        ("/rpc?key={key};x=1", False),
        ("/rpc?x=1;key={key}", False),
        ("/rpc?Key={key}", False),
        ("/rpc??key={key}", False),
        ("/rpc?x=%ff&key={key}", True),
        ("/rpc?x=\xff&key={key}", False),
        ("/rpc?key ={key}", False),
        ("/rpc%3Fkey={key}", False),
        ("/rpc;key={key}", False),
    ],
)
def test_a_key_in_the_query_is_read_alike(servers: GuardedServers, target: str, is_served: bool) -> None:
    answers = servers.answers("Connection: close", target=servers.lines(target))
    for name, (status, _) in answers.items():
        assert status in ((200,) if is_served else (400, 401)), name


# What servers take away or put together before anybody sees it: they differ, and each way of theirs is allowed. It is
# read as if it had been written plainly, so only a good credential is ever served.
DIFFERENT = [
    ("/rpc", "Authorization: Bearer\r\n {token}"),  # folded: 400, or one blank (RFC 9112 5.2)
    ("/rpc", "Authorization:\r\n Bearer {token}"),
    ("/rpc", "Authorization: Bearer {token}\r\n\t"),
    ("/rpc", "Authorization: Bearer {token}\nX-Other: 1"),  # a bare LF: 400, or the end of a line (RFC 9112 2.2)
    ("/rpc", "X-Other: 1\nAuthorization: Bearer {token}"),
    ("/rpc", "X-API-Key: {key}\r\nX_API_Key: other"),  # daphne drops names with an underscore, all others show them
    ("/rpc", "X_API_Key: other\r\nX-API-Key: {key}"),
    ("/rpc?key={key}#x", "X-Other: 1"),  # a fragment is dropped, or is a part of the target
    ("/rpc#?key={key}", "X-Other: 1"),
]


@walk(("target", "lines"), DIFFERENT)
def test_where_servers_differ_only_a_good_credential_is_served(
    servers: GuardedServers, target: str, lines: str
) -> None:
    answers = servers.answers(CLOSE + servers.lines(lines), target=servers.lines(target))
    statuses = {name: status for name, (status, _) in answers.items()}
    assert set(statuses.values()) <= {200, 400, 401}
    if "X_API_Key" in lines:
        assert [name for name, status in statuses.items() if status == 200] == [
            name for name in statuses if name == "daphne"
        ]
    bad = servers._replace(key="other" * 10, token="other")
    for status, _ in (bad.answers(CLOSE + bad.lines(lines), target=bad.lines(target))).values():
        assert status in (400, 401)


def test_the_card_is_shown_by_every_server_and_other_writings_of_its_path_by_none(
    servers: GuardedServers,
) -> None:
    for target in ("/.well-known/agent-card.json", "/.well-known/agent.json", "/.well-known/agent-card.json?x=%ff"):
        answers = servers.answers("Connection: close", target=target)
        assert {status for status, _ in answers.values()} == {200}, target
    for target in (
        "/.well-known/agent%2Dcard.json",
        "/%2Ewell-known/agent-card.json",
        "/.well-known//agent-card.json",
        "//.well-known/agent-card.json",
        "/x/../.well-known/agent-card.json",
        "/./.well-known/agent-card.json",
        "/.well-known/agent-card.json/",
        "/.well-known/agent-card.json;x",
        "/.well-known/agent-card.json%00",
        "/.well-known/agent-card.json%3Fx",
        "/.well-known\\agent-card.json",
        "/.well-known/AGENT-CARD.json",
    ):
        for name, (status, _) in (servers.answers("Connection: close", target=target)).items():
            assert status in (400, 401), (target, name)
