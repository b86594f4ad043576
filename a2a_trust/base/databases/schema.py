"""The tables in PostgreSQL, and how the tables of one release become the tables of the next.

Each migration is a step of its own transaction, and no step is ever changed. ``schema_version`` says which step was
done last, and with which oldest release the tables still work: during an upgrade, servers of both releases run.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class WrongTables(Exception):  # noqa: N818  never leaves this package
    """The tables are of another release; the text says what to do."""


class Migration(NamedTuple):
    """One step between versions of the tables. Programs for version ``works_from`` can still use its result."""

    sql: str
    works_from: int


_REVISION: Final = """
CREATE TABLE a2a_trust.{table}_revision (value uuid NOT NULL DEFAULT gen_random_uuid());
INSERT INTO a2a_trust.{table}_revision DEFAULT VALUES;
CREATE FUNCTION a2a_trust.{table}_changed() RETURNS trigger LANGUAGE plpgsql SET search_path = '' AS $$
BEGIN
    UPDATE a2a_trust.{table}_revision SET value = gen_random_uuid();
    PERFORM pg_notify('a2a_trust_{table}', '');
    RETURN NULL;
END $$;
CREATE TRIGGER changed AFTER INSERT OR DELETE OR UPDATE OF {columns} ON a2a_trust.{table}
    FOR EACH STATEMENT EXECUTE FUNCTION a2a_trust.{table}_changed();
CREATE TRIGGER emptied AFTER TRUNCATE ON a2a_trust.{table}
    FOR EACH STATEMENT EXECUTE FUNCTION a2a_trust.{table}_changed();
"""

_API_KEYS: Final = """
CREATE SCHEMA a2a_trust;
CREATE TABLE a2a_trust.schema_version (version integer NOT NULL, works_from integer NOT NULL);
INSERT INTO a2a_trust.schema_version VALUES (0, 0);

CREATE TABLE a2a_trust.api_key (
    id text COLLATE "C" NOT NULL PRIMARY KEY,
    digest bytea NOT NULL UNIQUE CHECK (length(digest) = 32),
    owner text COLLATE "C" NOT NULL,
    scopes text NOT NULL,
    created double precision NOT NULL,
    expires double precision NOT NULL,
    revoked double precision,
    replaced_by text,
    imported boolean NOT NULL,
    last_used double precision
);
CREATE INDEX api_key_owner ON a2a_trust.api_key (owner);
"""

#: "C" is the order of bytes. An index in the order of a language is wrong after an upgrade of the system's libraries,
#: and then records are not found, and every card is a first one.
_PROOFS_AND_CARDS: Final = """
CREATE TABLE a2a_trust.proof (
    digest bytea NOT NULL PRIMARY KEY CHECK (length(digest) = 16),
    attempt bytea NOT NULL CHECK (length(attempt) = 16),
    issued double precision NOT NULL,
    ends double precision NOT NULL
);
CREATE INDEX proof_ends ON a2a_trust.proof (ends);
CREATE TABLE a2a_trust.proof_store (
    only_row boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (only_row),
    server text NOT NULL,
    since double precision NOT NULL,
    dropped double precision NOT NULL
);

CREATE TABLE a2a_trust.card (
    location text COLLATE "C" NOT NULL PRIMARY KEY CHECK (location ~ '^https?://'),
    host text COLLATE "C" NOT NULL CHECK (length(host) > 0),
    thumbprints text COLLATE "C" NOT NULL CHECK (thumbprints ~ '^[A-Za-z0-9_-]{43}( [A-Za-z0-9_-]{43})*$'),
    issued double precision,
    version json CHECK (json_typeof(version) = 'string'),
    first_seen double precision NOT NULL,
    last_seen double precision NOT NULL,
    on_first_use boolean NOT NULL
);
CREATE INDEX card_host ON a2a_trust.card (host);
"""

_CARD_INTERFACES: Final = """
CREATE TABLE a2a_trust.card_interface (
    digest text COLLATE "C" NOT NULL PRIMARY KEY CHECK (digest ~ '^[A-Za-z0-9_-]{43}$'),
    location text COLLATE "C" NOT NULL REFERENCES a2a_trust.card ON DELETE CASCADE
);
CREATE INDEX card_interface_location ON a2a_trust.card_interface (location);
"""

_KEY_COLUMNS: Final = "id, digest, owner, scopes, created, expires, revoked, replaced_by, imported"

MIGRATIONS: Final = (
    Migration(_API_KEYS + _REVISION.format(table="api_key", columns=_KEY_COLUMNS) + _PROOFS_AND_CARDS, works_from=1),
    Migration(_CARD_INTERFACES, works_from=1),
)
VERSION: Final = len(MIGRATIONS)
VERSION_QUERY: Final = "SELECT version, works_from FROM a2a_trust.schema_version"


def check_version(version: int | None, works_from: int | None, shown: str) -> None:
    """WrongTables: this release does not know tables of that version. ``shown`` is the URL for people."""
    if version is None or works_from is None or version < VERSION:
        raise WrongTables(
            f"the tables of a2a-trust in {shown} are of an older release; run: a2a-sign database migrate {shown}"
        )
    if works_from > VERSION:
        raise WrongTables(
            f"the tables of a2a-trust in {shown} are of a newer release, with which this one does not work; "
            "install the newer release"
        )
