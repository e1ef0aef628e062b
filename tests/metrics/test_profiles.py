"""Profiles of a dataset as CSV and JSON, as documented in their module."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from drawn import crashing, measured, network, sweep

from ngbkit import cli
from ngbkit.api import Sweep
from ngbkit.dataset import storage, synthetic
from ngbkit.errors import UsageError
from ngbkit.metrics import profiles


def test_a_profile_says_what_was_measured() -> None:
    """A profile has the median, its interval, and the throughput as batch size over median."""
    data = measured()
    frame = profiles.profiles(data)
    row = frame[(frame["compiler"] == "openvino") & (frame["batch_size"] == 4)].iloc[0]
    samples = data["latency"].sel(compiler="openvino", batch_size=4).values.ravel()

    assert 4 == len(frame)
    assert np.median(samples) == pytest.approx(row["latency_s"])
    assert 4 / row["latency_s"] == pytest.approx(row["throughput"])
    assert row["latency_low_s"] < row["latency_s"] < row["latency_high_s"]
    assert row["throughput_low"] < row["throughput"] < row["throughput_high"]
    assert (10, 1, 1, "f32") == (row["samples"], row["calls_per_sample"], row["threads"], row["precision"])


def test_a_quantile_has_samples_that_show_it() -> None:
    """A p99 needs 100 samples and is empty of fewer; its upper end is empty beyond the slowest sample."""
    data = synthetic.make_dataset(Sweep([network("net")], ["identity"], [1], repeats=60))
    row = profiles.profiles(data).iloc[0]

    assert np.quantile(data["latency"], 0.95, method="hazen") == pytest.approx(row["latency_p95_s"])
    assert 60 == row["samples"]
    assert row[["latency_p95_high_s", "latency_p99_s", "latency_p99_high_s"]].isna().all()


def test_the_mean_of_a_block_is_no_quantile() -> None:
    """The profile of blocks has the calls per sample and leaves quantiles empty."""
    data = synthetic.make_dataset(Sweep([network("net")], ["identity", "openvino"], [1], repeats=60))
    blocks = data.assign(calls_per_sample=xr.full_like(data["throughput"], 3.0))
    frame = profiles.profiles(blocks)

    assert [3, 3] == frame["calls_per_sample"].tolist()
    assert frame[["latency_p95_s", "latency_p99_s", "latency_p95_high_s"]].isna().all(axis=None)


def test_what_gave_no_measurement_has_no_profile() -> None:
    """A crash has no profile; a dataset without measurements is an error."""
    data = crashing(sweep(), "openvino", 4)
    frame = profiles.profiles(data)

    assert ("openvino", 4) not in set(zip(frame["compiler"], frame["batch_size"], strict=True))
    with pytest.raises(UsageError, match="this dataset has no measurement"):
        profiles.profiles(data.sel(compiler=["openvino"], batch_size=[4]))


def test_json_and_csv_hold_the_same(tmp_path: Path) -> None:
    """Each network has its own factors; one without factors has an empty cell."""
    data = measured(network("plain"), network("wide", width=(8, 16)))
    data.attrs["environments"] = json.dumps({"cpu": {"chip": "a chip", "cores_usable": 2, "packages": {}}})
    for name in ("a.csv", "a.json"):
        profiles.write(data, tmp_path / name)
    document = json.loads((tmp_path / "a.json").read_text())
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))

    assert profiles.SCHEMA == document["schema"]
    assert {"cpu": {"chip": "a chip", "cores_usable": 2, "memory_bytes": None, "system": None}} == document["devices"]
    assert len(rows) == len(document["profiles"]) == 12
    for row, profile in zip(rows, document["profiles"], strict=True):
        assert row["workload"] == profile["workload"]
        assert float(row["latency_s"]) == pytest.approx(profile["latency_s"])
        assert profile["factors"] == ({} if profile["workload"] == "plain" else {"width": float(row["width"])})
    keys = {name for profile in document["profiles"] for name in profile} | {"width"}
    assert set(rows[0]) | {"factors"} == keys
    # The module documents every key.
    assert all(f"``{name}``" in profiles.__doc__ for name in keys - {"width"})


def test_a_file_of_another_sort_is_refused(tmp_path: Path) -> None:
    """An existing file is rejected too."""
    data = measured()
    (tmp_path / "there.csv").touch()

    with pytest.raises(UsageError, match=r"\.csv, \.parquet or \.json"):
        profiles.write(data, tmp_path / "a.xlsx")
    with pytest.raises(UsageError, match="exists"):
        profiles.write(data, tmp_path / "there.csv")


def test_the_shell_prints_or_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`export` prints JSON if it has no file name, and writes a CSV file otherwise."""
    file = storage.save(measured(), tmp_path / "a.nc")

    assert 0 == cli.main(["export", str(file)])
    assert profiles.SCHEMA == json.loads(capsys.readouterr().out)["schema"]
    assert 0 == cli.main(["export", str(file), "--format", "profiles", "-o", str(tmp_path / "a.csv")])
    assert (tmp_path / "a.csv").read_text().startswith("workload,device,compiler,batch_size,latency_s")
