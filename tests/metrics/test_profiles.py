"""Profiles of a dataset as CSV and JSON, as documented in their module."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from drawn import crashing, measured, network, sweep

from ngbkit import cli
from ngbkit.dataset import storage
from ngbkit.errors import UsageError
from ngbkit.metrics import profiles


def test_a_profile_says_what_was_measured() -> None:
    """The median, its interval, and quantiles of the samples; throughput is the batch over it."""
    data = measured()
    frame = profiles.profiles(data)
    row = frame[(frame["compiler"] == "openvino") & (frame["batch_size"] == 4)].iloc[0]
    samples = data["latency"].sel(compiler="openvino", batch_size=4).values.ravel()

    assert 4 == len(frame)
    assert np.median(samples) == pytest.approx(row["latency_s"])
    assert 4 / row["latency_s"] == pytest.approx(row["throughput"])
    assert row["latency_low_s"] < row["latency_s"] < row["latency_high_s"]
    assert row["throughput_low"] < row["throughput"] < row["throughput_high"]
    assert [np.quantile(samples, 0.95), np.quantile(samples, 0.99)] == pytest.approx(
        row[["latency_p95_s", "latency_p99_s"]].tolist()
    )
    assert (10, 1, "f32") == (row["samples"], row["threads"], row["precision"])


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
    """Without a file name it prints JSON."""
    file = storage.save(measured(), tmp_path / "a.nc")

    assert 0 == cli.main(["export", str(file)])
    assert profiles.SCHEMA == json.loads(capsys.readouterr().out)["schema"]
    assert 0 == cli.main(["export", str(file), "--format", "profiles", "-o", str(tmp_path / "a.csv")])
    assert (tmp_path / "a.csv").read_text().startswith("workload,device,compiler,batch_size,latency_s")
