"""The process that measures is in the folder, the path and the variables of the line that asked for the plan."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import plans
import pytest
from state import share_state_dir

from ngbkit import options, runs
from ngbkit.api import Sweep
from ngbkit.cluster import engines
from ngbkit.device.isolation import server_pool
from ngbkit.device.isolation.servers import Child
from ngbkit.device.spec import Spec
from ngbkit.device.world import World
from ngbkit.runs.progress_display import list_warnings
from ngbkit.workloads import cell, files
from ngbkit.workloads.base import Workload

state_dir = pytest.fixture(autouse=True, scope="module")(share_state_dir)

# Its parameters are five times what the folder, the path and the variables say.
CELL = """
import os
import torch
from aside import width
from helper import depth
rows = int(open("rows.txt").read()) * int(os.environ.get("NGB_ROWS", "1"))
model = torch.nn.Linear(width * depth * rows, 5, bias=False)
input_shape = (width * depth * rows,)
"""


def make_folder(folder: Path, *, depth: int, rows: int) -> Path:
    """Make a folder of a notebook, with a file that hides a module of Python from whoever imports from there first."""
    folder.mkdir()
    (folder / "helper.py").write_text(f"depth = {depth}\n")
    (folder / "rows.txt").write_text(str(rows))
    (folder / "queue.py").write_text("raise ImportError('the queue.py of a user')\n")
    return folder


def measure() -> int:
    """Measure the cell, and return the number of its parameters."""
    data = Sweep(cell.from_source(CELL), repeats=5).run()
    assert {"ok"} == set(data["status"].values.ravel()), data["error"].values.ravel()
    return int(data["parameters"].item())


@pytest.fixture
def spec(mlp: Workload) -> Spec:
    sweep = Sweep(mlp, ["onnxruntime"])
    return Spec(run_id="run", device="cpu", state_dir=options.get_state_dir(), sweep=sweep, world=World(folder="/"))


@pytest.fixture
def fork(spec: Spec) -> Callable[[World], Child]:
    return lambda world: server_pool.get_servers(replace(spec, world=world)).fork(["json"])


def read_environment(child: Child) -> dict[str, str]:
    """Read the variables that the server of a child began with."""
    process = child.server._process
    assert process is not None
    entries = Path(f"/proc/{process.pid}/environ").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in entries if entry)


def test_a_cell_sees_the_present_folder_path_and_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell sees the client's present folder, path and variables, not its engine's."""
    aside = tmp_path / "aside"
    aside.mkdir()
    (aside / "aside.py").write_text("width = 2\n")
    monkeypatch.syspath_prepend(str(aside))
    monkeypatch.chdir(make_folder(tmp_path / "first", depth=3, rows=4))
    first = measure()
    other = tmp_path / "other"
    other.mkdir()
    (other / "aside.py").write_text("width = 11\n")
    monkeypatch.syspath_prepend(str(other))
    monkeypatch.chdir(make_folder(tmp_path / "second", depth=5, rows=7))
    monkeypatch.setenv("NGB_ROWS", "13")

    assert [5 * 2 * 3 * 4, 5 * 11 * 5 * 7 * 13] == [first, measure()]


def test_children_are_in_the_folder_of_their_world(fork: Callable[[World], Child], tmp_path: Path) -> None:
    """One server forks children into the folders of their worlds."""
    children = [fork(World(folder=str(folder))) for folder in (tmp_path, tmp_path.parent)]
    folders = [Path(f"/proc/{child.pid}/cwd") for child in children if child.ask({"op": "usage"}, 60)]
    paths = [str(folder.readlink()) for folder in folders]
    for child in children:
        child.end()

    assert [str(tmp_path), str(tmp_path.parent)] == paths
    assert children[0].server is children[1].server


def test_a_removed_folder_leads_nowhere(fork: Callable[[World], Child], tmp_path: Path) -> None:
    """A child works in its server's folder if the client's folder is removed."""
    child = fork(World(folder=str(tmp_path / "missing")))
    child.ask({"op": "usage"}, 60)
    folder = Path(f"/proc/{child.pid}/cwd").readlink()
    child.end()

    assert child.server.folder == folder


@pytest.mark.usefixtures("cold_servers")
def test_other_variables_need_other_servers(fork: Callable[[World], Child], monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries read them when they are imported; those of ngbkit win, and a removed one is gone."""
    monkeypatch.setenv("NGB_REMOVED", "1")
    variables = {"NGB_COLOUR": "blue", "NGB_REMOVED": None, "OMP_NUM_THREADS": "77", "OMP_WAIT_POLICY": "ACTIVE"}
    first = fork(World(folder="/"))
    before = read_environment(first)
    second, third = (fork(World(folder="/", variables=dict(variables))) for _ in range(2))
    after = read_environment(second)
    for child in (first, second, third):
        child.end()

    assert "NGB_COLOUR" not in before
    assert "1" == before["NGB_REMOVED"]
    assert ("blue", "ACTIVE") == (after["NGB_COLOUR"], after["OMP_WAIT_POLICY"])
    assert "NGB_REMOVED" not in after
    assert before["OMP_NUM_THREADS"] == after["OMP_NUM_THREADS"] != "77"
    assert second.server is third.server
    assert not first.server.alive


def test_servers_survive_the_end_of_their_folder(fork: Callable[[World], Child]) -> None:
    """A user may remove the state folder at any time; children could not write their output."""
    first = fork(World(folder="/"))
    first.end()
    shutil.rmtree(first.server.folder.parent)
    second = fork(World(folder="/"))
    reply = second.ask({"op": "usage"}, 60)
    second.end()

    assert reply["peak_memory_bytes"] > 0


def test_the_working_folder_is_the_last_of_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file in it hides a module; what the user has added keeps its order, and relative entries become absolute."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["/first", str(tmp_path), "", "/lib/python3", "nets", "/last"])
    world = World.capture()

    assert str(tmp_path) == world.folder
    assert ("/first", "/lib/python3", str(tmp_path / "nets"), "/last") == world.path


def test_a_local_package_that_engines_do_not_import_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run warns of a fork in the working folder, unless a PYTHONPATH of the start makes it that of engines, too."""
    fork, sweep = tmp_path / "timm", Sweep("resnet18", ["identity"])
    fork.mkdir()
    (fork / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    before, other = (World.capture().list_warnings(networks) for networks in (sweep.workloads, cell.from_source(CELL)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    late = World.capture().list_warnings(sweep.workloads)
    monkeypatch.setattr(files, "_PYTHON_PATH", {str(tmp_path)})
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), "/installed"])
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "script.py"), raising=False)
    world = World.capture()

    assert ["timm"] == list(before) == list(late)
    assert "imports timm of its folder, and engines the installed one" in before["timm"][0]
    assert {} == other
    assert (str(tmp_path), "/installed") == world.path
    assert {} == world.list_warnings(sweep.workloads)


def test_a_world_without_a_folder_is_captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The notebook's own folder may have been removed."""
    folder = tmp_path / "removed"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()

    assert "" == World.capture().folder


def test_only_changed_variables_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither those of the devices file, nor those that change with every line, nor any that the engine has."""
    monkeypatch.setenv("NGB_COLOUR", "blue")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "this one")
    start = {**os.environ, "NGB_COLOUR": "red", "NGB_REMOVED": "1", "CUDA_VISIBLE_DEVICES": "0"}
    captured = World.capture()
    near = captured.compare(start, ["CUDA_VISIBLE_DEVICES"], shares_packages=True)
    far = captured.compare(start, [], shares_packages=False)

    assert {"NGB_COLOUR": "blue", "NGB_REMOVED": None} == near.variables
    assert captured.path == near.path
    assert () == far.path


def test_variables_are_never_displayed_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of a world are never displayed or written, as they may be secret."""
    monkeypatch.setenv("NGB_TOKEN", "secret")
    monkeypatch.chdir(make_folder(tmp_path / "first", depth=1, rows=1))
    file, network = tmp_path / "world.json", Workload(name="net", source="cell", spec={}, path="/nets/net.py")
    world = World.capture([network]).restore(file)
    monkeypatch.chdir(tmp_path)
    resumed = World.capture().restore(file)
    shutil.rmtree(tmp_path / "first")
    moved = World.capture().restore(file)

    assert "secret" not in repr(world) + file.read_text()
    assert (str(tmp_path / "first"), {"net": "/nets/net.py"}) == (resumed.folder, resumed.files)
    assert "secret" == resumed.variables["NGB_TOKEN"]
    assert str(tmp_path) == moved.folder


def test_a_world_travels_with_its_plan(spec: Spec) -> None:
    """The JSON of a plan has its world, or none if the plan has none."""
    world = World(folder="/nets", path=("/lib",), variables={"A": "1", "B": None}, files={"net": "/nets/net.py"})

    assert world == Spec.from_json(replace(spec, world=world).to_json()).world
    assert json.loads(replace(spec, world=None).to_json())["world"] is None


def test_a_cell_names_the_surroundings_that_it_uses(tmp_path: Path) -> None:
    """A device elsewhere has others; installed packages and arithmetic are the same."""
    make_folder(tmp_path / "notebook", depth=1, rows=1)
    text = dedent(CELL) + "\nfrom .blocks import x\n"
    (workload,) = cell.from_source(text)
    (plain,) = cell.from_source("import torch\nmodel = torch.nn.Linear(4, 2)\ninput_shape = (4,)")

    assert {"helper", "environ", ".blocks"} == set(cell.list_surroundings(workload, [str(tmp_path / "notebook")]))
    assert [] == cell.list_surroundings(plain, [str(tmp_path / "notebook")])


def test_a_removed_state_folder_is_made_anew(mlp: Workload, peaks_file: Path) -> None:
    """A plan that finds nothing of the last one measures as the first one did."""
    sweep = Sweep(mlp, ["onnxruntime"], repeats=5)
    first, _ = plans.carry_out(sweep)
    shutil.rmtree(options.get_state_dir())
    shutil.copy(peaks_file, options.make_state_dir())
    second, _ = plans.carry_out(sweep)

    assert ["ok", "ok"] == [record.status for records in (first, second) for record in records.values()]


def test_a_run_warns_of_cells_that_use_the_surroundings_of_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run warns of cells that use files or variables of the client."""
    monkeypatch.chdir(tmp_path)
    engines.stop("cpu")  # which another test may have started in a folder with the same files
    remote = replace(engines.acquire("cpu"), adapt=lambda _: None)
    monkeypatch.chdir(make_folder(tmp_path / "notebook", depth=1, rows=1))
    run = runs.start(Sweep(cell.from_source(CELL), repeats=5), engines={"cpu": remote})
    run.wait()
    warnings = list_warnings(run)

    assert (
        "model on cpu: it uses environ, helper, and cpu has a folder, variables and modules of its own. "
        "Pass values with --inputs, or put the same files there"
    ) in warnings
    assert {"failed"} == set(run.statuses.values())


def test_a_run_warns_of_files_that_another_machine_read(tmp_path: Path) -> None:
    """A network that was built from a file of another machine may be another one there."""
    (tmp_path / "rows.txt").write_text("4")
    source = f"import torch\nmodel = torch.nn.Linear(int(open({str(tmp_path / 'rows.txt')!r}).read()), 2)\n"
    remote = replace(engines.acquire("cpu"), adapt=lambda _: None)
    sweep = Sweep(cell.from_source(f"{source}input_shape = (4,)"), ["identity"], repeats=5)
    run = runs.start(sweep, engines={"cpu": remote})
    run.wait()

    assert any("the build of model on cpu: it read rows.txt" in warning for warning in list_warnings(run))
