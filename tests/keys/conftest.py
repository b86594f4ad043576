"""One RSA key for all tests of this folder."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa


@pytest.fixture(scope="session")
def rsa_key() -> rsa.RSAPrivateKey:
    """Made once: making one takes longer than most tests."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)
