"""The SDKs that the interop tests run, each started once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.interop.sdk_process import SdkProcess, SdkUnavailableError, node_sdk, python_sdk
from tests.tiers import missing


def _running(name: str, start: Callable[[str], SdkProcess]) -> Iterator[SdkProcess]:
    try:
        process = start(name)
    except SdkUnavailableError as error:
        missing(f"the SDK {name} ({error})", "real-sdks")
    with process:
        yield process


@pytest.fixture(scope="session")
def python_1_3_0() -> Iterator[SdkProcess]:
    """a2a-sdk 1.3.0: RFC 8785 over the pruned form."""
    yield from _running("python-1.3.0", python_sdk)


@pytest.fixture(scope="session")
def python_1_1_3() -> Iterator[SdkProcess]:
    """a2a-sdk 1.1.3: the last one with json.dumps over the pruned form."""
    yield from _running("python-1.1.3", python_sdk)


@pytest.fixture(scope="session")
def python_1_0_0() -> Iterator[SdkProcess]:
    """a2a-sdk 1.0.0: json.dumps over the pruned form."""
    yield from _running("python-1.0.0", python_sdk)


@pytest.fixture(scope="session")
def python_0_3_26() -> Iterator[SdkProcess]:
    """a2a-sdk 0.3.26: json.dumps over the models of 0.3, without what is empty and what is at a default."""
    yield from _running("python-0.3.26", python_sdk)


@pytest.fixture(scope="session")
def js_1_3_0() -> Iterator[SdkProcess]:
    """@a2a-js/sdk 1.3.0, given plain ProtoJSON objects."""
    yield from _running("js-1.3.0", node_sdk)
