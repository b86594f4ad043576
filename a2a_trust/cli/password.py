"""``a2a-sign password``: make, import, list, rotate and revoke the passwords in a store."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from a2a_trust.auth.basic.records import IssuedPassword, MemoryPasswords, PasswordRecord
from a2a_trust.auth.basic.user_pass import normalize
from a2a_trust.auth.record_table import SqlitePasswords
from a2a_trust.auth.records import Issued
from a2a_trust.base.databases.availability import is_database_url
from a2a_trust.cli.issuing import SecretActions, names_in, read_secret, state_of
from a2a_trust.cli.moments import rfc3339
from a2a_trust.errors import ConfigurationError


def run(options: argparse.Namespace) -> dict[str, Any] | None:
    return _PasswordActions(options).run()


class _PasswordActions(SecretActions[PasswordRecord]):
    kind = "password"
    person = name = "user"
    named_by = "--user "
    headings = ("USER", "STATE", "CHANGED", "EXPIRES", "SCOPES")

    def store(self, *, create: bool = False) -> SqlitePasswords:
        if is_database_url(self.options.store):
            raise ConfigurationError("--store: passwords are stored in files; write the name of a file, not a URL")
        return SqlitePasswords(self.options.store, create=create)

    def issue(self, name: str, expires: float) -> IssuedPassword:
        return MemoryPasswords().create(user=name, scopes=self.options.scope, expires=expires)

    def imported(self, expires: float) -> PasswordRecord:
        options = self.options
        return MemoryPasswords().import_password(
            read_secret(options.file, "password", twice=True), user=options.user, scopes=options.scope, expires=expires
        )

    def rotated(self, store: SqlitePasswords, expires: float | None) -> IssuedPassword:
        return store.rotate(self.options.user, expires=expires)

    def revoked(self, store: SqlitePasswords) -> Iterable[PasswordRecord]:
        users = [self.options.user] if self.options.names is None else names_in(self.options.names)
        return store.revoke_all(map(normalize, users))

    def entry_of(self, record: PasswordRecord) -> dict[str, Any]:
        return {
            "user": record.user,
            "scopes": sorted(record.scopes),
            "state": state_of(record),
            "created": rfc3339(record.created),
            "changed": rfc3339(record.changed),
            "expires": rfc3339(record.expires),
            "revoked": rfc3339(record.revoked),
        }

    def about(
        self,
        issued: Issued[PasswordRecord],
        store: SqlitePasswords,  # noqa: ARG002
    ) -> tuple[dict[str, Any], list[str]]:
        before = issued.replaces
        if before is None:
            return {}, []
        if before.is_good(issued.record.changed):
            return {}, ["running servers reject the old one within 2 seconds, unless they set another refresh"]
        return {}, ["note: the user had a password before, which is no longer valid; both name the same caller"]
