"""Fork servers for plans of this process, which the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ngbkit.device.isolation import server_pool


@pytest.fixture(autouse=True, scope="module")
def _module_servers() -> Iterator[None]:
    """Fork servers end with the module that started them."""
    yield
    close_servers()


@pytest.fixture
def cold_servers() -> Iterator[None]:
    """The test starts fork servers of its own, which it inspects."""
    close_servers()
    yield
    close_servers()


def close_servers() -> None:
    """End the fork servers of this process."""
    for servers in server_pool._servers.values():
        servers.close()
    server_pool._servers.clear()
