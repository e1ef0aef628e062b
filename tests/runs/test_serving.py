"""A capacity checked by real load: from a dataset to a device and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import xarray as xr
from drawn import measured, network
from state import share_state_dir
from watching import Processes

import ngbkit
from ngbkit import Sweep, cli
from ngbkit.dataset import storage
from ngbkit.errors import DeviceError, MetricError, UsageError
from ngbkit.runs import serving
from ngbkit.workloads.base import Workload

state_dir = pytest.fixture(autouse=True, scope="module")(share_state_dir)


@pytest.fixture(scope="module")
def data(mlp_file: Path, state_dir: Path) -> xr.Dataset:
    """A small network at two batch sizes, measured on this machine."""
    return Sweep(str(mlp_file), ["onnxruntime"], [1, 4], repeats=12, threads=1).run()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_real_load_measures_a_capacity(data: xr.Dataset, processes: Processes) -> None:
    """Two trials calibrate, five at least surround the calibrated rate; another process sends all their requests."""
    slow = data.assign(latency=data["latency"] * 0 + 0.01 * data["batch_size"] ** 0.5)
    lines: list[str] = []
    capacities = ngbkit.capacity(
        slow, "80ms", quantile=0.9, check=True, seconds=1.0, report=lines.append, batch_sizes=[1, 4]
    )
    (test,) = capacities.tests

    assert capacities.frame["capacity"][0] == test.simulated
    assert 5 <= len(test.trials) <= 8
    rates = [trial.rate for trial in test.trials]
    factors = {0.8, 0.9, 1.0, 1.1, 1.2}
    assert any(factors <= {round(rate / expected, 6) for rate in rates} for expected in rates)
    assert any("trial 2 of 2" in line for line in lines)
    assert all(trial.requests >= 1 and trial.latency > 0 and 0 <= trial.busy <= 1 for trial in test.trials)
    assert all(trial.calls <= trial.requests for trial in test.trials)
    assert test.rate > 0
    assert any("trial 10 of 10" in line for line in lines)
    assert "measured" in repr(capacities)
    assert json.dumps(capacities.to_json())
    assert not processes("ngbkit.device.serving.generator")


def test_the_command_simulates_and_says_what_is_missing(
    data: xr.Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table for people, JSON for programs; `--seconds` without a check is an error."""
    file = tmp_path / "out.nc"
    storage.save(data, file)

    code = cli.main(["capacity", str(file), "--deadline", "50ms", "--quantile", "0.9", "-b", "1,4"])
    table = capsys.readouterr().out
    cli.main(["capacity", str(file), "--deadline", "50ms", "-c", "onnxruntime", "--json"])
    answer = json.loads(capsys.readouterr().out)

    assert cli.OK == code
    assert "capacity (requests/s), p90 within 50 ms" in " ".join(table.split())
    assert 0.05 == answer["service"]["deadline"]
    assert "onnxruntime" == answer["capacities"][0]["compiler"]
    assert cli.INVALID == cli.main(["capacity", str(file), "--deadline", "50ms", "--seconds", "3"])
    assert "Add --check" in capsys.readouterr().err
    assert cli.INVALID == cli.main(["capacity", str(file), "--deadline", "soon"])
    assert "invalid deadline: got 'soon'" in capsys.readouterr().err


def test_a_network_that_does_not_load_says_why(data: xr.Dataset, mlp: Workload) -> None:
    """The error is the compiler's own, with the name of the device."""
    broken = Sweep([mlp], ["raising"], [1], repeats=3)
    labelled = data.assign_coords(compiler=["raising"]).assign_attrs(sweep=json.dumps(broken.to_json()))

    with pytest.raises(DeviceError, match="device cpu: "):
        ngbkit.capacity(labelled, "1s", check=True, seconds=0.5, batch_sizes=1)


def test_a_check_needs_the_sweep_and_its_files(data: xr.Dataset) -> None:
    """A merged or foreign dataset says what to do."""
    with pytest.raises(MetricError, match="Use the dataset of one run"):
        ngbkit.capacity(data.assign_attrs(sweep=""), "1s", check=True, seconds=0.01)
    with pytest.raises(MetricError, match="has no network 'a'"):
        ngbkit.capacity(
            measured(network("a"), batch_sizes=[1]).assign_attrs(sweep=data.attrs["sweep"]),
            "1s",
            check=True,
            seconds=0.01,
        )
    (digest,) = json.loads(data.attrs["sweep"])["workloads"][0]["artifacts"]
    sweep = json.loads(data.attrs["sweep"].replace(digest, "0" * 32))
    with pytest.raises(MetricError, match="this machine lacks 0000"):
        ngbkit.capacity(data.assign_attrs(sweep=json.dumps(sweep)), "1s", check=True, seconds=0.01)


def test_seconds_are_checked_first(data: xr.Dataset) -> None:
    """Before anything is simulated."""
    with pytest.raises(UsageError, match="invalid seconds: got -1"):
        serving.serve(data, "1s", seconds=-1)
