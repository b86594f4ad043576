"""The OpenID provider that these tests talk to, started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real.openid_provider import OpenIdProvider, running_provider


@pytest.fixture(scope="package")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenIdProvider]:
    with running_provider(tmp_path_factory.mktemp("provider")) as running:
        yield running
