"""ONNX Runtime passes the conformance suite, and never replaces a GPU by the CPU."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from attempts import find_attempt
from onnx import TensorProto, helper

from ngbkit.compilers import onnx_graph
from ngbkit.compilers import onnxruntime as compiler
from ngbkit.compilers import onnxruntime_session as strict
from ngbkit.compilers.base import Program, Task, Tuning
from ngbkit.errors import UnsupportedError
from ngbkit.testing import CompilerConformance
from ngbkit.testing.networks import NETWORKS, relative_rmse, run_reference
from ngbkit.testing.observation import observe
from ngbkit.workloads import feeds
from ngbkit.workloads.base import BATCH, TensorSpec

Compile = Callable[..., Program]


class TestOnnxRuntime(CompilerConformance):
    compiler = "onnxruntime"


class TestOnnxRuntimeOnCuda(CompilerConformance):
    compiler = "onnxruntime"
    accelerator = "cuda"


def build_task(exported: Path, folder: Path, accelerator: str = "cpu", threads: int = 2, **options: Any) -> Task:
    return Task(
        form="onnx",
        module=None,
        onnx=exported,
        inputs=NETWORKS["small_conv"]().inputs,
        arrays=[np.random.default_rng(0).standard_normal((1, 3, 16, 16), np.float32)],
        batch_size=1,
        options=compiler.COMPILER.settle(options),
        threads=threads,
        cache=folder,
        accelerator=accelerator,
        tuning=Tuning(folder=folder / "tuning"),
    )


def check_outputs(task: Task, program: Program) -> None:
    expected = run_reference(NETWORKS["small_conv"](), task.arrays)
    outputs = program.fetch(program.run())

    assert len(expected) == len(outputs)
    assert max(map(relative_rmse, expected, outputs)) < 1e-4


def test_fusions_are_counted() -> None:
    """Both convolutions fuse with their activation, which removes two nodes."""
    explained = find_attempt("onnxruntime", optimization="extended").explained

    assert 2 == explained["nodes_fused"] == find_attempt("onnxruntime").explained["nodes_fused"]
    assert explained["nodes_before"] - 2 == explained["nodes_after"]


def test_nothing_is_fused_without_optimisation() -> None:
    """ONNX Runtime executes the graph unchanged if optimisation is off."""
    explained = find_attempt("onnxruntime", optimization="off").explained

    assert explained["nodes_before"] == explained["nodes_after"]
    assert 0 == explained["nodes_fused"]


def test_every_node_ran_where_it_was_asked_to() -> None:
    """All nodes run on the CPU provider, so there are no fallbacks."""
    assert {0} == {attempt.explained["fallbacks"] for attempt in observe("onnxruntime") if attempt.contract}


def test_a_node_on_another_provider_is_a_fallback() -> None:
    """A node counts as one fallback if the profile reports another provider for it, however often it ran."""
    events = [
        {"cat": "Session", "name": "model_run", "args": {}},
        {"cat": "Node", "name": "conv_kernel_time", "args": {"provider": strict.CPU.name}},
        {"cat": "Node", "name": "loop_kernel_time", "args": {"provider": "OtherExecutionProvider"}},
        {"cat": "Node", "name": "loop_kernel_time", "args": {"provider": "OtherExecutionProvider"}},
        {"cat": "Node", "name": "conv_fence_before", "args": {}},
    ]

    assert 1 == strict.count_fallbacks(events, strict.CPU.name)


def test_operators_have_their_number_and_the_median_of_their_seconds() -> None:
    """Each node counts once, and with the median of its calls; on a GPU the profile has no time of its work."""
    durations = {("Conv", 0): (30, 10, 12), ("Conv", 1): (20, 20, 20), ("Relu", 2): (1, 2, 2)}
    events = [
        {"cat": "Node", "name": "_kernel_time", "dur": duration, "args": {"op_name": kind, "node_index": index}}
        for (kind, index), calls in durations.items()
        for duration in calls
    ]
    operators = strict.sum_operators(events, is_timed=True)

    assert {"Conv": 2, "Relu": 1} == operators["operators"]
    assert {"Conv": 32e-6, "Relu": 2e-6} == pytest.approx(operators["operator_s"])
    assert {"operators"} == {*strict.sum_operators(events, is_timed=False)}


def test_spinning_is_off_and_on_it_is_in_the_contract() -> None:
    """Idle threads sleep by default; if they spin, the contract notes it."""
    quiet, spinning = find_attempt("onnxruntime").contract, find_attempt("onnxruntime", spinning=True).contract

    assert quiet is not None
    assert spinning is not None
    assert ("", "idle threads spin") == (quiet.notes, spinning.notes)


def test_a_sum_within_a_convolution_is_a_fusion() -> None:
    """In the internal layout a convolution with a fourth input is a fusion with a sum, and a reorder is none."""
    inner = "com.microsoft.nchwc"
    plain = helper.make_node("Conv", ["x", "w", "b"], ["y"], "plain", domain=inner)
    summed = helper.make_node("Conv", ["x", "w", "", "z"], ["y"], "summed", domain=inner)
    reorder = helper.make_node("ReorderOutput", ["y"], ["o"], "reorder", domain=inner)
    contributed = helper.make_node("FusedMatMul", ["x", "w"], ["y"], "matmul", domain="com.microsoft")
    after = [plain, summed, reorder, contributed]

    assert 2 == onnx_graph.count_fused([], after)
    assert 1 == onnx_graph.count_fused([contributed], after)


def test_constants_are_no_operators(tmp_path: Path) -> None:
    """A constant of a graph computes nothing and is not counted."""
    tensor = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
    nodes = [helper.make_node("Constant", [], ["c"], value=tensor), helper.make_node("Add", ["x", "c"], ["y"])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    onnx.save(helper.make_model(helper.make_graph(nodes, "add", values[:1], values[1:])), tmp_path / "add.onnx")

    assert ["Add"] == [node.op_type for node in onnx_graph.read_operators(tmp_path / "add.onnx")]


def test_importing_it_keeps_no_telemetry(tmp_path: Path) -> None:
    """ONNX Runtime writes no events to the user's home, and opens no network connection."""
    program = """
import os, sys
network = ("socket.connect", "socket.getaddrinfo")
sys.addaudithook(lambda event, args: os._exit(3) if event in network else None)
from ngbkit.compilers.onnxruntime_runtime import onnxruntime
onnxruntime.SessionOptions()
"""
    home = tmp_path / "home"
    home.mkdir()
    folders = {"HOME": str(home), "XDG_CACHE_HOME": str(home), "PYTHONPATH": ":".join(sys.path)}
    process = subprocess.run([sys.executable, "-c", program], check=False, env=folders)

    assert 0 == process.returncode
    assert [] == list(home.rglob("*"))


def test_a_provider_that_this_build_lacks_is_refused(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider missing from the build is unsupported, and the message lists what the build has and the remedy."""
    from ngbkit.compilers.onnxruntime_runtime import onnxruntime

    provider = strict.Provider(name="NowhereExecutionProvider", reason=lambda: "get another")
    monkeypatch.setattr(onnxruntime, "InferenceSession", None)  # never called

    with pytest.raises(UnsupportedError, match=r"^requested Nowhere.*, but this build .* has .*CPU.*: get another$"):
        strict.open_session(exported, onnxruntime.SessionOptions(), provider)


@pytest.mark.parametrize(("threads", "pools"), [(2, (1, 2)), (8, (7, 2))])
def test_both_pools_share_the_threads(threads: int, pools: tuple[int, int]) -> None:
    """Both pools and the calling thread of parallel branches add up to the number of threads."""
    settings = compiler.make_settings(threads, "all", False, "parallel")

    assert pools == (settings.intra_op_num_threads, settings.inter_op_num_threads)
    assert threads == sum(pools) - 1


def test_branches_in_parallel_need_two_threads(exported: Path, tmp_path: Path) -> None:
    """Parallel branches are refused with one thread, because a second would not be in the contract."""
    with pytest.raises(UnsupportedError, match="needs 2 threads, but this device has 1"):
        compiler.compile(build_task(exported, tmp_path, threads=1, execution="parallel"))


def test_sessions_start_no_more_threads_than_the_contract_says(exported: Path, tmp_path: Path) -> None:
    """In either execution mode a session with two threads in its contract starts one besides the caller."""
    program = """
import os, sys
from pathlib import Path
from test_onnxruntime import build_task, compiler
count = lambda: len(os.listdir("/proc/self/task"))
compiler.compile(build_task(Path(sys.argv[1]), Path(sys.argv[2])))  # whatever the runtime starts once
programs = []
for execution in ("sequential", "parallel"):
    initial = count()
    programs.append(compiler.compile(build_task(Path(sys.argv[1]), Path(sys.argv[2]), execution=execution)))
    programs[-1].run()
    print(count() - initial, programs[-1].contract.threads)
"""
    process = subprocess.run(
        [sys.executable, "-c", program, str(exported), str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path), "HOME": str(tmp_path)},
    )

    assert ["1 2", "1 2"] == process.stdout.split("\n")[:2]


def test_parallel_branches_are_in_the_contract() -> None:
    """The contract notes that two operators run at a time."""
    contract = find_attempt("onnxruntime", execution="parallel").contract

    assert contract is not None
    assert "2 operators at a time" == contract.notes


def write_cast(path: Path, source: int, target: int) -> Path:
    """Write a graph that converts x, of shape (batch, 7), to y."""
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], to=target)],
        "g",
        [helper.make_tensor_value_info("x", source, [2, 7])],
        [helper.make_tensor_value_info("y", target, None)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12), path)
    return path


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2fnuz", "int4", "uint4", "int2", "uint2"])
def test_numbers_that_numpy_lacks_go_in_and_come_out(dtype: str, tmp_path: Path) -> None:
    """Types that NumPy lacks are fed by their bits and returned as comparable numbers."""
    values = np.array([0, 1, 1, 0, 1, 0, 1] * 2).reshape(2, 7)
    kind = helper.np_dtype_to_tensor_dtype(feeds.find_dtype(dtype))
    results = []
    for name, source, target in (("float32", TensorProto.FLOAT, kind), (dtype, kind, TensorProto.FLOAT)):
        file = write_cast(tmp_path / f"{name}.onnx", source, target)
        array = values.astype(feeds.find_dtype(name))
        spec = TensorSpec(name="x", shape=(BATCH, 7), dtype=name)
        task = replace(build_task(file, tmp_path), inputs=[spec], arrays=[array], batch_size=2)
        program = compiler.compile(task)
        results.append(program.fetch(program.run())[0])

    for result in results:
        np.testing.assert_array_equal(values, result)
