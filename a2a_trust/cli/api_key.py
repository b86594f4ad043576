"""``a2a-sign api-key``: make, import, list, rotate and revoke the API keys in a store."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from typing import Any

from a2a_trust.auth.api_key.verifier import ApiKeyRecord, IssuedApiKey, MemoryApiKeys
from a2a_trust.auth.records import Issued
from a2a_trust.cli.issuing import SecretActions, names_in, read_secret, state_of
from a2a_trust.cli.moments import duration, rfc3339
from a2a_trust.cli.stores import ApiKeys, api_keys
from a2a_trust.errors import ConfigurationError


def run(options: argparse.Namespace) -> dict[str, Any] | None:
    return _ApiKeyActions(options).run()


class _ApiKeyActions(SecretActions[ApiKeyRecord]):
    kind = "key"
    person = "owner"
    name = "key_id"
    named_by = ""
    headings = ("ID", "OWNER", "STATE", "EXPIRES", "LAST USED", "SCOPES")

    def store(self, *, create: bool = False) -> ApiKeys:
        return api_keys(self.options.store, create=create)

    def issue(self, name: str, expires: float) -> IssuedApiKey:
        options = self.options
        return MemoryApiKeys().create(owner=name, scopes=options.scope, expires=expires, prefix=options.prefix)

    def imported(self, expires: float) -> ApiKeyRecord:
        options = self.options
        return MemoryApiKeys().import_key(
            read_secret(options.file, "API key"),
            owner=options.owner,
            scopes=options.scope,
            expires=expires,
            prefix=options.prefix,
        )

    def rotated(self, store: ApiKeys, expires: float | None) -> IssuedApiKey:
        overlap = duration(self.options.overlap, "--overlap")
        return store.rotate(self.options.id, overlap=overlap, expires=expires)

    def revoked(self, store: ApiKeys) -> Iterable[ApiKeyRecord]:
        owner, ids = self.options.owner, self.options.ids
        if (owner is None) == (not ids):
            raise ConfigurationError("name the keys: IDs, or - to read them from standard input, or --owner NAME")
        if owner is None:
            return store.revoke_all(names_in("-") if ids == ["-"] else ids)
        while left := [each.key_id for each in store.records(owner=owner) if each.revoked is None]:
            store.revoke_all(left)  # once more if somebody has rotated one meanwhile
        records = store.records(owner=owner)
        if not records:
            raise ConfigurationError("--owner: no key is of this owner; list the keys to see the owners")
        return records

    def entry_of(self, record: ApiKeyRecord) -> dict[str, Any]:
        return {
            "id": record.key_id,
            "owner": record.owner,
            "scopes": sorted(record.scopes),
            "state": state_of(record),
            "created": rfc3339(record.created),
            "expires": rfc3339(record.expires),
            "revoked": rfc3339(record.revoked),
            "last_used": rfc3339(record.last_used),
            "replaced_by": record.replaced_by,
            "imported": record.imported,
        }

    def about(self, issued: Issued[ApiKeyRecord], store: ApiKeys) -> tuple[dict[str, Any], list[str]]:
        """The number of other keys that name the same caller now, which shows if two people chose one owner's name;
        and the key that this one replaces."""
        record, now, notes = issued.record, time.time(), list[str]()
        of_owner = store.records(owner=record.owner)
        others = sum(other.key_id != record.key_id and other.is_good(now) for other in of_owner)
        members: dict[str, Any] = {"other_keys": others}
        if others:
            verb = "key of this owner is" if others == 1 else "keys of this owner are"
            notes.append(f"note: {others} more {verb} valid; all keys of an owner name the same caller")
        for old in (other for other in of_owner if other.replaced_by == record.key_id):
            members["replaces"] = {"id": old.key_id, "expires": rfc3339(old.expires)}
            notes.append(f"{old.key_id}, which it replaces, is valid until {rfc3339(old.expires)}")
        return members, notes
