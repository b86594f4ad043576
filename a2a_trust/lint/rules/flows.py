"""Rules for the flows of OAuth 2.0: those that its security practice (RFC 9700) has deprecated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from a2a_trust.lint.document import Subject, pointer_of
from a2a_trust.lint.findings import Severity
from a2a_trust.lint.rules.rule import Found, rule


@rule("implicit-flow", Severity.WARNING, "The implicit flow of OAuth 2.0 is deprecated.", "4.5.7")
def implicit_flow(subject: Subject) -> Iterator[Found]:
    for path, message, _ in subject.objects:
        if message == "ImplicitOAuthFlow":
            yield Found(
                pointer_of(path),
                "access tokens are returned in the URL, where browser histories and other sites see them (RFC 9700 "
                "2.1.2)",
                "Offer authorizationCode with PKCE.",
            )


@rule("password-flow", Severity.WARNING, "The password flow of OAuth 2.0 is deprecated.", "4.5.7")
def password_flow(subject: Subject) -> Iterator[Found]:
    for path, message, _ in subject.objects:
        if message == "PasswordOAuthFlow":
            yield Found(
                pointer_of(path),
                "clients get the passwords of people, which RFC 9700 2.4 forbids",
                "Offer authorizationCode with PKCE, or deviceCode.",
            )


RULES: Final = (implicit_flow, password_flow)
