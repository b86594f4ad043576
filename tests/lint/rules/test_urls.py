"""The rules for urls: for each a bad card and a good one."""

from __future__ import annotations

from a2a_trust.lint.findings import Rule, Severity
from a2a_trust.lint.linter import lint_card
from a2a_trust.lint.rules import rules_of, urls
from tests.lint.cards import GONE, OAUTH, Example, check_examples, clean_card, having, old_card
from tests.tables import walk

MAIN = {"url": "https://old.example.com/a2a", "transport": "JSONRPC"}
OTHER = {"url": "https://old.example.com/rest", "transport": "HTTP+JSON"}

RULES = rules_of(urls)
EXAMPLES: dict[str, list[Example]] = {
    "http-url": [
        Example(
            having(("/supportedInterfaces/0/url", "HTTP://i.example.com/")),
            "/supportedInterfaces/0/url",
            clean_card(),
        ),
        Example(
            having((f"{OAUTH}/authorizationCode/tokenUrl", "http://id.example.com/token")),
            f"{OAUTH}/authorizationCode/tokenUrl",
            having(("/provider/url", "http://example.com")),
        ),
    ],
    "http-link": [
        Example(having(("/iconUrl", "http://example.com/icon.png")), "/iconUrl", clean_card()),
    ],
    "transport-rules": [
        *(
            Example(having(*bad, card=old_card), pointer, having(*good, card=old_card))
            for bad, pointer, good in (
                ((("/preferredTransport", GONE),), "/preferredTransport", ()),
                (
                    (
                        (
                            "/additionalInterfaces",
                            [MAIN, {**MAIN, "transport": "GRPC"}],
                        ),
                    ),
                    "/additionalInterfaces/1/url",
                    (("/additionalInterfaces", [MAIN]),),
                ),
                (
                    (("/additionalInterfaces", [OTHER]),),
                    "/additionalInterfaces",
                    (("/additionalInterfaces", [OTHER, MAIN]),),
                ),
            )
        ),
    ],
    "private-url": [
        *(
            Example(having(("/supportedInterfaces/1/url", url)), "/supportedInterfaces/1/url", clean_card())
            for url in (
                "localhost:50051",
                "https://agent:8443/a2a",
                "https://agent.svc.cluster.local/",
                "https://10.1.2.3/",
                "https://169.254.169.254/",
                "https://[::1]/",
                "https://idp.internal/",
            )
        ),
        Example(
            having(("/provider/url", "https://intranet/")),
            "/provider/url",
            having(("/provider/url", "https://8.8.8.8/")),
        ),
    ],
    "unclear-url": [
        *(
            Example(having(("/supportedInterfaces/0/url", url)), "/supportedInterfaces/0/url", clean_card())
            for url in (
                "/a2a",
                "https://good.example.com\\@evil.example.com/",
                "https://127.1/",
                "https://[::ffff:8.8.8.8]/",
                "https://exämple.com/",
                "dns:///agent.example.com:443",
                "unix:443",
                "agent.example.com",
            )
        ),
        Example(
            having(("/supportedInterfaces/0/url", "https://ann@example.com/")),
            "/supportedInterfaces/0/url",
            having(("/documentationUrl", "/docs")),
        ),
    ],
}


@walk("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_finds_the_bad_card_and_lets_the_good_one_be(rule: Rule) -> None:
    check_examples(rule, EXAMPLES[rule.id])


@walk(
    ("url", "severity"),
    [
        *((f"{scheme}://{host}/a", Severity.WARNING)
          for scheme in ("http", "ws")
          for host in ("localhost", "LOCALHOST:9999", "a.localhost", "127.0.0.1:80", "127.9.9.9", "[::1]:8080")),
        *((f"http://{host}/a", Severity.ERROR)
          for host in ("0.0.0.0:9999", "10.0.0.1", "localhost.example.com", "notlocalhost", "127.0.0.1.example.com",
                       "[::ffff:127.0.0.1]", "127.1", "0x7f.1", "localhost@example.com", "agent.example.com")),
    ],
)  # fmt: skip
def test_a_connection_that_is_not_encrypted_is_a_warning_within_one_machine(url: str, severity: Severity) -> None:
    card = clean_card()
    card["supportedInterfaces"][0]["url"] = url
    found = [finding for finding in lint_card(card) if finding.rule == "http-url"]
    assert [(finding.severity, finding.pointer) for finding in found] == [(severity, "/supportedInterfaces/0/url")]
