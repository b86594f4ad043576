"""A plugin of pytest: tests that import httpx get httpx2, and the door of a client for it (`-p tests.with_httpx2`).

It is for processes of their own, which tests/client/test_httpx2.py starts: a test module is imported once in a process.
"""

from __future__ import annotations

import sys

import httpx2

from a2a_trust.client import httpx2 as door

__all__: list[str] = []

sys.modules |= {"httpx": httpx2, "a2a_trust.client.httpx": door}
