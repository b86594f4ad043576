"""Delivery with httpx. Its rules are in ``delivery``."""

from __future__ import annotations

import httpx

from a2a_trust.push.delivery import Delivering, Signing


class PushTransport(Delivering, httpx.AsyncBaseTransport):
    _response = httpx.Response


class SignedPush(Signing, httpx.Auth):
    """As ``delivery.Signing``."""
