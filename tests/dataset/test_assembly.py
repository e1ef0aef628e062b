"""Records into a dataset: dims, units, what is missing, and trees."""

import json
import sqlite3
from contextlib import closing

import numpy as np
import pytest
import synthetic
import xarray as xr

from ngbkit.api import Sweep
from ngbkit.dataset import assembly as datasets
from ngbkit.errors import JournalError, UsageError
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Contract, Failure, Measurement
from ngbkit.sweep.trials import Trial
from ngbkit.sweep.variables import COSTS, LOWERED, VARIABLES
from ngbkit.workloads.base import Workload


def network(name: str, **factors: tuple[float, ...]) -> Workload:
    return Workload(name=name, source="timm", spec={"name": name}, takes=tuple(factors), factors=factors)


def sweep(*workloads: Workload, compilers=("identity", "openvino"), batch_sizes=(1, 4), repeats=4, **more) -> Sweep:
    return Sweep(list(workloads) or [network("net")], compilers, batch_sizes, repeats=repeats, **more)


def measurement(trial: Trial, latency_s=(2.0, 1.0, 4.0, 3.0), **more) -> Measurement:
    fields = {
        "rounds": tuple(range(len(latency_s))),
        "compile_time_s": 5.0,
        "first_call_time_s": 0.5,
        "contract": Contract(runtime="torch eager", threads=2),
        "rmse": 3e-7,
        "baseline_rmse": 2e-7,
        "max_abs_error": 1e-6,
    }
    return Measurement(trial_id=trial.id, latency_s=latency_s, **{**fields, **more})


def test_dims_are_those_of_the_design():
    """The dims are device, workload, the factors, compiler, batch size and repeat, in this order."""
    grid = sweep(network("conv", width=(8, 16), depth=(1, 2, 3)), devices=["cpu", "orin"])

    data = datasets.assemble(grid, [])

    dims = ("device", "workload", "width", "depth", "compiler", "batch_size", "repeat")
    assert dims == data["latency"].dims
    assert (2, 1, 2, 3, 2, 2, 4) == data["latency"].shape
    assert dims[:-1] == data["throughput"].dims
    assert ["width", "depth"] == datasets.factor_dims(data)


def test_every_variable_says_what_it_is_in_which_unit():
    """Every variable of the design's table is there, with units and a long name."""
    data = datasets.assemble(sweep(), [])

    anchors = {name for name, variable in VARIABLES.items() if variable.dims in ("anchor", "anchor sample")}

    assert {"anchor_latency", "tie_latency", "tie_bundle"} <= anchors
    costs = {variable.name for variable in (*COSTS, *LOWERED)}
    assert set(VARIABLES) == {*data.data_vars, *anchors, *costs, "origin", "profile"}
    assert all({"units", "long_name"} <= set(variable.attrs) for variable in data.data_vars.values())
    assert "s-1" == data["throughput"].attrs["units"]


def test_a_measurement_lands_at_its_labels():
    """Each value of a measurement is found under the labels of its trial, and nowhere else."""
    grid = sweep(network("a"), network("b"))
    trial = next(t for t in grid.trials() if (t.workload, t.compiler, t.batch_size) == ("b", "openvino", 4))

    data = datasets.assemble(grid, [measurement(trial, cpu_percent=90.0, peak_memory_bytes=1000)])

    cell = data.sel(device="cpu", workload="b", compiler="openvino", batch_size=4)
    assert [2.0, 1.0, 4.0, 3.0] == cell["latency"].values.tolist()
    assert [0, 1, 2, 3] == cell["round"].values.tolist()
    assert 4 / 2.5 == cell["throughput"].item()  # the median of 1, 2, 3, 4 is 2.5
    assert (5.0, 0.5, 90.0, 1000.0) == tuple(
        cell[name].item() for name in ("compile_time", "first_call_time", "cpu_percent", "peak_memory")
    )
    assert np.isnan(cell["energy"].item())
    assert "torch eager" == json.loads(cell["contract"].item())["runtime"]
    assert 1 == int((data["status"] == "ok").sum())


def test_every_trial_of_a_real_grid_lands_at_its_own_labels():
    """Each trial of a grid with several networks, factors and devices is at its own labels."""
    grid = sweep(network("a"), network("c", width=(8, 16), depth=(1, 2, 3)), network("b"), devices=["cpu", "orin"])
    trials = grid.trials()
    records = [measurement(trial, compile_time_s=float(index)) for index, trial in enumerate(trials)]

    data = datasets.nodes(datasets.assemble(grid, records[::-1]))

    for index, trial in enumerate(trials):
        node = data["/c" if trial.workload == "c" else "/networks"]
        labels = {"device": trial.device, "compiler": trial.compiler, "batch_size": trial.batch_size}
        cell = node["compile_time"].sel(workload=trial.workload, **labels, **dict(trial.factors))
        assert index == cell.item()


def test_a_trial_without_a_record_is_pending():
    """A trial that left no record is there: pending, without numbers."""
    data = datasets.assemble(sweep(), [])

    assert {"pending"} == set(data["status"].values.ravel())
    assert bool(data["latency"].isnull().all())
    assert {-1} == set(data["round"].values.ravel())


def test_a_failure_keeps_what_was_learnt_before_it():
    """A failure has its status, its error and the facts that came before it, and no throughput."""
    grid = sweep()
    trial = grid.trials()[0]
    facts = {"compile_time_s": 7.0, "rmse": 3.0, "baseline_rmse": 1.5, "log": "…"}
    failure = Failure(trial_id=trial.id, status="not-equivalent", stage="check", error="RMSE 3", facts=facts)

    cell = datasets.assemble(grid, [failure]).sel(device="cpu", workload="net", compiler="identity", batch_size=1)

    assert ("not-equivalent", "RMSE 3") == (cell["status"].item(), cell["error"].item())
    assert (7.0, 2.0) == (cell["compile_time"].item(), cell["rmse_ratio"].item())
    assert np.isnan(cell["throughput"].item())


@pytest.mark.parametrize(
    ("rmse", "baseline", "ratio"), [(6.0, 2.0, 3.0), (0.0, 2.0, 0.0), (0.0, 0.0, 1.0), (2.0**-23, 0.0, 2.0)]
)
def test_the_error_is_relative_to_the_baselines(rmse, baseline, ratio):
    """An exact baseline counts as one rounding of float32, so that the ratio stays finite."""
    grid = sweep()
    record = measurement(grid.trials()[0], rmse=rmse, baseline_rmse=baseline)

    data = datasets.assemble(grid, [record])["rmse_ratio"].values.ravel()[0]

    assert ratio == data


def test_the_later_record_of_a_trial_counts():
    """A trial that was measured again has its later record, whole."""
    grid = sweep()
    trial = grid.trials()[0]
    failure = Failure(trial_id=trial.id, status="crashed", stage="measure", error="signal 11")

    data = datasets.assemble(grid, [measurement(trial), failure])

    assert "crashed" == data["status"].values.ravel()[0]
    assert bool(data["latency"].isnull().all())


def test_samples_are_padded_to_the_longest():
    """Trials may have fewer or more samples than asked for; the rest is NaN."""
    grid = sweep(repeats=3)
    first, second, *_ = grid.trials()

    data = datasets.assemble(grid, [measurement(first, (1.0,)), measurement(second, (1.0,) * 5)])

    assert 5 == data.sizes["repeat"]
    assert {0, 1, 5} == set(data["latency"].notnull().sum("repeat").values.ravel())


def test_arrays_do_as_well_as_tuples():
    """Samples that come as NumPy arrays give the same dataset."""
    grid = sweep()
    trial = grid.trials()[1]
    arrays = measurement(trial, np.array([2.0, 1.0]), rounds=np.array([0, 1], dtype=np.int32))

    data = datasets.assemble(grid, [arrays])

    xr.testing.assert_equal(datasets.assemble(grid, [measurement(trial, (2.0, 1.0))]), data)


def test_a_journal_gives_the_same_dataset_as_its_records(tmp_path):
    """A journal and its records give the same dataset."""
    grid = sweep(network("a"), network("c", depth=(1, 2)))
    records = synthetic.make_records(grid, seed=3, failures=0.3)
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.finish(records)
        data = datasets.assemble_journal(grid, journal, run_id="r")

    for path, node in datasets.nodes(datasets.assemble(grid, records, run_id="r")).items():
        xr.testing.assert_equal(node, datasets.nodes(data)[path])


def test_a_damaged_record_costs_its_own_trial_alone(tmp_path):
    """The trial is pending, and a warning says so; the others are there."""
    grid = sweep()
    records = synthetic.make_records(grid)
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.finish(records)
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as connection, connection:
        damaged = np.array(records[0].latency_s) * 2
        connection.execute(
            "UPDATE results SET latency = ? WHERE trial_id = ?", (damaged.tobytes(), records[0].trial_id)
        )
    with (
        Journal(tmp_path / "journal.sqlite", writable=False) as journal,
        pytest.warns(UserWarning, match=f"a damaged entry.*{records[0].trial_id}.*ngbkit runs --resume"),
    ):
        data = datasets.assemble_journal(grid, journal)

    expected = datasets.assemble(grid, records[1:])
    assert len(records) > 1
    xr.testing.assert_equal(expected, data)


def test_records_of_another_sweep_are_left_out_of_a_journals_dataset(tmp_path):
    """The dataset omits records of another sweep, with a warning that counts them."""
    grid, other = sweep(), sweep(network("other"))
    records = synthetic.make_records(grid)
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.finish([*records, *synthetic.make_records(other)])
        with pytest.warns(UserWarning, match=f"{len(other)} records of trials that are not part of its sweep"):
            data = datasets.assemble_journal(grid, journal)

    xr.testing.assert_equal(datasets.assemble(grid, records), data)


def test_samples_without_their_rounds_are_an_error():
    """A record with more samples than rounds is refused."""
    grid = sweep()

    with pytest.raises(JournalError, match="4 samples and 1 rounds"):
        datasets.assemble(grid, [measurement(grid.trials()[0], rounds=(0,))])


def test_a_record_of_another_sweep_is_an_error():
    """A record of no trial of the sweep is not dropped in silence."""
    stray = measurement(sweep(network("other")).trials()[0])

    with pytest.raises(UsageError, match="got 1 of 1 that belong to no trial of this sweep"):
        datasets.assemble(sweep(), [stray])


def test_the_attributes_say_where_it_comes_from():
    """Sweep, environments and facts are JSON text; run id, version and time stand beside them."""
    grid = sweep()

    data = datasets.assemble(grid, [], environments={"cpu": {"cores": 2}}, run_id="r1").attrs

    assert "r1" == data["run_id"]
    assert grid.to_json() == Sweep.from_json(json.loads(data["sweep"])).to_json()
    assert {"cpu": {"cores": 2}} == json.loads(data["environments"])
    assert {"ngbkit_version", "created", "facts"} <= set(data)


def test_facts_of_a_network_are_coordinates():
    """A fact is along the workloads where it is the same for all factors, and along the factors too where it is not."""
    grid = sweep(network("c", depth=(1, 2)))
    facts = {
        datasets.facts_key("c", {"depth": depth}): {"parameters": 10 * depth, "baseline": "torch eager"}
        for depth in (1, 2)
    }

    data = datasets.assemble(grid, [], facts=facts)

    assert ("workload", "depth") == data["parameters"].dims
    assert [[10.0, 20.0]] == data["parameters"].values.tolist()
    assert ("workload",) == data["baseline"].dims
    assert ["torch eager"] == data["baseline"].values.tolist()
    assert "macs" not in data.coords


def test_a_fact_that_one_network_lacks_is_missing_there_only():
    """A network of which nothing is known has NaN, and the dims stay those of the workloads."""
    grid = sweep(network("a", depth=(1, 2)), network("b", depth=(1, 2)))
    facts = {datasets.facts_key("a", {"depth": depth}): {"macs": 5} for depth in (1, 2)}

    data = datasets.assemble(grid, [], facts=facts)["macs"]

    assert ("workload",) == data.dims
    assert [5.0, None] == [None if np.isnan(value) else value for value in data.values]


def test_workloads_of_unlike_factors_are_nodes_of_a_tree():
    """A set of factors is a node, called after its only workload, its factors, or networks."""
    grid = sweep(
        network("a"),
        network("b"),
        network("blocks/conv", depth=(1, 2)),
        network("x", width=(8, 16), depth=(1, 2)),
        network("y", width=(8, 16), depth=(1, 2)),
        network("p", width=(8, 32), depth=(1, 2)),
        network("q", width=(8, 32), depth=(1, 2)),
    )

    data = datasets.assemble(grid, [], run_id="r")

    assert ["networks", "blocks_conv", "width_depth", "width_depth_2"] == list(data.children)
    assert ["a", "b"] == data["networks"]["workload"].values.tolist()
    assert {"r"} == {node.attrs["run_id"] for node in data.subtree}


def test_the_order_of_factors_may_differ():
    """Two workloads that take the same factors in another order share a node, each value at its own labels."""
    grid = sweep(network("x", width=(8, 16), depth=(1, 2)), network("y", depth=(1, 2), width=(8, 16)))
    trials = grid.trials()
    records = [measurement(trial, compile_time_s=float(index)) for index, trial in enumerate(trials)]

    data = datasets.assemble(grid, records)

    for index, trial in enumerate(trials):
        labels = {"workload": trial.workload, "compiler": trial.compiler, "batch_size": trial.batch_size}
        assert index == data["compile_time"].sel(**labels, **dict(trial.factors)).item()
