"""Which pages may call with what a browser attaches: origins as they are configured, and the refusal."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from a2a_trust.auth.credentials import ClientCertificate, Extractor, HttpAuthorization, InCookie, InHeader, InQuery
from a2a_trust.errors import ConfigurationError, CrossSiteError
from a2a_trust.middleware.browsers import BrowserRules, is_attached_by_browsers
from a2a_trust.middleware.options import RequestRules
from tests.attacks.test_m14_pages_of_other_sites import APP, COOKIE, OTHER, outcome, protected
from tests.middleware.agent import Agent
from tests.tables import walk


def judged(rules: BrowserRules, **headers: str) -> None:
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    rules.check({"headers": lines})


def test_the_agents_own_origin_is_that_of_its_url_in_the_spelling_of_browsers() -> None:
    rules = BrowserRules(url="HTTPS://Agent.Example:443/team")
    judged(rules, origin="https://agent.example")
    for origin in ("https://agent.example:443", "https://agent.example/team", "http://agent.example"):
        with pytest.raises(CrossSiteError, match="a page of 'http"):
            judged(rules, origin=origin)


def test_blanks_around_a_value_mean_nothing() -> None:
    """Some servers strip them, some do not."""
    judged(BrowserRules(), sec_fetch_site=" none\t")


@walk(
    ("origins", "words"),
    [
        ("https://app.example", r"write a list, even of one: allowed_origins=\['https://app.example'\]"),
        (["https://app.example/"], "write 'https://app.example'"),
        (["https://App.example"], "write 'https://app.example'"),
        (["https://app.example:443"], "write 'https://app.example'"),
        (["https://app.example/page"], "write 'https://app.example'"),
        (["*"], "as in 'https://app.example'"),
        (["null"], "as in 'https://app.example'"),
        (["https://*.example"], "as in 'https://app.example'"),
        (["app.example"], "as in 'https://app.example'"),
        (["https://user@app.example"], "as in 'https://app.example'"),
        ([None], "as in 'https://app.example'"),
    ],
)
def test_an_allowed_origin_is_written_as_browsers_send_it(origins: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        RequestRules(allowed_origins=origins)


def test_an_iterator_of_origins_is_read_once() -> None:
    assert RequestRules(allowed_origins=iter([APP])).allowed_origins == (APP,)


class Own:
    """A place of a user's own."""

    header = b"authorization"

    def take(self, lines: Any, scope: Any) -> str | None:
        return None


def test_only_what_a_program_has_to_attach_is_left_alone() -> None:
    attached: list[Extractor] = [InCookie("sid"), ClientCertificate(), HttpAuthorization("basic"), Own()]
    written: list[Extractor] = [InHeader("X-API-Key"), InQuery("key"), HttpAuthorization("bearer")]
    assert [is_attached_by_browsers(place) for place in [*attached, *written]] == [True] * 4 + [False] * 3


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_audit_trail_names_the_caller_the_page_and_the_line_to_write(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent = Agent()
    with caplog.at_level(logging.INFO, "a2a_trust.audit"):
        await outcome(protected(agent, ("sid",)), agent, "POST", (COOKIE, f"Origin: {OTHER}"))
    (event,) = [vars(record)["audit"] for record in caplog.records if "audit" in vars(record)]
    assert (event["event"], event["reason"]) == ("refused", "cross-site")
    assert (event["caller"], OTHER in event["detail"]) == ("ann@sessions", True)
    assert "allowed_origins=" in event["detail"]
