"""The trust file: which keys may speak for which hosts, in a TOML file that people edit.

```toml
version = 1

[[trust]]
name = "bank"
origins = ["bank.example.com", "*.agents.example.com"]
keys = "bank.jwks.json"

[[policy]]
origins = ["bank.example.com"]
parties = ["bank", "auditor"]

[[revoked]]
kid = "bank-2025"
```

docs/trust.md has all members. No URL is ever fetched except each ``jwks_url`` of this file.
"""

from __future__ import annotations

import logging
import math
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError, MalformedError
from a2a_trust.files.watched import Stamp, Watched, check_writers, log_outcome, missing_file, stamp_of_path
from a2a_trust.keys.algorithms import algorithm_named
from a2a_trust.keys.jwk import PublicKey, public_key_from_jwk, public_key_from_pem
from a2a_trust.keys.keyset import KeySet, read_public_keys
from a2a_trust.keys.origins import Origins, UnsafeAnyOrigin, host_of
from a2a_trust.keys.policy import OriginPolicy, Threshold, check_party_name, is_thumbprint
from a2a_trust.keys.trust import SigningTool, TrustedKey, TrustStore, signing_tool
from a2a_trust.strict_json import MAX_BYTES

if TYPE_CHECKING:
    from a2a_trust.keys.jwks_cache import JwksCache
    from a2a_trust.net.fetcher import Fetcher

_log: Final = logging.getLogger(__name__)

_VERSION: Final = 1
_SOURCES: Final = ("keys", "jwk", "pem", "jwks_url")
_MEMBERS: Final[dict[str, frozenset[str]]] = {
    "trust": frozenset(
        {*_SOURCES, "origins", "unsafe_any_origin", "kid", "alg", "name", "signer", "not_before", "not_after"}
    ),
    "policy": frozenset({"origins", "parties", "count"}),
    "revoked": frozenset({"kid", "thumbprint", "entry", "at", "reason"}),
}
_URL: Final = re.compile(r"https://[^/?#@\s]+(?:/[^\s#]*)?")

_Place: TypeAlias = tuple[str, int, str]
"""The name of a table, its number from 0, and a member of it, or "" for the table itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustEntry:
    """A ``[[trust]]`` entry: keys, or their source, and the limits of the trust in them. ``line`` is its first line."""

    line: int
    origins: Origins | UnsafeAnyOrigin
    not_before: float
    not_after: float
    name: str | None = None
    signer: SigningTool | None = None
    kid: str | None = None
    keys: tuple[PublicKey, ...] = ()
    file: str | None = None
    url: str | None = None
    alg: str | None = None

    def says_as_much_as(self, other: TrustEntry) -> bool:
        """Whether both entries have the same members; their lines may differ."""
        return replace(self, line=0) == replace(other, line=0)

    def trusted(self, keys: tuple[PublicKey, ...], revoked: frozenset[str] = frozenset()) -> Iterator[TrustedKey]:
        """These keys, with the trust of the entry. Keys that do not fit its ``alg`` are left out.

        Keys with a kid or thumbprint in ``revoked`` are revoked.
        """
        for key in self.fitting(keys):
            yield TrustedKey(
                key=key,
                origins=self.origins,
                signer=self.signer,
                name=self.name,
                not_before=self.not_before,
                not_after=self.not_after,
                revoked=not revoked.isdisjoint((key.kid, key.thumbprint)),
                source=self.url,
            )

    def is_called(self, text: str) -> bool:
        """Whether the text is the entry's name or the URL of its key set."""
        return text in (self.name, self.url)

    def fitting(self, keys: tuple[PublicKey, ...]) -> Iterator[PublicKey]:
        """These keys, for the ``alg`` of the entry if it has one; keys for another algorithm are skipped."""
        for key in keys:
            try:
                yield key if self.alg is None else key.with_alg(self.alg)
            except ConfigurationError as error:
                _log.warning("trust file, line %d: skipped key %a: %s", self.line, key.kid[:64], error)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokedKey:
    """A ``[[revoked]]`` entry.

    With a ``thumbprint`` (RFC 7638) the key is revoked under every kid; otherwise the ``kid`` is revoked. With an
    ``entry`` this holds for that trust entry only. ``at`` (seconds since the epoch) and ``reason`` are for people.
    """

    kid: str | None = None
    thumbprint: str | None = None
    entry: str | None = None
    at: float | None = None
    reason: str = ""

    def says_as_much_as(self, other: RevokedKey) -> bool:
        """Whether this entry revokes everything that the other one revokes."""
        if self.entry not in (None, other.entry):
            return False
        if other.thumbprint is not None:
            return self.thumbprint == other.thumbprint
        return (self.kid, self.thumbprint) == (other.kid, None)

    def mistake(self, listed: Iterable[tuple[TrustEntry, Iterable[PublicKey]]]) -> str | None:
        """A sentence about a thumbprint that is probably mistyped: keys in its scope have the kid, and no key there has
        the thumbprint. Otherwise it returns None. ``listed`` are the keys of each entry."""
        scope = [key for entry, keys in listed if self.entry is None or entry.is_called(self.entry) for key in keys]
        named = sorted({key.thumbprint for key in scope if key.kid == self.kid})
        if not named or self.thumbprint in (None, *[key.thumbprint for key in scope]):
            return None
        return (
            f"no listed key has the revoked thumbprint {self.thumbprint}, so the key that is listed with the kid "
            f"{ascii(self.kid)[:128]} is not revoked by it; its thumbprint is {' or '.join(named)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustDocument:
    """The content of a trust file, without the key files and URLs that it names."""

    name: str
    entries: tuple[TrustEntry, ...]
    policies: tuple[OriginPolicy, ...]
    revoked: tuple[RevokedKey, ...]

    @property
    def urls(self) -> tuple[str, ...]:
        """The key sets on the network, in order, each once."""
        return tuple(dict.fromkeys(entry.url for entry in self.entries if entry.url is not None))

    def lacks(self, key: RevokedKey) -> bool:
        """Whether no ``[[revoked]]`` entry revokes as much as this one."""
        return not any(known.says_as_much_as(key) for known in self.revoked)

    def store(self, files: Mapping[str, KeySet], fetched: Mapping[str, tuple[PublicKey, ...]]) -> TrustStore:
        """The trust store with the keys of these files and URLs; a URL that is not among them adds no keys."""
        trusted: list[TrustedKey] = []
        listed: list[tuple[TrustEntry, tuple[PublicKey, ...]]] = []
        for entry in self.entries:
            if entry.file is not None:
                keys = files[entry.file].keys
            elif entry.url is not None:
                keys = fetched.get(entry.url, ())
            else:
                keys = entry.keys
            listed.append((entry, keys))
            trusted += entry.trusted(keys, self._revoked_in(entry))
        for mistake in filter(None, [key.mistake(listed) for key in self.revoked]):
            _log.warning(
                "%s: [[revoked]]: %s. Ask its owner; if the key is another one, remove the kid", self.name, mistake
            )
        return TrustStore(
            trusted,
            self.policies,
            spoken_for=[entry.origins for entry in self.entries],
            revoked=chain(
                [key.thumbprint or key.kid or "" for key in self.revoked if key.entry is None],
                *[key_set.revoked for key_set in files.values()],
            ),
            names=[entry.name for entry in self.entries if entry.name is not None],
        )

    def _revoked_in(self, entry: TrustEntry) -> frozenset[str]:
        """The thumbprints, or kids where there is no thumbprint, that are revoked in this entry only.

        The publisher of a key set chooses the kids in it, so such a revocation must not affect other entries.
        """
        return frozenset(
            key.thumbprint or key.kid or ""
            for key in self.revoked
            if key.entry is not None and entry.is_called(key.entry)
        )


def read_trust(text: bytes, name: str) -> TrustDocument:
    """Read the text of a trust file. ConfigurationError names the line and the member, and what to write."""
    if len(text) > MAX_BYTES:
        raise ConfigurationError(f"{name}: a trust file of more than {MAX_BYTES} bytes; split it, or name key files")
    try:
        decoded = text.decode("utf-8")
        value = tomllib.loads(decoded)
    except UnicodeDecodeError:
        raise ConfigurationError(f"{name}: not UTF-8; a trust file is TOML in UTF-8") from None
    except (ValueError, RecursionError) as error:  # also numbers that are too long, and too many brackets
        last = decoded.rstrip().count("\n") + 1
        reason = str(error).replace("at end of document", f"at line {last}, the last one")
        if decoded.lstrip().startswith("{"):
            reason = (
                "it looks like JSON; give a JWK Set as --jwks, or add it: a2a-sign trust add trust.toml --jwks FILE"
            )
        raise ConfigurationError(f"{name}: not a trust file in TOML: {reason}") from None
    reader = _Reader(name, decoded)
    if value.get("version") != _VERSION or type(value["version"]) is not int:
        raise reader.error(("", 0, "version"), f"write version = {_VERSION} above the tables")
    for member in value.keys() - {"version", *_MEMBERS}:
        raise reader.error(
            ("", 0, member), f"unknown member; the tables are {', '.join(f'[[{each}]]' for each in _MEMBERS)}"
        )
    entries = tuple(reader.entry(index, table) for index, table in reader.tables(value, "trust"))
    reader.check_names(entries)
    return TrustDocument(
        name=name,
        entries=entries,
        policies=tuple(reader.policy(index, table, entries) for index, table in reader.tables(value, "policy")),
        revoked=tuple(reader.revoked(index, table, entries) for index, table in reader.tables(value, "revoked")),
    )


def load_trust(path: Path) -> TrustDocument:
    """Read a trust file.

    ConfigurationError: its content is wrong, or everybody can write to it. FileNotFoundError, OSError.
    """
    try:
        content = _content(path)
    except FileNotFoundError:
        raise missing_file(path, "trust file", f"a2a-sign trust add {shlex.quote(str(path))}") from None
    return read_trust(content, str(path))


class _Reader:
    """Reads tables, and knows the lines of their members."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._lines = dict(reversed(list(places(text))))

    def error(self, place: _Place, text: str) -> ConfigurationError:
        table, index, member = place
        line = self._lines.get(place) or self._lines.get((table or member, index, ""), 1)
        where = f"{table}[{index}]" if table else ""
        shown = ".".join(filter(None, (where, ascii(member)[1:-1][:64])))
        return ConfigurationError(f"{self._name}, line {line}: {shown}: {text}")

    def tables(self, value: dict[str, Any], name: str) -> Iterator[tuple[int, dict[str, Any]]]:
        tables = value.get(name, [])
        headers = sum(1 for table, _, member in self._lines if table == name and not member)
        # A table in another notation has no line of its own, and could not be removed again.
        if type(tables) is not list or headers != len(tables) or (name in value and not tables):
            raise self.error(("", 0, name), f"begin every entry with the line [[{name}]]")
        for index, table in enumerate(tables):
            for member in sorted(table.keys() - _MEMBERS[name]):
                known = ", ".join(sorted(_MEMBERS[name]))
                raise self.error((name, index, member), f"unknown member; the members are {known}")
            yield index, table

    def entry(self, index: int, table: dict[str, Any]) -> TrustEntry:
        def here(member: str) -> _Place:
            return ("trust", index, member)

        source, text = self._source(index, table)
        kid = self._text(table, here("kid")) if "kid" in table else None
        alg = self._alg(table, here("alg"))
        try:
            keys = tuple(key if alg is None else key.with_alg(alg) for key in _keys_within(table, kid))
        except MalformedError as error:
            raise self.error(here(source), str(error)) from None
        except ConfigurationError as error:
            raise self.error(here("alg"), str(error)) from None
        starts = self._moment(table, here("not_before"), -math.inf)
        ends = self._moment(table, here("not_after"), math.inf)
        if not starts < ends:
            raise self.error(here("not_after"), "write a later moment than that of not_before")
        return TrustEntry(
            line=self._lines[here("")],
            origins=self._origins(table, here("origins")),
            name=self._checked(table, here("name"), check_party_name),
            signer=self._checked(table, here("signer"), signing_tool),
            not_before=starts,
            not_after=ends,
            kid=kid,
            keys=keys,
            file=text if source == "keys" else None,
            url=text if source == "jwks_url" else None,
            alg=alg,
        )

    def _source(self, index: int, table: dict[str, Any]) -> tuple[str, str | None]:
        """The member that has the keys or says where they are, and its text; None for a JWK, which is a table."""
        given = [source for source in _SOURCES if source in table]
        if len(given) != 1:
            place = ("trust", index, given[1] if given else "")
            raise self.error(place, f"write exactly one of {', '.join(_SOURCES)}")
        (source,) = given
        text = None if source == "jwk" else self._text(table, ("trust", index, source))
        if source == "jwks_url" and not _URL.fullmatch(text or ""):
            raise self.error(("trust", index, source), "write an https URL")
        if source == "jwks_url" and "kid" in table:
            raise self.error(("trust", index, "kid"), "the keys of a set have their own names; leave kid out")
        return source, text

    def check_names(self, entries: tuple[TrustEntry, ...]) -> None:
        """ConfigurationError for two entries with one name: two parties would look like one to a policy."""
        first: dict[str, TrustEntry] = {}
        for index, entry in enumerate(entries):
            if entry.name is not None and first.setdefault(entry.name, entry) is not entry:
                raise self.error(
                    ("trust", index, "name"),
                    f"the entry on line {first[entry.name].line} has this name already; put all keys of one party "
                    "into one entry (keys = FILE, or jwks_url), or choose another name",
                )

    def policy(self, index: int, table: dict[str, Any], entries: tuple[TrustEntry, ...]) -> OriginPolicy:
        here = ("policy", index, "parties")
        origins = self._hosts(table, ("policy", index, "origins"))
        parties = self._texts(table, here, 'name trust entries or thumbprints, as in ["bank", "auditor"]')
        names = {entry.name for entry in entries}
        for party in parties:
            if party not in names and not is_thumbprint(party):
                raise self.error(here, _no_party(party, entries))
        count = table.get("count", len(set(parties)))
        if type(count) is not int or not 1 <= count <= len(set(parties)):
            raise self.error(
                ("policy", index, "count"), f"write a number from 1 to {len(set(parties))}, the number of parties"
            )
        return OriginPolicy(origins=origins, policy=Threshold(count, frozenset(parties)))

    def revoked(self, index: int, table: dict[str, Any], entries: tuple[TrustEntry, ...]) -> RevokedKey:
        kid, thumbprint, entry, reason = (
            self._text(table, ("revoked", index, member)) if member in table else None
            for member in ("kid", "thumbprint", "entry", "reason")
        )
        if kid is None and thumbprint is None:
            raise self.error(("revoked", index, ""), "write the kid or the thumbprint of the key")
        if thumbprint is not None and not is_thumbprint(thumbprint):
            raise self.error(
                ("revoked", index, "thumbprint"), "write the RFC 7638 thumbprint: 43 letters, digits, - and _"
            )
        if entry is not None and not any(each.is_called(entry) for each in entries):
            raise self.error(
                ("revoked", index, "entry"), "no [[trust]] has this name or jwks_url; correct it, or leave it out"
            )
        at = self._moment(table, ("revoked", index, "at"), math.inf)
        return RevokedKey(
            kid=kid, thumbprint=thumbprint, entry=entry, at=None if at == math.inf else at, reason=reason or ""
        )

    def _origins(self, table: dict[str, Any], place: _Place) -> Origins | UnsafeAnyOrigin:
        any_host = table.get("unsafe_any_origin", False)
        if any_host is False:
            return self._hosts(table, place)
        if any_host is not True or "origins" in table:
            raise self.error((*place[:2], "unsafe_any_origin"), "write true, and remove origins")
        return UnsafeAnyOrigin()

    def _hosts(self, table: dict[str, Any], place: _Place) -> Origins:
        hosts = self._texts(table, place, 'name hosts, as in ["agent.example.com", "*.example.org"]')
        try:
            return Origins(*hosts)
        except ConfigurationError as error:
            raise self.error(place, str(error)) from None

    def _checked(self, table: dict[str, Any], place: _Place, check: Callable[[object], Any]) -> Any:
        """The member, or None if it is absent; an error of ``check`` gets the line of the member."""
        value = table.get(place[2])
        try:
            checked = None if value is None else check(value)
        except ConfigurationError as error:
            raise self.error(place, str(error).partition(": ")[2]) from None
        return value if checked is None else checked

    def _alg(self, table: dict[str, Any], place: _Place) -> str | None:
        if "alg" not in table:
            return None
        try:
            return algorithm_named(self._text(table, place)).name
        except ConfigurationError as error:
            raise self.error(place, str(error)) from None

    def _text(self, table: dict[str, Any], place: _Place) -> str:
        value = table.get(place[2])
        if type(value) is not str or not value:
            raise self.error(
                place, "write a text, in quotation marks" if place[2] in table else "it is missing; add it"
            )
        return value

    def _texts(self, table: dict[str, Any], place: _Place, advice: str) -> list[str]:
        value = table.get(place[2])
        if type(value) is not list or not value or not all(type(each) is str and each for each in value):
            raise self.error(place, advice)
        return value

    def _moment(self, table: dict[str, Any], place: _Place, default: float) -> float:
        if place[2] not in table:
            return default
        value = table[place[2]]
        if type(value) is date:
            value = datetime(value.year, value.month, value.day, tzinfo=UTC)
        if not isinstance(value, datetime) or value.tzinfo is None:
            raise self.error(place, "write a date, or a time with its zone: 2027-01-31 or 2027-01-31T12:00:00Z")
        try:
            return value.astimezone(UTC).timestamp()
        except OverflowError:
            raise self.error(place, "write a moment in the years 1 to 9999") from None


def _keys_within(table: dict[str, Any], kid: str | None) -> Iterator[PublicKey]:
    """The key that an entry itself has, as JWK or PEM."""
    if "jwk" in table:
        jwk = table["jwk"]
        yield public_key_from_jwk({**jwk, "kid": kid} if kid is not None and type(jwk) is dict else jwk)
    if "pem" in table:
        yield public_key_from_pem(table["pem"].encode(), kid=kid)


def _no_party(party: str, entries: tuple[TrustEntry, ...]) -> str:
    """The advice for a text that names no party."""
    for entry in entries:
        for key in entry.keys:
            if key.kid == party:
                return (
                    f"{ascii(party)[:80]} is a kid, which does not name a party, because the publisher of a key set "
                    f'chooses its kids; write the thumbprint of the key, "{key.thumbprint}", or give the entry on '
                    f"line {entry.line} a name and write that name"
                )
    return f"no [[trust]] has the name {ascii(party)[:80]}; write the name of an entry, or the thumbprint of a key"


_NAME: Final = r"(?:[A-Za-z0-9_-]+|\"[A-Za-z0-9_-]+\"|'[A-Za-z0-9_-]+')"
#: The beginning of a line that does not continue a value: the head of a table, or a member.
_BEGIN: Final = re.compile(
    rf"[ \t]*(?:\[\[?[ \t]*(?P<table>{_NAME})[ \t]*(?:\.[ \t]*(?P<part>{_NAME}))?|(?P<member>{_NAME})[ \t]*[.=])"
)
#: The tokens that show whether a line continues a value.
_TOKEN: Final = re.compile(
    r'''#[^\n]*|"""(?:\\.|[^\\])*?"""+|\'\'\'.*?\'\'\'+|"(?:\\.|[^"\\])*"|\'[^\']*\'|[\[{]|[\]}]|\n''', re.DOTALL
)


def places(text: str) -> Iterator[tuple[_Place, int]]:
    """The first line of every table and of every member. tomllib has accepted the text, but does not report lines.

    A table within a table, ``[trust.jwk]``, counts as a member.
    """
    table, index, is_within = "", 0, False
    numbers: dict[str, int] = {}
    number, depth = 1, 0
    for begins, token in chain([(0, "")], ((match.end(), match[0]) for match in _TOKEN.finditer(text))):
        number += token.count("\n")
        depth += (token in ("[", "{")) - (token in ("]", "}"))
        if token.strip() or depth or not (match := _BEGIN.match(text, begins)):
            continue
        if match["table"] is not None:
            table = match["table"].strip("\"'")
            is_within = match["part"] is not None
            if not is_within:
                numbers[table] = numbers.get(table, -1) + 1
            index = numbers.get(table, 0)
            yield (table, index, match["part"].strip("\"'") if is_within else ""), number
        elif not is_within:
            yield (table, index, match["member"].strip("\"'")), number


def comments(text: str) -> Iterator[int]:
    """The lines with comments; a ``#`` within a text does not begin a comment."""
    number = 1
    for match in _TOKEN.finditer(text):
        if match[0].startswith("#"):
            yield number
        number += match[0].count("\n")


class TrustFile:
    """The trusted keys of a trust file, for programs that run while people edit the file.

    The trust file, and the key files that it names, are read again after they change. If a file is then unreadable or
    wrong, the content that was read last stays in use, and the log says so. A revocation in a wrong file counts only
    after the file is corrected.
    """

    def __init__(self, path: Path | str, *, fetcher: Fetcher | None = None) -> None:
        """Read the file. ``fetcher`` fetches the key sets of ``jwks_url``; a file without them needs no fetcher.

        FileNotFoundError, OSError: a file cannot be read. ConfigurationError: its content is wrong; the text names the
        line and the member.
        """
        self._path, self._fetcher = Path(path), fetcher
        self._fetched: dict[str, tuple[PublicKey, ...]] = {}
        #: Not a BoundedCache: the file limits its size, and a dropped key set would be fetched again for each card.
        self._caches: dict[str, JwksCache] = {}
        #: Held while the store is made from one state of the file: otherwise threads could lose a revocation.
        self._lock = Lock()
        self._watched = Watched(
            self._read,
            lambda: {path: stamp_of_path(path) for path in self._paths},
            failures=(ConfigurationError, OSError),
            tell=log_outcome(_log, f"the trust file {path}"),
        )

    @property
    def document(self) -> TrustDocument:
        """The content of the file."""
        return self._watched.value()

    def trust_store(self) -> TrustStore:
        """The trusted keys: those in the file now, and those of the key sets that ``fetch`` fetched last."""
        self._watched.value()
        return self._store

    async def fetch(self, origin: str | None = None) -> TrustStore:
        """Fetch the key sets for a host again if they are too old, and return the trusted keys.

        ``origin`` is a URL or host; without it all key sets are fetched. Their servers say how long they are fresh.
        KeySourceUnavailableError: a key set cannot be fetched now; ``trust_store`` returns the other keys.
        """
        document = self.document
        host = None if origin is None else host_of(origin)
        entries = [entry for entry in document.entries if host is None or entry.origins.covers(host)]
        urls = list(dict.fromkeys(entry.url for entry in entries if entry.url is not None))
        came: dict[str, tuple[PublicKey, ...]] = {}
        missing = []
        for url in urls:
            try:
                came[url] = await self._cache(url).keys()
            except KeySourceUnavailableError as error:
                missing.append(str(error))
        self._watched.value()  # a key may have been revoked meanwhile
        with self._lock:
            # A key set that was not fetched is too old. Make a new dict: another thread may iterate over the old one.
            known = {url: keys for url, keys in self._fetched.items() if url not in urls} | came
            fetched = {url: known[url] for url in self._document.urls if url in known}
            if self._fetched != fetched:
                self._fetched = fetched
                self._store = self._document.store(self._files, fetched)
            store = self._store
        if missing:
            raise KeySourceUnavailableError("; ".join(missing))
        return store

    def _cache(self, url: str) -> JwksCache:
        cache = self._caches.get(url)
        if cache is None:
            if self._fetcher is None:
                raise ConfigurationError(f"{self._path}: it names key sets on the network; pass fetcher=Fetcher()")
            from a2a_trust.keys.jwks_cache import JwksCache  # imports asyncio, which files do not need

            cache = self._caches[url] = JwksCache(self._fetcher.loader(url, configured=True), name=url)
        return cache

    def _read(self) -> tuple[TrustDocument, dict[Path, Stamp | None]]:
        # Take the stamp before reading, so that a change in between is noticed the next time.
        stamps: dict[Path, Stamp | None] = {self._path: stamp_of_path(self._path)}
        document = load_trust(self._path)
        if document.urls and self._fetcher is None:
            raise ConfigurationError(f"{self._path}: it names key sets on the network; pass fetcher=Fetcher()")
        files: dict[str, KeySet] = {}
        for entry in document.entries:
            if entry.file is None:
                continue
            path = self._path.parent / entry.file
            stamps[path] = stamp_of_path(path)
            files[entry.file] = keys_of_file(entry, path, f"{self._path}, line {entry.line}")
        with self._lock:
            self._document, self._files, self._paths = document, files, tuple(stamps)
            self._fetched = {url: keys for url, keys in self._fetched.items() if url in document.urls}
            self._caches = {url: self._caches[url] for url in document.urls if url in self._caches}
            self._store = document.store(files, self._fetched)
        return document, stamps


def keys_of_file(entry: TrustEntry, path: Path, where: str) -> KeySet:
    """The keys in the file of an entry, and the keys that it revokes; ``where`` is the line of the trust file that
    names it, for errors."""
    try:
        found = read_public_keys(_content(path), kid=entry.kid)
    except (MalformedError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(f"{where}: {path}: {reason}") from None
    if not found.keys and not found.revoked:
        raise ConfigurationError(f"{where}: {path}: no key in this JWK Set can verify a card; name another file")
    for skipped in found.skipped:
        _log.warning("%s: %s: skipped key %d: %s", where, path, skipped.index, skipped.reason)
    fitting = replace(found, keys=tuple(entry.fitting(found.keys)))
    if not fitting.keys and not found.revoked:
        raise ConfigurationError(f"{where}: {path}: no key in it is for {entry.alg}, the alg of the entry; change alg")
    return fitting


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        check_writers(os.fstat(file.fileno()), path, "change which keys are trusted")
        return file.read(MAX_BYTES + 1)
