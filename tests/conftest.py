"""What every test shares: a state folder of its own, small networks, and the plugin whose compilers go wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from accelerators.faking import FakeGpu, adopt, build_driver
from state import NewRuns
from watching import Processes, find_processes

from ngbkit import environment, peaks, registry, runs
from ngbkit.workloads import onnx as onnx_source
from ngbkit.workloads.base import Workload

PLUGINS = Path(__file__).parent / "plugins"


@pytest.fixture(autouse=True, scope="session")
def _plugins() -> Iterator[None]:
    """The faulty compilers are installed, as far as Python can tell, in this process and in those that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PLUGINS)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(PLUGINS), os.environ.get("PYTHONPATH")])))
        registry.refresh()
        yield
    registry.refresh()


@pytest.fixture(autouse=True, scope="session")
def _interruptible() -> Iterator[None]:
    """Ctrl-C reaches the tests, and what they start, also where a shell started them as a job in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def _peaks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This machine's peaks, which a state folder keeps: measured once, and not by each test that runs a plan."""
    folder = tmp_path_factory.mktemp("peaks")
    peaks.load_or_measure(folder, environment.cores_usable())
    file = folder / "peaks.json"
    measured = json.loads(file.read_text())
    (own,) = measured.values()
    for threads in range(1, environment.cores_usable() + 1):
        measured[peaks._key(threads)] = {**own, "quiet": True}
    file.write_text(json.dumps(measured))
    return file


@pytest.fixture(autouse=True)
def state_dir(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, _peaks: Path) -> Path:
    """Nothing that a test does shows in the user's own state folder."""
    folder = tmp_path_factory.mktemp("state")
    shutil.copy(_peaks, folder)
    monkeypatch.setenv("NGBKIT_STATE_DIR", str(folder))
    return folder


@pytest.fixture(autouse=True, scope="session")
def _config_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's own devices are not those of a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NGBKIT_CONFIG_DIR", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture
def new_runs(state_dir: Path) -> NewRuns:
    """Gives the runs that this test has started."""
    known = {summary.id for summary in runs.summaries()}
    return lambda: [summary for summary in runs.summaries() if summary.id not in known]


@pytest.fixture
def processes(state_dir: Path) -> Processes:
    """Finds the processes that work for this test's state folder: see `find_processes`."""
    return partial(find_processes, state_dir)


@pytest.fixture(scope="session")
def mlp_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small ONNX network with a dynamic batch, 16 numbers in and 4 out."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    generator = np.random.default_rng(0)
    weights = [generator.standard_normal(shape).astype(np.float32) for shape in ((16, 32), (32, 4))]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w0"], ["h"]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("MatMul", ["r", "w1"], ["y"]),
        ],
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [numpy_helper.from_array(weight, f"w{index}") for index, weight in enumerate(weights)],
    )
    path = tmp_path_factory.mktemp("onnx") / "mlp.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


@pytest.fixture
def mlp(mlp_file: Path) -> Workload:
    return onnx_source.file(mlp_file)


@pytest.fixture(scope="session")
def driver_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the driver of a GPU that is not there lies, compiled once."""
    return build_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def gpu(driver_folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """That driver, as the one of this process."""
    return adopt(driver_folder, monkeypatch)
