"""Cluster roles that are there from the beginning."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kilnwork.api import api_resources
from kilnwork.controlplane import installed_kind_types
from kilnwork.controlplane.apiserver import default_roles
from support import store_world

RULE = {"apiGroups": ["x.dev"], "resources": ["xs"], "verbs": ["get"]}
NONE = installed_kind_types.Extensions()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[store_world.World]:
    async with store_world.open_world(tmp_path) as found:
        yield found


def test_each_default_role_includes_the_previous_one() -> None:
    view, edit, admin, everything = default_roles.roles(
        installed_kind_types.Extensions(view=(RULE,))
    )
    assert RULE in view["rules"]
    assert view["rules"] == edit["rules"][: len(view["rules"])]
    assert edit["rules"] == admin["rules"][: len(edit["rules"])]
    assert len(view["rules"]) < len(edit["rules"]) < len(admin["rules"])
    assert "aggregationRule" in admin
    assert "aggregationRule" not in everything
    assert all(default_roles.is_default_role(role) for role in (view, edit, admin, everything))


def test_role_of_a_user_is_no_default_role() -> None:
    assert not default_roles.is_default_role({"metadata": {"name": "view"}})


async def test_missing_rules_are_added_to_existing_roles(world: store_world.World) -> None:
    await default_roles.ensure(world.writer, NONE)
    await default_roles.ensure(world.writer, installed_kind_types.Extensions(view=(RULE,)))
    role = world.get(api_resources.CLUSTER_ROLES, "view", namespace="")
    assert role is not None
    assert role["rules"][-1] == RULE
    assert world.get(api_resources.CLUSTER_ROLE_BINDINGS, "cluster-admin", namespace="") is not None


async def test_second_start_writes_nothing(world: store_world.World) -> None:
    await default_roles.ensure(world.writer, NONE)
    before = world.get(api_resources.CLUSTER_ROLES, "view", namespace="")
    await default_roles.ensure(world.writer, NONE)
    assert world.get(api_resources.CLUSTER_ROLES, "view", namespace="") == before
