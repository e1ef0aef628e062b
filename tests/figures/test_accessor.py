"""The metrics as methods of datasets and trees."""

import pandas as pd
import pytest
import xarray as xr
from drawn import measured as measured_sweep
from drawn import network

from ngbkit import metrics
from ngbkit.dataset.environments import environments
from ngbkit.errors import MetricError, UsageError
from ngbkit.metrics import means, pairing, published, tables
from ngbkit.metrics.rankings import front, ranking

NAMES = ("throughput", "speedup", "rtr", "ase", "bsr")


@pytest.fixture
def tree(scaling, deepening) -> xr.DataTree:
    return xr.DataTree.from_dict({"/networks": scaling, "/blocks": deepening})


@pytest.mark.parametrize("name", NAMES)
def test_a_method_is_its_function(scaling, name):
    """Each method of a dataset returns the result of the function of that name."""
    xr.testing.assert_identical(getattr(metrics, name)(scaling), getattr(scaling.ngb, name)())


def test_tables_and_selections_are_methods():
    """Each returns the result of its function, with its arguments."""
    data = measured_sweep(network("resnet18"), network("resnet50"), batch_sizes=(1, 2, 4))
    data = data.assign_coords(parameters=("workload", [1.0, 2.0]))
    tree = xr.DataTree.from_dict({"/a": data})
    frame = tables.compact(data, "bsr", select={"batch_size": 4})

    assert frame.equals(data.ngb.table("bsr", batch_size=4).frame)
    assert tables.compact(data, "speedup", by={"resnet18": "one"}).equals(data.ngb.table(by={"resnet18": "one"}).frame)
    assert ranking.winners(data).equals(data.ngb.winners())
    assert front.front(data).equals(data.ngb.front())
    assert published.beside_paper(data, "VI", device="orin").equals(data.ngb.beside_paper("VI", device="orin"))
    xr.testing.assert_identical(means.mean(data, "ase", ci=0.9), data.ngb.mean("ase", ci=0.9))
    xr.testing.assert_identical(means.mean(data).to_dataset(), tree.ngb.mean()["a"].to_dataset())
    xr.testing.assert_identical(data.sel(workload=["resnet50"]), tree.ngb.sel(workload=["resnet50"]))
    assert pairing.compare(data, data).trials.equals(data.ngb.compare(data).trials)
    assert environments(data).equals(data.ngb.environments())


def test_methods_with_arguments(scaling, deepening):
    """The methods of the accessor pass their arguments on to the metrics."""
    sizes = {"raw_bytes": 100, "compressed_bytes": 40}

    xr.testing.assert_identical(metrics.tcr(scaling, **sizes), scaling.ngb.tcr(**sizes))
    wide = deepening.rename(depth="width")
    xr.testing.assert_identical(metrics.depth_slope(wide, dim="width"), wide.ngb.depth_slope(dim="width"))
    xr.testing.assert_identical(metrics.retention(wide, dim="width"), wide.ngb.retention(dim="width"))


@pytest.mark.parametrize("name", NAMES)
def test_a_tree_gives_a_tree(tree, name):
    """Each node of a tree has the metric of its own dataset."""
    results = getattr(tree.ngb, name)()

    assert ["networks", "blocks"] == list(results.children)
    for node in tree.children:
        xr.testing.assert_identical(
            getattr(metrics, name)(tree[node].to_dataset()).to_dataset(), results[node].to_dataset()
        )


def test_nodes_without_the_factor_are_left_out(tree):
    """A depth slope has only the nodes with depths."""
    assert ["blocks"] == list(tree.ngb.depth_slope().children)


def test_a_tree_that_lacks_it_everywhere_says_so(tree):
    """If no node has the reference of a metric, the error of the first is raised."""
    with pytest.raises(MetricError, match="needs at least two values of it"):
        tree.ngb.retention(dim="kernel")


def test_failures_of_a_tree_are_one_table(measured):
    """The failures of all nodes are in one frame; a factor that a node lacks is NaN."""
    labels = {"device": ["cpu"], "workload": ["net"], "compiler": ["identity"], "batch_size": [1]}
    failed, nan = [[[[[float("nan")]]]]], float("nan")
    deep = measured({"depth": [3], **labels}, [[[[[[nan]]]]]])

    table = xr.DataTree.from_dict({"/a": measured(labels, failed), "/b": deep}).ngb.failures()

    assert 2 == len(table)
    assert [False, True] == table["depth"].notna().tolist()


FOREIGN = {
    "another program's": xr.Dataset({"seconds": ("network", [1.0, 2.0])}, {"compiler": ("network", ["a", "b"])}),
    "an empty one": xr.Dataset(),
    "an empty tree": xr.DataTree(),
}


@pytest.mark.parametrize("data", FOREIGN.values(), ids=FOREIGN)
def test_a_dataset_of_another_program_is_refused_by_every_method(data):
    """Every method refuses a dataset of another program, with its variables."""
    methods = [name for name in dir(data.ngb) if not name.startswith("_") and name != "plot"]

    assert len(methods) > 20
    for name in methods:
        arguments = {"compare": [data], "beside_paper": ["VI"], "choose": ["1s"]}.get(name, [])
        with pytest.raises(UsageError, match=r"not of a run: got .*; expected latency, throughput, status and others"):
            getattr(data.ngb, name)(*arguments)
    with pytest.raises(UsageError, match="not of a run"):
        data.ngb.plot.speedup()


def test_a_part_of_a_dataset_says_what_it_lacks():
    """The error of a partial dataset has the missing variable, and only methods that need it raise."""
    data = measured_sweep()
    unlabelled = data.squeeze("device", drop=True)

    xr.testing.assert_allclose(data.ngb.rtr().squeeze("device", drop=True), unlabelled.ngb.rtr())
    xr.testing.assert_identical(data.ngb.throughput(), data[["throughput"]].ngb.throughput())
    for lacking, name in ((unlabelled, "device"), (data.drop_vars("status"), "status")):
        for method in (lacking.ngb.to_dataframe, lacking.ngb.plot.speedup, lacking.ngb.plot.overview):
            with pytest.raises(UsageError, match=f"this dataset lacks {name}, which that of a run has"):
                method()
    with pytest.raises(UsageError, match="not of a run"):
        data.ngb.compare(FOREIGN["another program's"])


JOINED = {
    "a device twice": (
        lambda a, b: xr.concat([a, b], "device"),
        r"a label of device twice \(cpu\); join .*merge\(first",
    ),
    "a run twice": (lambda a, b: join(a, b, ["mon", "mon"]), r"a label of run twice \(mon\)"),
    "a missing label": (lambda a, b: join(a, b, [1.0, float("nan")]), "a missing label of run; select the others by"),
    "stacked trials": (lambda a, b: a.stack(trial=["workload", "batch_size"]), "workload and batch_size as one dim"),
    "a round trip through pandas": (lambda a, b: a.to_dataframe().to_xarray(), "has a value for each repeat"),
}


def slower(data: xr.Dataset) -> xr.Dataset:
    return data.assign(latency=data["latency"] * 1.5)


def join(first: xr.Dataset, second: xr.Dataset, labels: list[object]) -> xr.Dataset:
    return xr.concat([first, second], pd.Index(labels, name="run"), combine_attrs="override")


@pytest.mark.parametrize(("change", "reason"), JOINED.values(), ids=JOINED)
def test_labels_that_identify_no_trial_are_refused(change, reason):
    """Metrics, tables and figures refuse labels that identify no trial."""
    data = change(measured_sweep(), slower(measured_sweep()))

    methods = (data.ngb.speedup, data.ngb.table, data.ngb.ranking, data.ngb.failures, lambda: data.ngb.plot.speedup())
    for method in methods:
        with pytest.raises(UsageError, match=f"not as that of a run: .*{reason}"):
            method()


def test_nodes_of_the_same_trials_have_metrics_but_no_table():
    """Each node has its own numbers, and one table of both would have rows that look alike."""
    tree = xr.DataTree.from_dict({"/mon": measured_sweep(), "/tue": slower(measured_sweep())})

    devices = {
        f"/{label}": measured_sweep().assign_coords(device=[label]).squeeze("device") for label in ("cpu", "orin")
    }

    assert ["mon", "tue"] == list(tree.ngb.speedup().children)
    assert 8 == len(xr.DataTree.from_dict(devices).ngb.why())
    for method in (tree.ngb.table, tree.ngb.ranking, tree.ngb.why, lambda: tree.ngb.plot.speedup()):
        with pytest.raises(UsageError, match="got trials of the same labels in /mon and /tue"):
            method()


LABELS = {
    "texts": (["mon", "tue"], "tue"),
    "whole numbers": ([1, 20261125], "20261125"),
    "numbers": ([0.25, 0.1 + 0.2], "0.3"),
    "truths": ([True, False], "False"),
    "moments": (pd.DatetimeIndex(["2026-11-24 00:00", "2026-11-25 12:30"]), "2026-11-25 12:30:00"),
    "days": (pd.to_timedelta([1, 2], "D"), "2 days"),
    "pairs": (pd.Index([("a", 1), ("b", 2)], tupleize_cols=False), "('b', 2)"),
}


@pytest.mark.parametrize(("labels", "text"), LABELS.values(), ids=LABELS)
def test_a_new_dim_may_have_labels_of_any_type(labels, text):
    """Tables, figures, sentences and selections name them."""
    data = join(measured_sweep(network("a"), network("b")), slower(measured_sweep(network("a"), network("b"))), labels)
    networks = data.ngb.compare_networks().to_string()
    specification = str(data.ngb.plot.speedup().to_dict())
    choices = str(data.ngb.choose("50ms"))
    selected = data.ngb.sel(run=[labels[1]], compiler=["openvino"])

    assert f"a run={text}" in networks
    assert f"run {text}" in specification
    assert text in choices
    assert data.isel(run=[1]).sel(compiler=["openvino"]).equals(selected)


def test_a_part_without_samples_says_so():
    """A sample or a mean along `repeat` has no interval and no median."""
    data = measured_sweep()

    for part in (data.isel(repeat=0), data.median("repeat", keep_attrs=True)):
        for method in (part.ngb.speedup, part.ngb.table, part.ngb.conclusive):
            with pytest.raises(UsageError, match=r"this dataset lacks .*repeat, which that of a run has"):
                method()
    assert part.ngb.environments().empty


@pytest.mark.parametrize(
    "change",
    [lambda data: data.where(data["batch_size"] > 1), lambda data: data.reindex(batch_size=[4, 8])],
    ids=["where", "reindex"],
)
def test_cells_that_a_selection_added_were_not_requested(change):
    """Cells that a selection added are no failures and have no row."""
    data = change(measured_sweep(batch_sizes=(1, 4)))

    assert data.ngb.failures().empty
    assert {4} == set(data.ngb.to_dataframe()["batch_size"])
    assert 4 == data.ngb.table("throughput").frame.index.get_level_values("batch_size")[0]


def test_lazy_arrays_are_loaded_once():
    """Chunks of a large dataset give the same numbers, also in a tree."""
    data = measured_sweep()
    chunked = data.chunk(repeat=7)
    tree = xr.DataTree.from_dict({"/a": data.chunk(compiler=1)})

    xr.testing.assert_identical(data.ngb.speedup(ci=0.95), chunked.ngb.speedup(ci=0.95))
    xr.testing.assert_identical(data.ngb.speedup(ci=0.95), tree.ngb.speedup(ci=0.95)["a"].to_dataset())
    assert repr(data.ngb.table()) == repr(chunked.ngb.table())
    assert not chunked.chunks


def test_a_lazy_file_that_is_gone_says_so(tmp_path):
    """The error of a lazy dataset whose file is gone has the remedy."""
    measured_sweep().to_netcdf(tmp_path / "run.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "run.nc", engine="h5netcdf") as data:
        (tmp_path / "run.nc").unlink()

    with pytest.raises(UsageError, match=r"invalid dataset: its values do not load .*Open it again"):
        data.ngb.speedup()


def test_an_error_of_a_whole_dataset_is_left_alone():
    """An error that is not the dataset's fault propagates unchanged."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'sizes'"):
        measured_sweep().ngb.speedup(sizes=[1])
