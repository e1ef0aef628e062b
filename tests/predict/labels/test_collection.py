"""Examples are collected from datasets, each graph once, with the labels that keep variants together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mergeable import network, run, sweep
from onnxgraphs import residual

from ngbkit import merge, predict, set_options
from ngbkit.errors import NgbkitWarning, UsageError
from ngbkit.files import Store
from ngbkit.options import make_state_dir
from ngbkit.predict import network_graphs
from ngbkit.workloads.base import Workload


@pytest.fixture(autouse=True)
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of built networks; a factor sets the depth, and the name sets the width."""
    names: list[str] = []

    def graph(
        workload: Workload, batch_size: int = 1, factors: dict | None = None, *, lowering: str = ""
    ) -> predict.Graph:
        assert not lowering
        names.append(workload.name)
        width = 8 if workload.name.startswith("same") else 16
        return predict.read(residual(tmp_path, width, int((factors or {}).get("depth", 1))), batch_size)

    monkeypatch.setattr(network_graphs, "graph", graph)
    return names


def test_a_row_a_network_and_a_column_a_runtime() -> None:
    """The seconds are the medians of each trial; a name contains factors and batch size."""
    data = run(sweep(network("resnet9", depth=(1, 2)), batch_sizes=[1, 4], devices=["cpu", "orin"]))
    collected = predict.collect(data)

    assert 4 == len(collected)
    assert ("cpu", "identity") == collected.runtimes[0]
    assert 6 == len(collected.runtimes)
    assert "resnet9 depth=2 batch 4" == collected.names[3]
    assert ({"resnet"}, {"resnet9"}, {""}) == tuple(map(set, (collected.families, collected.parents, collected.rules)))
    trial = data.sel(workload="resnet9", depth=2, batch_size=4, device="orin", compiler="openvino")
    column = collected.runtimes.index(("orin", "openvino"))
    assert pytest.approx(float(np.median(trial["latency"].dropna("repeat")))) == collected.seconds[3, column]


def test_contended_samples_are_no_labels() -> None:
    """Labels omit contended samples if enough rounds are uncontended."""
    data = run(sweep(network("resnet9"), batch_sizes=[1]))
    early = data["round"] < 3
    data["contended"] = data["latency"].notnull() & early
    quiet = data["latency"].where(~data["contended"]).median("repeat").squeeze()
    data["latency"] = data["latency"].where(~data["contended"], 9 * data["latency"])

    np.testing.assert_allclose(quiet.values.ravel(), predict.collect(data).seconds.ravel())


def test_trials_that_were_not_checked_are_no_labels() -> None:
    """Labels omit unchecked trials, and a warning has their reason."""
    data = run(sweep(network("resnet9"), batch_sizes=[1]))
    unchecked = data["compiler"] == "openvino"
    for name, text in (("status", "not-checked"), ("error", "it is random")):
        data[name] = data[name].where(~unchecked, text).transpose(*data[name].dims)
    with pytest.warns(NgbkitWarning, match=r"1 trial .* not checked: openvino on resnet9 batch 1: it is random\."):
        collected = predict.collect(data)

    assert [runtime == ("cpu", "openvino") for runtime in collected.runtimes] == np.isnan(collected.seconds[0]).tolist()


def test_graphs_that_are_the_same_are_one_example() -> None:
    """Equal graphs are one example with the geometric mean of their latencies."""
    data = run(sweep(network("same1"), network("same2"), compilers=["identity", "openvino"], batch_sizes=[1]))
    data["latency"].loc[{"workload": "same2", "compiler": "openvino"}] = np.nan
    with pytest.warns(NgbkitWarning, match=r"same1 batch 1 and same2 batch 1 .* identity of cpu .* is not what ran"):
        collected = predict.collect(data)
    medians = data["latency"].median("repeat").squeeze()

    assert ("same1 batch 1",) == collected.names
    expected = np.sqrt(medians.sel(workload="same1", compiler="identity") * medians.sel(workload="same2")[0])
    np.testing.assert_allclose([expected, medians.sel(workload="same1", compiler="openvino")], collected.seconds[0])


def test_coordinates_label_networks() -> None:
    """Family, parent and rule are taken from the coordinates."""
    data = run(sweep(network("same"), network("other"), batch_sizes=[1]))
    coords = {"family": ["x", "y"], "parent": ["same", "same"], "rule": ["", "merge"]}
    collected = predict.collect(data.assign_coords({name: ("workload", values) for name, values in coords.items()}))

    assert (("x", "y"), ("same", "same"), ("", "merge")) == (collected.families, collected.parents, collected.rules)


def test_a_column_of_another_graph_is_a_variant(tmp_path: Path) -> None:
    """A column of another graph is an example of its own, with the graph of its file."""
    file = residual(tmp_path, 24, 2)
    with set_options(state_dir=tmp_path / "state"):
        digest = Store(make_state_dir() / "artifacts").add(file)
        compilers = ["onnxruntime", f'onnxruntime{{"graph":"{digest}"}}', "openvino"]
        data = run(sweep(network("same"), compilers=compilers, batch_sizes=[1]))
        collected = predict.collect(data.assign_attrs(variants=f'{{"{digest}": "merge-convs"}}'))
        unnamed = predict.collect(data)

    assert (("cpu", "onnxruntime"), ("cpu", "openvino")) == collected.runtimes
    assert ("", "merge-convs") == collected.rules
    assert ("same", "same") == collected.parents
    assert predict.read(file).digest == collected.graphs[1].digest
    assert np.isfinite(collected.seconds).tolist() == [[True, True], [True, False]]
    assert ("", "rewritten") == unnamed.rules


def test_a_dataset_can_embed_its_graphs(built: list[str], tmp_path: Path) -> None:
    """The networks of a dataset with embedded graphs are collected without building them."""
    from ngbkit.dataset.storage import load, save

    data = predict.attach(run(sweep(network("same"), network("other"), batch_sizes=[1, 2])))
    assert 4 == len(built)
    data.attrs["sweep"] = "{}"
    save(data, tmp_path / "labels.nc")
    collected = predict.collect(load(tmp_path / "labels.nc"))

    assert 4 == len(built)
    assert ["same batch 1", "same batch 2", "other batch 1", "other batch 2"] == list(collected.names)


def test_datasets_need_not_fit_into_one_grid() -> None:
    """Examples have the runtimes of all runs; networks of one name share a parent."""
    first = run(sweep(network("same"), compilers=["identity"], batch_sizes=[1]))
    second = run(sweep(network("same"), network("wide"), compilers=["openvino"], batch_sizes=[2]), seed=1)
    collected = predict.collect([first], second)

    assert (("cpu", "identity"), ("cpu", "openvino")) == collected.runtimes
    assert ("same", "same", "wide") == collected.parents
    assert [[True, False], [False, True], [False, True]] == np.isfinite(collected.seconds).tolist()


def test_a_dataset_is_no_file_of_examples(tmp_path: Path) -> None:
    """The file of a run is rejected where one of examples is expected."""
    from ngbkit.dataset.storage import save

    save(run(sweep(network("same"))), tmp_path / "run.nc")
    with pytest.raises(UsageError, match="holds no examples"):
        predict.load_examples(tmp_path / "run.nc")


def test_a_tree_is_collected_whole() -> None:
    """Networks with other factors are examples of the same runtimes."""
    data = merge(run(sweep(network("same"))), run(sweep(network("block", depth=(1, 2))), "20260102-000000-bb"))
    collected = predict.collect(data)

    assert 2 + 4 == len(collected)
    assert 3 == len(collected.runtimes)
    assert np.isfinite(collected.seconds).all()


def test_a_dataset_without_labels_is_an_error() -> None:
    """A dataset without a latency, or without the description of a network, is rejected."""
    data = run(sweep(network("same")))
    with pytest.raises(UsageError, match="no latency in this dataset"):
        predict.collect(data.assign(latency=data["latency"] * np.nan))
    data.attrs["sweep"] = "{}"
    with pytest.raises(UsageError, match=r"no graph of same.*attach"):
        predict.collect(data)


@pytest.mark.parametrize("data", [[("model.onnx", 1e-3)], np.ones(3), "model.onnx"])
def test_labels_of_elsewhere_are_pointed_to_examples(data: Any) -> None:
    """Pairs, an array or a path are no dataset, and the error says which function takes them."""
    with pytest.raises(UsageError, match=r"expected the dataset of a run\..*ngbkit\.predict\.examples\("):
        predict.collect(data)


def test_a_variant_keeps_its_gain_over_the_original(tmp_path: Path) -> None:
    """The second run was half as fast: the latencies of the network and of its variant are means of both runs."""
    file = residual(tmp_path, 24, 2)
    with set_options(state_dir=tmp_path / "state"):
        digest = Store(make_state_dir() / "artifacts").add(file)
        label = f'onnxruntime{{"graph":"{digest}"}}'
        first = run(sweep(network("plain"), compilers=["onnxruntime"], batch_sizes=[1]))
        second = run(sweep(network("plain"), compilers=["onnxruntime", label], batch_sizes=[1]))
        second["latency"] = second["latency"] * 2
        collected = predict.collect(first, second)
    fast, slow = (data["latency"].median("repeat").squeeze() for data in (first, second))
    original, variant = collected.seconds[:, 0]

    assert 2 == len(collected)
    np.testing.assert_allclose(np.sqrt(fast * slow.sel(compiler="onnxruntime")), original)
    paired = second.ngb.speedup(baseline="onnxruntime").sel(compiler=label).item()
    assert paired == pytest.approx(original / variant)
    assert 0 < collected.errors[1, 0] < 0.1
