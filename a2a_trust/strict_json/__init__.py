"""A strict JSON reader, canonical JSON (RFC 8785) and JSON pointers (RFC 6901)."""

from a2a_trust.strict_json.reader import (
    JSON,
    MAX_BYTES,
    MAX_DEPTH,
    JSONObject,
    Plain,
    has_plain_names,
    is_too_deep,
    parse,
    parse_printed,
    read,
    read_members,
    read_numbers,
)

__all__ = [
    "JSON",
    "MAX_BYTES",
    "MAX_DEPTH",
    "JSONObject",
    "Plain",
    "has_plain_names",
    "is_too_deep",
    "parse",
    "parse_printed",
    "read",
    "read_members",
    "read_numbers",
]
