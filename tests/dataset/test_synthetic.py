"""The synthetic records: seeded, complete and marked."""

import numpy as np
import pytest
import synthetic
import xarray as xr

from ngbkit.api import Sweep
from ngbkit.dataset import assembly as datasets
from ngbkit.sweep.records import Failure, Measurement
from ngbkit.workloads.base import Workload


def sweep(*compilers: str, **more) -> Sweep:
    networks = [Workload(name=name, source="timm", spec={"name": name}) for name in ("a", "b")]
    return Sweep(networks, compilers or ("identity", "openvino"), [1, 4], repeats=20, **more)


def test_the_same_seed_gives_the_same_records():
    """Records depend on the sweep and the seed alone."""
    assert synthetic.make_records(sweep(), seed=1, failures=0.3) == synthetic.make_records(
        sweep(), seed=1, failures=0.3
    )
    assert synthetic.make_records(sweep(), seed=1) != synthetic.make_records(sweep(), seed=2)


def test_every_trial_has_a_record_that_is_marked():
    """There is one record per trial, in order, each marked as synthetic."""
    records = synthetic.make_records(sweep(), failures=0.5)

    assert [trial.id for trial in sweep().trials()] == [record.trial_id for record in records]
    assert all(record.facts["synthetic"] for record in records)
    assert {Measurement, Failure} == {type(record) for record in records}


@pytest.mark.parametrize(("failures", "kind"), [(0.0, Measurement), (1.0, Failure)])
def test_the_share_of_failures_is_as_asked(failures, kind):
    """None fail at 0, all fail at 1."""
    assert {kind} == {type(record) for record in synthetic.make_records(sweep(), failures=failures)}


def test_the_compilers_of_a_group_drift_together():
    """Round by round the ratio to the baseline varies less than the latency itself."""
    dataset = synthetic.make_dataset(sweep()).sel(device="cpu", workload="a", batch_size=4)
    baseline, other = (
        dataset["latency"].sel(compiler="identity").values,
        dataset["latency"].sel(compiler="openvino").values,
    )

    assert np.std(np.log(np.sort(baseline / other)[2:-2])) < np.std(np.log(baseline))


def test_a_sweep_that_asks_for_a_precision_has_records_too():
    """The records of a sweep with a precision are those of a rule that stopped at its first look."""
    grid = Sweep(sweep().workloads, ["identity", "openvino"], [1], precision=0.01)

    records = synthetic.make_records(grid)

    assert {(synthetic.SAMPLES, synthetic.ROUNDS, 1)} == {
        (len(record.latency_s), len(set(record.rounds)), record.looks) for record in records
    }


@pytest.mark.parametrize("depths", [(), (1, 2)])
def test_a_dataset_and_all_its_nodes_are_marked(depths):
    """A dataset has the attribute `synthetic`, and so have a tree and each of its nodes."""
    blocks = (
        [Workload(name="c", source="blocks", spec={}, takes=("depth",), factors={"depth": depths})] if depths else []
    )
    grid = Sweep([*sweep().workloads, *blocks], ["identity"], [1])

    data = synthetic.make_dataset(grid)

    assert bool(depths) == isinstance(data, xr.DataTree)
    assert 1 == data.attrs["synthetic"]
    assert {1} == {node.attrs["synthetic"] for node in datasets.nodes(data).values()}
