"""What ``import ngbkit`` gives, and what it leaves for later."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib import metadata

import pytest

import ngbkit

HEAVY = ("torch", "numpy", "xarray", "pandas", "altair", "ipyparallel", "IPython", "rich", "timm", "onnx")


def loaded_after(code: str) -> list[str]:
    """Which heavy packages a fresh Python holds after that code."""
    script = f"import sys\n{code}\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_import_brings_nothing_heavy() -> None:
    """The import costs what Python's own modules cost."""
    assert [] == loaded_after("import ngbkit")


def test_the_extension_brings_nothing_heavy_beside_ipython() -> None:
    """The magics load what they need when they are used."""
    code = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "from traitlets.config import Config\n"
        "shell = InteractiveShell(config=Config(HistoryManager={'enabled': False}))\n"
        "shell.run_line_magic('load_ext', 'ngbkit')\n"
        "assert shell.find_line_magic('ngbench')"
    )

    assert ["IPython"] == loaded_after(code)


@pytest.mark.parametrize("name", ngbkit.__all__)
def test_every_exported_name_is_there(name: str) -> None:
    """It resolves, and dir() lists it."""
    assert getattr(ngbkit, name) is not None
    assert name in dir(ngbkit)


def test_exports_are_what_they_are_named_after() -> None:
    """A module stays a module, and a name of a module is that module's."""
    assert importlib.import_module("ngbkit.sweep.grid").Sweep is ngbkit.Sweep
    assert importlib.import_module("ngbkit.workloads.paper") is ngbkit.paper
    assert importlib.import_module("ngbkit.runs") is ngbkit.runs


def test_version_is_the_installed_one() -> None:
    """It is read from the distribution, and written nowhere else."""
    assert metadata.version("ngbkit") == ngbkit.__version__


def test_a_name_that_there_is_not_is_an_attribute_error() -> None:
    """hasattr and star imports rely on it."""
    with pytest.raises(AttributeError, match="no attribute 'sweeps'"):
        ngbkit.sweeps  # noqa: B018  the access is what is tested


def test_a_loaded_dataset_has_its_metrics() -> None:
    """`ngbkit.load` alone is enough for `ds.ngb`."""
    code = "import ngbkit; ngbkit.load; import xarray; assert hasattr(xarray.Dataset, 'ngb')"

    assert "xarray" in loaded_after(code)
