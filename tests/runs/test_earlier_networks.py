"""The networks of an earlier run that a sweep measures again beside its own."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from drawn import measured, network
from journalled import store_run

from ngbkit import options
from ngbkit.api import Sweep
from ngbkit.device import contents
from ngbkit.errors import UsageError
from ngbkit.files import Store
from ngbkit.options import LAYOUT
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.trials import facts_key
from ngbkit.workloads.base import Workload
from ngbkit.workloads.cell import from_source
from ngbkit.workloads.content.manifests import BuildManifest, FileSet

CELL = "\nimport torch\nmodel = torch.nn.Linear(4, 2)\ninput_shape = (4,)\n"
BOTH = "\nimport torch\nmodels = {'a': torch.nn.Linear(4, 2), 'b': torch.nn.Linear(4, 3)}\ninput_shape = (4,)\n"


def build_sweep(cell: str, **more: object) -> Sweep:
    return Sweep(from_source(cell, name="model"), ["identity", "openvino"], [1, 4], repeats=10, **more)


def test_earlier_cells_take_turns_with_new_ones() -> None:
    """The cell of the earlier dataset gets its label and the bundle of the new one at each batch size."""
    earlier = measured(*from_source(CELL))
    sweep = build_sweep(CELL.replace("2)", "8)")).beside(earlier, "it2")

    assert ["model", "model (it2)"] == [workload.name for workload in sweep.workloads]
    assert CELL == sweep.workloads[1].spec["source"]
    assert [4, 4] == [len(bundle.trials) for bundle in sweep.bundles("cpu")]


def test_a_chain_of_iterations_measures_the_latest_two() -> None:
    """Networks that the earlier run itself measured again are left out."""
    again = build_sweep(CELL).beside(measured(*from_source(CELL)), "it1")
    sweep = build_sweep(CELL).beside(measured(*again.workloads), "it2")

    assert ["model", "model (it2)"] == [workload.name for workload in sweep.workloads]


def test_networks_are_matched_by_name_or_by_place() -> None:
    """Networks without a counterpart in the new sweep are left out, and a renamed one has its place."""
    earlier = measured(*from_source(BOTH))
    names = [
        [workload.name for workload in build_sweep(cell).beside(earlier, "it2").workloads]
        for cell in (BOTH, BOTH.replace("'b'", "'c'"), BOTH.replace(", 'b': torch.nn.Linear(4, 3)", ""))
    ]

    assert [["a", "b", "a (it2)", "b (it2)"], ["a", "c", "a (it2)", "b (it2)"], ["a", "a (it2)"]] == names


def test_factors_have_the_values_of_the_new_sweep() -> None:
    """An earlier network is measured at the new values of the factors that both vary."""
    takes = "\nimport torch\nmodel = lambda width: torch.nn.Linear(4, width)\ninput_shape = (4,)\n"
    first = measured(*(workload.with_factors({"width": (2, 4)}) for workload in from_source(takes)))
    sweep = build_sweep(takes.replace("4, w", "4, 2 * w"), factors={"width": [8]})

    assert [{"width": (8,)}] * 2 == [workload.factors for workload in sweep.beside(first, "it2").workloads]


def edit_helper(folder: Path) -> Workload:
    """Build a network of a file whose helper is edited after its run."""
    (folder / "parts.py").write_text("WIDTH = 2\n")
    path = folder / "small.py"
    path.write_text(CELL.replace("\nmodel", "\nfrom parts import WIDTH\nmodel"))
    workload = Sweep(str(path)).workloads[0]
    manifest = BuildManifest(files=FileSet.read([str(folder / "parts.py")]))
    manifests = contents.open_manifests(options.get_state_dir(), "cpu")
    manifests.add("recipe", "content", manifest, manifests.add_packages([])[0])
    run = store_run("20260101-000000-aa", Sweep(workload), records=[])
    with Journal(run / "journal.sqlite") as journal:
        journal.note("content", facts_key("small", {}), {"cpu": {"digest": "content", "settings": ""}})
    (folder / "parts.py").write_text("WIDTH = 8\n")
    return workload


def replay_elsewhere(folder: Path) -> Workload:
    """Build a network of a file whose run is a recording of another machine."""
    workload = edit_helper(folder)
    shutil.rmtree(options.get_state_dir() / LAYOUT.manifests)
    (folder / "parts.py").write_text("WIDTH = 2\n")
    return workload


def remove_file(folder: Path) -> Workload:
    """Build a network of a file that the state folder no longer has."""
    return Workload(name="small", source="onnx", spec={"inputs": []}, artifacts={"0" * 32: folder / "small.onnx"})


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (edit_helper, "the modules that it imports have changed since"),
        (replay_elsewhere, "the modules that it imports have changed since, or are not those of this machine"),
        (remove_file, "its files are no longer in the"),
    ],
)
def test_a_network_that_cannot_be_as_it_was_is_refused(
    tmp_path: Path, build: Callable[[Path], Workload], reason: str
) -> None:
    """A sentence says why a network of the earlier run cannot be measured again."""
    workload = build(tmp_path)
    earlier = measured(workload).assign_attrs(run_id="20260101-000000-aa")
    path = tmp_path / "small.py"
    path.write_text(path.read_text() if path.exists() else CELL)

    with pytest.raises(UsageError, match=f"small of it2 cannot be measured again: {reason}"):
        Sweep(str(path)).beside(earlier, "it2")


def test_an_unchanged_helper_is_measured_again(tmp_path: Path) -> None:
    """A file is measured again with the modules beside it, if they are as the run had them."""
    workload = edit_helper(tmp_path)
    (tmp_path / "parts.py").write_text("WIDTH = 2\n")
    sweep = Sweep(workload).beside(measured(workload).assign_attrs(run_id="20260101-000000-aa"), "it2")

    assert ["small", "small (it2)"] == [workload.name for workload in sweep.workloads]
    assert [workload.path] * 2 == [workload.path for workload in sweep.workloads]


def test_a_stored_file_is_measured_again(tmp_path: Path, state_dir: Path) -> None:
    """The files of an earlier network are those of the state folder."""
    (tmp_path / "net.onnx").write_bytes(b"graph")
    digest = Store(state_dir / LAYOUT.artifacts).add(tmp_path / "net.onnx")
    workload = Workload(name="net", source="onnx", spec={"inputs": []}, artifacts={digest: tmp_path / "net.onnx"})
    earlier = measured(workload)
    (tmp_path / "net.onnx").write_bytes(b"another")
    sweep = Sweep(network("net")).beside(earlier, "it2")

    assert b"graph" == sweep.workloads[1].artifacts[digest].read_bytes()


@pytest.mark.parametrize(
    ("sweep", "change", "reason"),
    [
        (build_sweep(CELL, interleave=False), {}, "got interleave=False beside an earlier run"),
        (build_sweep(CELL), {"sweep": ""}, "got a dataset without its sweep"),
        (build_sweep(CELL), {"run_id": "a, b"}, "got a merged dataset; expected that of one run"),
        (build_sweep(BOTH), {}, "invalid networks beside it2: got a, b, where it2 has model; expected the same names"),
    ],
)
def test_what_cannot_take_turns_is_refused(sweep: Sweep, change: dict[str, str], reason: str) -> None:
    """A sweep without turns, a dataset of no run or of several, and networks without a counterpart are errors."""
    earlier = measured(*from_source(CELL)).assign_attrs(change)

    with pytest.raises(UsageError, match=re.escape(reason)):
        sweep.beside(earlier, "it2")
