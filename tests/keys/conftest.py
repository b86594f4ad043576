"""One RSA key for all tests of this folder, and no property that is false on a slow machine."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def rsa_key() -> rsa.RSAPrivateKey:
    """Made once: making one takes longer than most tests."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)
