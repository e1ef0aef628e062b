"""The wheels for another machine: which platforms run there, which of them it lacks, and whose Python is asked."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from ngbkit.cluster.deployment import wheelhouse
from ngbkit.errors import DeviceError, UsageError

ORIN = {
    "glibc": "2.19",
    "free_threaded": False,
    "markers": {
        "implementation_name": "cpython",
        "implementation_version": "3.10.12",
        "os_name": "posix",
        "platform_machine": "aarch64",
        "platform_python_implementation": "CPython",
        "platform_release": "5.15.148-tegra",
        "platform_system": "Linux",
        "platform_version": "#1",
        "python_full_version": "3.10.12",
        "python_version": "3.10",
        "sys_platform": "linux",
    },
}


def with_markers(**markers: str) -> dict[str, Any]:
    return {**ORIN, "markers": {**ORIN["markers"], **markers}}  # type: ignore[dict-item]


def make_wheel(folder: Path, name: str, *, tag: str = "py3-none-any", needs: tuple[str, ...] = ()) -> Path:
    """A wheel of nothing but what it says about itself."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-1.0-{tag}.whl"
    about = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", "Provides-Extra: more"]
    about += [f"Requires-Dist: {need}" for need in needs]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}-1.0.dist-info/METADATA", "\n".join(about) + "\n")
        archive.writestr(f"{name}-1.0.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return path


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all that pip looks into."""
    for name, value in {"FIND_LINKS": str(tmp_path / "shelf"), "NO_INDEX": "1", "CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    return tmp_path / "shelf"


def test_platforms_are_those_up_to_the_devices_c_library() -> None:
    """The newest first, each under every name that it has had."""
    orin = wheelhouse._platforms(ORIN)
    laptop = wheelhouse._platforms({**with_markers(platform_machine="x86_64"), "glibc": "2.6"})

    assert ["manylinux_2_19_aarch64", "manylinux_2_18_aarch64", "manylinux_2_17_aarch64"] == orin[:3]
    assert ["manylinux2014_aarch64", "linux_aarch64"] == orin[3:]
    assert ["manylinux_2_6_x86_64", "manylinux_2_5_x86_64", "manylinux1_x86_64", "linux_x86_64"] == laptop


@pytest.mark.parametrize(
    ("about", "told"),
    [
        ({**ORIN, "glibc": ""}, "its C library is not glibc"),
        ({**ORIN, "free_threaded": True}, "which wheels suit a free-threaded Python 3.10 is not known"),
        (with_markers(platform_python_implementation="PyPy"), "which wheels suit PyPy 3.10 is not known"),
    ],
)
def test_a_device_whose_wheels_are_not_known_needs_a_folder(about: dict[str, Any], told: str, tmp_path: Path) -> None:
    """Rather than wheels that do not run there."""
    with pytest.raises(UsageError, match=rf"{told}.*name a folder"):
        wheelhouse.gather(about, tmp_path / "none.whl", (), print)


@pytest.mark.parametrize("markers", [{"platform_machine": "x/../../.."}, {"python_version": "3.10/.."}])
def test_a_device_does_not_choose_a_folder_here(markers: dict[str, str], tmp_path: Path) -> None:
    """Where what it says would become the name of one."""
    with pytest.raises(DeviceError, match="is none that there is"):
        wheelhouse.gather(with_markers(**markers), tmp_path / "none.whl", (), print)


def test_what_is_fetched_is_for_the_devices_python_and_not_for_ours(shelf: Path, tmp_path: Path) -> None:
    """Wheels of its processor, and what its version of Python needs beside them: pip alone would ask our own."""
    make_wheel(shelf, "native", tag="cp310-cp310-manylinux2014_aarch64")
    make_wheel(shelf, "native", tag="cp310-cp310-manylinux_2_35_aarch64")
    for name in ("backport", "forward", "processor", "extra"):
        make_wheel(shelf, name)
    needs = (
        "native",
        'backport; python_version < "3.11"',
        'forward; python_version >= "3.11"',
        'processor; platform_machine == "aarch64"',
        'absent; platform_machine == "x86_64"',
        'extra; extra == "more"',
    )
    said: list[str] = []
    folder = wheelhouse.gather(ORIN, make_wheel(tmp_path, "mine", needs=needs), ["more"], said.append)

    assert ["backport", "extra", "mine", "native", "processor"] == sorted(
        path.name.split("-")[0] for path in folder.iterdir()
    )
    assert (folder / "native-1.0-cp310-cp310-manylinux2014_aarch64.whl").exists()
    assert any("Saved" in line for line in said)


def test_a_wheelhouse_holds_what_was_fetched_last(shelf: Path, tmp_path: Path) -> None:
    """Not what an earlier version needed as well, and all of what the one before had, where a fetch fails."""
    make_wheel(shelf, "old")
    make_wheel(shelf, "new")
    first = wheelhouse.gather(ORIN, make_wheel(tmp_path / "a", "mine", needs=("old",)), (), print)
    second = wheelhouse.gather(ORIN, make_wheel(tmp_path / "b", "mine", needs=("new",)), (), print)
    with pytest.raises(DeviceError, match=r"(?s)could not be fetched; pip said:.*No matching distribution.*nowhere"):
        wheelhouse.gather(ORIN, make_wheel(tmp_path / "c", "mine", needs=("nowhere",)), (), print)

    assert first == second
    assert ["mine-1.0-py3-none-any.whl", "new-1.0-py3-none-any.whl"] == sorted(path.name for path in second.iterdir())
    assert [second] == list(second.parent.iterdir())


def test_what_is_installed_does_not_travel_again(tmp_path: Path) -> None:
    """In the same version, however its name is written; nor does another ngbkit."""
    for name in ("numpy", "Jinja2", "ruamel.yaml", "ngbkit"):
        make_wheel(tmp_path, name)
    names = [path.name.split("-")[0] for path in wheelhouse.needed(tmp_path, [])]
    left = wheelhouse.needed(tmp_path, ["jinja2-1.0.dist-info", "ruamel_yaml-1.0.dist-info", "numpy-2.0.dist-info"])

    assert ["Jinja2", "numpy", "ruamel.yaml"] == names
    assert ["numpy-1.0-py3-none-any.whl"] == [path.name for path in left]


def test_a_folder_without_wheels_is_refused(tmp_path: Path) -> None:
    """With what to do."""
    with pytest.raises(UsageError, match="is no folder of wheels: fill it"):
        wheelhouse.needed(tmp_path / "missing", [])
