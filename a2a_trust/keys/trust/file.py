"""The trust file: which keys are trusted for which hosts, in a TOML file that people edit.

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
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from a2a_trust.base.files.watched import Stamp, Watched, check_writers, log_outcome, missing_file, stamp_of_path
from a2a_trust.base.strict_json import MAX_BYTES
from a2a_trust.errors import ConfigurationError, KeySourceUnavailableError, MalformedError
from a2a_trust.keys.algorithms import algorithm_named
from a2a_trust.keys.jwk import KeySet, PublicKey, public_key_from_jwk, public_key_from_pem, read_public_keys
from a2a_trust.keys.trust.origins import Origins, UnsafeAnyOrigin, host_of
from a2a_trust.keys.trust.policy import OriginPolicy, Threshold, is_thumbprint, party_name
from a2a_trust.keys.trust.store import SigningTool, TrustedKey, TrustStore, signing_tool

if TYPE_CHECKING:
    from a2a_trust.base.net.fetcher import Fetcher
    from a2a_trust.keys.trust.jwks_cache import JwksCache

_log: Final = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0
"""A change counts after this time at most. To look at 1,000 key files takes as long as 50 verifications."""
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

_NAME: Final = r"(?:[A-Za-z0-9_-]+|\"[A-Za-z0-9_-]+\"|'[A-Za-z0-9_-]+')"
#: The beginning of a line that does not continue a value: the head of a table, or a member.
_BEGIN: Final = re.compile(
    rf"[ \t]*(?:\[\[?[ \t]*(?P<table>{_NAME})[ \t]*(?:\.[ \t]*(?P<part>{_NAME}))?|(?P<member>{_NAME})[ \t]*[.=])"
)
#: The tokens that show whether a line continues a value.
_TOKEN: Final = re.compile(
    r'''#[^\n]*|"""(?:\\.|[^\\])*?"""+|\'\'\'.*?\'\'\'+|"(?:\\.|[^"\\])*"|\'[^\']*\'|[\[{]|[\]}]|\n''', re.DOTALL
)

_Place: TypeAlias = tuple[str, int, str]
"""The name of a table, its number from 0, and a member of it, or "" for the table itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustEntry:
    """A ``[[trust]]`` entry: keys, or their source, and the limits of the trust in them. ``line`` is its first line."""

    line: int = field(compare=False)
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

    def trusted_keys(self, keys: tuple[PublicKey, ...], revoked: frozenset[str] = frozenset()) -> list[TrustedKey]:
        """These keys for the ``alg`` of the entry, with its trust. A kid or thumbprint in ``revoked`` revokes a key."""
        return [
            TrustedKey(
                key=key,
                origins=self.origins,
                signer=self.signer,
                name=self.name,
                not_before=self.not_before,
                not_after=self.not_after,
                revoked=not revoked.isdisjoint((key.kid, key.thumbprint)),
                source=self.url,
            )
            for key in self.keys_for_alg(keys)
        ]

    def is_called(self, text: str | None) -> bool:
        """Whether the text is the entry's name or the URL of its key set."""
        return text is not None and text in (self.name, self.url)

    def keys_for_alg(self, keys: tuple[PublicKey, ...]) -> Iterator[PublicKey]:
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

    @property
    def name(self) -> str:
        """The thumbprint that it revokes, or else the kid."""
        return self.thumbprint or self.kid or ""

    def revokes_all_of(self, other: RevokedKey) -> bool:
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
        return not any(known.revokes_all_of(key) for known in self.revoked)

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
            # The publisher of a key set chooses its kids, so a revocation in one entry must not affect other entries.
            in_entry = frozenset(key.name for key in self.revoked if entry.is_called(key.entry))
            trusted += entry.trusted_keys(keys, in_entry)
        for mistake in filter(None, [key.mistake(listed) for key in self.revoked]):
            _log.warning(
                "%s: [[revoked]]: %s. Ask its owner; if the key is another one, remove the kid", self.name, mistake
            )
        return TrustStore(
            trusted,
            self.policies,
            spoken_for=[entry.origins for entry in self.entries],
            revoked=chain(
                [key.name for key in self.revoked if key.entry is None],
                *[key_set.revoked for key_set in files.values()],
            ),
            names=[entry.name for entry in self.entries if entry.name is not None],
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
    lines = dict(reversed(list(places(decoded))))
    whole = _Table(name, lines, "", 0, value)
    if value.get("version") != _VERSION or type(value["version"]) is not int:
        raise whole.error("version", f"write version = {_VERSION} above the tables")
    for member in value.keys() - {"version", *_MEMBERS}:
        raise whole.error(member, f"unknown member; the tables are {', '.join(f'[[{each}]]' for each in _MEMBERS)}")
    tables = tuple(whole.tables("trust"))
    entries = tuple(map(_read_entry, tables))
    _check_names(tables, entries)
    return TrustDocument(
        name=name,
        entries=entries,
        policies=tuple(_read_policy(table, entries) for table in whole.tables("policy")),
        revoked=tuple(_read_revoked(table, entries) for table in whole.tables("revoked")),
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


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of the file. Its methods read one member each; their ConfigurationError names the line of the member."""

    file: str
    lines: Mapping[_Place, int]
    name: str
    index: int
    members: Mapping[str, Any]

    def error(self, member: str, text: str) -> ConfigurationError:
        place = (self.name, self.index, member)
        line = self.lines.get(place) or self.lines.get((self.name or member, self.index, ""), 1)
        where = f"{self.name}[{self.index}]" if self.name else ""
        shown = ".".join(filter(None, (where, ascii(member)[1:-1][:64])))
        return ConfigurationError(f"{self.file}, line {line}: {shown}: {text}")

    def tables(self, name: str) -> Iterator[_Table]:
        """The tables with that name, which have known members only."""
        tables = self.members.get(name, [])
        headers = sum(1 for table, _, member in self.lines if table == name and not member)
        # A table in another notation has no line of its own, and could not be removed again.
        if type(tables) is not list or headers != len(tables) or (name in self.members and not tables):
            raise self.error(name, f"begin every entry with the line [[{name}]]")
        for index, members in enumerate(tables):
            table = _Table(self.file, self.lines, name, index, members)
            for member in sorted(members.keys() - _MEMBERS[name]):
                known = ", ".join(sorted(_MEMBERS[name]))
                raise table.error(member, f"unknown member; the members are {known}")
            yield table

    def text(self, member: str) -> str:
        value = self.members.get(member)
        if type(value) is not str or not value:
            known = member in self.members
            raise self.error(member, "write a text, in quotation marks" if known else "it is missing; add it")
        return value

    def optional_text(self, member: str) -> str | None:
        return self.text(member) if member in self.members else None

    def texts(self, member: str, advice: str) -> list[str]:
        value = self.members.get(member)
        if type(value) is not list or not value or not all(type(each) is str and each for each in value):
            raise self.error(member, advice)
        return value

    def hosts(self) -> Origins:
        hosts = self.texts("origins", 'name hosts, as in ["agent.example.com", "*.example.org"]')
        try:
            return Origins(*hosts)
        except ConfigurationError as error:
            raise self.error("origins", str(error)) from None

    def moment(self, member: str, default: float) -> float:
        value = self.members.get(member)
        if value is None:
            return default
        if type(value) is date:
            value = datetime(value.year, value.month, value.day, tzinfo=UTC)
        if not isinstance(value, datetime) or value.tzinfo is None:
            raise self.error(member, "write a date, or a time with its zone: 2027-01-31 or 2027-01-31T12:00:00Z")
        try:
            return value.astimezone(UTC).timestamp()
        except OverflowError:
            raise self.error(member, "write a moment in the years 1 to 9999") from None

    def convert(self, member: str, convert: Callable[[Any], Any]) -> Any:
        """The result of ``convert`` for the member; None if it is absent."""
        value = self.members.get(member)
        try:
            return None if value is None else convert(value)
        except ConfigurationError as error:
            raise self.error(member, str(error).removeprefix(f"{member}: ")) from None


def _read_entry(table: _Table) -> TrustEntry:
    source, text = _read_source(table)
    kid, alg = table.optional_text("kid"), table.optional_text("alg")
    try:
        alg = None if alg is None else algorithm_named(alg).name
        keys = tuple(key if alg is None else key.with_alg(alg) for key in _keys_within(table.members, kid))
    except MalformedError as error:
        raise table.error(source, str(error)) from None
    except ConfigurationError as error:
        raise table.error("alg", str(error)) from None
    starts, ends = table.moment("not_before", -math.inf), table.moment("not_after", math.inf)
    if not starts < ends:
        raise table.error("not_after", "write a later moment than not_before")
    any_host = table.members.get("unsafe_any_origin", False)
    if any_host is not False and (any_host is not True or "origins" in table.members):
        raise table.error("unsafe_any_origin", "write true, and remove origins")
    return TrustEntry(
        line=table.lines["trust", table.index, ""],
        origins=UnsafeAnyOrigin() if any_host else table.hosts(),
        name=table.convert("name", party_name),
        signer=table.convert("signer", signing_tool),
        not_before=starts,
        not_after=ends,
        kid=kid,
        keys=keys,
        file=text if source == "keys" else None,
        url=text if source == "jwks_url" else None,
        alg=alg,
    )


def _read_source(table: _Table) -> tuple[str, str | None]:
    """The member that has the keys or says where they are, and its text; None for a JWK, which is a table."""
    given = [source for source in _SOURCES if source in table.members]
    if len(given) != 1:
        raise table.error(given[1] if given else "", f"write exactly one of {', '.join(_SOURCES)}")
    (source,) = given
    text = None if source == "jwk" else table.text(source)
    if source == "jwks_url" and not _URL.fullmatch(text or ""):
        raise table.error(source, "write an https URL")
    if source == "jwks_url" and "kid" in table.members:
        raise table.error("kid", "the keys of a set have their own names; leave kid out")
    return source, text


def _check_names(tables: tuple[_Table, ...], entries: tuple[TrustEntry, ...]) -> None:
    """ConfigurationError for two entries with one name: two parties would look like one to a policy."""
    first: dict[str, TrustEntry] = {}
    for table, entry in zip(tables, entries, strict=True):
        if entry.name is not None and first.setdefault(entry.name, entry) is not entry:
            raise table.error(
                "name",
                f"the entry on line {first[entry.name].line} has this name already; put all keys of one party into "
                "one entry (keys = FILE, or jwks_url), or choose another name",
            )


def _read_policy(table: _Table, entries: tuple[TrustEntry, ...]) -> OriginPolicy:
    origins = table.hosts()
    parties = table.texts("parties", 'name trust entries or thumbprints, as in ["bank", "auditor"]')
    names = {entry.name for entry in entries}
    for party in parties:
        if party not in names and not is_thumbprint(party):
            raise table.error("parties", _no_party(party, entries))
    most = len(set(parties))
    count = table.members.get("count", most)
    if type(count) is not int or not 1 <= count <= most:
        raise table.error("count", f"write a number from 1 to {most}, the number of parties")
    return OriginPolicy(origins=origins, policy=Threshold(count, frozenset(parties)))


def _read_revoked(table: _Table, entries: tuple[TrustEntry, ...]) -> RevokedKey:
    kid, thumbprint, entry, reason = map(table.optional_text, ("kid", "thumbprint", "entry", "reason"))
    if kid is None and thumbprint is None:
        raise table.error("", "write the kid or the thumbprint of the key")
    if thumbprint is not None and not is_thumbprint(thumbprint):
        raise table.error("thumbprint", "write the RFC 7638 thumbprint: 43 letters, digits, - and _")
    if entry is not None and not any(each.is_called(entry) for each in entries):
        raise table.error("entry", "no [[trust]] has this name or jwks_url; correct it, or leave it out")
    at = table.moment("at", math.inf)
    return RevokedKey(
        kid=kid, thumbprint=thumbprint, entry=entry, at=None if at == math.inf else at, reason=reason or ""
    )


def _keys_within(table: Mapping[str, Any], kid: str | None) -> Iterator[PublicKey]:
    if "jwk" in table:
        jwk = table["jwk"]
        yield public_key_from_jwk({**jwk, "kid": kid} if kid is not None and type(jwk) is dict else jwk)
    if "pem" in table:
        yield public_key_from_pem(table["pem"].encode(), kid=kid)


def _no_party(party: str, entries: tuple[TrustEntry, ...]) -> str:
    for entry in entries:
        for key in entry.keys:
            if key.kid == party:
                return (
                    f"{ascii(party)[:80]} is a kid, which does not name a party, because the publisher of a key set "
                    f'chooses its kids; write the thumbprint of the key, "{key.thumbprint}", or give the entry on '
                    f"line {entry.line} a name and write that name"
                )
    return f"no [[trust]] has the name {ascii(party)[:80]}; write the name of an entry, or the thumbprint of a key"


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

    The trust file, and the key files that it names, are read again after they change: a change, also a revocation,
    counts within one second, however many files there are. If a file is then unreadable or wrong, the content that was
    read last stays in use, and the log says so. A revocation in a wrong file counts only after the file is corrected.
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
            every=_LOOK_SECONDS,
        )

    @property
    def document(self) -> TrustDocument:
        return self._watched.value()

    def trust_store(self) -> TrustStore:
        """The trusted keys: from the file as it was a second ago or later, and from what ``fetch`` fetched last."""
        self._watched.value()
        return self._store

    async def fetch(self, origin: str | None = None) -> TrustStore:
        """Fetch the key sets for a host again if they are too old, and return the trusted keys.

        ``origin`` is a URL or host; without it all key sets are fetched. Their servers say how long they are fresh.
        KeySourceUnavailableError: a key set cannot be fetched now; ``trust_store`` returns the other keys.
        """
        document = self.document
        host = None if origin is None else host_of(origin)
        urls = dict.fromkeys(
            each.url for each in document.entries if each.url and (host is None or each.origins.covers(host))
        )
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
            from a2a_trust.keys.trust.jwks_cache import JwksCache  # imports asyncio, which files do not need

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
    fitting = replace(found, keys=tuple(entry.keys_for_alg(found.keys)))
    if not fitting.keys and not found.revoked:
        raise ConfigurationError(f"{where}: {path}: no key in it is for {entry.alg}, the alg of the entry; change alg")
    return fitting


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        check_writers(os.fstat(file.fileno()), path, "change which keys are trusted")
        return file.read(MAX_BYTES + 1)
