"""A capacity from a dataset to a device and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import xarray as xr
from state import share_state_dir

import ngbkit
from ngbkit import Sweep, cli
from ngbkit.cluster import dispatch
from ngbkit.dataset import storage
from ngbkit.errors import DeviceError, MetricError
from ngbkit.workloads.base import Workload

state_dir = pytest.fixture(autouse=True, scope="module")(share_state_dir)


@pytest.fixture(scope="module")
def data(mlp_file: Path, state_dir: Path) -> xr.Dataset:
    """A small network at two batch sizes, measured on this machine and slower than it is."""
    data = Sweep(str(mlp_file), ["onnxruntime"], [1, 4], repeats=12, threads=1).run()
    return data.assign(throughput=data["throughput"] * 0 + 100 * data["batch_size"] ** 0.5)


def test_a_load_measures_a_capacity_once(data: xr.Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A later call, in Python or in a shell, shows the tests that were kept."""
    lines: list[str] = []
    settings = {"quantile": 0.5, "seconds": 0.3}
    measured = ngbkit.capacity(data, "25ms", report=lines.append, **settings)
    again = ngbkit.capacity(data, "25ms", report=lines.append, **settings)
    file = storage.save(data, tmp_path / "out.nc")
    code = cli.main(["capacity", str(file), "--deadline", "25ms", "--quantile", "0.5", "--seconds", "0.3", "--json"])
    answer = json.loads(capsys.readouterr().out)

    assert len(measured.tests) == sum("LoadGen sends" in line for line in lines)
    assert measured.tests.equals(again.tests)
    assert cli.OK == code
    assert measured.to_json() == answer
    assert cli.INVALID == cli.main(["capacity", str(file), "--deadline", "soon"])
    assert "invalid deadline: got 'soon'" in capsys.readouterr().err


def test_an_interrupted_search_begins_again(data: xr.Dataset) -> None:
    """Ctrl-C ends the test in flight, and leaves the engine to the next search."""
    settings = {"quantile": 0.5, "seconds": 0.3, "seed": 1}

    def interrupt(text: str) -> None:
        if "test 2" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ngbkit.capacity(data, "25ms", report=interrupt, **settings)
    lines: list[str] = []
    ngbkit.capacity(data, "25ms", report=lines.append, **settings)

    assert "test 1" in next(line for line in lines if "LoadGen sends" in line)


def test_a_network_that_does_not_load_says_why(data: xr.Dataset, mlp: Workload) -> None:
    """The error is the compiler's own, with the name of the device."""
    broken = Sweep([mlp], ["raising"], [1], repeats=3)
    labelled = data.assign_coords(compiler=["raising"]).assign_attrs(sweep=json.dumps(broken.to_json()))

    with pytest.raises(DeviceError, match="device cpu: "):
        ngbkit.capacity(labelled, "1s", batch_sizes=1)


def test_a_load_needs_the_files_of_the_sweep(data: xr.Dataset) -> None:
    """A machine that did not start the run says so before it asks the device."""
    (digest,) = json.loads(data.attrs["sweep"])["workloads"][0]["artifacts"]
    sweep = data.attrs["sweep"].replace(digest, "0" * 32)

    with pytest.raises(MetricError, match="this machine lacks 0000"):
        ngbkit.capacity(data.assign_attrs(sweep=sweep), "1s")


def test_a_run_and_a_load_have_one_spec(data: xr.Dataset) -> None:
    """The threads and the chip are those of the devices file for whoever asks."""
    from types import SimpleNamespace

    engine = SimpleNamespace(device="cpu", state_dir=Path("state"))
    spec = dispatch.build_spec(engine, Sweep("resnet18", ["identity"]), run_id="run")

    assert ("run", "cpu", Path("state"), "cpu") == (spec.run_id, spec.device, spec.state_dir, spec.accelerator)
