"""Examples from a dataset: a graph and its seconds, each once, and what keeps variants together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mergeable import network, run, sweep
from onnxgraphs import residual

from ngbkit import merge, predictor, set_options
from ngbkit.errors import UsageError
from ngbkit.files import Store
from ngbkit.options import make_state_dir
from ngbkit.predictor import examples as room
from ngbkit.workloads.base import Workload


@pytest.fixture(autouse=True)
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which networks were built: one with a depth is as deep, and a name says how wide the others are."""
    names: list[str] = []

    def graph(workload: Workload, batch_size: int = 1, factors: dict | None = None) -> predictor.Graph:
        names.append(workload.name)
        width = 8 if workload.name.startswith("same") else 16
        return predictor.read(residual(tmp_path, width, int((factors or {}).get("depth", 1))), batch_size)

    monkeypatch.setattr(room, "graph", graph)
    return names


def test_a_row_a_network_and_a_column_a_runtime() -> None:
    """The seconds are the medians of each trial; a name says factors and batch size."""
    data = run(sweep(network("resnet9", depth=(1, 2)), batch_sizes=[1, 4], devices=["cpu", "orin"]))
    found = predictor.collect(data)

    assert 4 == len(found)
    assert ("cpu", "identity") == found.runtimes[0]
    assert 6 == len(found.runtimes)
    assert "resnet9 depth=2 batch 4" == found.names[3]
    assert ({"resnet"}, {"resnet9"}, {""}) == tuple(map(set, (found.families, found.parents, found.rules)))
    trial = data.sel(workload="resnet9", depth=2, batch_size=4, device="orin", compiler="openvino")
    column = found.runtimes.index(("orin", "openvino"))
    assert pytest.approx(float(np.median(trial["latency"].dropna("repeat")))) == found.seconds[3, column]


def test_graphs_that_are_the_same_are_one_example() -> None:
    """With the geometric mean of what they took, of the runtimes that have a number."""
    data = run(sweep(network("same1"), network("same2"), compilers=["identity", "openvino"], batch_sizes=[1]))
    data["latency"].loc[{"workload": "same2", "compiler": "openvino"}] = np.nan
    found = predictor.collect(data)
    medians = data["latency"].median("repeat").squeeze()

    assert ("same1 batch 1",) == found.names
    expected = np.sqrt(medians.sel(workload="same1", compiler="identity") * medians.sel(workload="same2")[0])
    np.testing.assert_allclose([expected, medians.sel(workload="same1", compiler="openvino")], found.seconds[0])


def test_coordinates_say_what_a_network_was_made_of() -> None:
    """Family, parent and rule are taken as they stand."""
    data = run(sweep(network("same"), network("other"), batch_sizes=[1]))
    about = {"family": ["x", "y"], "parent": ["same", "same"], "rule": ["", "merge"]}
    found = predictor.collect(data.assign_coords({name: ("workload", values) for name, values in about.items()}))

    assert (("x", "y"), ("same", "same"), ("", "merge")) == (found.families, found.parents, found.rules)


def test_a_column_of_another_graph_is_a_variant(tmp_path: Path) -> None:
    """It is an example of its own, of the runtime that it was rewritten for, and its file is read for its graph."""
    file = residual(tmp_path, 24, 2)
    with set_options(state_dir=tmp_path / "state"):
        digest = Store(make_state_dir() / "artifacts").push(file)
        compilers = ["onnxruntime", f'onnxruntime{{"graph":"{digest}"}}', "openvino"]
        data = run(sweep(network("same"), compilers=compilers, batch_sizes=[1]))
        found = predictor.collect(data.assign_attrs(variants=f'{{"{digest}": "merge-convs"}}'))
        unnamed = predictor.collect(data)

    assert (("cpu", "onnxruntime"), ("cpu", "openvino")) == found.runtimes
    assert ("", "merge-convs") == found.rules
    assert ("same", "same") == found.parents
    assert predictor.read(file).digest == found.graphs[1].digest
    assert np.isfinite(found.seconds).tolist() == [[True, True], [True, False]]
    assert ("", "rewritten") == unnamed.rules


def test_a_dataset_can_carry_its_graphs(built: list[str], tmp_path: Path) -> None:
    """Where nobody could build its networks, it is learned from all the same, also after a file."""
    from ngbkit.dataset.storage import load, save

    data = predictor.attach(run(sweep(network("same"), network("other"), batch_sizes=[1, 2])))
    assert 4 == len(built)
    data.attrs["sweep"] = "{}"
    save(data, tmp_path / "labels.nc")
    found = predictor.collect(load(tmp_path / "labels.nc"))

    assert 4 == len(built)
    assert ["same batch 1", "same batch 2", "other batch 1", "other batch 2"] == list(found.names)


def test_datasets_need_not_fit_into_one_grid() -> None:
    """Networks of several runs are examples of all their runtimes; a name that comes again is the same parent."""
    one = run(sweep(network("same"), compilers=["identity"], batch_sizes=[1]))
    other = run(sweep(network("same"), network("wide"), compilers=["openvino"], batch_sizes=[2]), seed=1)
    found = predictor.collect([one], other)

    assert (("cpu", "identity"), ("cpu", "openvino")) == found.runtimes
    assert ("same", "same", "wide") == found.parents
    assert [[True, False], [False, True], [False, True]] == np.isfinite(found.seconds).tolist()


def test_examples_are_kept_in_a_file(tmp_path: Path) -> None:
    """With their graphs; a file of something else is refused."""
    from ngbkit.dataset.storage import save

    data = run(sweep(network("same"), network("wide")))
    found = predictor.collect(data)
    again = room.load(room.save(found, tmp_path / "deep" / "labels.nc"))

    assert found.graphs == again.graphs
    assert (found.runtimes, found.names, found.rules) == (again.runtimes, again.names, again.rules)
    np.testing.assert_array_equal(found.seconds, again.seconds)
    np.testing.assert_array_equal(found.errors, again.errors)
    save(data, tmp_path / "run.nc")
    with pytest.raises(UsageError, match="holds no examples"):
        room.load(tmp_path / "run.nc")


def test_a_tree_is_collected_whole() -> None:
    """Networks with other factors are examples of the same runtimes."""
    data = merge(run(sweep(network("same"))), run(sweep(network("block", depth=(1, 2))), "20260102-000000-bb"))
    found = predictor.collect(data)

    assert 2 + 4 == len(found)
    assert 3 == len(found.runtimes)
    assert np.isfinite(found.seconds).all()


def test_what_cannot_be_learned_from_is_an_error() -> None:
    """Nothing measured; a network that nobody describes."""
    data = run(sweep(network("same")))
    with pytest.raises(UsageError, match="no trial of this dataset gave a latency"):
        predictor.collect(data.assign(latency=data["latency"] * np.nan))
    data.attrs["sweep"] = "{}"
    with pytest.raises(UsageError, match=r"does not say what same is.*attach"):
        predictor.collect(data)


def test_a_variant_keeps_its_gain_over_what_it_was_measured_beside(tmp_path: Path) -> None:
    """The machine was half as fast in the second run: the network takes the mean of both, and so does its variant."""
    file = residual(tmp_path, 24, 2)
    with set_options(state_dir=tmp_path / "state"):
        digest = Store(make_state_dir() / "artifacts").push(file)
        label = f'onnxruntime{{"graph":"{digest}"}}'
        first = run(sweep(network("plain"), compilers=["onnxruntime"], batch_sizes=[1]))
        second = run(sweep(network("plain"), compilers=["onnxruntime", label], batch_sizes=[1]))
        second["latency"] = second["latency"] * 2
        found = predictor.collect(first, second)
    fast, slow = (data["latency"].median("repeat").squeeze() for data in (first, second))
    one, variant = found.seconds[:, 0]

    assert 2 == len(found)
    np.testing.assert_allclose(np.sqrt(fast * slow.sel(compiler="onnxruntime")), one)
    paired = second.ngb.speedup(baseline="onnxruntime").sel(compiler=label).item()
    assert paired == pytest.approx(one / variant)
    assert 0 < found.errors[1, 0] < 0.1
