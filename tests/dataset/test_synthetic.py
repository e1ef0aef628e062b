"""The synthetic records: seeded, complete and marked as what they are."""

import numpy as np
import pytest
import xarray as xr

from ngbkit.dataset import assembly as datasets
from ngbkit.dataset import synthetic
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.records import Failure, Measurement
from ngbkit.workloads.base import Workload


def sweep(*compilers: str, **more) -> Sweep:
    networks = [Workload(name=name, source="timm", spec={"name": name}) for name in ("a", "b")]
    return Sweep(networks, compilers or ("identity", "openvino"), [1, 4], repeats=20, **more)


def test_the_same_seed_gives_the_same_records():
    """Records depend on the sweep and the seed alone."""
    assert synthetic.records(sweep(), seed=1, failures=0.3) == synthetic.records(sweep(), seed=1, failures=0.3)
    assert synthetic.records(sweep(), seed=1) != synthetic.records(sweep(), seed=2)


def test_every_trial_has_a_record_that_is_marked():
    """There is one record a trial, in order, and each says that it is synthetic."""
    found = synthetic.records(sweep(), failures=0.5)

    assert [trial.id for trial in sweep().trials()] == [record.trial_id for record in found]
    assert all(record.facts["synthetic"] for record in found)
    assert {Measurement, Failure} == {type(record) for record in found}


@pytest.mark.parametrize(("failures", "kind"), [(0.0, Measurement), (1.0, Failure)])
def test_the_share_of_failures_is_as_asked(failures, kind):
    """None fail at 0, all fail at 1."""
    assert {kind} == {type(record) for record in synthetic.records(sweep(), failures=failures)}


def test_the_compilers_of_a_group_drift_together():
    """Round by round the ratio to the baseline varies less than the latency itself."""
    found = synthetic.dataset(sweep()).sel(device="cpu", workload="a", batch_size=4)
    base, other = found["latency"].sel(compiler="identity").values, found["latency"].sel(compiler="openvino").values

    assert np.std(np.log(np.sort(base / other)[2:-2])) < np.std(np.log(base))


def test_a_sweep_that_asks_for_a_precision_has_records_too():
    """They look as if the rule had stopped at its first look."""
    asked = Sweep(sweep().workloads, ["identity", "openvino"], [1], precision=0.01)

    found = synthetic.records(asked)

    assert {(synthetic.SAMPLES, synthetic.ROUNDS, 1)} == {
        (len(one.latency_s), len(set(one.rounds)), one.looks) for one in found
    }


@pytest.mark.parametrize("depths", [(), (1, 2)])
def test_a_dataset_and_all_its_nodes_are_marked(depths):
    """The attribute `synthetic` is on a dataset, and on a tree and each of its nodes."""
    blocks = (
        [Workload(name="c", source="blocks", spec={}, takes=("depth",), factors={"depth": depths})] if depths else []
    )
    asked = Sweep([*sweep().workloads, *blocks], ["identity"], [1])

    found = synthetic.dataset(asked)

    assert bool(depths) == isinstance(found, xr.DataTree)
    assert 1 == found.attrs["synthetic"]
    assert {1} == {node.attrs["synthetic"] for node in datasets.nodes(found).values()}
