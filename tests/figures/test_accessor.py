"""The metrics as methods of datasets and trees."""

import pytest
import xarray as xr
from drawn import measured as measured_sweep
from drawn import network

from ngbkit import metrics
from ngbkit.dataset.environments import environments
from ngbkit.errors import MetricError, UsageError
from ngbkit.figures import comparison
from ngbkit.metrics import tables

NAMES = ("throughput", "speedup", "rtr", "ase", "bsr")


@pytest.fixture
def tree(scaling, deepening) -> xr.DataTree:
    return xr.DataTree.from_dict({"/networks": scaling, "/blocks": deepening})


@pytest.mark.parametrize("name", [*NAMES, "summary"])
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
    assert metrics.winners(data).equals(data.ngb.winners())
    assert metrics.front(data).equals(data.ngb.front())
    assert metrics.beside_paper(data, "VI", device="orin").equals(data.ngb.beside_paper("VI", device="orin"))
    xr.testing.assert_identical(metrics.mean(data, "ase", ci=0.9), data.ngb.mean("ase", ci=0.9))
    xr.testing.assert_identical(metrics.mean(data).to_dataset(), tree.ngb.mean()["a"].to_dataset())
    xr.testing.assert_identical(data.sel(workload=["resnet50"]), tree.ngb.sel(workload=["resnet50"]))
    assert comparison.compare(data, data).trials.equals(data.ngb.compare(data).trials)
    assert environments(data).equals(data.ngb.environments())


def test_methods_with_arguments(scaling, deepening):
    """Arguments are passed on."""
    sizes = {"raw_bytes": 100, "compressed_bytes": 40}

    xr.testing.assert_identical(metrics.tcr(scaling, **sizes), scaling.ngb.tcr(**sizes))
    wide = deepening.rename(depth="width")
    xr.testing.assert_identical(metrics.depth_slope(wide, dim="width"), wide.ngb.depth_slope(dim="width"))
    xr.testing.assert_identical(metrics.retention(wide, dim="width"), wide.ngb.retention(dim="width"))


@pytest.mark.parametrize("name", NAMES)
def test_a_tree_gives_a_tree(tree, name):
    """On a tree each node has the metric of its own dataset."""
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
    """With what it has and what was expected: xarray gives every dataset its `ngb`."""
    methods = [name for name in vars(type(data.ngb)) if not name.startswith("_") and name != "plot"]

    assert len(methods) > 20
    for name in methods:
        arguments = {"compare": [data], "beside_paper": ["VI"]}.get(name, [])
        sizes = {"raw_bytes": 2, "compressed_bytes": 1} if name == "tcr" else {}
        with pytest.raises(UsageError, match=r"not of a run: got .*; expected latency, throughput, status and others"):
            getattr(data.ngb, name)(*arguments, **sizes)
    with pytest.raises(UsageError, match="not of a run"):
        data.ngb.plot.speedup()


def test_a_part_of_a_dataset_says_what_it_lacks():
    """Where a method needs it, and in no other."""
    data = measured_sweep()
    unlabelled = data.squeeze("device", drop=True)

    xr.testing.assert_allclose(data.ngb.rtr().squeeze("device", drop=True), unlabelled.ngb.rtr())
    xr.testing.assert_identical(data.ngb.throughput(), data[["throughput"]].ngb.throughput())
    for lacking, name in ((unlabelled, "device"), (data.drop_vars("status"), "status")):
        for method in (lacking.ngb.to_dataframe, lacking.ngb.plot.speedup, lacking.ngb.plot.overview):
            with pytest.raises(UsageError, match=f"this dataset lacks {name}, which that of a run has"):
                method()
    with pytest.raises(UsageError, match="lacks device"):
        data.ngb.compare(FOREIGN["another program's"])


def test_an_error_of_a_whole_dataset_is_left_alone():
    """It is not the dataset's fault."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'sizes'"):
        measured_sweep().ngb.speedup(sizes=[1])
