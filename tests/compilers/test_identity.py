"""The baseline passes the conformance suite."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ngbkit.compilers import identity
from ngbkit.compilers.base import Task, Tuning
from ngbkit.errors import MissingDependencyError, UnsupportedError
from ngbkit.testing import CompilerConformance
from ngbkit.testing.observation import observe


class TestIdentity(CompilerConformance):
    compiler = "identity"


def make_task(folder: Path, options: Mapping[str, Any]) -> Task:
    """Build a task whose ONNX file is never read."""
    return Task(
        form="onnx",
        module=None,
        onnx=folder / "net.onnx",
        inputs=[],
        arrays=[],
        batch_size=1,
        options=options,
        threads=1,
        cache=folder,
        tuning=Tuning(folder=folder),
    )


def test_onnx_baseline_is_unoptimised_onnxruntime() -> None:
    """For an ONNX file the baseline is ONNX Runtime with its optimisations off, according to the contract."""
    plain = [attempt for attempt in observe("identity", "cpu") if attempt.contract and not attempt.options]
    runtimes = {attempt.form: attempt.contract.runtime for attempt in plain if attempt.contract}

    assert runtimes == {"module": "torch eager", "onnx": "onnxruntime CPUExecutionProvider, graph optimisations off"}


def test_facts_name_the_blas() -> None:
    """The facts name the library behind torch's matrix products."""
    facts = next(attempt.facts for attempt in observe("identity", "cpu") if attempt.form == "module")

    assert facts["blas"] not in {"", "unknown"}


def test_onnx_without_onnxruntime_names_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An ONNX file raises an error with the install command if ONNX Runtime is missing."""
    monkeypatch.setattr(identity, "find_version", lambda package: None)

    with pytest.raises(MissingDependencyError, match=r"pip install 'ngbkit\[onnxruntime\]'"):
        identity.compile(make_task(tmp_path, {}))


def test_the_baseline_fuses_nothing() -> None:
    """The graph of an ONNX file is executed unchanged."""
    explained = [
        attempt.explained for attempt in observe("identity", "cpu") if attempt.form == "onnx" and attempt.contract
    ]

    assert explained
    assert all(0 == counts["nodes_fused"] for counts in explained)
    assert all(counts["nodes_before"] == counts["nodes_after"] for counts in explained)


@pytest.mark.parametrize("option", [{"precision": "bf16"}, {"channels_last": True}])
def test_an_onnx_file_is_run_as_it_is(tmp_path: Path, option: dict[str, str | bool]) -> None:
    """A precision or a layout that an ONNX file does not have is refused, with the remedy, rather than ignored."""
    task = make_task(tmp_path, option)

    with pytest.raises(UnsupportedError, match=rf"invalid option {next(iter(option))} .* Leave .* out"):
        identity.compile(task)


@pytest.mark.parametrize(
    ("torch_lacks", "onnxruntime_lacks", "reason"),
    [("", "", ""), ("no CUDA", "", ""), ("", "no provider", ""), ("no CUDA", "no provider", "no CUDA")],
)
def test_one_runtime_that_has_the_gpu_is_enough(
    monkeypatch: pytest.MonkeyPatch, torch_lacks: str, onnxruntime_lacks: str, reason: str
) -> None:
    """A GPU has a baseline if torch or ONNX Runtime supports it, each for its own kind of workload."""
    monkeypatch.setattr(identity.torch_runtime, "probe_cuda", lambda: torch_lacks)
    monkeypatch.setattr(identity.onnx_form, "probe_cuda", lambda: onnxruntime_lacks)

    assert reason == identity.COMPILER.unavailable("cuda:0")
