"""Releases of a compiler as columns: installed before anything is measured, and measured in the same rounds."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from onnxgraphs import Builder, write
from plans import carry_out
from releases import build_index, write_index

from ngbkit import options, registry
from ngbkit.api import Sweep
from ngbkit.cluster.caches import list_items, locate
from ngbkit.commands.completion import LISTERS, Cursor
from ngbkit.device import releases
from ngbkit.device.groups.loading import explain_limits
from ngbkit.device.groups.worker import TrialFailedError
from ngbkit.device.releases import list_requirements
from ngbkit.errors import UnsupportedError, UsageError
from ngbkit.sweep.column import Column
from ngbkit.sweep.records import Failure, Measurement
from ngbkit.workloads import onnx
from ngbkit.workloads.canonical import UNUSED, Importer


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The settings of uv for an index in a folder."""
    return build_index(tmp_path_factory.mktemp("index"))


def test_releases_take_turns_in_the_same_rounds(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two releases are measured beside the baseline; one that is not there fails before, with the nearest ones."""
    monkeypatch.setenv("UV_CONFIG_FILE", str(index))
    labels = ["identity", "released@1.0", "released@1.1", "released@1.0.5", "released@0.9"]
    builder = Builder()
    network = onnx.file(write(builder.model(builder.add("Relu", "x")), tmp_path / "relu.onnx"))
    records, events = carry_out(Sweep(network, labels, [1], repeats=10, threads=1))
    kinds = [event["kind"] for event in events]
    (environment, _) = [event["value"] for event in events if event["kind"] == "environment"]
    older, newer = records["released@1.0", 1], records["released@1.1", 1]
    missing, unbuilt = records["released@1.0.5", 1], records["released@0.9", 1]

    assert ("1.0", "1.1.0") == (older.facts["release"], newer.facts["release"])
    assert [step.partition(" (")[0] for step in older.facts["canonical"]] == ["opset 18 to 17"]
    assert "canonical" not in newer.facts
    assert older.rounds == newer.rounds
    assert older.bundle == newer.bundle
    assert kinds.index("record") < kinds.index("environment") < kinds.index("round")
    assert "unsupported" == missing.status == unbuilt.status
    assert "install" == missing.stage == unbuilt.stage
    assert missing.error.startswith("fakeruntime has no release 1.0.5")
    assert missing.error.endswith("The nearest are 1.0 and 1.1.0.")
    assert unbuilt.error.startswith("fakeruntime 0.9 has no wheel for Python 3.")
    assert "1.1.0" == environment["releases"]["released@1.1"]["packages"]["fakeruntime"]
    assert missing.error == environment["releases"]["released@1.0.5"]["refusal"]

    items = [item for item in list_items(locate("cpu")) if item.kind == "environment"]
    offered = LISTERS["compiler"](Cursor(typed="released@", words=()))

    assert {("fakeruntime==1.0", True), ("fakeruntime==1.1", True)} == {
        (item.metadata["requirements"][0], item.matches("fakeruntime")) for item in items
    }
    assert all(item.bytes > 1_000_000 for item in items)
    assert {"released@1.0", "released@1.1"} == set(offered)


def test_a_device_without_a_network_has_the_wheels_of_its_deployment(tmp_path: Path) -> None:
    """A release is installed of the wheels that a deployment brought; another one says how to bring its wheels."""
    shelf = tmp_path / options.LAYOUT.releases
    shelf.mkdir()
    build_index(shelf)
    interrupt, _ = os.pipe()
    install = partial(releases.install, tmp_path, variables={**os.environ, "UV_OFFLINE": "1"}, report=print)
    environment = install(("fakeruntime==1.0", "attrs", "numpy", "psutil"), interrupt=interrupt)
    with pytest.raises(UnsupportedError, match=r"no release 2\.0 .* --releases COLUMN --wheelhouse`"):
        install(("fakeruntime==2.0", "attrs", "numpy", "psutil"), interrupt=interrupt)

    assert "1.0" == environment.packages["fakeruntime"]


def replace_file(path: Path, text: str) -> None:
    path.unlink()
    path.write_text(text)


def link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("/nothing/python")


DAMAGES: dict[str, Callable[[Path, Path], object]] = {
    "another version": lambda folder, packages: replace_file(packages / "fakeruntime.py", "__version__ = '9.9'\n"),
    "a hard link of the cache": lambda folder, packages: (packages / "fakeruntime.py").write_text("__version__ = '9'"),
    "a truncated library": lambda folder, packages: os.truncate(next(packages.glob("psutil/*.so")), 100),
    "half removed": lambda folder, packages: shutil.rmtree(packages / "attrs"),
    "a module that hides another": lambda folder, packages: (packages / "numpy.py").touch(),
    "no interpreter": lambda folder, packages: (folder / "bin" / "python").unlink(),
    "a removed interpreter": lambda folder, packages: link_to_nothing(folder / "bin" / "python"),
    "no description": lambda folder, packages: (folder / "environment.json").unlink(),
    "a damaged description": lambda folder, packages: (folder / "environment.json").write_text("{}"),
    "a description of another kind": lambda folder, packages: (folder / "environment.json").write_text("[1]"),
    "read-only": lambda folder, packages: [(packages / "fakeruntime.py").unlink(), packages.chmod(0o500)],
    "a file in its place": lambda folder, packages: [shutil.rmtree(folder), folder.touch()],
}


@pytest.fixture(scope="module")
def damaged_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder whose environments the tests damage one after the other."""
    return tmp_path_factory.mktemp("state")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_environment_is_installed_anew(
    index: Path, damaged_dir: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment that differs from what was installed is replaced; an intact one is kept."""
    monkeypatch.setenv("UV_CACHE_DIR", str(damaged_dir / "cache"))
    interrupt, _ = os.pipe()
    requirements = ("fakeruntime==1.0", "attrs", "numpy", "psutil")
    variables = {**os.environ, "UV_CONFIG_FILE": str(index)}
    install = partial(
        releases.install, damaged_dir, requirements, variables=variables, interrupt=interrupt, report=print
    )
    folder = releases.locate_environment(damaged_dir, requirements)
    first = install()
    packages = next(folder.glob("lib/python*/site-packages"))
    DAMAGES[damage](folder, packages)
    second = install()

    assert first != second == install()
    assert "__version__ = '1.0'\n" == (packages / "fakeruntime.py").read_text()
    assert second.python == subprocess.check_output([folder / "bin" / "python", "-c", VERSION], text=True).strip()


VERSION = "import platform, attrs, numpy, psutil; print(platform.python_version())"


def test_a_child_that_imports_another_version_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its release is installed once more, then fails with the version that it has; the other columns are measured."""
    build_index(tmp_path)
    settings = write_index(tmp_path, {"1.2": "py3-none-any"}, {"1.2": "1.1.0"})
    monkeypatch.setenv("UV_CONFIG_FILE", str(settings))
    builder = Builder()
    network = onnx.file(write(builder.model(builder.add("Relu", "x")), tmp_path / "relu.onnx"))
    labels = ["identity", "released@1.2", "released@1.1"]
    records, events = carry_out(Sweep(network, labels, [1], repeats=10, threads=1))
    other, right = records["released@1.2", 1], records["released@1.1", 1]
    texts = [event["text"].partition(": ")[0] for event in events if event.get("step") == "install"]

    assert ("unsupported", "install") == (other.status, other.stage)
    assert other.error.startswith("the environment of released@1.2 has fakeruntime 1.1.0, also after it was installed")
    assert 2 == len({text for text in texts if " 1.2 " in text})
    assert "1.1.0" == right.facts["release"]
    assert isinstance(records["identity", 1], Measurement)


def test_a_release_that_reads_no_proved_file_is_unsupported() -> None:
    """The reason has what it reads at most, and why the converted file is not used; other errors stay."""
    failure = Failure(trial_id="a" * 64, status="failed", stage="compile", error="max supported IR version: 8")
    error, limits = TrialFailedError(failure), Importer(most_opset=17, most_ir=8)
    explained = explain_limits(error, limits, {"facts": {"canonical": [f"{UNUSED}onnx 1.23.2 (no ReduceMean)"]}})

    assert "unsupported" == explained.failure.status
    assert explained.failure.error.startswith("it reads ONNX of opset 17 and format 8 at most, and no such file")
    assert "not used: onnx 1.23.2 (no ReduceMean)" in explained.failure.error
    assert error is explain_limits(error, limits, {"facts": {"canonical": ["opset 20 to 17"]}})
    assert error is explain_limits(error, Importer(), {})


def test_a_release_is_part_of_a_label() -> None:
    """A release is between the name and the options; a trial of another release is another trial."""
    column = Column.parse(' onnxruntime@1.19.2{"optimization":"basic"}')
    trials = Sweep("resnet18", ["onnxruntime", "onnxruntime@1.19.2", "onnxruntime@1.20.1"]).trials()

    assert ("onnxruntime", "1.19.2") == (column.compiler, column.release)
    assert 'onnxruntime@1.19.2{"optimization":"basic"}' == column.label
    assert column == Column.parse(column.label)
    assert 3 == len({trial.id for trial in trials})


def test_a_release_of_before_numpy_2_has_numpy_1() -> None:
    """A release that crashes with NumPy 2 without stating it gets NumPy 1; later ones, previews too, get the newest."""
    compiler = registry.load(registry.COMPILERS, "onnxruntime")
    numpys = [
        next(text for text in list_requirements(compiler, release) if text.startswith("numpy"))
        for release in ("1.9.0", "1.16.3", "1.19.0rc1", "1.23")
    ]

    assert ["numpy<2", "numpy<2", "numpy", "numpy"] == numpys


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("onnxruntime@", r"got onnxruntime@; expected a release of onnxruntime after @, such as onnxruntime@\d"),
        ("onnxruntime@1.x", r"got onnxruntime@1\.x; expected a release of onnxruntime after @"),
        ("tvm@0.18", r"got tvm@0\.18; tvm has no releases that ngbkit can install\. Leave @0\.18 out"),
    ],
)
def test_an_invalid_release_is_refused(label: str, expected: str) -> None:
    """A sign without a release, a text that is none, and a compiler without releases are refused by a sentence."""
    with pytest.raises(UsageError, match=expected):
        Column.parse(label)
