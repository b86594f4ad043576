"""Delivery with httpx2. Its rules are in ``delivery``."""

from __future__ import annotations

import httpx2

from a2a_trust.push.delivery import Delivering, Signing


class PushTransport(Delivering, httpx2.AsyncBaseTransport):
    _response = httpx2.Response


class SignedPush(Signing, httpx2.Auth):
    """As ``delivery.Signing``."""
