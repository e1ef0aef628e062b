"""The wheels for another machine: its platforms, its missing wheels, and the markers of its Python."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ngbkit.errors import DeviceError, UsageError
from ngbkit.fleet.deployment import wheelhouse

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
    """Create a wheel of metadata alone."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-1.0-{tag}.whl"
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", "Provides-Extra: more"]
    metadata += [f"Requires-Dist: {need}" for need in needs]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}-1.0.dist-info/METADATA", "\n".join(metadata) + "\n")
        archive.writestr(f"{name}-1.0.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return path


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder that pip searches."""
    for name, value in {"FIND_LINKS": str(tmp_path / "shelf"), "NO_INDEX": "1", "CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    return tmp_path / "shelf"


def test_platforms_are_those_up_to_the_devices_c_library() -> None:
    """The platforms are listed from the newest, each with its old names."""
    orin = wheelhouse._list_platforms(ORIN)
    laptop = wheelhouse._list_platforms({**with_markers(platform_machine="x86_64"), "glibc": "2.6"})

    assert ["manylinux_2_19_aarch64", "manylinux_2_18_aarch64", "manylinux_2_17_aarch64"] == orin[:3]
    assert ["manylinux2014_aarch64", "linux_aarch64"] == orin[3:]
    assert ["manylinux_2_6_x86_64", "manylinux_2_5_x86_64", "manylinux1_x86_64", "linux_x86_64"] == laptop


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        ({**ORIN, "glibc": ""}, "a C library other than glibc"),
        ({**ORIN, "free_threaded": True}, "cannot choose wheels for a free-threaded Python 3.10"),
        (with_markers(platform_python_implementation="PyPy"), "cannot choose wheels for PyPy 3.10"),
    ],
)
def test_an_unusual_python_needs_a_folder(machine: dict[str, Any], message: str, tmp_path: Path) -> None:
    """Guessed wheels would not run there."""
    with pytest.raises(UsageError, match=rf"{message}.*name a folder"):
        wheelhouse.download(machine, tmp_path / "none.whl", (), print)


@pytest.mark.parametrize("markers", [{"platform_machine": "x/../../.."}, {"python_version": "3.10/.."}])
def test_a_device_does_not_choose_a_folder_here(markers: dict[str, str], tmp_path: Path) -> None:
    """The download refuses hostile markers of a device, which are a part of a folder's name."""
    with pytest.raises(DeviceError, match="invalid device: got processor"):
        wheelhouse.download(with_markers(**markers), tmp_path / "none.whl", (), print)


def test_wheels_are_for_the_python_of_the_device(shelf: Path, tmp_path: Path) -> None:
    """The wheels are those for the processor and the Python of the device."""
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
    lines: list[str] = []
    folder = wheelhouse.download(ORIN, make_wheel(tmp_path, "mine", needs=needs), ["more"], lines.append)

    assert ["backport", "extra", "mine", "native", "processor"] == sorted(
        path.name.split("-")[0] for path in folder.iterdir()
    )
    assert (folder / "native-1.0-cp310-cp310-manylinux2014_aarch64.whl").exists()
    assert any("Saved" in line for line in lines)


def test_a_wheelhouse_has_the_last_download(shelf: Path, tmp_path: Path) -> None:
    """A wheelhouse has only the wheels of the last successful download."""
    make_wheel(shelf, "old")
    make_wheel(shelf, "new")
    first = wheelhouse.download(ORIN, make_wheel(tmp_path / "a", "mine", needs=("old",)), (), print)
    second = wheelhouse.download(ORIN, make_wheel(tmp_path / "b", "mine", needs=("new",)), (), print)
    with pytest.raises(
        DeviceError, match=r"(?s)cannot download the wheels.*pip's output:.*No matching distribution.*nowhere"
    ):
        wheelhouse.download(ORIN, make_wheel(tmp_path / "c", "mine", needs=("nowhere",)), (), print)

    assert first == second
    assert ["mine-1.0-py3-none-any.whl", "new-1.0-py3-none-any.whl"] == sorted(path.name for path in second.iterdir())
    assert [second] == list(second.parent.iterdir())


def test_the_wheels_of_a_release_are_chosen_in_a_folder(shelf: Path, tmp_path: Path) -> None:
    """One of the two releases in a folder is chosen, with its requirements."""
    folder = tmp_path / "mine"
    make_wheel(folder, "helper")
    make_wheel(folder, "other")
    chosen = make_wheel(folder, "runtime", needs=("helper",))
    files = wheelhouse.download_release(ORIN, ["runtime==1.0"], folder, print)
    make_wheel(shelf, "indexed")
    indexed = wheelhouse.download_release(ORIN, ["indexed==1.0"], None, print)

    assert ["helper-1.0-py3-none-any.whl", chosen.name] == [file.name for file in files]
    assert ["indexed-1.0-py3-none-any.whl"] == [file.name for file in indexed]


def test_installed_wheels_are_not_sent_again(tmp_path: Path) -> None:
    """Installed wheels of the same version are not sent again, and ngbkit's own always is."""
    for name in ("numpy", "Jinja2", "ruamel.yaml", "ngbkit"):
        make_wheel(tmp_path, name)
    names = [path.name.split("-")[0] for path in wheelhouse.select_missing(tmp_path, [])]
    missing = wheelhouse.select_missing(
        tmp_path, ["jinja2-1.0.dist-info", "ruamel_yaml-1.0.dist-info", "numpy-2.0.dist-info"]
    )

    assert ["Jinja2", "numpy", "ruamel.yaml"] == names
    assert ["numpy-1.0-py3-none-any.whl"] == [path.name for path in missing]


def test_a_folder_without_wheels_is_refused(tmp_path: Path) -> None:
    """The error has a remedy."""
    with pytest.raises(UsageError, match=r"no wheels in .*missing: fill it"):
        wheelhouse.select_missing(tmp_path / "missing", [])


def test_setuptools_can_be_imported_after_a_download(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No import hook is asked for pip: the hook of setuptools leaves distutils as it is from then on."""
    names: list[str] = []

    class Hook:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            names.append(name)

    monkeypatch.setattr(sys, "meta_path", [Hook(), *sys.meta_path])
    make_wheel(shelf, "more")
    wheelhouse.download(ORIN, make_wheel(tmp_path, "mine", needs=("more",)), (), print)

    assert "pip" not in names
