"""Client certificates: which authorities vouch for them, whom they name, and which of those may call."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier
from hypothesis import given
from hypothesis import strategies as st

from a2a_trust.auth.certificate import verifier as authorities
from a2a_trust.auth.certificate.identities import (
    AllIssued,
    FromDns,
    FromEmail,
    FromSubject,
    FromUri,
    OnlyIdentities,
    OnlyThumbprints,
    is_certificate,
)
from a2a_trust.auth.certificate.verifier import CertificateVerifier, ClientAuthority
from a2a_trust.auth.credentials import CertificateChain
from a2a_trust.auth.principal import Identity, Principal
from a2a_trust.base.files.watched import open_regular
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError, KeySourceUnavailableError
from a2a_trust.keys import base64url
from tests.certificates import CLIENT, SERVER, Authority, Leaf
from tests.tables import walk

ID = "spiffe://example.org/agents/invoices"
URI = x509.UniformResourceIdentifier
DNS = x509.DNSName
EMAIL = x509.RFC822Name
SUBJECT = x509.Name(
    [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example"), x509.NameAttribute(NameOID.COMMON_NAME, "Invoices")]
)
DAY, OVER = timedelta(days=1), timedelta(hours=-1)

CA = Authority()
GOOD = CA.issue(URI(ID))


def authority(folder: Path, *trusted: Authority, name: str = "partners", **options: Any) -> ClientAuthority:
    file = folder / f"{name}.pem"
    file.write_bytes(b"".join(each.pem for each in trusted or (CA,)))
    wanted: dict[str, Any] = {"identity": FromUri("example.org"), "allowed": AllIssued(), **options}
    return ClientAuthority(name=name, certificates=file, **wanted)


def judge(verifier: CertificateVerifier, shown: Leaf | CertificateChain, now: float | None = None) -> Identity:
    certificates = shown if isinstance(shown, tuple) else chain(shown.certificate, *shown.above)
    return asyncio.run(verifier.verify(certificates, time.time() if now is None else now))


def judged_by(folder: Path, shown: Leaf | CertificateChain, *trusted: Authority, **options: Any) -> Identity:
    return judge(CertificateVerifier(authority(folder, *trusted, **options)), shown)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked at with every request, not every second."""
    monkeypatch.setattr("a2a_trust.auth.certificate.verifier.LOOK_SECONDS", 0.0)


def chain(*certificates: x509.Certificate) -> CertificateChain:
    return tuple(each.public_bytes(Encoding.DER) for each in certificates)


def test_a_good_certificate_names_its_holder(tmp_path: Path) -> None:
    identity = judged_by(tmp_path, GOOD)
    assert identity == Identity(
        issuer="x509:uri:partners",
        subject=ID,
        expires_at=GOOD.certificate.not_valid_after_utc.timestamp(),
    )
    digest = GOOD.certificate.fingerprint(hashes.SHA256())
    assert identity.claims == {"x5t#S256": base64url.encode(digest)}


def test_a_chain_over_intermediate_authorities_is_good_in_any_order_behind_the_leaf(tmp_path: Path) -> None:
    leaf = Authority("Below", Authority("Between", CA)).issue(URI(ID))
    below, between = leaf.above
    verifier = CertificateVerifier(authority(tmp_path))
    for shown in ((leaf.certificate, below, between), (leaf.certificate, between, below)):
        assert judge(verifier, chain(*shown)).subject == ID


def test_the_certificates_of_an_authority_below_can_be_trusted_alone(tmp_path: Path) -> None:
    below = Authority("Below", CA)
    assert judged_by(tmp_path, below.issue(URI(ID)), below).subject == ID
    with pytest.raises(InvalidCredentialsError, match="it is not issued by a trusted authority"):
        judged_by(tmp_path, GOOD, below)


def test_an_authority_is_known_by_its_key_not_its_name(tmp_path: Path) -> None:
    forged = Authority().issue(URI(ID))  # of the same name as CA
    with pytest.raises(InvalidCredentialsError, match="it is not issued by a trusted authority"):
        judged_by(tmp_path, forged)


def test_the_same_name_under_two_authorities_or_two_rules_is_two_callers(tmp_path: Path) -> None:
    other = Authority("Other")
    names = (URI(ID), DNS("example.org"))
    verifier = CertificateVerifier(
        authority(tmp_path),
        authority(tmp_path, other, name="others"),
    )
    identities = {judge(verifier, each) for each in (CA.issue(*names), other.issue(*names))}
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    by_rule = {
        judged_by(tmp_path, CA.issue(DNS("a.org"), subject=subject), identity=rule, name="partners")
        for rule in (FromDns(), FromSubject())
    }
    assert len({Principal(identities=(("mtls", each),)).id for each in identities | by_rule}) == 4


@pytest.mark.parametrize(
    ("lifetime", "word"), [(OVER, "expired"), (timedelta(days=-3650), "expired")], ids=["by an hour", "by ten years"]
)
def test_an_expired_certificate_is_refused(tmp_path: Path, lifetime: timedelta, word: str) -> None:
    with pytest.raises(InvalidCredentialsError, match=word):
        judged_by(tmp_path, CA.issue(URI(ID), lifetime=lifetime))


def test_validity_begins_and_ends_at_its_moments_remembered_or_not(tmp_path: Path) -> None:
    start = GOOD.certificate.not_valid_before_utc.timestamp()
    end = GOOD.certificate.not_valid_after_utc.timestamp()
    wide = Authority(lifetime=10 * DAY)
    leaf = wide.issue(URI(ID))
    start, end = (
        leaf.certificate.not_valid_before_utc.timestamp(),
        leaf.certificate.not_valid_after_utc.timestamp(),
    )
    verifier = CertificateVerifier(authority(tmp_path, wide))
    for _ in range(2):
        assert judge(verifier, leaf, end - 0.001).subject == ID
        with pytest.raises(InvalidCredentialsError, match="expired"):
            judge(verifier, leaf, end)
        with pytest.raises(InvalidCredentialsError, match="not valid yet"):
            judge(verifier, leaf, start - 0.001)


def test_an_expired_authority_vouches_for_nobody_above_or_between(tmp_path: Path) -> None:
    expired = Authority(lifetime=OVER)
    between = Authority("Between", CA, lifetime=OVER)
    for leaf, trusted in ((expired.issue(URI(ID)), expired), (between.issue(URI(ID)), CA)):
        with pytest.raises(InvalidCredentialsError, match="it is not issued by a trusted authority"):
            judged_by(tmp_path, leaf, trusted)


def test_the_identity_ends_with_the_first_certificate_of_the_chain_that_does(tmp_path: Path) -> None:
    between = Authority("Between", CA, lifetime=timedelta(hours=1))
    leaf, end = between.issue(URI(ID)), between.certificate.not_valid_after_utc.timestamp()
    verifier = CertificateVerifier(authority(tmp_path))
    assert judge(verifier, leaf).expires_at == end
    with pytest.raises(InvalidCredentialsError, match="not valid now"):
        judge(verifier, leaf, end + 0.5)


def test_a_missing_intermediate_is_refused(tmp_path: Path) -> None:
    leaf = Authority("Between", CA).issue(URI(ID))
    with pytest.raises(InvalidCredentialsError, match="it is not issued by a trusted authority"):
        judged_by(tmp_path, chain(leaf.certificate))


@pytest.mark.usefixtures("at_once")
def test_a_resumed_session_that_shows_the_leaf_alone_is_the_caller_of_the_first(tmp_path: Path) -> None:
    leaf = Authority("Between", CA).issue(URI(ID))
    verifier = CertificateVerifier(authority(tmp_path))
    first = judge(verifier, leaf)
    assert judge(verifier, chain(leaf.certificate)) == first
    (tmp_path / "partners.pem").write_bytes(Authority().pem)
    with pytest.raises(InvalidCredentialsError):
        judge(verifier, chain(leaf.certificate))


@pytest.mark.parametrize(
    "usage", [SERVER, None, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE], ids=["server", "none", "any"]
)
def test_what_is_not_for_clients_is_refused(tmp_path: Path, usage: x509.ObjectIdentifier | None) -> None:
    with pytest.raises(InvalidCredentialsError, match="not for client authentication"):
        judged_by(tmp_path, CA.issue(URI(ID), usage=usage))


def test_an_authority_for_servers_only_vouches_for_no_client(tmp_path: Path) -> None:
    between = Authority("Between", CA, extensions=[(x509.ExtendedKeyUsage([SERVER]), False)])
    with pytest.raises(InvalidCredentialsError, match="it is not issued by a trusted authority"):
        judged_by(tmp_path, between.issue(URI(ID)))


def usage(**members: bool) -> x509.KeyUsage:
    none = dict.fromkeys(
        (
            "digital_signature",
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "key_cert_sign",
            "crl_sign",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    return x509.KeyUsage(**{**none, **members})


def test_a_key_that_may_not_sign_proves_nobody(tmp_path: Path) -> None:
    with pytest.raises(InvalidCredentialsError, match="key usage"):
        judged_by(tmp_path, CA.issue(URI(ID), extensions=[(usage(key_encipherment=True), True)]))


def test_an_authority_is_no_client(tmp_path: Path) -> None:
    extensions = [(x509.ExtendedKeyUsage([CLIENT]), False), (x509.SubjectAlternativeName([URI(ID)]), False)]
    below = Authority("Below", CA, extensions=extensions)
    for shown in (chain(below.certificate), chain(CA.certificate)):
        with pytest.raises(InvalidCredentialsError):
            judged_by(tmp_path, shown)


def test_a_client_is_no_authority(tmp_path: Path) -> None:
    parent = CA.issue(URI("spiffe://example.org/agents/other"))
    fake = Authority("Fake", key=parent.key)
    fake.name = parent.certificate.subject
    child = fake.issue(URI(ID))
    with pytest.raises(InvalidCredentialsError, match="it is not issued by a trusted authority"):
        judged_by(tmp_path, chain(child.certificate, parent.certificate))


def test_a_longer_path_than_the_authority_allows_is_refused(tmp_path: Path) -> None:
    short = Authority("Short", path_length=0)
    assert judged_by(tmp_path, short.issue(URI(ID)), short).subject == ID
    with pytest.raises(InvalidCredentialsError, match="path length"):
        judged_by(tmp_path, Authority("Below", short).issue(URI(ID)), short)


WEAK_KEYS: dict[str, Callable[[], Any]] = {
    "RSA 1024": lambda: rsa.generate_private_key(65537, 1024),
    "RSA e=3": lambda: rsa.generate_private_key(3, 2048),
    "P-192": lambda: ec.generate_private_key(ec.SECP192R1()),
    "secp256k1": lambda: ec.generate_private_key(ec.SECP256K1()),
}


@pytest.mark.parametrize("kind", WEAK_KEYS)
def test_a_weak_key_proves_nobody(tmp_path: Path, kind: str) -> None:
    with pytest.raises(InvalidCredentialsError, match="weak"):
        judged_by(tmp_path, CA.issue(URI(ID), key=WEAK_KEYS[kind]()))


def test_a_weak_authority_between_vouches_for_nobody(tmp_path: Path) -> None:
    weak = Authority("Weak", CA, key=rsa.generate_private_key(65537, 1024))
    with pytest.raises(InvalidCredentialsError, match="it is not issued by a trusted authority"):
        judged_by(tmp_path, weak.issue(URI(ID)))


@pytest.mark.parametrize(
    "key", [rsa.generate_private_key(65537, 2048), ed25519.Ed25519PrivateKey.generate()], ids=["RSA", "Ed25519"]
)
def test_other_strong_keys_are_taken(tmp_path: Path, key: Any) -> None:
    assert judged_by(tmp_path, CA.issue(URI(ID), key=key)).subject == ID


@pytest.mark.parametrize(
    ("digest", "oid", "good"),
    [(hashes.SHA256(), b"\x0b", True), (hashes.SHA1(), b"\x05", False), (hashes.MD5(), b"\x04", False)],
    ids=["SHA-256", "SHA-1", "MD5"],
)
def test_signatures_over_weak_digests_are_refused(
    tmp_path: Path, digest: hashes.HashAlgorithm, oid: bytes, good: bool
) -> None:
    key = rsa.generate_private_key(65537, 2048)
    old = Authority("Old", key=key)
    leaf = old.issue(URI(ID)).certificate
    # The library signs no certificate over these; so the name of the algorithm and the signature are replaced.
    rsa_with = bytes.fromhex("2a864886f70d0101")
    tbs = leaf.tbs_certificate_bytes.replace(rsa_with + b"\x0b", rsa_with + oid)
    der = leaf.public_bytes(Encoding.DER)[: -key.key_size // 8].replace(rsa_with + b"\x0b", rsa_with + oid)
    assert tbs in der
    shown = (der + key.sign(tbs, padding.PKCS1v15(), digest),)
    verifier = CertificateVerifier(authority(tmp_path, old))
    if good:
        assert judge(verifier, shown).subject == ID
    else:
        with pytest.raises(InvalidCredentialsError, match="it is not issued by a trusted authority"):
            judge(verifier, shown)


@pytest.mark.parametrize(
    ("rule", "names", "subject"),
    [
        (FromUri("example.org"), [URI(ID)], ID),
        (FromUri("example.org"), [URI(ID), DNS("a.example.org")], ID),
        (FromDns(), [DNS("Agent.Example.org")], "agent.example.org"),
        (FromDns(), [DNS("xn--bcher-kva.example"), URI(ID), URI(ID + "/2")], "xn--bcher-kva.example"),
        (FromEmail(), [EMAIL("Agent.One@Example.ORG")], "Agent.One@example.org"),
        (FromSubject(), [], "CN=Invoices,O=Example"),
        (FromSubject(), [DNS("a.example"), DNS("b.example")], "CN=Invoices,O=Example"),
    ],
)
def test_each_rule_names_the_holder(tmp_path: Path, rule: Any, names: list[x509.GeneralName], subject: str) -> None:
    identity = judged_by(tmp_path, CA.issue(*names, subject=SUBJECT), identity=rule)
    assert (identity.issuer, identity.subject) == (f"x509:{rule.kind}:partners", subject)


def raw_name(rule: FromUri | FromDns | FromEmail, text: str) -> x509.ExtensionType:
    """Alternative names that the library would not write: one of the rule's kind with any text."""

    def element(tag: int, content: bytes) -> bytes:
        return (
            bytes([tag, 0x82]) + len(content).to_bytes(2, "big") + content
            if len(content) > 127
            else bytes([tag, len(content)]) + content
        )

    tag = {"uri": 0x86, "dns": 0x82, "email": 0x81}[rule.kind]
    return x509.UnrecognizedExtension(x509.SubjectAlternativeName.oid, element(0x30, element(tag, text.encode())))


@pytest.mark.parametrize(
    ("rule", "names"),
    [
        (FromUri("example.org"), []),
        (FromUri("example.org"), [DNS("example.org")]),
        (FromUri("example.org"), [URI(ID), URI(ID)]),
        (FromUri("example.org"), [URI(ID), URI("https://example.org/a")]),
        (FromDns(), []),
        (FromDns(), [URI(ID)]),
        (FromDns(), [DNS("a.example"), DNS("b.example")]),
        (FromDns(), [DNS("a.example"), DNS("a.example")]),
        (FromDns(), [x509.IPAddress(ip_address("192.0.2.1"))]),
        (FromEmail(), []),
        (FromEmail(), [EMAIL("a@example.org"), EMAIL("b@example.org")]),
        (FromEmail(), [x509.OtherName(ObjectIdentifier("1.3.6.1.5.5.7.8.9"), b"\x0c\x05a@b.c")]),
    ],
)
def test_no_name_of_the_kind_and_several_name_nobody(tmp_path: Path, rule: Any, names: list[x509.GeneralName]) -> None:
    leaf = CA.issue(*names, subject="agent.example.org")  # and the common name is no host
    with pytest.raises(InvalidCredentialsError, match="alternative names"):
        judged_by(tmp_path, leaf, identity=rule)


ODD_NAMES: dict[FromUri | FromDns | FromEmail, tuple[str, ...]] = {
    FromUri("example.org"): (
        "spiffe://example.org",
        "spiffe://example.org/",
        "spiffe://example.org/a/",
        "spiffe://example.org//a",
        "spiffe://example.org/a/../b",
        "spiffe://example.org/./a",
        "spiffe://example.org/a/..",
        "spiffe://example.org/a?b",
        "spiffe://example.org/a#b",
        "spiffe://example.org/a%2fb",
        "spiffe://example.org:443/a",
        "spiffe://user@example.org/a",
        "spiffe://EXAMPLE.org/a",
        "SPIFFE://example.org/a",
        "spiffe://example.org.evil.org/a",
        "spiffe://exampleXorg/a",
        "spiffe://evil.org/example.org/a",
        "https://example.org/a",
        "spiffe://example.org/a\n",
        "spiffe://example.org/a\0b",
        "spiffe://example.org/é",
        "spiffe://example.org/" + "a" * 3000,
        "",
    ),
    FromDns(): (
        *(
            "*.example",
            "*",
            "",
            ".",
            "a.example.",
            ".a.example",
            "a..b",
            "a b",
            "a\0.example",
            "a.example\n",
            "-a",
            "a_b",
        ),
        *("bücher.example", "а.example", "\u212a.example"),  # an umlaut, a Cyrillic a, the sign for kelvins
        ".".join(["a" * 63] * 5),
        "a" * 64,
    ),
    FromEmail(): (
        *("a", "@example.org", "a@", "a@b@example.org", "a\0@example.org", '"a b"@example.org', "a..b@c", "a@b\n"),
        *("é@example.org", "a@é.org", "a" * 65 + "@example.org", "<a@example.org>", ""),
    ),
}


@pytest.mark.parametrize("rule", ODD_NAMES)
def test_odd_names_name_nobody(tmp_path: Path, rule: FromUri | FromDns | FromEmail) -> None:
    verifier = CertificateVerifier(authority(tmp_path, identity=rule))
    for name in ODD_NAMES[rule]:
        with pytest.raises(InvalidCredentialsError) as caught:
            judge(verifier, CA.issue(subject="a", extensions=[(raw_name(rule, name), False)]))
        assert str(caught.value).isprintable(), name


@pytest.mark.parametrize("common_name", ["a\nb", "a\u202eb", "a\x1b[31mb"])
def test_subjects_that_print_as_others_name_nobody(tmp_path: Path, common_name: str) -> None:
    with pytest.raises(InvalidCredentialsError, match="not printable") as caught:
        judged_by(tmp_path, CA.issue(subject=common_name), identity=FromSubject())
    assert str(caught.value).isprintable()


def test_an_empty_subject_names_nobody(tmp_path: Path) -> None:
    for names in ([], [URI(ID)]):
        with pytest.raises(InvalidCredentialsError, match="empty"):
            judged_by(tmp_path, CA.issue(*names), identity=FromSubject())
    assert judged_by(tmp_path, GOOD).subject == ID  # it has none


def test_subjects_that_write_others_separators_are_others(tmp_path: Path) -> None:
    sly = CA.issue(subject="Invoices,O=Example")
    honest = CA.issue(subject=SUBJECT)
    verifier = CertificateVerifier(authority(tmp_path, identity=FromSubject()))
    assert judge(verifier, sly).subject == "CN=Invoices\\,O=Example"
    assert judge(verifier, sly).subject != judge(verifier, honest).subject


def constraints(*permitted: x509.GeneralName) -> list[tuple[x509.ExtensionType, bool]]:
    return [(x509.NameConstraints(permitted, None), True)]


@pytest.mark.parametrize(
    ("rule", "allowed_name", "other_name", "permitted"),
    [
        (FromDns(), DNS("a.example.org"), DNS("a.evil.org"), DNS("example.org")),
        (FromEmail(), EMAIL("a@example.org"), EMAIL("a@evil.org"), EMAIL("example.org")),
    ],
)
def test_name_constraints_are_kept(
    tmp_path: Path, rule: Any, allowed_name: Any, other_name: Any, permitted: Any
) -> None:
    between = Authority("Between", CA, extensions=constraints(permitted))
    verifier = CertificateVerifier(authority(tmp_path, identity=rule))
    assert judge(verifier, between.issue(allowed_name)).subject == allowed_name.value
    with pytest.raises(InvalidCredentialsError, match="it is not issued by a trusted authority"):
        judge(verifier, between.issue(other_name))


def test_constraints_that_cannot_be_applied_let_nobody_in(tmp_path: Path) -> None:
    by_uri = Authority("Between", CA, extensions=constraints(URI("example.org")))
    with pytest.raises(InvalidCredentialsError, match="it is not issued by a trusted authority"):
        judged_by(tmp_path, by_uri.issue(URI(ID)))
    by_dns = Authority("Between", CA, extensions=constraints(DNS("example.org")))
    with pytest.raises(InvalidCredentialsError, match="name constraints"):
        judged_by(tmp_path, by_dns.issue(subject=SUBJECT), identity=FromSubject())
    directory = x509.NameConstraints([x509.DirectoryName(SUBJECT)], None)
    by_name = Authority("Between", CA, extensions=[(directory, False)])
    with pytest.raises(InvalidCredentialsError, match="name constraints"):
        judged_by(tmp_path, by_name.issue(subject=SUBJECT), identity=FromSubject())


def test_a_critical_extension_that_is_not_known_is_refused(tmp_path: Path) -> None:
    unknown = x509.UnrecognizedExtension(ObjectIdentifier("1.3.6.1.4.1.55555.1"), b"\x05\x00")
    assert judged_by(tmp_path, CA.issue(URI(ID), extensions=[(unknown, False)])).subject == ID
    with pytest.raises(InvalidCredentialsError, match="it is not issued by a trusted authority"):
        judged_by(tmp_path, CA.issue(URI(ID), extensions=[(unknown, True)]))


def test_chains_in_another_form_are_refused(tmp_path: Path) -> None:
    leaf = Authority("Between", CA).issue(URI(ID))
    (between,) = leaf.above
    good = chain(leaf.certificate, between)
    verifier = CertificateVerifier(authority(tmp_path))
    assert judge(verifier, good).subject == ID
    many = [Authority(f"CA {number}").certificate for number in range(5)]
    assert judge(verifier, (*good, *chain(*many[:4]))).subject == ID
    for other in (
        (),
        good[::-1],
        (good[0], *good),
        (*good, good[1]),
        (*good, *chain(*many)),
        good * 50,
        (b"".join(good),),
        (*good, b""),
        (*good, b"\0"),
        (leaf.pem,),
        (leaf.der + b"\0",),
        (b" " + leaf.der,),
        (leaf.der[:-1], leaf.der[-1:]),
    ):
        with pytest.raises(InvalidCredentialsError):
            judge(verifier, other)


def test_chains_that_are_cut_elsewhere_are_other_chains(tmp_path: Path) -> None:
    """What is remembered of one must not answer for another whose bytes are the same."""
    leaf = Authority("Between", CA).issue(URI(ID))
    verifier = CertificateVerifier(authority(tmp_path))
    assert judge(verifier, leaf).subject == ID
    first, second = chain(leaf.certificate, *leaf.above)
    for place in (1, len(first) - 1, len(first) + 1):
        joined = first + second
        with pytest.raises(InvalidCredentialsError):
            judge(verifier, (joined[:place], joined[place:]))


def test_a_huge_certificate_is_not_looked_at(tmp_path: Path) -> None:
    huge = x509.UnrecognizedExtension(ObjectIdentifier("1.3.6.1.4.1.55555.1"), b"\x04\x83\x00\xff\xff" + b"x" * 65535)
    with pytest.raises(InvalidCredentialsError, match="too long"):
        judged_by(tmp_path, CA.issue(URI(ID), extensions=[(huge, False)]))


def test_only_identities_lets_in_these_and_of_an_empty_set_nobody(tmp_path: Path) -> None:
    other = CA.issue(URI(ID + "/2"))
    verifier = CertificateVerifier(authority(tmp_path, allowed=OnlyIdentities({ID})))
    assert judge(verifier, GOOD).subject == ID
    for empty_or_not in (OnlyIdentities({ID}), OnlyIdentities(())):
        with pytest.raises(InvalidCredentialsError, match="not allowed to call"):
            judged_by(tmp_path, other, allowed=empty_or_not)


def test_only_thumbprints_lets_in_these_and_of_an_empty_set_nobody(tmp_path: Path) -> None:
    thumbprint = hashlib.sha256(GOOD.der).digest().hex(":").upper()  # as OpenSSL prints it
    allowed = OnlyThumbprints({thumbprint})
    assert judged_by(tmp_path, GOOD, allowed=allowed).subject == ID
    twin = CA.issue(URI(ID))
    for leaf, only in ((twin, allowed), (GOOD, OnlyThumbprints(()))):
        with pytest.raises(InvalidCredentialsError, match="not allowed to call"):
            judged_by(tmp_path, leaf, allowed=only)


def test_a_self_signed_certificate_is_refused_though_its_thumbprint_is_allowed(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    itself = Authority("itself", key=key)
    leaf = itself.issue(URI(ID), subject="itself", key=key)
    thumbprint = leaf.certificate.fingerprint(hashes.SHA256()).hex()
    with pytest.raises(InvalidCredentialsError, match="it is not issued by a trusted authority"):
        judged_by(tmp_path, leaf, allowed=OnlyThumbprints({thumbprint}))
    file = tmp_path / "leaf.pem"
    file.write_bytes(leaf.pem)
    with pytest.raises(ConfigurationError, match="is not a CA certificate"):
        CertificateVerifier(
            ClientAuthority(name="leaf", certificates=file, identity=FromUri("example.org"), allowed=AllIssued())
        )


def test_the_first_authority_that_vouches_decides(tmp_path: Path) -> None:
    below = Authority("Below", CA)
    leaf = below.issue(URI(ID))
    one = authority(tmp_path, CA, name="one", allowed=OnlyIdentities(()))
    two = authority(tmp_path, below, name="two")
    assert judge(CertificateVerifier(two, one), leaf).issuer == "x509:uri:two"
    with pytest.raises(InvalidCredentialsError, match="not allowed to call"):
        judge(CertificateVerifier(one, two), leaf)


# Chains that cost


def test_authorities_of_one_name_in_a_chain_are_refused_before_a_path_is_searched_among_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    loop = [Authority("Loop", key=key).certificate for _ in range(4)]  # each has issued all of them
    searches: list[object] = []
    build = verification.PolicyBuilder

    def counted() -> verification.PolicyBuilder:
        searches.append(None)
        return build()

    monkeypatch.setattr(verification, "PolicyBuilder", counted)
    verifier = CertificateVerifier(authority(tmp_path))
    for leaf in (Authority("Loop", key=key).issue(URI(ID)), GOOD):
        with pytest.raises(InvalidCredentialsError, match="same name"):
            judge(verifier, chain(leaf.certificate, *loop))
    assert not searches
    assert judge(verifier, chain(GOOD.certificate, loop[0])).subject == ID
    assert len(searches) == 1


def test_what_is_remembered_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verifier = CertificateVerifier(authority(tmp_path))
    assert judge(verifier, GOOD).subject == ID
    monkeypatch.setattr(x509, "load_der_x509_certificate", lambda _: pytest.fail("it was read again"))
    assert judge(verifier, GOOD).subject == ID


# Revocation


def write_crls(folder: Path, *crls: x509.CertificateRevocationList, der: bool = False) -> Path:
    path = folder / "revoked.crl"
    path.write_bytes(b"".join(crl.public_bytes(Encoding.DER if der else Encoding.PEM) for crl in crls))
    return path


@pytest.mark.parametrize("der", [False, True], ids=["PEM", "DER"])
def test_a_revoked_certificate_is_refused(tmp_path: Path, der: bool) -> None:
    other = CA.issue(URI(ID))
    crls = [write_crls(tmp_path, CA.revoke(other), der=der)]
    assert judged_by(tmp_path, GOOD, crls=crls).subject == ID
    with pytest.raises(InvalidCredentialsError, match="revoked"):
        judged_by(tmp_path, other, crls=crls)


def test_a_revoked_authority_between_is_refused(tmp_path: Path) -> None:
    between = Authority("Between", CA)
    leaf = between.issue(URI(ID))
    crls = [write_crls(tmp_path, CA.revoke(), between.revoke())]
    assert judged_by(tmp_path, leaf, crls=crls).subject == ID
    write_crls(tmp_path, CA.revoke(Leaf(between.certificate, between.key)), between.revoke())
    with pytest.raises(InvalidCredentialsError, match="revoked"):
        judged_by(tmp_path, leaf, crls=crls)


def test_without_a_list_of_every_issuer_in_force_nobody_can_tell(tmp_path: Path) -> None:
    between = Authority("Between", CA)
    leaf = between.issue(URI(ID))
    namesake = Authority()  # of CA's name, and with another key
    renamed = Authority("Renamed", key=CA.key)  # the other way round
    late = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(CA.name)
        .last_update(CA.certificate.not_valid_after_utc)
        .next_update(CA.certificate.not_valid_after_utc + DAY)
        .sign(CA.key, hashes.SHA256())
    )
    for crls in (
        [CA.revoke()],
        [between.revoke()],
        [CA.revoke(lifetime=OVER), between.revoke()],
        [CA.revoke(), between.revoke(lifetime=OVER)],
        [namesake.revoke(), between.revoke()],
        [renamed.revoke(), between.revoke()],
        [late, between.revoke()],
    ):
        with pytest.raises(KeySourceUnavailableError, match="no current revocation list"):
            judged_by(tmp_path, leaf, crls=[write_crls(tmp_path, *crls)])


def test_an_authority_that_may_not_sign_lists_has_none(tmp_path: Path) -> None:
    signs_no_lists = Authority(extensions=[(usage(key_cert_sign=True), True)])
    crls = [write_crls(tmp_path, signs_no_lists.revoke())]
    with pytest.raises(KeySourceUnavailableError):
        judged_by(tmp_path, signs_no_lists.issue(URI(ID)), signs_no_lists, crls=crls)


def test_what_is_remembered_ends_with_the_list(tmp_path: Path) -> None:
    crls = [write_crls(tmp_path, CA.revoke(lifetime=timedelta(minutes=5)))]
    verifier = CertificateVerifier(authority(tmp_path, crls=crls))
    assert judge(verifier, GOOD).subject == ID
    with pytest.raises(KeySourceUnavailableError):
        judge(verifier, GOOD, time.time() + 301)


def test_a_new_list_counts_within_a_second_though_the_certificate_is_remembered(tmp_path: Path) -> None:
    crls = [write_crls(tmp_path, CA.revoke())]
    verifier, now = CertificateVerifier(authority(tmp_path, crls=crls)), time.time()
    assert judge(verifier, GOOD, now).subject == ID
    write_crls(tmp_path, CA.revoke(GOOD))
    assert judge(verifier, GOOD, now + 0.9).subject == ID
    for moment in (now + 1, now + 1.1):
        with pytest.raises(InvalidCredentialsError, match="revoked"):
            judge(verifier, GOOD, moment)


def test_a_clock_that_is_set_back_stops_no_look(tmp_path: Path) -> None:
    verifier, now = CertificateVerifier(authority(tmp_path)), time.time()
    assert judge(verifier, GOOD, now).subject == ID
    authority(tmp_path, Authority())
    with pytest.raises(InvalidCredentialsError):
        judge(verifier, GOOD, now - 3600)


def test_the_first_list_that_is_over_ends_what_is_remembered(tmp_path: Path) -> None:
    between = Authority("Between", CA)
    leaf = between.issue(URI(ID))
    soon, later = timedelta(minutes=5), timedelta(minutes=50)
    for crls in (
        [CA.revoke(lifetime=soon), between.revoke(lifetime=later)],
        [CA.revoke(lifetime=later), between.revoke(lifetime=soon)],
        [CA.revoke(), between.revoke(lifetime=soon), between.revoke(lifetime=later)],
    ):
        verifier = CertificateVerifier(authority(tmp_path, crls=[write_crls(tmp_path, *crls)]))
        assert judge(verifier, leaf).subject == ID
        [(_, verified)] = verifier._verified.items()
        assert verified.good_until <= time.time() + 300


class Counted:
    """A revocation list that counts what is costly with large ones."""

    def __init__(self, crl: x509.CertificateRevocationList) -> None:
        self._crl = crl
        self.walks = self.signatures = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._crl, name)

    def __iter__(self) -> Iterator[x509.RevokedCertificate]:
        self.walks += 1
        return iter(self._crl)

    def get_revoked_certificate_by_serial_number(self, number: int) -> x509.RevokedCertificate | None:
        self.walks += 1
        return self._crl.get_revoked_certificate_by_serial_number(number)

    def is_signature_valid(self, key: Any) -> bool:
        self.signatures += 1
        return self._crl.is_signature_valid(key)


def test_a_list_is_walked_once_and_its_signature_verified_once_whoever_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    between = Authority("Between", CA)
    bad = [CA.issue(URI(ID)), CA.issue(URI(ID)), between.issue(URI(ID))]
    crls = [CA.revoke(*bad[:2]), Authority().revoke(), between.revoke(bad[2])]  # the second is a namesake's of CA
    path = write_crls(tmp_path, *crls)
    read: list[Counted] = []
    load = x509.load_pem_x509_crl

    def counted(data: bytes) -> Counted:
        read.append(Counted(load(data)))
        return read[-1]

    monkeypatch.setattr(x509, "load_pem_x509_crl", counted)
    verifier = CertificateVerifier(authority(tmp_path, crls=[path]))
    assert [each.walks for each in read] == [1, 1, 1]
    for _ in range(3):
        for leaf in bad:
            with pytest.raises(InvalidCredentialsError, match="revoked"):
                judge(verifier, leaf)
        for issuer in (CA, between):
            assert judge(verifier, issuer.issue(URI(ID))).subject == ID
    assert [(each.walks, each.signatures) for each in read] == [(1, 1), (1, 1), (1, 1)]


def test_a_list_that_counts_for_one_issuer_counts_for_no_namesake_of_it(tmp_path: Path) -> None:
    namesake = Authority()
    other = namesake.issue(URI(ID))
    for issuer, known, unknown in ((CA, GOOD, other), (namesake, other, GOOD)):
        crls = [write_crls(tmp_path, issuer.revoke())]
        verifier = CertificateVerifier(authority(tmp_path, CA, namesake, crls=crls))
        for _ in range(2):
            assert judge(verifier, known).subject == ID
            with pytest.raises(KeySourceUnavailableError, match="no current revocation list"):
                judge(verifier, unknown)


@pytest.mark.anyio
async def test_while_files_are_read_requests_go_on_and_one_that_is_given_up_does_not_end_the_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, now = write_crls(tmp_path, CA.revoke()), time.time()
    verifier = CertificateVerifier(authority(tmp_path, crls=[path]))
    shown = chain(GOOD.certificate)
    assert (await verifier.verify(shown, now)).subject == ID
    write_crls(tmp_path, CA.revoke(GOOD))
    read, began, may_end, times = authorities._read_crls, threading.Event(), threading.Event(), []

    def slow(path: Path) -> Any:
        times.append(path)
        began.set()
        assert may_end.wait(60)
        return read(path)

    monkeypatch.setattr(authorities, "_read_crls", slow)
    first = asyncio.create_task(verifier.verify(shown, now + 1))
    assert await asyncio.to_thread(began.wait, 60)
    for later in (1.1, 2.2, 3.3):
        assert (await verifier.verify(shown, now + later)).subject == ID
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    may_end.set()
    reading = verifier._looks.running(None)
    assert reading is not None
    await reading
    with pytest.raises(InvalidCredentialsError, match="revoked"):
        await verifier.verify(shown, now + 3.4)
    assert times == [path]


@pytest.mark.usefixtures("at_once")
def test_a_list_that_could_not_be_opened_once_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process has no free descriptors for a moment, as strangers can cause; the file does not change again."""
    monkeypatch.setattr("a2a_trust.base.files.watched.RETRY_SECONDS", 0.0)
    path = write_crls(tmp_path, CA.revoke())
    verifier = CertificateVerifier(authority(tmp_path, crls=[path]))
    assert judge(verifier, GOOD).subject == ID
    write_crls(tmp_path, CA.revoke(GOOD))
    opened = open_regular

    def no_descriptors(path: Path) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(authorities, "open_regular", no_descriptors)
    assert judge(verifier, GOOD).subject == ID
    monkeypatch.setattr(authorities, "open_regular", opened)
    with pytest.raises(InvalidCredentialsError, match="revoked"):
        judge(verifier, GOOD)


@pytest.mark.usefixtures("at_once")
def test_a_list_that_breaks_leaves_the_last_one_and_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_crls(tmp_path, CA.revoke(GOOD))
    verifier = CertificateVerifier(authority(tmp_path, crls=[path]))
    path.write_bytes(b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n")
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            with pytest.raises(InvalidCredentialsError, match="revoked"):
                judge(verifier, GOOD)
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "extension",
    [x509.DeltaCRLIndicator(1), x509.IssuingDistributionPoint(None, None, False, True, None, False, False)],
    ids=["changes only", "authorities only"],
)
def test_a_list_of_a_part_is_no_list(tmp_path: Path, extension: x509.ExtensionType) -> None:
    whole = CA.revoke()
    part = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(CA.name)
        .last_update(whole.last_update_utc)
        .next_update(CA.certificate.not_valid_after_utc)
        .add_extension(extension, critical=True)
        .sign(CA.key, hashes.SHA256())
    )
    made = authority(tmp_path, crls=[write_crls(tmp_path, part)])
    with pytest.raises(ConfigurationError, match="part"):
        CertificateVerifier(made)


# Files that change


@pytest.mark.usefixtures("at_once")
def test_a_replaced_authority_counts_at_once_and_the_old_one_no_more(tmp_path: Path) -> None:
    verifier = CertificateVerifier(authority(tmp_path))
    other = Authority("Other")
    new = other.issue(URI(ID))
    old = judge(verifier, GOOD)
    with pytest.raises(InvalidCredentialsError):
        judge(verifier, new)
    authority(tmp_path, CA, other)  # both, for a while
    assert judge(verifier, new).subject == judge(verifier, GOOD).subject == ID
    assert judge(verifier, new).issuer == old.issuer, "the same caller after the authority's new key"
    authority(tmp_path, other)
    assert judge(verifier, new).subject == ID
    with pytest.raises(InvalidCredentialsError):
        judge(verifier, GOOD)


@pytest.mark.parametrize("content", [b"", b"nothing", GOOD.pem, None], ids=["empty", "text", "a leaf", "gone"])
@pytest.mark.usefixtures("at_once")
def test_files_that_break_leave_the_last_ones_and_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | None
) -> None:
    verifier = CertificateVerifier(authority(tmp_path))
    path = tmp_path / "partners.pem"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with caplog.at_level(logging.ERROR):
        assert [judge(verifier, GOOD).subject for _ in range(2)] == [ID, ID]
    assert len(caplog.records) == 1
    path.write_bytes(Authority().pem)
    with pytest.raises(InvalidCredentialsError):
        judge(verifier, GOOD)


def test_what_is_remembered_is_bounded_and_only_what_was_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("a2a_trust.auth.certificate.verifier._CACHED_CERTIFICATES", 3)
    verifier = CertificateVerifier(authority(tmp_path))
    for _ in range(5):
        judge(verifier, CA.issue(URI(ID)))
        with pytest.raises(InvalidCredentialsError):
            judge(verifier, Authority().issue(URI(ID)))
        assert len(verifier._verified) <= 3
        assert len(verifier._above) <= 3


# Configuration


def test_a_verifier_without_authorities_or_with_two_of_one_name_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no authority"):
        CertificateVerifier()
    with pytest.raises(ConfigurationError, match="the same name"):
        CertificateVerifier(authority(tmp_path), authority(tmp_path, Authority()))


@walk(
    ("options", "word"),
    [
        ({"name": "a b"}, "name is a word"),
        ({"name": "x:y"}, "name is a word"),
        ({"identity": FromDns}, r"FromDns\(…\)"),
        ({"allowed": AllIssued}, r"AllIssued\(…\)"),
        ({"allowed": {ID}}, "OnlyIdentities"),
        ({"crls": "list.crl"}, "crls"),
        ({"identity": FromDns(), "allowed": OnlyIdentities({"Agent.example"})}, "never names"),
        ({"allowed": OnlyIdentities({"spiffe://other.org/a"})}, "never names"),
    ],
)
def test_an_authority_that_says_nothing_sensible_is_not_made(options: dict[str, Any], word: str) -> None:
    usual: dict[str, Any] = {
        "name": "partners",
        "certificates": "ca.pem",
        "identity": FromUri("example.org"),
        "allowed": AllIssued(),
    }
    with pytest.raises(ConfigurationError, match=word):
        ClientAuthority(**{**usual, **options})


def test_words_that_are_no_sets_of_words_are_refused() -> None:
    for wrong in (lambda: OnlyIdentities(ID), lambda: OnlyThumbprints("ab"), lambda: OnlyThumbprints({"ab"})):
        with pytest.raises(ConfigurationError):
            wrong()
    with pytest.raises(ConfigurationError, match="trust domain"):
        FromUri("spiffe://example.org")


def files_of_no_use() -> dict[str, tuple[bytes | None, str]]:
    not_for_issuing = Authority(extensions=[(usage(digital_signature=True), True)])
    return {
        "not there": (None, "No such file"),
        "empty": (b"", "no CA certificates"),
        "leaf": (GOOD.pem, "is not a CA certificate"),
        "not for issuing": (not_for_issuing.pem, "not for issuing"),
        "weak": (Authority(key=rsa.generate_private_key(65537, 1024)).pem, "1024 bits"),
        "Ed25519": (Authority(key=ed25519.Ed25519PrivateKey.generate()).pem, "Ed25519"),
        "too large": (CA.pem + b"\n" * 5_000_000, "larger"),
    }


@pytest.mark.parametrize("kind", files_of_no_use())
def test_files_of_no_use_are_told_at_the_start(tmp_path: Path, kind: str) -> None:
    content, word = files_of_no_use()[kind]
    made = authority(tmp_path)
    path = tmp_path / "partners.pem"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=word):
        CertificateVerifier(made)


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN nothing", CA.pem, b"\x30\x00"])
def test_lists_that_cannot_be_read_are_told_at_the_start(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "list.crl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"list\.crl"):
        CertificateVerifier(authority(tmp_path, crls=[path]))


# Whatever comes


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> CertificateVerifier:
    return CertificateVerifier(authority(tmp_path_factory.mktemp("authorities")))


@given(shown=st.lists(st.binary() | st.just(GOOD.der) | st.binary().map(lambda tail: GOOD.der + tail)).map(tuple))
def test_bytes_are_refused_and_never_more_than_that(verifier: CertificateVerifier, shown: CertificateChain) -> None:
    if shown == (GOOD.der,):
        return
    with pytest.raises(InvalidCredentialsError) as caught:
        judge(verifier, shown)
    assert str(caught.value).isprintable()


FULL = CA.issue(
    URI(ID),
    DNS("a.example"),
    EMAIL("a@b.example"),
    x509.IPAddress(ip_address("::1")),
    x509.DirectoryName(SUBJECT),
    subject=SUBJECT,
    extensions=[
        (x509.CRLDistributionPoints([x509.DistributionPoint([URI("http://a.example")], None, None, None)]), False),
        (x509.CertificatePolicies([x509.PolicyInformation(ObjectIdentifier("1.2.3"), ["x"])]), False),
    ],
)


@given(place=st.integers(0, len(FULL.der) - 1), octet=st.integers(0, 255), length=st.integers(0, 3))
def test_a_changed_certificate_is_refused_and_never_more_than_that(
    verifier: CertificateVerifier, place: int, octet: int, length: int
) -> None:
    changed = FULL.der[:place] + bytes([octet] * length) + FULL.der[place + 1 :]
    if changed == FULL.der:
        return
    assert is_certificate(changed) in (True, False)
    with pytest.raises(InvalidCredentialsError) as caught:
        judge(verifier, (changed,))
    assert str(caught.value).isprintable()


def test_a_signature_with_unused_bits_is_refused(verifier: CertificateVerifier) -> None:
    """The same certificate in another text, which the library reads if the bits at the end are zero."""
    while (leaf := CA.issue(URI(ID))).der[-1] & 1:
        continue
    judge(verifier, leaf)
    place = len(leaf.der) - len(leaf.certificate.signature) - 1
    changed = leaf.der[:place] + b"\x01" + leaf.der[place + 1 :]
    assert x509.load_der_x509_certificate(changed).signature == leaf.certificate.signature
    with pytest.raises(InvalidCredentialsError, match="malformed"):
        judge(verifier, (changed,))


@given(
    common_name=st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=20),
    uri=st.text(st.characters(max_codepoint=127), max_size=30),
)
def test_nothing_of_a_strangers_certificate_is_repeated_unescaped(
    verifier: CertificateVerifier, common_name: str, uri: str
) -> None:
    for issuer in (Authority(), CA):
        with pytest.raises(InvalidCredentialsError) as caught:
            judge(verifier, issuer.issue(URI(uri), subject=common_name))
        assert str(caught.value).isprintable()
        assert str(caught.value).isascii()


def test_what_the_library_says_of_a_certificate_is_not_repeated_with_its_names(tmp_path: Path) -> None:
    unknown = x509.UnrecognizedExtension(ObjectIdentifier("1.3.6.1.4.1.55555.1"), b"\x05\x00")
    with pytest.raises(InvalidCredentialsError, match="critical") as caught:
        judged_by(tmp_path, CA.issue(URI(ID), subject="Mallory\x1b[31m", extensions=[(unknown, True)]))
    assert "Mallory" not in str(caught.value)
    assert str(caught.value).isprintable()


def test_what_is_no_certificate_is_told_from_one() -> None:
    assert is_certificate(GOOD.der)
    for other in (
        b"",
        GOOD.der + b"\0",
        GOOD.der[:-1],
        GOOD.pem,
        CA.revoke().public_bytes(Encoding.DER),
        os.urandom(64),
    ):
        assert not is_certificate(other)
