"""The sentence on a package that is missing, too old or damaged: for each compiler, kind of network and package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from packaging import markers

from ngbkit import registry, requirements
from ngbkit.compilers.base import KINDS, WRITERS, Compiler
from ngbkit.workloads.base import Kind, Workload
from ngbkit.workloads.subprocesses import build_arguments

COMPILERS: Mapping[str, Compiler] = registry.load_all(registry.COMPILERS)
INSTALLED = "9999"


def list_needs(compiler: Compiler, kind: Kind) -> list[str]:
    """The packages that a compiler needs for a kind of network."""
    form = compiler.choose_form(kind) or "module"
    packages = compiler.packages_by_form.get(form, compiler.packages)
    return [*packages, *(WRITERS[kind] if form == "onnx" else ())]


CASES = [
    (name, kind, package)
    for name, compiler in COMPILERS.items()
    for kind in KINDS
    if compiler.choose_form(kind)
    for package in list_needs(compiler, kind)
]
Plant = Callable[[Mapping[str, str | None]], None]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Plants versions of packages; all others are as new as their bounds ask for."""

    def plant(planted: Mapping[str, str | None]) -> None:
        bounds = {name: find for extra in ("all", "tensorrt", "tensorrt-rtx") for name, find in _read(extra).items()}
        monkeypatch.setattr(requirements, "find_version", lambda name: {**bounds, **planted}.get(name, INSTALLED))

    return plant


def _read(extra: str) -> dict[str, str]:
    """The highest version that the bounds of an extra name, of each package that they hold back."""
    pins = {name: re.search(r"==([\w.]+)", str(bounds)) for name, bounds in requirements.read_bounds(extra).items()}
    return {name: pin[1] for name, pin in pins.items() if pin}


def test_a_newer_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason proposes no line that cannot install the package on this Python."""
    current = markers.default_environment()
    monkeypatch.setattr(markers, "default_environment", lambda: {**current, "python_version": "3.10"})
    problem = COMPILERS["aotinductor"].find_package_problem("module")

    assert problem.startswith("torch>=2.15 needs Python 3.11 or newer, and this is 3.")
    assert "pip" not in problem
    assert "Python" not in COMPILERS["inductor"].find_package_problem("module")


@pytest.mark.parametrize(("name", "kind", "package"), CASES)
def test_a_missing_package_is_named_with_what_installs_it(plant: Plant, name: str, kind: Kind, package: str) -> None:
    """The reason for a compiler and a kind of network names the package and the line; nothing else is missing."""
    compiler = COMPILERS[name]
    plant({package: None})
    reason = compiler.unavailable(kind=kind)
    packages = compiler.packages_by_form.get(compiler.choose_form(kind) or "onnx", compiler.packages)
    line = compiler.install if package == packages[0] else f"pip install '{package}"

    assert reason.startswith(f"{package} not installed; install with: {line}")


@pytest.mark.parametrize(("name", "kind", "package"), CASES)
def test_an_old_package_is_named_with_its_bounds(plant: Plant, name: str, kind: Kind, package: str) -> None:
    """The reason has the version that is installed, the bounds of ngbkit's own metadata, and the line that mends it."""
    plant({package: "0.1"})
    reason = COMPILERS[name].find_package_problem(kind)
    needed = re.search(r"but (\S+) needed", reason)

    if package == "onnxruntime-gpu":  # a vendor's build, whose bound holds for a GPU only
        assert "" == reason
    else:
        assert needed is not None
        assert f"{package} 0.1 installed, but {needed[1]} needed; install with: pip install '{needed[1]}'" == reason


@pytest.mark.parametrize(
    ("name", "version", "fits"),
    [
        ("identity", "2.6.0", True),
        ("torchscript", "2.8.0", True),
        ("inductor", "2.8.0", False),
        ("inductor", "2.9.0a0+50eac811a6.nv25.09", True),
        ("inductor", "2.16.0.dev20261101+cpu", True),
        ("inductor", "of a vendor", True),
        ("aotinductor", "2.11.0+cu130", False),
        ("executorch", "2.12.1", False),
        ("onnxruntime", "2.6.0", True),
    ],
)
def test_a_compiler_has_its_own_bounds(plant: Plant, name: str, version: str, fits: bool) -> None:
    """A compiler that needs no newer torch goes on with the one that is here, also with a vendor's preview."""
    plant({"torch": version})

    assert fits == (COMPILERS[name].find_package_problem("module") == "")


@pytest.mark.parametrize(
    ("source", "spec", "kind"),
    [("onnx", {}, "file"), ("timm", {}, "module"), ("module", {"onnx": "f00"}, "program"), ("module", {}, "module")],
)
def test_an_exported_module_needs_no_exporter(plant: Plant, source: str, spec: dict[str, str], kind: str) -> None:
    """Torch and onnxscript are asked for only where a module is exported."""
    workload = Workload(name="net", source=source, spec=spec)
    plant({"onnxscript": None})

    assert kind == workload.kind
    assert (kind == "module") == bool(COMPILERS["openvino"].find_package_problem(workload.kind))


def test_one_kind_of_network_is_enough(plant: Plant) -> None:
    """A compiler is available if it compiles some kind of network; a release needs only ngbkit's own packages."""
    plant({"torch": None, "onnxruntime": None})
    openvino = COMPILERS["openvino"]

    assert "" == openvino.find_package_problem()
    assert "onnxruntime not installed" in COMPILERS["identity"].find_package_problem()
    assert "" == COMPILERS["onnxruntime"].find_package_problem("file", is_release=True)
    assert openvino.find_package_problem("module", is_release=True).startswith("torch not installed")


def run_imports(folder: Path, files: Mapping[str, str], *modules: str) -> str:
    """Import modules, of which some are planted, in a process of its own; return its last line."""
    for name, code in files.items():
        (folder / "site-packages" / name).mkdir(parents=True)
        (folder / "site-packages" / name / "__init__.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(folder / "site-packages")}
    command = [sys.executable, *build_arguments("ngbkit.requirements", *modules)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    return process.stderr.strip().rpartition("\n")[-1]


@pytest.mark.parametrize(
    ("name", "module"),
    [
        *((name, "torch") for name in ("identity", "torchscript", "inductor", "aotinductor", "executorch")),
        *(("identity", "onnxruntime"), ("onnxruntime", "onnxruntime"), ("tensorrt-rtx", "onnxruntime")),
        *(("openvino", "openvino"), ("tvm", "tvm"), ("iree", "iree"), ("executorch", "executorch")),
    ],
)
def test_a_damaged_package_is_named(tmp_path: Path, name: str, module: str) -> None:
    """The reason names the package whose import fails, in its version, with the error."""
    forms = COMPILERS[name].forms
    modules = next(each for each in forms.values() if any(module in part for part in each))
    files = {module: 'raise OSError("libplanted.so: cannot open shared object file")'}
    if module == "executorch":
        files["torch"] = ""
    reason = run_imports(tmp_path, files, *modules)

    assert re.fullmatch(rf"\S*{module}\S*( \S+)? cannot be imported: OSError: libplanted.so: .*", reason)


@pytest.mark.parametrize(
    ("first", "second", "error"),
    [
        ("import second; second.register()", "def register(): raise RuntimeError('no operator')", "RuntimeError"),
        ("from second import absent", "", "ImportError"),
        ("import second; second.absent", "", "AttributeError"),
    ],
)
def test_packages_that_do_not_fit_are_named(tmp_path: Path, first: str, second: str, error: str) -> None:
    """A package that fails in another one, as torchvision in a torch of another build, does not fit it."""
    files = {"torchvision": first.replace("second", "torch"), "torch": second, "timm": "import torchvision"}
    reason = run_imports(tmp_path, files, "timm")

    assert re.match(rf"torchvision( \S+)? does not fit torch \S+: {error}: ", reason)


def test_other_errors_are_of_the_network() -> None:
    """An error outside an import says nothing of packages."""
    with pytest.raises(ValueError, match="planted") as caught:
        raise ValueError("planted")

    assert "" == requirements.describe_import(caught.value)
    assert "" == requirements._check_imports(["json"])
