"""The OpenID provider that these tests talk to, started once."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.real.openid_provider import OpenIdProvider, ProviderUnavailableError, provider_environment


@pytest.fixture(scope="package")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenIdProvider]:
    try:
        environment = provider_environment()
    except ProviderUnavailableError as error:
        if os.environ.get("A2A_TRUST_REQUIRE_REAL") == "1":
            pytest.fail(f"A2A_TRUST_REQUIRE_REAL=1 and no OpenID provider: {error}")
        pytest.skip(f"NO OPENID PROVIDER: {error}")
    running = OpenIdProvider(environment, tmp_path_factory.mktemp("provider"))
    yield running
    running.close()
