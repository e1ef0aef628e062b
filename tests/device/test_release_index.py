"""The releases of a distribution between two of them, as uv finds them in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from releases import write_index

from ngbkit.device.release_index import list_indexed_releases
from ngbkit.errors import UsageError

ANY = "py3-none-any"
RELEASES = {"1.0": ANY, "1.0.1rc1": ANY, "1.0.2": "cp38-none-any", "1.1.3": ANY, "1.1.4": ANY, "1.2.0": ANY, "1.3": ANY}


@pytest.fixture(autouse=True)
def _index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CONFIG_FILE", str(write_index(tmp_path, RELEASES)))


def test_the_releases_between_two_are_listed_in_order() -> None:
    """Previews are left out; a release without a wheel for this Python is skipped with that reason."""
    indexed = list_indexed_releases("fakeruntime", "1.0", "1.2")

    assert ("1.0", "1.1.3", "1.1.4", "1.2.0") == indexed.releases
    assert ["1.0.2"] == list(indexed.skipped)
    assert indexed.skipped["1.0.2"].startswith("it has no wheel for Python 3.")


def test_a_series_without_a_release_of_its_name_is_its_newest() -> None:
    """1.1 is 1.1.4, where there is no 1.1.0."""
    assert ("1.1.4", "1.2.0") == list_indexed_releases("fakeruntime", "1.1", "1.2.0").releases


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("1.2", "1.1", "got fakeruntime 1.2.0 and 1.1.4; expected an earlier and a later one"),
        ("1.0", "2.0", "got fakeruntime 2.0, which the index has not for .* The nearest are 1.3"),
    ],
)
def test_releases_that_are_no_range_are_refused(good: str, bad: str, message: str) -> None:
    """The error has the releases, and the nearest ones."""
    with pytest.raises(UsageError, match=message):
        list_indexed_releases("fakeruntime", good, bad)


def test_an_index_that_cannot_be_read_proposes_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error proposes to name the releases, which needs no index."""
    monkeypatch.setenv("UV_CONFIG_FILE", "/nowhere/uv.toml")

    with pytest.raises(UsageError, match=r"cannot list the releases of fakeruntime.*Name them: --releases"):
        list_indexed_releases("fakeruntime", "1.0", "1.2")
