"""The driver of a GPU that is not there."""

from pathlib import Path

import pytest
from accelerators.faking import FakeGpu, adopt, build_driver


@pytest.fixture(scope="session")
def driver_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the fake driver, compiled once."""
    return build_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def gpu(driver_folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """The fake driver as that of this process."""
    return adopt(driver_folder, monkeypatch)
