"""Engines that these tests have started end with them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ngbkit.cluster import engines


@pytest.fixture(autouse=True, scope="module")
def _ended() -> Iterator[None]:
    yield
    engines.close()
