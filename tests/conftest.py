"""Fixtures that all tests share: a state folder each, small networks, and the plugin with faulty compilers."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import durations
import numpy as np
import psutil
import pytest
import requirements
import rooms
from hardware.accelerators.faking import FakeGpu, adopt, build_driver
from patience import TEST_S, limit_s
from state import NewRuns, make_state_dir
from watching import Processes, find_processes

from ngbkit import options, registry, runs
from ngbkit.cluster import engines
from ngbkit.device import peaks
from ngbkit.hardware import environment
from ngbkit.testing import observation
from ngbkit.workloads import onnx as onnx_source
from ngbkit.workloads.base import Workload

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PLUGINS = Path(__file__).parent / "plugins"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the targets in the Makefile."""
    group = parser.getgroup("ngbkit")
    group.addoption("--quick", action="store_true", help="only files whose tests take less than a second each")
    group.addoption("--short", action="store_true", help="no long tests, except guards and what a path or -k names")
    group.addoption("--long-since", metavar="COMMIT", help="only long tests, of the rooms that have changed since")
    group.addoption("--record-durations", action="store_true", help=f"write {durations.RECORD.name}")


def pytest_configure(config: pytest.Config) -> None:
    """Compute on one thread a process: the threads of several processes would wait for each other on two cores."""
    config.addinivalue_line("markers", "guard: one of the long tests of a room that run after each change")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the import of files that are not quick, with ``--quick``."""
    if config.getoption("--quick") and collection_path.name.startswith("test_"):
        file = collection_path.relative_to(config.rootpath).as_posix()
        return None if durations.is_quick(file, durations.load()) else True
    return None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that the options ask for, and run the files that take longest first."""
    seconds, since = durations.load(), config.getoption("--long-since")
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    if since or (config.getoption("--short") and is_whole):
        changed = rooms.list_changed(since) if since else None
        is_chosen = {
            item: (durations.is_short(item, seconds) or item.get_closest_marker("guard") is not None) != bool(since)
            and (changed is None or rooms.is_affected(item.nodeid.partition("::")[0], changed))
            for item in items
        }
        config.hook.pytest_deselected(items=[item for item in items if not is_chosen[item]])
        items[:] = [item for item in items if is_chosen[item]]
    items[:] = [items[index] for index in durations.order_tests([item.nodeid for item in items], seconds)]


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Note the seconds of a fixture that several tests of a folder share."""
    began = time.perf_counter()
    value = yield
    if fixturedef.scope != "function" and fixturedef.baseid != "tests":
        seconds = time.perf_counter() - began
        request._pyfuncitem.user_properties.append((durations.PROPERTY, (durations.name_fixture(fixturedef), seconds)))
    return value


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Limit each test to the time that this machine needs now, unless ``--timeout`` sets a limit."""
    if item.config.getoption("timeout") is None:
        item.add_marker(pytest.mark.timeout(limit_s(TEST_S)))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Add the missing requirement to the report of a skipped test."""
    report = yield
    requirement = getattr(call.excinfo and call.excinfo.value, "requirement", None)
    if requirement is not None:
        report.user_properties.append((requirements.PROPERTY, (requirement.name, requirement.install)))
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
    """Print a last line before the counts on the skipped tests, and how to install what they need."""
    yield
    stats = terminalreporter.stats
    # A worker reports its own tests, and writes while others read the checkout.
    if terminalreporter.config.getoption("--record-durations") and not hasattr(terminalreporter.config, "workerinput"):
        reports = (report for name in ("passed", "skipped", "failed", "error", "") for report in stats.get(name, []))
        elapsed_s = time.time() - psutil.Process().create_time()
        option = terminalreporter.config.option
        is_part = option.short or option.lf or option.long_since is not None
        durations.save(reports, elapsed_s * environment.count_usable_cores(), is_part=is_part)
    skipped = [dict(report.user_properties) for report in stats.get("skipped", [])]
    missing = [properties[requirements.PROPERTY] for properties in skipped if requirements.PROPERTY in properties]
    if line := requirements.summarize(missing):
        terminalreporter.write_line(line, yellow=True)


@pytest.fixture(autouse=True, scope="session")
def _plugins() -> Iterator[None]:
    """Make the faulty compilers appear installed in this process and in its children."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PLUGINS)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(PLUGINS), os.environ.get("PYTHONPATH")])))
        registry.refresh()
        yield
    registry.refresh()


@pytest.fixture(autouse=True, scope="session")
def _observed(pytestconfig: pytest.Config) -> Iterator[None]:
    """Cache the outputs of compilers for the conformance cases until their inputs change."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(observation.FOLDER, str(pytestconfig.cache.mkdir("observed")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _impatient() -> Iterator[None]:
    """Repeat no contended turn: beside other tests nearly all are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(options.PATIENCE, "0")
        yield


@pytest.fixture(autouse=True, scope="session")
def _unloaded() -> Iterator[None]:
    """Start no engine in the kernels of tests that measure nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(options.PRELOAD, "0")
        yield


@pytest.fixture(autouse=True, scope="session")
def _interruptible() -> Iterator[None]:
    """Deliver Ctrl-C and SIGHUP to the tests and their children, also those of a background job and of nohup."""
    defaults = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    handlers = {number: signal.signal(number, default) for number, default in defaults.items()}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def peaks_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The peaks of this machine, measured once for all tests that run a plan."""
    folder = tmp_path_factory.mktemp("peaks")
    peaks.load_or_measure(folder, environment.count_usable_cores())
    file = folder / "peaks.json"
    measured = json.loads(file.read_text())
    (machine,) = measured.values()
    for threads in range(1, environment.count_usable_cores() + 1):
        measured[peaks.build_key(threads)] = {**machine, "quiet": True}
    file.write_text(json.dumps(measured))
    return file


@pytest.fixture(autouse=True)
def state_dir(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, peaks_file: Path) -> Path:
    """A state folder of the test, so that it never touches the user's own."""
    folder = make_state_dir(tmp_path_factory, peaks_file)
    monkeypatch.setenv("NGBKIT_STATE_DIR", str(folder))
    return folder


@pytest.fixture(autouse=True)
def _no_work_outlives_the_test(state_dir: Path) -> Iterator[None]:
    """End the threads of a test before the next one, in whose state folder they would go on."""
    earlier = set(threading.enumerate())
    yield
    deadline = time.monotonic() + limit_s(20)
    names = "ngbkit-run-", "ngbkit-device-", "ngbkit-panel-", "ngbkit-preload"
    threads = [thread for thread in set(threading.enumerate()) - earlier if thread.name.startswith(names)]
    for thread in threads:
        thread.join(max(0, deadline - time.monotonic()))
    assert [] == [thread.name for thread in threads if thread.is_alive()]


@pytest.fixture(scope="session")
def shared_state_dir(tmp_path_factory: pytest.TempPathFactory, peaks_file: Path) -> Iterator[Path]:
    """The state folder of the modules that share one."""
    yield make_state_dir(tmp_path_factory, peaks_file)
    engines.close()


@pytest.fixture(autouse=True, scope="session")
def _config_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide the devices of the user from tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NGBKIT_CONFIG_DIR", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser without a window, for one module: Playwright's event loop runs as long, and allows no other."""
    from lab import launch_browser

    with launch_browser() as browser:
        yield browser


@pytest.fixture
def new_runs(state_dir: Path) -> NewRuns:
    """A function that lists the runs that this test has started."""
    earlier = {summary.id for summary in runs.summaries()}
    return lambda: [summary for summary in runs.summaries() if summary.id not in earlier]


@pytest.fixture
def processes(state_dir: Path) -> Processes:
    """A function that finds the processes of this test's state folder: see `find_processes`."""
    return partial(find_processes, state_dir)


@pytest.fixture(scope="session")
def mlp_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small ONNX network with a dynamic batch, 16 inputs and 4 outputs."""
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
    """The folder of a simulated GPU driver, compiled once."""
    return build_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def gpu(driver_folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """The simulated driver, loaded into this process."""
    return adopt(driver_folder, monkeypatch)
