"""Closes the engines that these tests start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ngbkit.cluster import engines


@pytest.fixture(autouse=True, scope="module")
def _close_engines() -> Iterator[None]:
    yield
    engines.close()
