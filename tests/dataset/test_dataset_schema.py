"""A file of something else is no dataset of a run, and says why."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import synthetic
import xarray as xr

from ngbkit.api import Sweep
from ngbkit.dataset.schema import require_run
from ngbkit.errors import UsageError
from ngbkit.workloads.base import Workload


def make() -> xr.Dataset:
    workload = Workload(name="a", source="timm", spec={})
    return synthetic.make_dataset(Sweep([workload], ["identity", "openvino"], [1, 2], repeats=3))


def test_the_dataset_of_a_run_passes() -> None:
    """Unchanged, also as a tree of several sets of factors, pending, and with cells that no run of a merge has."""
    varied = Workload(name="b", source="timm", spec={}, takes=("depth",), factors={"depth": (1, 2)})
    tree = synthetic.make_dataset(Sweep([Workload(name="a", source="timm", spec={}), varied], ["identity"], [1]))
    for data in (make(), tree, replace_first("status", "")(make())):
        assert data is require_run(data, "run.nc")


def replace_first(name: str, value: object) -> Callable[[xr.Dataset], xr.Dataset]:
    def change(data: xr.Dataset) -> xr.Dataset:
        data[name].values.flat[0] = value
        return data

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: xr.Dataset({"t": ("x", np.arange(3.0))}), "it has no latency and no status and no device"),
        (lambda data: xr.Dataset(), "it has no latency"),
        (lambda data: xr.DataTree(), "it has no variables"),
        (lambda data: data.rename(status="state"), "it has no status"),
        (lambda data: data.assign(status=data["throughput"]), "status has values of float64 that are no texts"),
        (lambda data: data.assign(latency=data["latency"].astype(str)), "latency has values of .* no numbers"),
        (lambda data: data.assign(latency=data["throughput"]), "latency has no samples"),
        (lambda data: data.assign(compile_time=data["latency"]), "compile_time has a value for each repeat"),
        (lambda data: data.assign(error=data["error"].expand_dims("x")), "it has no labels along x"),
        (lambda data: data.assign_coords(batch_size=[0, 1]), "a batch size is no integer >= 1"),
        (lambda data: data.assign_coords(compiler=["a", "a"]), r"it has a label of compiler twice \(a\); join runs by"),
        (
            lambda data: data.rename(compiler="n").assign_coords(compiler=("n", ["a", "b"])),
            "compiler has labels along n",
        ),
        (lambda data: data.pad(batch_size=(0, 1)).fillna({"status": ""}), "it has a missing label of batch_size"),
        (lambda data: data.assign_coords(workload=[3]), "workload has values of int64 that are no texts"),
        (replace_first("status", "splendid"), "unknown status 'splendid'"),
        (lambda data: data.assign(round=data["round"][0]), "round has no value for each device"),
        (replace_first("latency", 1e308), "a latency is no number of seconds above 0"),
        (replace_first("latency", -1.0), "a latency is no number of seconds above 0"),
        (replace_first("facts", "{"), "facts is no JSON object: '{'"),
        (lambda data: data.assign_attrs(run_id=np.arange(3)), "run_id is no text"),
        (lambda data: data.assign_attrs(sweep='{"workloads": 5}'), "sweep has workloads that are no objects"),
        (lambda data: data.assign_attrs(facts='{"a": 5}'), "facts has no object of a network: 'a'"),
        (lambda data: data.assign_attrs(sweep=3), "sweep is no JSON object"),
        (lambda data: data.assign_attrs(environments='{"cpu": []}'), r"invalid environment cpu: got \[\]"),
        (lambda data: data.assign_attrs(sweep="[" * 100_000), "sweep is no JSON object"),
    ],
)
def test_another_dataset_is_refused(change: Callable[[xr.Dataset], xr.Dataset], reason: str) -> None:
    """The error names the file, the reason and the remedy."""
    data = change(make())

    with pytest.raises(UsageError, match=f"x.nc is not the dataset of a run: {reason}.*Name a file that ngbkit saved"):
        require_run(data, "x.nc")
