"""The parts of every proxy's format: header names, and strict readers of the certificates in headers."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Final, Protocol, TypeAlias
from urllib.parse import unquote_to_bytes

from a2a_trust.auth.certificate.reading import is_certificate
from a2a_trust.errors import ConfigurationError, InvalidCredentialsError

Values: TypeAlias = Mapping[str, bytes]
"""The value of each header that came, by the form's name for it. Each came once."""


class ProxyForm(Protocol):
    """How one kind of proxy writes the client's certificate into headers."""

    @property
    def names(self) -> tuple[str, ...]:
        """The headers that the proxy writes."""
        ...

    @property
    def every_time(self) -> bool:
        """Whether the proxy must write a header for every request, also for a client without a certificate."""
        ...

    def read(self, values: Values) -> tuple[bytes, ...]:
        """The certificates in DER, the client's own first; ``()`` when the proxy says that the client sent none.

        InvalidCredentialsError for every other value.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedHeaders:
    """A form whose headers have no fixed names: each field is the name of one header."""

    every_time = False

    def __post_init__(self) -> None:
        check_names(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        return astuple(self)


def check_names(names: tuple[str, ...]) -> None:
    """Return when they can be the names of headers that a proxy adds; else ConfigurationError."""
    if len({name.lower() for name in names}) < len(names):
        raise ConfigurationError(f"the proxy's headers {', '.join(names)} are not different; give each its own name")
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9-]+", name):
            raise ConfigurationError(
                f"{name[:64]!a} cannot be the name of the proxy's header; use letters, digits and hyphens"
            )


def from_base64(text: bytes) -> bytes:
    """One certificate, from canonical base64. This and the other readers raise InvalidCredentialsError."""
    try:
        der = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        der = b""
    if base64.b64encode(der) != text or not is_certificate(der):
        raise InvalidCredentialsError("a header of the proxy does not have a base64 certificate where one is expected")
    return der


def from_byte_sequence(text: bytes) -> bytes:
    """RFC 8941 3.3.5: base64 between colons."""
    if len(text) < 2 or not (text.startswith(b":") and text.endswith(b":")):
        raise InvalidCredentialsError("a header of the proxy does not have a certificate between colons (RFC 9440)")
    return from_base64(text[1:-1])


_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----\n((?:[A-Za-z0-9+/=]+\n)+)-----END CERTIFICATE-----(?:\n|$)")
_ARMOUR: Final = re.compile(rb"-----(BEGIN|END)\nCERTIFICATE-----")


def _from_pem(text: bytes) -> tuple[bytes, ...]:
    """The certificates of a PEM text with nothing between them; at least one."""
    certificates: list[bytes] = []
    at = 0
    while at < len(text) or not certificates:
        block = _PEM.match(text, at)
        if block is None:
            raise InvalidCredentialsError("a header of the proxy does not have a PEM certificate where one is expected")
        certificates.append(from_base64(block[1].replace(b"\n", b"")))
        at = block.end()
    return tuple(certificates)


def from_pem_with_blanks(text: bytes) -> tuple[bytes, ...]:
    """The certificates of a PEM text with blanks for newlines."""
    return _from_pem(_ARMOUR.sub(rb"-----\1 CERTIFICATE-----", text.replace(b" ", b"\n")))


def from_escaped_pem(text: bytes) -> tuple[bytes, ...]:
    """The certificates of a percent-encoded PEM text; a plus sign is a plus sign, not a blank."""
    if re.search(rb"%(?![0-9A-Fa-f]{2})|[^!-~]", text):
        raise InvalidCredentialsError("a header of the proxy is not percent-encoded PEM")
    return _from_pem(unquote_to_bytes(text))


def one(certificates: tuple[bytes, ...], where: str) -> bytes:
    """The only certificate of a header that must not have a chain."""
    if len(certificates) != 1:
        raise InvalidCredentialsError(f"{where}: it has {len(certificates)} certificates instead of one")
    return certificates[0]
