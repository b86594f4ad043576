"""``a2a-sign verify https://…`` and ``inspect https://…``: an agent on this machine is asked, and may be anybody's.

The command runs in this process where its fetcher has to know names and an authority of the test: no argument says so.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from a2a_trust import Fetcher, generate_signer, publish_jwks, sign_card
from a2a_trust.cli.main import main
from a2a_trust.keys import LocalSigner
from a2a_trust.signing import Form
from tests.base.net.test_fetcher import Authority, Names
from tests.cli.conftest import Done, Run
from tests.client.agents import NEW, OLD, OWNER, Agent, Page, card_of, serving_agent, signed
from tests.signing.making import signed_in

HOST, MIRROR = "agent.test", "mirror.test"
STRANGER = generate_signer(kid="stranger")
KEYS = ("--jwks", "keys.json")
KEY_SET = "/.well-known/jwks.json"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def agent(authority: Authority) -> Iterator[Agent]:
    with serving_agent(authority.server(HOST, MIRROR)) as running:
        running.pages[NEW] = signed(card_of(running.origin(HOST)))
        yield running


Command = Callable[..., Done]


@pytest.fixture
def command(
    agent: Agent,
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Command:
    """a2a-sign in a folder with the owner's keys, and with a fetcher that knows both names of the agent."""
    names = Names(agent_test=[["127.0.0.1"]], mirror_test=[["127.0.0.1"]])
    origins = [agent.origin(HOST), agent.origin(MIRROR)]
    fetcher = Fetcher(private_origins=origins, ssl_context=authority.client(), resolver=names)
    monkeypatch.setattr("a2a_trust.client.verification.Fetcher", lambda: fetcher)
    monkeypatch.setattr("a2a_trust.base.net.fetcher.Fetcher", lambda: fetcher)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keys.json").write_text(json.dumps(publish_jwks([OWNER.public_key])))

    def command(*arguments: str) -> Done:
        code = main([*arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Done(code, out, err)

    return command


# --- verify --------------------------------------------------------------------------------------------------------


def test_a_card_is_asked_for_and_verified_as_one_of_the_host_that_was_asked(command: Command, agent: Agent) -> None:
    url = agent.origin(HOST)
    done = command("verify", url, *KEYS)
    assert (done.code, done.err) == (0, "")
    assert f", origin {HOST}\n" in done.out
    (entry,) = command("verify", url + NEW, *KEYS, "--json").json["results"]
    assert (entry["file"], entry["ok"], entry["origin"]) == (url + NEW, True, HOST)
    assert entry["card"] == card_of(url)
    assert agent.paths() == [NEW, NEW]


def test_verbose_says_what_was_asked_for(command: Command, agent: Agent) -> None:
    url = agent.origin(HOST)
    agent.pages[OLD] = agent.pages.pop(NEW)
    done = command("verify", f"{url}", *KEYS, "--verbose")
    made, *asked = done.err.splitlines()
    assert (done.code, "made a memory of cards at " in made) == (0, True)
    assert asked == [f"{url}{NEW}: HTTP 404", f"{url}{OLD}: HTTP 200"]
    assert "?" not in command("inspect", f"{url}{OLD}?secret", "-v").err


def test_a_card_at_the_older_name_is_found(command: Command, agent: Agent) -> None:
    agent.pages[OLD] = agent.pages.pop(NEW)
    assert command("verify", agent.origin(HOST), *KEYS).code == 0
    assert agent.paths() == [NEW, OLD]


def test_each_class_has_its_exit_code_and_its_word(command: Command, agent: Agent) -> None:
    url = agent.origin(HOST)
    card = card_of(url)
    uncovered = {**signed_in(card, Form.PRUNED, OWNER), "x": 1}
    cases: list[tuple[Page | bytes, str, int, str, str]] = [
        (signed(card).replace(b"Ledger", b"Lodger"), "", 1, "invalid", "not-verified"),
        (b'{"name": 1, "name": 2}', "", 1, "invalid", "malformed"),
        (signed(card), "?x", 2, "usage", "configuration"),
        (json.dumps(card).encode(), "", 3, "unsigned", "unsigned"),
        (signed(card, by=STRANGER), "", 4, "untrusted", "untrusted"),
        (signed(card_of(agent.origin(MIRROR))), "", 4, "untrusted", "untrusted"),
        (json.dumps(uncovered).encode(), "", 5, "uncovered", "uncovered"),
        (Page(status=404), "", 6, "input-output", "fetch"),
        (Page(status=302, headers={"Location": url + OLD}), "", 6, "input-output", "fetch"),
        (Page(body=signed(card), headers={"Content-Type": "text/html"}), "", 6, "input-output", "fetch"),
    ]
    for page, query, code, word, error in cases:
        agent.pages[NEW] = page
        forms = ["--signer", "a2a-js"] if code == 5 else []
        done = command("verify", url + query, *KEYS, *forms, "--json")
        (entry,) = done.json["results"]
        assert (done.code, entry["class"], entry["code"]) == (code, word, error)
        done = command("verify", url + query, *KEYS, *forms)
        assert done.code == code
        assert f"NOT VERIFIED ({word}): " in done.out


def test_keys_that_are_named_one_by_one_speak_for_the_host_that_was_asked_alone(command: Command, agent: Agent) -> None:
    """Of a file nobody knows where it is from; of a URL everybody does."""
    elsewhere = [{"url": "https://evil.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
    agent.pages[NEW] = signed(card_of(agent.origin(HOST), supportedInterfaces=elsewhere))
    assert command("verify", agent.origin(HOST), *KEYS).code == 4
    Path("card.json").write_bytes(signed(card_of(agent.origin(HOST), supportedInterfaces=elsewhere)))
    done = command("verify", "card.json", *KEYS, "--any-origin")
    assert ", origin not bound\n" in done.out


def test_a_mirror_is_believed_only_where_the_origin_is_named(command: Command, agent: Agent) -> None:
    mirror = agent.origin(MIRROR)
    assert command("verify", mirror, *KEYS).code == 4
    agent.pages["/entries/7"] = agent.pages[NEW]
    for place in (NEW, "/entries/7"):  # the URL as it is
        done = command("verify", mirror + place, *KEYS, "--origin", agent.origin(HOST))
        assert done.code == 0
        assert f", origin {HOST}\n" in done.out
    assert command("verify", agent.origin(HOST) + NEW, *KEYS, "--origin", mirror).code == 4
    done = command("verify", f"{mirror}{NEW}", *KEYS, "--origin", f"{agent.origin(HOST)}/other")
    assert (done.code, "names no interface at" in done.out) == (1, True)


def test_the_keys_of_a_trust_file_may_be_on_the_network(command: Command, agent: Agent) -> None:
    url = agent.origin(HOST)
    Path("trust.toml").write_text(f'version = 1\n[[trust]]\norigins = ["{HOST}"]\njwks_url = "{url}{KEY_SET}"\n')
    agent.pages[KEY_SET] = json.dumps(publish_jwks([OWNER.public_key])).encode()
    done = command("verify", url, "--trust", "trust.toml")
    assert (done.code, done.err) == (0, "")
    del agent.pages[KEY_SET]
    for more in ((), ("--on-first-use",)):
        done = command("verify", url, "--trust", "trust.toml", *more)
        assert done.code == 4
        assert "continuing without the keys of this key set" in done.err


def test_files_and_agents_are_verified_side_by_side(command: Command, agent: Agent) -> None:
    url = agent.origin(HOST)
    Path("card.json").write_bytes(signed(card_of(url)))
    report = command("verify", "card.json", url, "https://nobody.test", *KEYS, "--any-origin", "--json").json
    assert [entry["class"] for entry in report["results"]] == ["ok", "ok", "input-output"]
    assert [entry.get("origin") for entry in report["results"]] == [None, HOST, None]
    assert report["exit"] == 6


def test_nothing_in_an_agents_card_steers_the_terminal(command: Command, agent: Agent) -> None:
    agent.pages[NEW] = signed(card_of(agent.origin(HOST), name="\x1b[2J\u202eevil"))
    for done in (command("verify", agent.origin(HOST), *KEYS), command("inspect", agent.origin(HOST))):
        assert done.code == 0
        assert done.out.replace("\n", "").isprintable()


# --- what is remembered --------------------------------------------------------------------------------------------


def test_an_older_card_after_a_newer_one_is_refused_until_the_agent_is_forgotten(
    command: Command, agent: Agent
) -> None:
    url, now = agent.origin(HOST), time.time()
    new, old = (signed(card_of(url), iat=now - age) for age in (10, 1000))
    agent.pages[NEW] = new
    assert command("verify", url, *KEYS).code == 0
    (record,) = command("memory", "list", "--json").json["records"]
    assert (record["location"], record["on_first_use"]) == (url, False)
    agent.pages[NEW] = old
    (entry,) = command("verify", url, *KEYS, "--json").json["results"]
    assert (entry["class"], entry["code"]) == ("untrusted", "rolled-back")
    done = command("verify", url, *KEYS)
    assert done.code == 4
    way_out = done.out[done.out.index("a2a-sign memory forget") :].strip()
    assert command(*shlex.split(way_out)[1:]).code == 0
    assert command("verify", url, *KEYS).code == 0


def test_a_verification_as_of_later_leaves_the_memory_as_it_is(command: Command, agent: Agent) -> None:
    url = agent.origin(HOST)
    signing = sign_card(card_of(url), OWNER, iat=int(time.time()), lifetime=timedelta(days=1))
    agent.pages[NEW] = json.dumps(signing.card).encode()
    (entry,) = command("verify", url, *KEYS, "--at", "12h", "--json").json["results"]
    assert (entry["ok"], entry["rollback_checked"], "as_of" in entry) == (True, False, True)
    assert command("verify", url, *KEYS, "--at", "36h").code == 1
    for option in (["--memory", "a.db"], ["--on-first-use"]):
        assert "--at uses no memory" in command("verify", url, *KEYS, "--at", "12h", *option).err
    assert command("memory", "list").code == 2  # nothing has made one


def test_signatures_that_were_taken_off_are_told(command: Command, agent: Agent) -> None:
    url = agent.origin(HOST)
    assert command("verify", url, *KEYS).code == 0
    agent.pages[NEW] = json.dumps(card_of(url)).encode()
    done = command("verify", url, *KEYS)
    assert done.code == 3
    assert "its signatures may have been removed" in done.out


@pytest.mark.real
def test_a_memory_in_a_database(command: Command, agent: Agent, postgres_url: str) -> None:
    url = agent.origin(HOST)
    at = ("--memory", postgres_url)
    agent.pages[NEW] = signed(card_of(url), iat=time.time() - 10)
    assert command("verify", url, *KEYS, *at).code == 0
    agent.pages[NEW] = signed(card_of(url), iat=time.time() - 1000)
    done = command("verify", url, *KEYS, *at)
    assert done.code == 4
    assert command("memory", "list", "--json").code == 2  # nothing is in the memory of this user
    way_out = done.out[done.out.index("a2a-sign memory forget") :].strip()
    assert shlex.split(way_out)[3:5] == ["--file", postgres_url]
    assert command(*shlex.split(way_out)[1:]).code == 0
    assert command("verify", url, *KEYS, *at).code == 0
    agent.pages[NEW] = json.dumps(card_of(url)).encode()
    assert command("verify", url, *KEYS, *at).code != 0  # an unsigned card after a signed one


def test_another_memory_knows_nothing_of_this_one(command: Command, agent: Agent, tmp_path: Path) -> None:
    url, now = agent.origin(HOST), time.time()
    for memory, age in (("a.db", 10), ("b.db", 1000)):
        agent.pages[NEW] = signed(card_of(url), iat=now - age)
        assert command("verify", url, *KEYS, "--memory", memory).code == 0
    assert command("verify", url, *KEYS, "--memory", "a.db").code == 4
    assert not (tmp_path / "data").exists()


def test_a_pipeline_uses_only_a_memory_that_is_named(
    command: Command, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, now = agent.origin(HOST), time.time()
    agent.pages[NEW] = signed(card_of(url), iat=now - 10)
    assert command("verify", url, *KEYS, "--json").json["results"][0]["rollback_checked"] is True
    agent.pages[NEW] = signed(card_of(url), iat=now - 1000)
    assert command("verify", url, *KEYS).code == 4
    monkeypatch.setenv("CI", "true")
    for options in ((), ("-q",), ("--json",)):
        done = command("verify", url, *KEYS, *options)
        assert done.code == 0
        assert "warning: rollback was not checked: a pipeline (CI is set)" in done.err
        assert "--memory FILE|URL" in done.err
    assert done.json["results"][0]["rollback_checked"] is False
    named = command("verify", url, *KEYS, "--memory", "cards.db", "--json")
    assert (named.err, named.json["results"][0]["rollback_checked"]) == ("", True)
    done = command("verify", url, "--on-first-use")
    assert done.code == 2
    assert "--memory FILE|URL" in done.err


def test_what_is_not_verified_or_only_looked_at_is_not_remembered(command: Command, agent: Agent) -> None:
    agent.pages[NEW] = signed(card_of(agent.origin(HOST)), by=STRANGER)
    assert command("verify", agent.origin(HOST), *KEYS).code == 4
    assert command("memory", "list", "--json").json["records"] == []
    agent.pages[NEW] = signed(card_of(agent.origin(HOST)))
    assert command("inspect", agent.origin(HOST), *KEYS).code == 0
    assert command("memory", "list", "--json").json["records"] == []


def test_the_key_of_a_stranger_is_believed_by_choice_once_and_shown(command: Command, agent: Agent) -> None:
    url, now = agent.origin(HOST), time.time()

    def answers(key: LocalSigner, age: float) -> None:
        agent.pages[NEW] = signed(card_of(url), by=key, iat=now - age)
        agent.pages[KEY_SET] = json.dumps(publish_jwks([key.public_key])).encode()

    answers(STRANGER, 10)
    assert command("verify", url).code == 2
    assert command("verify", url, *KEYS).code == 4
    first = command("verify", url, "--on-first-use")
    assert first.code == 0
    assert "trusted on first use" in first.err
    assert STRANGER.public_key.thumbprint in first.err
    again = command("verify", url, "--on-first-use", "--json")
    assert (again.code, again.err, again.json["results"][0]["on_first_use"]) == (0, "", True)

    other = generate_signer(kid="stranger")
    answers(other, 5)
    changed = command("verify", url, "--on-first-use")
    assert changed.code == 4
    assert f"THE KEY OF {url} HAS CHANGED" in changed.out
    way_out = changed.out[changed.out.index("a2a-sign memory accept") :].strip()
    assert other.public_key.thumbprint in way_out
    assert command(*shlex.split(way_out)[1:]).code == 0
    assert command("verify", url, "--on-first-use").code == 0


def test_what_the_agent_does_not_publish_is_not_believed_and_the_reason_is_told(command: Command, agent: Agent) -> None:
    done = command("verify", agent.origin(HOST), "--on-first-use")
    assert done.code == 4
    assert "cause:     the key set of the card's own origin: " in done.out


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (["verify", "card.json", *KEYS, "--memory", "a.db", "--any-origin"], 2, "work only with the URL of an agent"),
        (["verify", "card.json", "--on-first-use", "--any-origin"], 2, "work only with the URL of an agent"),
        (
            ["verify", "card.json", *KEYS, "--private-origins", "--any-origin"],
            2,
            "--private-origins works only with the URL of an agent",
        ),
        (["inspect", "card.json", "--private-origins"], 2, "--private-origins works only with the URL of an agent"),
        (["verify", "{url}", *KEYS, "--memory", "keys.json"], 2, "is not a valid memory of cards"),
        (["verify", "{url}", *KEYS, "--memory", "no/folder/a.db"], 6, "No such file"),
        (["inspect", "{url}", "--origin", "{url}"], 2, "need keys to verify with"),
    ],
)
def test_arguments_that_mean_nothing_are_refused_before_anybody_is_asked(
    command: Command, agent: Agent, arguments: list[str], code: int, what: str
) -> None:
    done = command(*[argument.format(url=agent.origin(HOST)) for argument in arguments])
    assert (done.code, agent.asked) == (code, [])
    assert what in done.err


def test_a_memory_that_cannot_be_made_is_told_with_the_way_out(
    command: Command, agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "keys.json"))
    done = command("verify", agent.origin(HOST), *KEYS)
    assert (done.code, agent.asked) == (6, [])
    assert "name another: --memory FILE" in done.err


# --- inspect -------------------------------------------------------------------------------------------------------


def test_a_card_is_shown_verified_or_not(command: Command, agent: Agent) -> None:
    url = agent.origin(HOST)
    done = command("inspect", url)
    assert (done.code, done.err) == (0, "")
    assert f"{url}: Ledger 1.0.0\n" in done.out
    assert "trusted:" not in done.out
    assert f"verified, for {HOST}" in command("inspect", url, *KEYS).out
    for page, code, told in (
        (signed(card_of(url), by=STRANGER), 4, "NOT VERIFIED (untrusted)"),
        (json.dumps(card_of(url)).encode(), 3, "NOT VERIFIED (unsigned)"),
        (signed(card_of(agent.origin(MIRROR))), 4, "NOT VERIFIED (untrusted)"),
    ):
        agent.pages[NEW] = page
        done = command("inspect", url, *KEYS)
        assert done.code == code
        assert "Ledger 1.0.0\n" in done.out
        assert told in done.out
        (entry,) = command("inspect", url, *KEYS, "--json").json["results"]
        assert (entry["ok"], entry["verified"], entry["name"]) == (False, False, "Ledger")


def test_an_agent_that_does_not_answer_is_told(command: Command, agent: Agent) -> None:
    del agent.pages[NEW]
    done = command("inspect", agent.origin(HOST), "--json")
    (entry,) = done.json["results"]
    assert (done.code, entry["class"]) == (6, "input-output")
    assert entry["code"] == "fetch"
    assert "answers with status 404" in entry["message"]


# --- the command as it is ------------------------------------------------------------------------------------------


def test_the_command_asks_nobody_on_this_machine_and_nothing_but_https(run: Run, agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(json.dumps(publish_jwks([OWNER.public_key])))
    port = agent.port
    for url, why in (
        (f"https://127.0.0.1:{port}", "not a public one"),
        (f"https://localhost:{port}", "not a public one"),
        (f"https://[::ffff:127.0.0.1]:{port}", "not a public one"),
        ("https://169.254.169.254/latest/agent.json", "not a public one"),
        (f"http://localhost:{port}", "for an agent on this machine add --private-origins"),
        ("file:///etc/passwd", "URL: "),
    ):
        for arguments in (["verify", url, *KEYS], ["inspect", url]):
            done = run(*arguments, "--json", XDG_DATA_HOME=str(tmp_path))
            assert done.code == 6, done
            assert why in done.json["results"][0]["message"]
    assert agent.asked == []


@pytest.fixture
def plain() -> Iterator[Agent]:
    """An agent that speaks http on this machine."""
    with serving_agent(None) as running:
        running.pages[NEW] = signed(card_of(f"http://localhost:{running.port}"))
        yield running


def test_an_agent_on_this_machine_is_asked_where_that_is_allowed(run: Run, plain: Agent, tmp_path: Path) -> None:
    url, home = f"http://localhost:{plain.port}", {"XDG_DATA_HOME": str(tmp_path / "data")}
    (tmp_path / "keys.json").write_text(json.dumps(publish_jwks([OWNER.public_key])))
    for command in ("verify", "inspect"):
        refused = run(command, url, *KEYS, **home)
        assert (refused.code, plain.asked) == (6, [])
        assert "for an agent on this machine add --private-origins" in refused.out + refused.err
    done = run("verify", url, *KEYS, "--private-origins", **home)
    assert (done.code, ", origin localhost\n" in done.out) == (0, True)
    assert plain.paths() == [NEW]
    done = run("inspect", url, *KEYS, "--private-origins", **home)
    assert (done.code, "verified, for localhost" in done.out) == (0, True)
    assert run("memory", "list", "--json", **home).json["records"][0]["location"] == url

    plain.pages[NEW] = signed(card_of(f"http://127.0.0.1:{plain.port}"))  # of another host than the one that was asked
    assert run("verify", url, *KEYS, "--private-origins", **home).code == 4
    assert run("verify", f"http://127.0.0.1:{plain.port}", *KEYS, "--private-origins", **home).code == 0


def test_keys_of_first_use_come_from_the_origin_that_was_typed(run: Run, plain: Agent, tmp_path: Path) -> None:
    plain.pages[KEY_SET] = json.dumps(publish_jwks([OWNER.public_key])).encode()
    url, home = f"http://localhost:{plain.port}", {"XDG_DATA_HOME": str(tmp_path / "data")}
    done = run("verify", url, "--on-first-use", "--private-origins", **home)
    assert (done.code, plain.paths()) == (0, [NEW, KEY_SET])
    assert OWNER.public_key.thumbprint in done.err


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://10.0.0.1:8000", "write https://…, or for names in a service mesh use fetch_card in Python"),
        ("http://agent.team.svc.cluster.local", "http is for this machine only, even with --private-origins"),
        ("http://localhost.example", "http is for this machine only, even with --private-origins"),
        ("https://169.254.169.254", "cards are never fetched from link-local, metadata and other special addresses"),
        ("https://[fd00:ec2::254]/latest/agent.json", "link-local, metadata"),
        ("https://[::ffff:127.0.0.1]", "link-local, metadata"),
        ("http://127.1", "URL: ambiguous"),
        ("ftp://localhost", "URL: the scheme 'ftp' is not fetched"),
    ],
)
def test_what_stays_refused_on_this_machine_and_elsewhere(run: Run, tmp_path: Path, url: str, why: str) -> None:
    (tmp_path / "keys.json").write_text(json.dumps(publish_jwks([OWNER.public_key])))
    for arguments in (["verify", url, *KEYS], ["inspect", url]):
        done = run(*arguments, "--private-origins", "--json", XDG_DATA_HOME=str(tmp_path))
        (entry,) = done.json["results"]
        assert (done.code, entry["code"]) == (6, "fetch")
        assert why in entry["message"]


def test_private_addresses_are_those_of_the_origin_that_was_typed(
    command: Command, agent: Agent, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[list[str]] = []

    def fetcher(private_origins: Sequence[str] = (), ssl_context: None = None) -> Fetcher:
        assert ssl_context is None
        made.append([*private_origins])
        names = Names(agent_test=[["127.0.0.1"]], mirror_test=[["127.0.0.1"]])
        return Fetcher(private_origins=private_origins, ssl_context=authority.client(), resolver=names)

    for where in ("a2a_trust.client.verification.Fetcher", "a2a_trust.base.net.fetcher.Fetcher"):
        monkeypatch.setattr(where, fetcher)
    here, mirror = agent.origin(HOST), agent.origin(MIRROR)
    agent.pages[KEY_SET] = json.dumps(publish_jwks([OWNER.public_key])).encode()
    refused = command("verify", here, *KEYS)
    assert (refused.code, agent.asked) == (6, [])
    assert "for a private agent add --private-origins" in refused.out
    assert command("verify", here, *KEYS, "--private-origins").code == 0
    done = command("verify", here + NEW, "--on-first-use", "--origin", mirror, "--private-origins")
    assert (done.code, KEY_SET in agent.paths()) == (4, False)
    Path("trust.toml").write_text(f'version = 1\n[[trust]]\norigins = ["{HOST}"]\njwks_url = "{here}{KEY_SET}"\n')
    done = command("verify", here, "--trust", "trust.toml", "--private-origins")
    assert (done.code, KEY_SET in agent.paths()) == (4, False)
    assert [origins for origins in made if origins not in ([], [here])] == []


def test_without_the_extra_the_command_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['httpcore'] = None\n"
        "from a2a_trust.cli.main import main\n"
        "sys.exit(main(['inspect', 'https://agent.test']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert 'httpcore has to be installed: pip install "./a2a-trust[client]"' in done.stderr


def test_an_undated_card_is_remembered_as_such(command: Command, agent: Agent) -> None:
    agent.pages[NEW] = json.dumps(sign_card(card_of(agent.origin(HOST)), OWNER, iat=False).card).encode()
    assert command("verify", agent.origin(HOST), *KEYS).code == 0
    (record,) = command("memory", "list", "--json").json["records"]
    assert record["issued"] is None
