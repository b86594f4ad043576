"""The client on httpx2: the tests of the client on httpx pass with it, and the two libraries do not mix."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import httpx
import httpx2
import pytest

from a2a_trust import verify_card
from a2a_trust.client import ApiKey
from a2a_trust.client import httpx as door
from a2a_trust.client import httpx2 as door2
from a2a_trust.client.attachment import attach
from a2a_trust.client.messages import Attachment
from tests.client.agents import OWNER_TRUSTED, card_of, signed
from tests.conftest import ROOT
from tests.tiers import QUICK

URL: Final = "https://agent.example.com"
KEY: Final = {"key": ApiKey("k", origins=[URL])}
CARD: Final = verify_card(signed(card_of(URL)), OWNER_TRUSTED, origin=URL)


def touching_the_door(folder: str) -> list[str]:
    """The tests of a folder that use both httpx and the door; all others do not depend on the library."""
    door = re.compile(r"verifying_client|VerifyingTransport|CardAuth|client\.(?:attachment|adapters)")
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests" / folder).glob("test_*.py"))}
    return [
        str(path)
        for path, text in texts.items()
        if "import httpx\n" in text and door.search(text) and path.name != Path(__file__).name
    ]


@pytest.mark.parametrize("folder", ["client", "attacks"])
def test_the_tests_of_the_client_pass_with_httpx2(folder: str) -> None:
    files = touching_the_door(folder)
    assert len(files) > 12
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.with_httpx2", "-p", "no:cacheprovider", "-m", QUICK]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    done = subprocess.run([*command, *files], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2_000:]


def public_names(module: ModuleType) -> dict[str, Any]:
    own = {name: value for name, value in vars(module).items() if name[0] != "_" and name != "annotations"}
    return {
        name: value
        for name, value in own.items()
        if getattr(value, "__module__", "") in (module.__name__, "a2a_trust.client.adapters")
    }


def test_both_doors_have_the_same_names_and_words() -> None:
    names, names2 = public_names(door), public_names(door2)
    assert len(names) == 10
    assert names.keys() == names2.keys()
    for name, value in names.items():
        assert value.__doc__ == names2[name].__doc__
        assert getattr(value, "code", "") == getattr(names2[name], "code", "")


def test_an_error_is_one_of_its_library() -> None:
    for theirs, ours in ((httpx, door), (httpx2, door2)):
        assert issubclass(ours.UnverifiedCardError, theirs.RequestError)
        assert issubclass(ours.CredentialsError, theirs.RequestError)
        assert issubclass(ours.CredentialsRejectedError, theirs.HTTPStatusError)


MINE: Final = """
import sys
sys.modules[{theirs!r}] = None
from a2a_trust import fetch_card
from a2a_trust.client import ApiKey
from {door} import verifying_client
from a2a_trust.keys import TrustStore
http = verifying_client("https://a.example", trust=TrustStore([]), credentials={{}})
print(type(http).__module__, [each for each in sys.modules if each.partition(".")[0] == {theirs!r}])
"""


@pytest.mark.parametrize(
    ("mine", "theirs", "door"),
    [("httpx", "httpx2", "a2a_trust.client"), ("httpx2", "httpx", "a2a_trust.client.httpx2")],
)
def test_a_client_needs_its_own_library_only(mine: str, theirs: str, door: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MINE.format(theirs=theirs, door=door)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == (f"{mine} ['{theirs}']\n", "")


def test_without_httpx2_its_door_says_what_to_install() -> None:
    program = "import sys; sys.modules['httpx2'] = None; from a2a_trust.client.httpx2 import CardAuth"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.endswith('a2a_trust.client.httpx2 needs httpx2: pip install "./a2a-trust[client-httpx2]"\n')


def test_without_httpx_its_names_say_what_to_install_or_to_import() -> None:
    program = "import sys; sys.modules['httpx'] = None; from a2a_trust.client import verifying_client"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.endswith('pip install "./a2a-trust[client]", or import it from a2a_trust.client.httpx2\n')


def test_a_union_of_headers_has_no_credential() -> None:
    """httpx2 has unions of headers, and httpx has not."""
    request = httpx2.Request("GET", URL, headers={"Accept": "text/plain"})
    attach(request, Attachment(headers=((b"x-api-key", b"secret"),)))
    assert (b"x-api-key", b"secret") in request.headers.raw
    for union in (request.headers | {"Accept": "a"}, httpx2.Headers({"Accept": "a"}) | request.headers):
        assert sorted(union.keys()) == ["accept", "host"]
        assert b"secret" not in b"".join(value for _, value in union.raw)


class Untouched:
    """No request may reach the network."""

    def __call__(self, request: object) -> Any:
        raise AssertionError("a request was sent")


def in_a_client(mine: Any, theirs: Any, auth: Any = None) -> Any:
    with theirs.Client(transport=mine, auth=auth) as http:
        return http.get(f"{URL}/rpc")


def in_an_asynchronous_client(mine: Any, theirs: Any, auth: Any = None) -> Any:
    async def get() -> Any:
        async with theirs.AsyncClient(transport=mine, auth=auth) as http:
            return await http.get(f"{URL}/rpc")

    return asyncio.run(get())


#: What mixes a library of ``ours`` with an object of the other one.
MIXED: Final[dict[str, Callable[[Any, Any, Any], Any]]] = {
    "transport": lambda ours, mine, theirs: ours.VerifyingTransport(theirs.HTTPTransport(), OWNER_TRUSTED),
    "asynchronous transport": lambda ours, mine, theirs: ours.AsyncVerifyingTransport(
        theirs.AsyncHTTPTransport(), OWNER_TRUSTED
    ),
    "certified transport": lambda ours, mine, theirs: ours.VerifyingTransport(
        mine.HTTPTransport(), OWNER_TRUSTED, mutual_tls={URL: theirs.HTTPTransport()}
    ),
    "time limit": lambda ours, mine, theirs: ours.verifying_client(
        URL, trust=OWNER_TRUSTED, credentials=KEY, timeout=theirs.Timeout(1)
    ),
    "client": lambda ours, mine, theirs: in_a_client(
        ours.VerifyingTransport(mine.MockTransport(Untouched()), OWNER_TRUSTED), theirs
    ),
    "asynchronous client": lambda ours, mine, theirs: in_an_asynchronous_client(
        ours.AsyncVerifyingTransport(mine.MockTransport(Untouched()), OWNER_TRUSTED), theirs
    ),
    "credentials": lambda ours, mine, theirs: in_a_client(
        theirs.MockTransport(Untouched()), theirs, ours.CardAuth(CARD, KEY, trust=OWNER_TRUSTED)
    ),
    "credentials of an asynchronous client": lambda ours, mine, theirs: in_an_asynchronous_client(
        theirs.MockTransport(Untouched()), theirs, ours.CardAuth(CARD, KEY, trust=OWNER_TRUSTED)
    ),
}


@pytest.mark.parametrize("mix", MIXED.values(), ids=MIXED)
@pytest.mark.parametrize(
    ("ours", "mine", "theirs", "instead"),
    [(door, httpx, httpx2, "a2a_trust.client.httpx2"), (door2, httpx2, httpx, "a2a_trust.client")],
    ids=["httpx", "httpx2"],
)
def test_an_object_of_the_other_library_is_rejected(
    mix: Callable[[Any, Any, Any], Any], ours: Any, mine: Any, theirs: Any, instead: str
) -> None:
    with pytest.raises(TypeError, match=rf" is not an {mine.__name__}\.\w+, but of {theirs.__name__};") as told:
        mix(ours, mine, theirs)
    assert str(told.value).endswith(f"; import from {instead} for it")


@pytest.mark.parametrize("ours", [door, door2])
def test_an_object_of_no_library_is_rejected(ours: Any) -> None:
    with pytest.raises(TypeError, match=r"^transport: str is not an httpx2?\.BaseTransport$"):
        ours.VerifyingTransport("https://agent.example.com", OWNER_TRUSTED)
    with pytest.raises(TypeError, match="pass it as auth="):
        ours.CardAuth(CARD, KEY, trust=OWNER_TRUSTED)(ours._LIBRARY.module.Request("GET", URL))
