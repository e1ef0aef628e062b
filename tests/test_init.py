"""The exports of ``import ngbkit``, and its lazy imports."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from drawn import measured

import ngbkit

HEAVY = ("torch", "numpy", "xarray", "pandas", "altair", "ipyparallel", "IPython", "rich", "timm", "onnx")


def list_heavy_imports(code: str) -> list[str]:
    """List the heavy packages that code imports in a fresh Python."""
    script = f"import sys\n{code}\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return process.stdout.split()


def test_the_import_is_light() -> None:
    """The import of ngbkit imports only modules of Python itself."""
    assert [] == list_heavy_imports("import ngbkit")


def test_the_extension_is_light() -> None:
    """The magics import other packages when they are used."""
    code = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "from traitlets.config import Config\n"
        "shell = InteractiveShell(config=Config(HistoryManager={'enabled': False}))\n"
        "shell.run_line_magic('load_ext', 'ngbkit')\n"
        "assert shell.find_line_magic('ngbench')"
    )

    assert ["IPython"] == list_heavy_imports(code)


@pytest.mark.parametrize("name", ngbkit.__all__)
def test_every_exported_name_exists(name: str) -> None:
    """Every exported name exists, and dir() lists it."""
    assert getattr(ngbkit, name) is not None
    assert name in dir(ngbkit)


def test_exports_match_their_names() -> None:
    """An exported module is that module, and an exported name is that of its module."""
    assert importlib.import_module("ngbkit.api").Sweep is ngbkit.Sweep
    assert importlib.import_module("ngbkit.workloads.paper") is ngbkit.paper
    assert importlib.import_module("ngbkit.runs") is ngbkit.runs


def test_version_is_the_installed_one() -> None:
    """The version is that of the installed distribution."""
    assert metadata.version("ngbkit") == ngbkit.__version__


def test_a_checkout_that_is_not_installed_says_so() -> None:
    """`python -m ngbkit` ends with one line, which names the command that installs it."""
    script = (
        "from importlib import metadata\n"
        "def version(name):\n"
        "    raise metadata.PackageNotFoundError(name)\n"
        "metadata.version = version\n"
        "import runpy\n"
        "runpy.run_module('ngbkit', run_name='__main__')"
    )
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert 1 == process.returncode
    assert "not installed: run `pip install -e .` in its checkout.\n" in process.stderr
    assert 1 == process.stderr.count("\n")


def test_an_unknown_name_is_an_attribute_error() -> None:
    """hasattr and star imports rely on it."""
    with pytest.raises(AttributeError, match="no attribute 'sweeps'"):
        ngbkit.sweeps  # noqa: B018  the access is what is tested


ORDERS = {
    "ngbkit first": "import ngbkit, xarray",
    "xarray first": "import xarray, ngbkit",
    "xarray by another": "import ngbkit; from xarray.core.dataset import Dataset; import xarray",
    "both again": "import importlib, ngbkit, xarray; [importlib.reload(module) for module in (ngbkit, xarray, ngbkit)]",
    "ngbkit again": "import importlib, ngbkit; importlib.reload(ngbkit); import xarray",
    "in threads": (
        "import threading, ngbkit\n"
        "threads = [threading.Thread(target=__import__, args=('xarray',)) for _ in range(4)]\n"
        "[thread.start() for thread in threads]; [thread.join() for thread in threads]; import xarray"
    ),
}


@pytest.mark.guard
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_any_dataset_has_its_metrics(order: str, tmp_path: Path) -> None:
    """`import ngbkit` suffices, before or after xarray, for opened files and trees and for datasets in memory."""
    file = tmp_path / "run.nc"
    ngbkit.save(measured(), file)
    code = (
        f"import warnings; warnings.simplefilter('error', UserWarning)\n{order}\n"
        f"xarray.open_dataset({str(file)!r}, engine='h5netcdf').ngb.speedup()\n"
        f"xarray.open_datatree({str(file)!r}, engine='h5netcdf').ngb.speedup()\n"
        "assert type(xarray.Dataset().ngb).__name__ == 'Metrics'"
    )

    assert "altair" not in list_heavy_imports(code)


def test_an_import_of_xarray_imports_no_metrics() -> None:
    """The metrics are imported when the first dataset needs them."""
    code = "import sys, ngbkit, xarray; assert 'ngbkit.figures' not in sys.modules"

    assert "xarray" in list_heavy_imports(code)


def test_the_dataset_of_a_run_has_its_metrics() -> None:
    """A dataset has its accessor even if the program imported only `ngbkit.runs`."""
    recording = sorted((Path(__file__).parent / "recordings").iterdir())[0]
    code = f"from pathlib import Path; from ngbkit import runs; runs.load_dataset(Path({str(recording)!r})).ngb"

    assert "xarray" in list_heavy_imports(code)
