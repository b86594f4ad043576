"""A strict JSON reader, canonical JSON (RFC 8785) and JSON pointers (RFC 6901)."""

from a2a_trust.base.strict_json.reader import JSON as JSON, MAX_BYTES as MAX_BYTES, MAX_DEPTH as MAX_DEPTH
from a2a_trust.base.strict_json.reader import JSONObject as JSONObject, Plain as Plain, is_too_deep as is_too_deep
from a2a_trust.base.strict_json.reader import has_plain_names as has_plain_names, parse as parse, read as read
from a2a_trust.base.strict_json.reader import parse_printed as parse_printed, read_members as read_members
from a2a_trust.base.strict_json.reader import read_numbers as read_numbers
