"""Which alternative of a card the credentials satisfy, and what an error says when none is."""

from __future__ import annotations

from typing import Any, Final

import pytest

from a2a_trust import ConfigurationError, generate_signer
from a2a_trust.auth import InCookie, InHeader, InQuery
from a2a_trust.card.view import CardView, read_card
from a2a_trust.client import ApiKey, BasicCredentials, BearerToken
from a2a_trust.client.answer import Part, answer_for, check_credentials, demands_of, scopes_named
from a2a_trust.client.certificates import CertificateInMemory
from a2a_trust.errors import MissingCredentialsError
from tests.client.agents import card_of

ORIGIN = "https://agent.example"
HEADER = {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}
OAUTH = {
    "oauth2SecurityScheme": {
        "flows": {
            "clientCredentials": {"tokenUrl": "https://login.example/token", "scopes": {"read": "", "write": ""}},
            "authorizationCode": {
                "tokenUrl": "https://login.example/code",
                "authorizationUrl": "https://login.example/ask",
                "scopes": {"admin": ""},
            },
        }
    }
}
SCHEMES: dict[str, Any] = {
    "key": HEADER,
    "other": {"apiKeySecurityScheme": {"location": "query", "name": "key"}},
    "cookie": {"apiKeySecurityScheme": {"location": "cookie", "name": "key"}},
    "basic": {"httpAuthSecurityScheme": {"scheme": "Basic"}},
    "bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}},
    "digest": {"httpAuthSecurityScheme": {"scheme": "Digest"}},
    "login": OAUTH,
    "openid": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://idp.example/.well-known/x"}},
    "tls": {"mtlsSecurityScheme": {}},
}
KEY = ApiKey("k", origins=[ORIGIN])
TOKEN = BearerToken("t", origins=[ORIGIN])
BASIC = BasicCredentials("u", "p", origins=[ORIGIN])
CERTIFICATE = CertificateInMemory(b"", generate_signer("ES256"), origins=[ORIGIN])


def view_of(*alternatives: list[str] | dict[str, list[str]], **members: Any) -> CardView:
    """A card with these alternatives: the names of schemes, with scopes if there are any."""
    written = [
        {"schemes": {name: {"list": scopes} if scopes else {} for name, scopes in _scoped(each).items()}}
        for each in alternatives
    ]
    return read_card(card_of(ORIGIN, **{"securitySchemes": SCHEMES, "securityRequirements": written, **members}))


def _scoped(names: list[str] | dict[str, list[str]]) -> dict[str, list[str]]:
    return names if isinstance(names, dict) else {name: [] for name in names}


def skill(name: str, *alternatives: dict[str, list[str]]) -> dict[str, Any]:
    demands = [{"schemes": {key: {"list": scopes} for key, scopes in each.items()}} for each in alternatives]
    return {"id": name, "name": name, "description": name, "tags": ["a"], "securityRequirements": demands}


def answered(
    view: CardView, *, skills: tuple[str, ...] = (), is_whole: bool = True, **credentials: Any
) -> tuple[Part, ...]:
    return answer_for(view, demands_of(view, skills), credentials, ORIGIN, is_whole=is_whole).parts


def names(parts: tuple[Part, ...]) -> list[str]:
    return [part.name for part in parts]


@pytest.mark.parametrize(
    ("alternatives", "credentials", "expected"),
    [
        ([["key"], ["bearer"]], {"bearer": TOKEN, "key": KEY}, ["key"]),
        ([["bearer"], ["key"]], {"bearer": TOKEN, "key": KEY}, ["bearer"]),
        ([["key", "bearer"], ["bearer"]], {"bearer": TOKEN}, ["bearer"]),
        ([["key", "bearer"], ["bearer"]], {"bearer": TOKEN, "key": KEY}, ["bearer", "key"]),
        ([["key", "other", "cookie", "bearer"]], {"key": KEY, "other": KEY, "cookie": KEY, "bearer": TOKEN},
         ["bearer", "cookie", "key", "other"]),
        ([["tls"]], {"tls": CERTIFICATE}, []),
        ([["key", "tls"]], {"tls": CERTIFICATE, "key": KEY}, ["key"]),
        ([[], ["key"]], {"key": KEY}, ["key"]),  # a credential is at hand, so it is used
        ([[], ["key"]], {}, []),
        ([[], ["key"]], {"login": TOKEN}, []),
        ([], {}, []),
        ([], {"key": KEY}, []),
    ],
)  # fmt: skip
def test_the_first_alternative_that_is_satisfied_entirely(
    alternatives: list[list[str]], credentials: dict[str, Any], expected: list[str]
) -> None:
    assert names(answered(view_of(*alternatives), **credentials)) == expected


def test_a_certificate_is_part_of_an_answer_that_no_header_carries() -> None:
    view = view_of(["key", "tls"])
    answer = answer_for(view, demands_of(view, ()), {"key": KEY, "tls": CERTIFICATE}, ORIGIN, is_whole=True)
    assert (answer.schemes, names(answer.parts)) == (("key", "tls"), ["key"])


def test_a_credential_that_does_not_fit_is_not_left_out_for_no_credential() -> None:
    elsewhere = ApiKey("k", origins=["https://other.example"])
    with pytest.raises(MissingCredentialsError, match=r"is for https://other\.example and not for"):
        answered(view_of([], ["key"]), key=elsewhere)
    certificate = CertificateInMemory(b"", generate_signer("ES256"), origins=["https://other.example"])
    with pytest.raises(MissingCredentialsError, match=r"is for https://other\.example and not for"):
        answered(view_of(["tls"]), tls=certificate)


@pytest.mark.parametrize("alternatives", [[[]], [], [[], ["key"]]])
def test_a_card_that_is_verified_in_part_does_not_show_that_nothing_is_needed(alternatives: list[list[str]]) -> None:
    with pytest.raises(MissingCredentialsError, match="verified only in part"):
        answered(view_of(*alternatives), is_whole=False)
    assert names(answered(view_of(["key"]), is_whole=False, key=KEY)) == ["key"]


@pytest.mark.parametrize(
    ("name", "credential", "problem"),
    [
        ("key", None, "'key' asks for an API key in the header X-API-Key: pass credentials={'key': ApiKey("),
        ("other", None, "an API key in the query key: pass"),
        ("basic", None, "asks for HTTP Basic: pass credentials={'basic': BasicCredentials("),
        ("bearer", None, "asks for an HTTP bearer token: pass credentials={'bearer': BearerToken("),
        ("digest", None, "a scheme that a2a-trust does not know (digest): pass credentials={'digest': another"),
        ("login", None, "an OAuth 2.0 token from https://login.example/code, https://login.example/token"),
        ("openid", None, "a token of the OpenID provider of https://idp.example/.well-known/x"),
        ("tls", None, "asks for a client certificate: pass credentials={'tls': CertificateFiles(…, origins=[…])}"),
        ("tls", KEY, "credentials['tls'] is another kind: pass CertificateFiles("),
        ("key", CERTIFICATE, "credentials['key'] is another kind: pass ApiKey("),
        ("key", TOKEN, "a BearerToken does not answer it"),
        ("bearer", BASIC, "BasicCredentials do not answer it"),
        ("login", KEY, "an ApiKey does not answer it"),
        ("digest", TOKEN, "a BearerToken does not answer it"),
    ],
)
def test_an_error_says_what_is_missing(name: str, credential: Any, problem: str) -> None:
    with pytest.raises(MissingCredentialsError) as refused:
        answered(view_of([name]), **({} if credential is None else {name: credential}))
    assert problem in str(refused.value)
    assert ORIGIN in str(refused.value)


def test_an_error_tells_of_every_alternative_and_of_scopes() -> None:
    with pytest.raises(MissingCredentialsError) as refused:
        answered(view_of(["key", "basic"], {"login": ["write", "read"]}), basic=BASIC)
    text = str(refused.value)
    assert "basic and key: 'key' asks for" in text
    assert "login: 'login' asks for an OAuth 2.0 token" in text
    assert "with the scopes read write: pass" in text


def test_an_error_tells_of_the_first_alternatives_of_many() -> None:
    names = [f"s{index}" for index in range(90)]
    view = view_of(*[names[at : at + 30] for at in range(60)], securitySchemes=dict.fromkeys(names, HEADER))
    with pytest.raises(MissingCredentialsError) as missing:
        answer_for(view, demands_of(view, []), {}, ORIGIN, is_whole=True)
    assert "nor one of 56 other alternatives" in str(missing.value)
    assert str(missing.value).count("asks for an API key in the header X-API-Key") == 16
    last = view_of(
        *[names[at : at + 30] for at in range(60)], ["key"], securitySchemes=dict.fromkeys(["key", *names], HEADER)
    )
    assert answer_for(last, demands_of(last, []), {"key": KEY}, ORIGIN, is_whole=True).schemes == ("key",)


def test_a_scheme_that_the_card_does_not_declare() -> None:
    with pytest.raises(MissingCredentialsError, match="the card does not declare this scheme"):
        answered(view_of(["nowhere"]), nowhere=KEY)


@pytest.mark.parametrize("header", ["Host", "Authorization", "Cookie", "X-Key\r\nX-Other", "dpop", "A2A-Version"])
def test_a_header_that_no_key_is_sent_in(header: str) -> None:
    schemes = {"key": {"apiKeySecurityScheme": {"location": "header", "name": header}}}
    with pytest.raises(MissingCredentialsError, match="not safe for an API key"):
        answered(view_of(["key"], securitySchemes=schemes), key=KEY)


def test_two_credentials_in_one_place() -> None:
    with pytest.raises(MissingCredentialsError, match="basic and bearer need the same place in the request"):
        answered(view_of(["basic", "bearer"]), basic=BASIC, bearer=TOKEN)
    twin = {"key": HEADER, "twin": HEADER}
    with pytest.raises(MissingCredentialsError, match="key and twin need the same place"):
        answered(view_of(["key", "twin"], securitySchemes=twin), key=KEY, twin=KEY)


def test_a_skill_adds_its_demands() -> None:
    view = view_of(
        ["key"],
        {"login": ["read"]},
        skills=[skill("pay", {"login": ["write"]}, {"tls": []}), skill("ask"), skill("see", {"login": ["see"]})],
    )
    assert names(answered(view, key=KEY)) == ["key"]
    assert names(answered(view, skills=("ask",), key=KEY)) == ["key"]
    [_, part] = answered(view, skills=("pay",), key=KEY, login=TOKEN)
    assert part.name == "login"
    assert part.scopes == {"write"}
    [part] = answered(view, skills=("pay", "see"), login=TOKEN)
    assert part.scopes == {"read", "write", "see"}
    assert names(answered(view, skills=("pay",), key=KEY, tls=CERTIFICATE)) == ["key"]
    with pytest.raises(MissingCredentialsError):
        answered(view, skills=("pay",), key=KEY)
    assert scopes_named(view, "login") == {"read", "write", "see", "admin"}
    assert scopes_named(view, "key") == scopes_named(view, "nowhere") == frozenset()


def test_skills_that_cannot_be_asked_for() -> None:
    demands: list[list[dict[str, list[str]]]] = [[{f"x{i}{j}": []} for j in range(5)] for i in range(4)]
    view = view_of(["key"], skills=[skill(f"s{i}", *each) for i, each in enumerate(demands)])
    with pytest.raises(ConfigurationError, match="the card has no skill with the id 'none'"):
        demands_of(view, ["s1", "none"])
    assert len(demands_of(view, ["s0", "s1", "s2"])) == 125
    with pytest.raises(ConfigurationError, match="more than 256 combinations"):
        demands_of(view, ["s0", "s1", "s2", "s3"])


@pytest.mark.parametrize("given", [None, ["key"], "key", {"key": "text"}, {"key": None}, {"key": ApiKey}])
def test_credentials_of_another_kind(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"write (a dict by the names|ApiKey\()"):
        check_credentials(given)
    check_credentials({"key": KEY, "tls": CERTIFICATE})


@pytest.mark.parametrize(
    ("word", "credential", "sent"),
    [("Basic", BASIC, "Basic"), ("Bearer", TOKEN, "Bearer"), ("bearer", TOKEN, "Bearer")],
)
def test_the_words_of_a_0_1_card(word: str, credential: Any, sent: str) -> None:
    card = {"name": "a", "url": f"{ORIGIN}/rpc", "authentication": {"schemes": [word]}, "skills": []}
    [part] = answered(read_card(card), **{word: credential})
    assert part.word == sent
    with pytest.raises(MissingCredentialsError, match=r"asks for (HTTP Basic|an HTTP bearer token): pass"):
        answered(read_card(card))


def test_a_word_of_a_0_1_card_that_nothing_answers() -> None:
    card = {"name": "a", "url": f"{ORIGIN}/rpc", "authentication": {"schemes": ["public"]}, "skills": []}
    with pytest.raises(MissingCredentialsError, match=r"does not know \(public\)"):
        answered(read_card(card))


OF_0_1: Final = {"name": "a", "url": f"{ORIGIN}/rpc", "authentication": {"schemes": ["apiKey"]}, "skills": []}


@pytest.mark.parametrize("place", [InHeader("X-API-Key"), InQuery("key"), InCookie("key")])
def test_the_program_says_where_the_key_of_a_0_1_card_goes(place: Any) -> None:
    [part] = answered(read_card(OF_0_1), apiKey=ApiKey("k", origins=[ORIGIN], place=place))
    assert part.place == place


def test_what_is_missing_for_the_key_of_a_0_1_card() -> None:
    with pytest.raises(MissingCredentialsError, match=r'ask the agent.s operator.*place=InHeader\("X-API-Key"\)'):
        answered(read_card(OF_0_1))
    with pytest.raises(MissingCredentialsError, match=r"the card does not say where: pass ApiKey\(…, place="):
        answered(read_card(OF_0_1), apiKey=KEY)
    with pytest.raises(ConfigurationError, match="place is not a place"):
        ApiKey("k", origins=[ORIGIN], place="X-API-Key")  # type: ignore[arg-type]


def test_a_place_beside_the_place_of_the_card_is_an_error() -> None:
    card = {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}, "security": [{"key": []}]}
    with pytest.raises(MissingCredentialsError, match="the card says where: leave out place="):
        answered(read_card(card), key=ApiKey("k", origins=[ORIGIN], place=InHeader("X-Key")))
    with pytest.raises(MissingCredentialsError, match="an ApiKey does not answer it"):
        answered(
            read_card({**OF_0_1, "authentication": {"schemes": ["bearer"]}}),
            bearer=ApiKey("k", origins=[ORIGIN], place=InHeader("X-Key")),
        )


@pytest.mark.parametrize("word", ["OAuth2", "openIdConnect"])
def test_words_for_tokens_are_the_same_as_on_the_server(word: str) -> None:
    given: dict[str, Any] = {word: TOKEN}
    [part] = answered(read_card({**OF_0_1, "authentication": {"schemes": [word]}}), **given)
    assert (part.place, part.word) == (None, "Bearer")
