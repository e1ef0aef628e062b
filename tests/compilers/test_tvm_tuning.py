"""Tuning with TVM: its store, resuming, and crashes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from patience import TEST_S, limit_s
from requirements import Requirement, require
from tvm_child import write_network

from ngbkit.compilers.tvm import COMPILER
from ngbkit.compilers.tvm_relax import targets
from ngbkit.errors import UnsupportedError, UsageError
from ngbkit.hardware import subprocesses
from ngbkit.registry import find_version

CHILD = Path(__file__).with_name("tvm_child.py")
TVM = Requirement(name="TVM", install=COMPILER.install)

Tune = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require(TVM, present=not COMPILER.find_package_problem())
    path = tmp_path_factory.mktemp("tvm") / "tiny.onnx"
    write_network(path)
    return path


def tune_in_child(
    onnx_file: Path, folder: Path, die_at: int | None = None, sweep_seconds: float | None = None, **options: Any
) -> dict[str, Any]:
    request = {"onnx": str(onnx_file), "folder": str(folder), "options": options, "die_at": die_at}
    request["seconds"] = sweep_seconds
    command = [sys.executable, str(CHILD), json.dumps(request)]
    if die_at is not None:
        ended = subprocess.run(command, capture_output=True, check=False)
        return {"exit": ended.returncode}
    answer: dict[str, Any] = subprocesses.run_json(command, environment=os.environ, timeout_s=limit_s(TEST_S))
    return answer


@pytest.fixture
def tune(onnx_file: Path, tmp_path: Path) -> Tune:
    """Return a function that compiles the tiny network in a process of its own, below a folder of this test."""

    def run(folder: Path = tmp_path, **options: Any) -> dict[str, Any]:
        return tune_in_child(onnx_file, folder, **options)

    return run


def list_results(folder: Path) -> list[Path]:
    return sorted((folder / "tvm").iterdir())


def read_candidates(result: Path) -> list[str]:
    return [json.loads(line)["candidate"] for line in (result / "records.jsonl").read_text().splitlines()]


def test_a_tuned_network_is_kept_and_labelled(tune: Tune, tmp_path: Path) -> None:
    """The requested candidates are tried, each once; the second compile loads the first one's library."""
    untuned, first, second = tune(), tune(total=8), tune(total=8)
    (result,) = list_results(tmp_path)
    meta = json.loads((result / "meta.json").read_text())

    assert (untuned["notes"], untuned["reused_s"]) == ("untuned", 0.0)
    assert (first["notes"], first["facts"]["cache"], first["reused_s"]) == ("tuned, 8 candidates", "miss", 0.0)
    assert first["facts"]["complete"]
    np.testing.assert_allclose(first["output"], untuned["output"], rtol=1e-4, atol=1e-5)
    assert len(set(read_candidates(result))) == 8
    assert [done for done, _, _ in first["reports"]] == sorted(done for done, _, _ in first["reports"])
    assert first["reports"][-1][:2] == [8, 8]
    assert first["reports"][-1][2] > 0
    assert (second["facts"]["cache"], second["reports"]) == ("hit", [])
    assert second["reused_s"] > meta["tuning_s"] > 0
    assert second["output"] == first["output"]
    assert (meta["candidates"], meta["versions"]["apache-tvm"]) == (8, find_version("apache-tvm"))
    assert not any(compiled["torch"] for compiled in (untuned, first, second))
    assert not [path for path in tmp_path.rglob("*") if "draft" in path.name]


def test_a_killed_tuning_goes_on_elsewhere(tune: Tune, tmp_path: Path) -> None:
    """Candidates tried before a kill are not tried again, even after the folder was copied elsewhere."""
    killed = tune(total=8, die_at=4)
    (result,) = list_results(tmp_path)
    earlier = read_candidates(result)
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / "tvm", elsewhere / "tvm")
    resumed = tune(folder=elsewhere, total=8)
    (copied,) = list_results(elsewhere)

    assert killed["exit"] == -signal.SIGKILL
    assert 4 <= len(earlier) < 8
    assert read_candidates(copied)[: len(earlier)] == earlier
    assert len(set(read_candidates(copied))) == len(read_candidates(copied)) == 8
    assert resumed["reused_s"] > 0
    assert str(tmp_path) not in "".join(path.read_text("latin-1") for path in copied.rglob("*") if path.is_file())


def test_a_larger_budget_starts_from_a_smaller_one(tune: Tune, tmp_path: Path) -> None:
    """A search takes over the records of a smaller budget, and a result cut short by the sweep stays incomplete.

    With complete records but no library, the library is rebuilt without further candidates.
    """
    tune(total=4, die_at=2)
    small = tune(total=4, sweep_seconds=0.0)
    cut_short = small["facts"]["complete"]
    spent = tune(total=4, sweep_seconds=0.0)
    small_again = tune(total=4)
    (smaller,) = list_results(tmp_path)
    large = tune(total=7)
    (larger,) = (result for result in list_results(tmp_path) if result != smaller)
    earlier = read_candidates(larger)
    shutil.rmtree(tmp_path / "cache")
    rebuilt = tune(total=7)

    assert (small["notes"], cut_short) == ("tuned, 2 candidates", False)
    assert (spent["notes"], spent["facts"]["cache"]) == ("tuned, 2 candidates", "hit")
    assert (small_again["notes"], small_again["facts"]["complete"]) == ("tuned, 4 candidates", True)
    assert read_candidates(larger)[:4] == read_candidates(smaller)
    assert large["notes"] == "tuned, 7 candidates"
    assert large["reused_s"] > 0
    assert (rebuilt["facts"]["cache"], read_candidates(larger)) == ("miss", earlier)
    assert rebuilt["reused_s"] > large["reused_s"]
    np.testing.assert_allclose(rebuilt["output"], large["output"], rtol=1e-5)


def test_a_spent_sweep_leaves_nothing_to_compile(tune: Tune) -> None:
    """A network whose turn starts after the sweep's budget is spent is unsupported, with the remedy in the message."""
    assert (
        "budget was spent before this network's turn; give the sweep more" in tune(total=4, sweep_seconds=0.0)["error"]
    )


def test_code_for_a_gpu_needs_none() -> None:
    """TVM compiles for a GPU of a given compute capability without one, untuned and with a schedule per function."""
    require(TVM, present=not COMPILER.find_package_problem())
    program = """
import json

import numpy as np
from ngbkit.compilers.tvm_relax import lowering, targets
from ngbkit.compilers.tvm_runtime import relax, tvm
from tvm.script import relax as R

target = targets.find_target("cuda", 2, (9, 0))
builder = relax.BlockBuilder()
value = relax.Var("value", R.Tensor((8, 16), "float32"))
with builder.function("main", [value]):
    with builder.dataflow():
        weight = relax.const(np.ones((16, 32), np.float32))
        out = builder.emit_output(builder.emit(relax.op.matmul(value, weight)))
    builder.emit_func_output(out)
lowered = lowering.generate_code(lowering.fuse_default(builder.get(), target), target)
print(json.dumps([str(target), list(lowered.calls), [list(weight.shape) for weight in lowered.weights]]))
"""
    command = [sys.executable, "-c", program]
    target, calls, weights = subprocesses.run_json(command, environment=os.environ, timeout_s=limit_s(TEST_S))

    assert '"arch":"sm_90"' in target
    assert len(calls) == 1
    assert weights == [[16, 32]]


@pytest.mark.parametrize("options", [{"trials": -1}, {"seconds": -0.5}, {"seconds": float("inf")}])
def test_budgets_below_nothing_are_refused(options: dict[str, Any]) -> None:
    """A limit must be finite and at least 0."""
    task: Any = SimpleNamespace(options=COMPILER.settle(options))

    with pytest.raises(UsageError, match="expected 0 or more"):
        COMPILER.compile(task)


def test_which_options_tune() -> None:
    """Every limit enables tuning, alone or with others; without one there is none."""
    assert not COMPILER.tunes(COMPILER.settle({}))
    assert all(COMPILER.tunes(COMPILER.settle({name: 1})) for name in COMPILER.options)


@pytest.mark.parametrize(
    ("tvm", "ffi", "crashes"),
    [
        ("0.27.0.post1", "0.1.14.post0", False),
        ("0.27.0.post1", "0.1.15.post2", True),
        ("0.27.0.post1", "0.2.0", True),
        ("0.28.0", "0.2.0", False),
    ],
)
def test_versions_that_crash_are_refused(monkeypatch: pytest.MonkeyPatch, tvm: str, ffi: str, crashes: bool) -> None:
    """A pair of versions known to crash is refused in advance, with the remedy; others are tried."""
    monkeypatch.setattr(targets, "find_spec", lambda module: module)
    installed = {"apache-tvm": tvm, "apache-tvm-ffi": ffi}
    if not crashes:
        targets.check_tuning(installed)
        return

    with pytest.raises(UnsupportedError, match=r"crashes with apache-tvm-ffi .*pip install 'ngbkit\[tvm\]'"):
        targets.check_tuning(installed)


def test_a_missing_cost_model_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tuning is refused if XGBoost is missing, and the message has the install command."""
    monkeypatch.setattr(targets, "find_spec", lambda module: None if module == "xgboost" else module)

    with pytest.raises(UnsupportedError, match=r"tuning needs xgboost, .*pip install 'ngbkit\[tvm\]'"):
        targets.check_tuning({"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post0"})
