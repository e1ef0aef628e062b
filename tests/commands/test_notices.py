"""What is known before a sweep is measured: a missing baseline, a missing compiler."""

from __future__ import annotations

from pathlib import Path

import pytest
from drawn import network, sweep
from field.writing import write_graph

from ngbkit import requirements
from ngbkit.api import Sweep
from ngbkit.commands.run import list_notices
from ngbkit.registry import find_version


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> str:
    """A compiler of which a package is not installed."""
    versions = {"openvino": None}
    monkeypatch.setattr(requirements, "find_version", lambda name: versions.get(name, find_version(name)))
    return "openvino"


def test_a_network_without_a_batch_is_said(tmp_path: Path) -> None:
    """A throughput counts its calls."""
    path = write_graph("scalar (float x) => (float y) { y = Sqrt(x) }", name="root.onnx")(tmp_path)
    notices = list_notices(Sweep([str(path), network("net")]), with_time=False)

    assert ["root: no input has a batch: a sample is a call, throughput counts calls"] == notices


@pytest.mark.parametrize(
    ("compilers", "count"),
    [
        (["onnxruntime", "openvino"], 1),
        (["openvino", 'openvino{"hint":"throughput"}'], 1),
        (["onnxruntime"], 0),
        (['identity{"copy":1}', "openvino"], 0),
        (["identity", "openvino"], 0),
    ],
)
def test_a_comparison_without_its_baseline_is_said(compilers: list[str], count: int) -> None:
    """One compiler alone is compared with nothing."""
    notices = list_notices(sweep(network("net"), compilers=compilers), with_time=False)

    assert count == sum("-c identity,…" in notice for notice in notices)


def test_a_missing_compiler_is_said_with_its_remedy(missing: str) -> None:
    """One notice reports a missing compiler, with its remedy, for all its columns."""
    columns = ["identity", missing, f'{missing}{{"hint":"throughput"}}']
    (notice,) = list_notices(sweep(compilers=columns), with_time=False)

    assert notice.startswith("no result of openvino on cpu: openvino not installed; install with: ")


def test_a_package_for_one_kind_of_network_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime compiles files without torch's exporter, and no modules."""
    versions = {"onnxscript": None}
    monkeypatch.setattr(requirements, "find_version", lambda name: versions.get(name, find_version(name)))
    path = write_graph("root (float[N] x) => (float[N] y) { y = Sqrt(x) }", name="root.onnx")(tmp_path)
    both = Sweep([str(path), network("net")], compilers=["identity", "onnxruntime"])

    assert ["no result of onnxruntime of a module on cpu: onnxscript not installed; install with: pip install"] == [
        notice.partition(" 'onnxscript")[0] for notice in list_notices(both, with_time=False)
    ]
    assert [] == list_notices(Sweep([str(path)], compilers=["identity", "onnxruntime"]), with_time=False)


def test_what_another_machine_has_is_not_known_here(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that is reached by ssh, or that has a Python of its own, may have it."""
    monkeypatch.chdir(tmp_path)
    Path("devices.toml").write_text('[orin]\nlaunch = "ssh"\nhost = "orin"\n')

    assert [] == list_notices(sweep(compilers=["identity", missing], devices=["orin"]), with_time=False)
