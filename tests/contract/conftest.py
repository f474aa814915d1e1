"""The `world` fixture of the executor contract: one world for each executor under test."""

from collections.abc import AsyncIterator

import pytest

from support import executor_contract, executor_world, short_paths


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "world" in metafunc.fixturenames:
        subjects = executor_contract.subjects(metafunc.function.__name__)
        metafunc.parametrize("world", subjects, indirect=True)


@pytest.fixture
async def world(request: pytest.FixtureRequest) -> AsyncIterator[executor_world.World]:
    directory = short_paths.directory()
    async with (
        executor_contract.SUBJECTS[request.param](directory) as subject,
        executor_world.running(directory, subject) as made,
    ):
        yield made
