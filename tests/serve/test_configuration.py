"""The file is the arguments of the public functions: each has its place in it, or a reason why it has none."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from a2a_trust import (
    ApiKeyVerifier,
    CardServing,
    DPoP,
    ExtendedCard,
    FromTls,
    JwtVerifier,
    RequestRules,
    generate_signer,
    protect,
)
from a2a_trust.auth import RedisProofMemory, SeveralIssuers, SqliteApiKeys
from a2a_trust.auth.token_claims import AccessTokenMark
from a2a_trust.errors import ConfigurationError
from a2a_trust.keys import save_private_key
from a2a_trust.middleware import CardReaders
from a2a_trust.proxies import FromProxy, Networks, Nginx
from a2a_trust.serve import forms
from a2a_trust.serve.configuration import Configuration, _explain, read_configuration
from a2a_trust.serve.forms import FORWARD_AUTH, NO_FORM, PROTECT, ROLES, Objects, Table, secret_text, table_of
from tests.tables import walk

UPSTREAM = '\n[upstream]\nurl = "http://127.0.0.1:9000"\n'
MINIMAL = 'card = "card.json"\nverifiers = {}\n'

#: Public names of these packages that no file has, and why.
BESIDE = {
    "a2a_trust.auth": {
        **dict.fromkeys(
            ("Verifier", "TokenVerifier", "BoundVerifier", "ApiKeyStore", "PasswordStore", "ProofMemory"), "a protocol"
        ),
        **dict.fromkeys(("EndpointAuthentication",), "a protocol"),
        **dict.fromkeys(("MemoryApiKeys", "MemoryPasswords"), "its records are of a program"),
        **dict.fromkeys(("ApiKeyRecord", "PasswordRecord", "IssuedApiKey", "IssuedPassword"), "a record"),
        **dict.fromkeys(("Identity", "Anonymous", "Principal", "SubjectToken", "KeyBinding"), "a caller"),
        **dict.fromkeys(("CredentialKind",), "for verifiers of a program"),
        **dict.fromkeys(("TokenBinding", "TokenProfile"), "an enum: its words are in the file"),
    },
    "a2a_trust.proxies": {},
    "a2a_trust.certificates": {
        **dict.fromkeys(("CertificateFiles", "CertificateInMemory", "client_context"), "for clients"),
    },
    "a2a_trust.providers": {},
}


def tables() -> Iterator[type[Table]]:
    """Every table that a file can have."""
    seen: list[Any] = [PROTECT, FORWARD_AUTH]
    for each in seen:  # which grows meanwhile
        if isinstance(each, type) and issubclass(each, Table):
            yield each
            seen += [field.annotation for field in each.model_fields.values() if field.annotation not in seen]
        seen += [inner for inner in get_args(each) if inner not in seen]


TABLES = [each for each in tables() if hasattr(each, "maker")]


@walk("table", TABLES, ids=lambda table: table.__name__)
def test_every_argument_has_a_form_or_a_reason(table: type[Table]) -> None:
    missing = set(inspect.signature(table.maker).parameters) - set(table.model_fields)
    assert {each for each in missing if not {(table.__name__, each), ("*", each)} & set(NO_FORM)} == set()
    assert [name for name, field in table.model_fields.items() if field.annotation in (None, type(None))] == []


def test_no_reason_is_left_over() -> None:
    arguments = {(table.__name__, each) for table in TABLES for each in inspect.signature(table.maker).parameters}
    assert {pair for pair in NO_FORM if pair[0] != "*" and pair not in arguments} == set()


@pytest.mark.parametrize("package", BESIDE)
def test_every_public_name_for_servers_is_in_the_file_or_has_a_reason(package: str) -> None:
    names = set(import_module(package).__all__)
    made = {table.__name__ for table in TABLES} | {"SecretFile"}
    assert names - made - set(BESIDE[package]) == set()
    assert set(BESIDE[package]) <= names


def test_every_role_is_a_type_of_an_argument() -> None:
    made = {table.__name__ for table in TABLES}
    assert {name for names in ROLES.values() for name in names} <= made


def read(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "agent.toml"
    path.write_text(text + ("" if "[upstream]" in text else UPSTREAM))
    return read_configuration(path)


def made(tmp_path: Path, text: str, name: str) -> Any:
    return Objects(tmp_path).make(getattr(read(tmp_path, text), name), name)


def test_a_file_makes_the_objects_of_a_program(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("")
    SqliteApiKeys(tmp_path / "keys.db", create=True)
    text = (
        MINIMAL.replace("verifiers = {}", "")
        + """
client_certificates = { type = "FromProxy", form = { type = "Nginx" }, peers = { type = "Networks", ranges = ["::1"] } }
serving = { readers = "CALLERS", max_age = 60 }
extended_card = { source = "extended.json", may_read = { scopes = ["card"] } }
[verifiers.key]
type = "ApiKeyVerifier"
store = { type = "SqliteApiKeys", path = "keys.db" }
refresh = 1
[verifiers.tokens]
type = "SeveralIssuers"
[[verifiers.tokens.verifiers]]
type = "auth0"
domain = "a.example.com"
audience = ["https://agent.example.com"]
[[verifiers.tokens.verifiers]]
type = "JwtVerifier"
keys = { type = "OpenIdKeys", issuer = "https://b.example.com" }
binding = "required"
issuer = "https://b.example.com"
audience = "x"
profile = "JWT"
marked_by = { claim = "use", values = ["access", "at"] }
[rules]
other_paths = ["/docs"]
may_use_tenant = { scope = "tenant:{tenant}" }
[dpop]
url = "https://agent.example.com"
memory = { type = "RedisProofMemory", url = "redis://localhost:6379/0", capacity = 10 }
"""
    )
    values = {name: made(tmp_path, text, name) for name in read(tmp_path, text).model_fields_set - {"upstream"}}
    assert values["card"] == tmp_path / "card.json"
    key, tokens = values["verifiers"]["key"], values["verifiers"]["tokens"]
    assert isinstance(key, ApiKeyVerifier)
    assert isinstance(tokens, SeveralIssuers)
    assert isinstance(values["client_certificates"], FromProxy)
    assert values["serving"] == CardServing(readers=CardReaders.CALLERS, max_age=60)
    assert isinstance(values["extended_card"], ExtendedCard)
    assert values["rules"].other_paths == ("/docs",)
    assert isinstance(values["dpop"], DPoP)


@pytest.mark.parametrize(
    ("text", "kind", "attributes"),
    [
        ('{ type = "FromTls" }', FromTls, {}),
        (
            '{ type = "FromProxy", form = { type = "Nginx", verdict = "X-V" }, peers = { type = "UnixSocket" } }',
            FromProxy,
            {},
        ),
    ],
)
def test_sources_of_certificates(text: str, kind: type, attributes: dict[str, Any], tmp_path: Path) -> None:
    assert isinstance(made(tmp_path, f"{MINIMAL}client_certificates = {text}", "client_certificates"), kind)


def test_values_after_others_are_passed_as_such() -> None:
    objects = Objects(Path())
    mark = table_of(AccessTokenMark, named=False).model_validate({"claim": "use", "values": ["access"], "in_all": True})
    assert objects.make(mark, "mark") == AccessTokenMark("use", "access", in_all=True)
    networks = table_of(Networks, named=False).model_validate({"ranges": ["10.0.0.0/8", "::1"]})
    assert repr(objects.make(networks, "n")) == repr(Networks("10.0.0.0/8", "::1"))


def test_functions_have_a_static_form(tmp_path: Path) -> None:
    class Caller:
        scopes = frozenset({"tenant:acme", "card"})

    rules: RequestRules = made(tmp_path, MINIMAL + '[rules]\nmay_use_tenant = { scope = "tenant:{tenant}" }', "rules")
    assert rules.may_use_tenant is not None
    allowed: Any = [rules.may_use_tenant(Caller(), tenant) for tenant in ("acme", "other", "", "acme x")]  # type: ignore[arg-type]
    assert allowed == [True, False, False, False]
    text = '[extended_card]\nsource = "e.json"\nmay_read = { scopes = ["card", "more"] }'
    extended: ExtendedCard = made(tmp_path, MINIMAL + text, "extended_card")
    assert extended.may_read is not None
    assert extended.may_read(Caller()) is False  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"^rules\.may_use_tenant: .*write the tenant into the scope"):
        made(tmp_path, MINIMAL + '[rules]\nmay_use_tenant = { scope = "any" }', "rules")


MISTAKES = [
    ("nothing = 1", "nothing: unknown member"),
    ('[upstream]\nurl = "http://127.0.0.1:9000"\nretries = 3', "upstream.retries: unknown member"),
    ('[upstream]\nurl = "https://agent"', "upstream.url: string should match"),
    ('[upstream]\nurl = "http://127.0.0.1:9000/path"', "upstream.url: string should match"),
    ('[rules]\nmax_body = "1 MB"', "rules.max_body: input should be a valid integer"),
    ("[rules]\nfailures = { by_pier = 3 }", "rules.failures.by_pier: unknown member"),
    ('[serving]\nreaders = "NOBODY"', "serving.readers: write one of 'EVERYBODY' or 'CALLERS'"),
    ('[verifiers.key]\ntype = "ApiKeyVerifier"', "verifiers.key.store: missing"),
    ('[verifiers.key]\nstore = "x"', "verifiers.key: write its type"),
    ('[verifiers.key]\ntype = "ApiKey"', "verifiers.key: write one of 'ApiKeyVerifier'"),
    (
        '[verifiers.keycloak]\ntype = "keycloak"\nurl = "https://x"\nrealm = "r"',
        "verifiers.keycloak.audience: missing",
    ),
    (
        '[verifiers.t]\ntype = "SeveralIssuers"\nverifiers = [{ type = "okta", issuer = 3, audience = "x" }]',
        "verifiers.t.verifiers[0].issuer: input should be a valid string",
    ),
    (
        '[verifiers.key]\ntype = "ApiKeyVerifier"\nstore = { type = "PostgresApiKeys", url = "postgresql://u:p@h/d" }',
        "verifiers.key.store.url: the URL has a password",
    ),
    (
        '[dpop]\nurl = "https://a"\nmemory = { type = "RedisProofMemory", url = "redis://:p@h:6379/0" }',
        "dpop.memory.url: the URL has a password",
    ),
    (
        '[dpop]\nurl = "https://a"\nmemory = { type = "PostgresProofMemory", url = "postgresql://h/d?password=p" }',
        "dpop.memory.url: the URL has a password",
    ),
    ('[caller]\nkeys = ["a"]', "caller.keys: input is not a valid path"),
    ("card = 1", "Cannot overwrite a value"),
    ("[rules", "not TOML"),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_a_mistake_is_reported_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    start = MINIMAL if "verifiers" not in text else 'card = "card.json"\n'
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, f"{start}{text}")
    assert message in str(caught.value)
    assert str(tmp_path / "agent.toml") in str(caught.value)


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, "[rules]\nmax_body = 0.5\nother = 1")
    assert [line.partition(":")[0].strip() for line in str(caught.value).splitlines()[1:]] != []
    for each in ("card: missing", "verifiers: missing", "rules.max_body", "rules.other"):
        assert each in str(caught.value)


def test_a_file_that_is_not_text_or_too_long(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    for octets, message in ((b"\xff", "not UTF-8"), (b"#" * 1_100_000, "longer than")):
        path.write_bytes(octets)
        with pytest.raises(ConfigurationError, match=message):
            read_configuration(path)


@given(st.recursive(st.one_of(st.booleans(), st.integers(), st.text(max_size=5), st.floats(allow_nan=False)),
                    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(
                        ["type", "card", "verifiers", "rules", "store", "upstream", "url", "key"]), inner, max_size=3)),
                    max_leaves=12))  # fmt: skip
def test_no_value_makes_another_error(value: Any) -> None:
    try:
        Configuration.model_validate_json(json.dumps(value))
    except ValidationError as error:
        for each in error.errors(include_input=False, include_url=False):
            assert _explain(each, value)


# Secrets


def secret(**members: Any) -> Table:
    return table_of(secret_text, named=False).model_validate_json(json.dumps(members))


def test_a_secret_is_in_a_file_or_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"from the file\r\n")
    monkeypatch.setitem(os.environ, "A_SECRET", "from the environment")
    objects = Objects(tmp_path)
    assert objects.make(secret(file="a"), "x") == "from the file"
    assert objects.make(secret(env="A_SECRET"), "x") == "from the environment"
    assert objects.files == [tmp_path / "a"]
    (tmp_path / "empty").write_text("\n")
    for wrong in ({}, {"file": "a", "env": "A_SECRET"}, {"env": "NOT_THERE"}, {"file": "empty"}):
        with pytest.raises(ConfigurationError, match=r"dpop\.secret: .*secret"):
            objects.make(secret(**wrong), "dpop.secret")


def test_neither_errors_nor_reprs_show_values(tmp_path: Path) -> None:
    text = MINIMAL + '[dpop]\nurl = "https://a"\nnonces = { secret = "hunter2-hunter2-hunter2-hunter2-hunter2" }'
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, text)
    assert "hunter2" not in str(caught.value)
    assert "dpop.nonces.secret" in str(caught.value)
    assert caught.value.__cause__ is None
    configuration = read(tmp_path, MINIMAL + 'url = "https://hunter2.example.com"')
    assert "hunter2" not in repr(configuration)


# Another version


def versions(tmp_path: Path, first: str, second: str) -> tuple[Any, Any]:
    """The verifiers of two versions of a file."""
    before = Objects(tmp_path)
    one = before.make(read(tmp_path, first).verifiers, "verifiers")
    return one, Objects(tmp_path, before).make(read(tmp_path, second).verifiers, "verifiers")


def test_what_is_described_as_before_stays_the_same_object(tmp_path: Path) -> None:
    SqliteApiKeys(tmp_path / "keys.db", create=True)
    key = '[verifiers.key]\ntype = "ApiKeyVerifier"\nstore = { type = "SqliteApiKeys", path = "keys.db" }\n'
    token = '[verifiers.t]\ntype = "auth0"\ndomain = "a.example.com"\naudience = "x"\n'
    start = 'card = "card.json"\n'
    first, second = versions(tmp_path, start + key + token, start + token + key)
    assert first == second
    assert first["key"] is second["key"]
    first, second = versions(
        tmp_path, start + key + token, start + key.replace('"keys.db" }', '"keys.db" }\nrefresh = 1') + token
    )
    assert first["key"] is not second["key"]
    assert first["key"]._records is not second["key"]._records
    assert first["t"] is second["t"]


def test_a_key_that_was_replaced_in_its_file_is_another(tmp_path: Path) -> None:
    path, before = tmp_path / "key.pem", Objects(tmp_path)
    signer = table_of(forms._public("load_private_key"), named=False).model_validate_json('{"path": "key.pem"}')
    save_private_key(path, generate_signer())
    first = before.make(signer, "s")
    assert Objects(tmp_path, before).make(signer, "s") is first
    path.unlink()
    save_private_key(path, generate_signer())
    assert Objects(tmp_path, before).make(signer, "s").kid != first.kid
    assert before.files == [path]


def test_the_table_of_protect_has_its_arguments() -> None:
    assert {*PROTECT.model_fields} - {"type"} == {*inspect.signature(protect).parameters} - {"app", "clock", "grpc"}
    assert {"JwtVerifier"} <= {table.__name__ for table in TABLES}
    assert JwtVerifier is forms._public("JwtVerifier")
    assert RedisProofMemory is forms._public("RedisProofMemory")
    assert Nginx is forms._public("Nginx")
