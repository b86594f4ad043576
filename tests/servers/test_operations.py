"""The table of operations is what the released SDKs and ``a2a.proto`` have: what is more is known."""

from __future__ import annotations

import re
from typing import Any

import pytest

from a2a_trust.card.operations import ABSENT_BESIDE_1_0, METHODS, NAMING, ROUTES, Named, Operation
from a2a_trust.card.schema import Generation
from a2a_trust.card.view import read_card
from a2a_trust.middleware.routing import Interfaces, Target
from tests.servers.environments import answer_of

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def sdk_1_3() -> Any:
    return answer_of("server-1.3.0", "sdk_operations.py", "1.3.0")


@pytest.fixture(scope="module")
def sdk_0_3() -> Any:
    return answer_of("python-0.3.26", "sdk_operations.py", "0.3.26")


def plain(template: str) -> str:
    """Without the names of what varies."""
    return re.sub(r"\{[^}]*\}", "{}", template)


def table(generation: Generation) -> dict[tuple[str, str], Operation]:
    return {
        (method, plain(route.template)): route.operation for route in ROUTES[generation] for method in route.methods
    }


def routes_of(sdk: Any) -> set[tuple[str, str]]:
    return {(method, plain(path)) for method, path in sdk["routes"] if method != "HEAD"}


def test_the_routes_of_1_0_are_those_of_the_sdk_with_and_without_a_tenant(sdk_1_3: Any) -> None:
    own = set(table(Generation.V1_0))
    with_tenant = {(method, f"/{{}}{path}") for method, path in own}
    of_0_3 = {route for route in routes_of(sdk_1_3) if route[1].startswith("/v1/")}
    assert routes_of(sdk_1_3) - of_0_3 == own | with_tenant


def test_the_routes_of_0_3_are_those_of_both_sdks(sdk_1_3: Any, sdk_0_3: Any) -> None:
    own = table(Generation.V0_3)
    beside_1_0 = {route for route in routes_of(sdk_1_3) if route[1].startswith("/v1/")}
    # Which of the two generations a path below /v1 is of hangs on exactly these.
    assert {own[route] for route in set(own) - beside_1_0} == ABSENT_BESIDE_1_0
    assert beside_1_0 <= set(own)
    assert routes_of(sdk_0_3) <= set(own)
    assert {own[route] for route in set(own) - routes_of(sdk_0_3)} == {
        Operation.DELETE_PUSH_CONFIG,  # 0.3.0 3.5.6 has it
        Operation.SUBSCRIBE_TO_TASK,  # by POST, as 0.3.0 11.2.2 has it
    }


def test_a2a_proto_binds_the_operations_as_the_table_does(sdk_1_3: Any) -> None:
    own, bindings = table(Generation.V1_0), sdk_1_3["bindings"]
    assert set(bindings) == {operation.value for operation in Operation}
    of = Interfaces(
        read_card(
            {
                "name": "x",
                "supportedInterfaces": [
                    {"url": "https://a.example", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}
                ],
            }
        )
    )
    for operation, bound in bindings.items():
        for method, path in bound:
            tenant = "{tenant}" in path
            assert own[method, plain(path.replace("/{tenant}", ""))].value == operation
            example = re.sub(r"\{(\w+)[^}]*\}", r"\1", path)
            found = of.meaning(example, "", method)
            assert isinstance(found, Target)
            assert (found.operation, set(found.tenants)) == (Operation(operation), {"tenant"} if tenant else set())


def test_the_methods_of_json_rpc_are_those_of_the_sdks(sdk_1_3: Any, sdk_0_3: Any) -> None:
    def own(generation: Generation) -> set[str]:
        return {method for method, (of, _) in METHODS.items() if of is generation}

    assert own(Generation.V1_0) == set(sdk_1_3["methods"]["1.0"])
    assert own(Generation.V0_3) == {*sdk_1_3["methods"]["0.3"], *sdk_0_3["methods"]["0.3"], "tasks/list"}


def test_every_field_of_a_request_that_names_a_tenant_is_read(sdk_1_3: Any) -> None:
    def known(path: list[tuple[str, str]], names: int) -> bool:
        fields: Any = NAMING
        for both in path:
            if not isinstance(fields, dict) or both[names] not in fields:
                return False
            fields = fields[both[names]]
        return fields is Named.TENANT

    paths = [path for of_message in sdk_1_3["tenants"].values() for path in of_message]
    assert max(map(len, paths)) == 3  # params.configuration.taskPushNotificationConfig.tenant
    assert set(sdk_1_3["tenants"]) == {operation.value for operation in Operation}
    for path in paths:
        assert known(path, 0), path  # as JSON spells it
        assert known(path, 1), path  # and as protobuf does
