"""Plans carried out here."""

from __future__ import annotations

from typing import Any

import pytest

from ngbkit.device import pool


@pytest.fixture(autouse=True)
def _cold_servers() -> Any:
    """Fork servers end with the test that started them."""
    yield
    for servers in pool._servers.values():
        servers.close()
    pool._servers.clear()
