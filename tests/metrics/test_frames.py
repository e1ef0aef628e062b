"""Tidy frames of a dataset, and their files."""

from __future__ import annotations

import importlib.util
import json
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from drawn import crashing, measured, network, sweep

from ngbkit import cli
from ngbkit.dataset import storage
from ngbkit.errors import MissingDependencyError, UnknownNameError, UsageError
from ngbkit.metrics import frames
from ngbkit.sweep.variables import VARIABLES

LABELS = ["workload", "device", "compiler", "batch_size"]


def test_a_row_is_a_trial() -> None:
    """The row of a trial has its labels, its metrics with their ends, all variables, and its status."""
    data = measured()
    frame = data.ngb.to_dataframe()
    row = frame[(frame["compiler"] == "openvino") & (frame["batch_size"] == 4)].iloc[0]
    trial = data.sel(compiler="openvino", batch_size=4).squeeze()

    assert [*LABELS, "samples", "latency", "throughput"] == list(frame)[:7]
    assert ["status", "error"] == list(frame)[-2:]
    assert 4 == len(frame)
    assert (10, "ok", "f32", 1) == tuple(row[["samples", "status", "precision", "threads"]])
    assert float(trial["latency"].median()) == pytest.approx(row["latency"])
    assert row["speedup_low"] < row["speedup"] < row["speedup_high"]
    of_trials = {str(name) for name in data.data_vars if "repeat" not in data[name].dims} - {"contract", "facts"}
    assert of_trials <= set(frame)
    for name in of_trials - {"throughput"}:
        assert row[name] == trial[name].item() or np.isnan(row[name])


def test_the_documentation_has_every_column_and_its_unit() -> None:
    """The documentation lists each variable and metric of a frame with its unit."""
    frame = measured().ngb.to_dataframe()
    documented = str(frames.to_dataframe.__doc__)
    names = {name for name, variable in VARIABLES.items() if variable.dims == "trial" and variable.units}
    columns = names & set(frame)

    assert {"compile_time", "peak_memory", "rmse_ratio", "throughput"} <= columns
    assert {name: VARIABLES[name].units for name in columns} == {name: frame.attrs["units"][name] for name in columns}
    assert ("s", "s-1") == (frame.attrs["units"]["latency"], frame.attrs["units"]["throughput_low"])
    for line in documented.splitlines():
        if "``peak_memory``" in line:
            assert "byte" in line
    general = {"calls_per_sample", "interleaved", "looks", *(f"nodes_{n}" for n in ("before", "after", "fused"))}
    general |= {"fallbacks", "graph_breaks"}
    assert [] == [name for name in sorted(columns - general) if f"``{name}``" not in documented]


def test_failures_are_rows_without_samples() -> None:
    """A failure is a row without samples, and a cell that no run requested is no row."""
    data = crashing(sweep(), "openvino", 4)
    frame = data.ngb.to_dataframe()
    failed = frame[frame["status"] == "crashed"]

    assert [("openvino", 4, 0)] == [tuple(row) for row in failed[["compiler", "batch_size", "samples"]].values]
    assert np.isnan(failed["latency"].iloc[0])
    data["status"] = data["status"].where(data["batch_size"] == 1, "")
    assert [1, 1] == data.ngb.to_dataframe()["batch_size"].tolist()


def test_networks_of_several_sets_of_factors_are_one_frame() -> None:
    """Rows of trials and of their other variables belong together; a factor that one does not take is NaN."""
    data = measured(network("plain"), network("wide", width=(8, 16)))
    assert isinstance(data, xr.DataTree)
    frame = data.ngb.to_dataframe()

    assert 12 == len(frame)
    assert ["workload", "width", "device"] == list(frame.columns[:3])
    assert frame.loc[frame["workload"] == "plain", "width"].isna().all()
    for row in frame.to_dict("records"):
        node = data["plain" if row["workload"] == "plain" else "wide"].to_dataset()
        labels = {
            dim: row[dim] for dim in ("workload", "width", "device", "compiler", "batch_size") if dim in node.dims
        }
        assert node["compile_time"].sel(labels).item() == row["compile_time"]
        assert node["peak_memory"].sel(labels).item() == row["peak_memory"] or np.isnan(row["peak_memory"])


@pytest.mark.parametrize("selected", [False, True])
def test_a_row_is_a_sample(selected: bool) -> None:
    """Each row of the frame is a sample in measured order, with its round and its contention."""
    data = measured()
    data = data.sel(compiler="openvino") if selected else data
    frame = data.ngb.to_dataframe("samples")
    part = frame[(frame["compiler"] == "openvino") & (frame["batch_size"] == 4)]
    trial = data.sel(batch_size=4) if selected else data.sel(compiler="openvino", batch_size=4)

    assert [*LABELS, "latency", "round"] == list(frame)[:6]
    assert int(data["latency"].notnull().sum()) == len(frame)
    assert trial["latency"].values.ravel().tolist() == part["latency"].tolist()
    assert trial["round"].values.ravel().tolist() == part["round"].tolist()
    assert {"latency": "s", "round": "1", "batch_size": "1"}.items() <= frame.attrs["units"].items()


def test_unknown_rows_and_no_samples_are_errors() -> None:
    """The errors list what is valid, and what to use."""
    with pytest.raises(UnknownNameError, match=r"unknown rows 'trial'. Did you mean trials"):
        measured().ngb.to_dataframe("trial")
    with pytest.raises(UsageError, match="this dataset has no measurement"):
        frames.to_samples(crashing(sweep(), "openvino", 4).sel(compiler=["openvino"], batch_size=[4]))


def test_files_hold_the_frame(tmp_path: Path) -> None:
    """The frame is written as CSV or Parquet; other formats and existing files are refused."""
    frame = measured().ngb.to_dataframe()
    numbers = frame.select_dtypes("number").columns
    file = frames.write(frame, tmp_path / "a.csv")
    pd.testing.assert_frame_equal(
        pd.read_csv(file, keep_default_na=False, na_values={name: [""] for name in numbers}), frame, check_dtype=False
    )
    file = frames.write(frame, tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(file), frame, check_dtype=False)

    with pytest.raises(UsageError, match=r"invalid file name 'a.xlsx'; expected .csv or .parquet"):
        frames.write(frame, tmp_path / "a.xlsx")
    with pytest.raises(UsageError, match="exists"):
        frames.write(frame, tmp_path / "a.csv")


def test_parquet_without_pyarrow_has_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a missing pyarrow has the install command, and no file remains."""
    monkeypatch.setattr(frames, "find_spec", lambda name: None if name == "pyarrow" else importlib.util.find_spec(name))

    with pytest.raises(MissingDependencyError, match=r"pyarrow is not installed. .*pip install 'ngbkit\[publish\]'"):
        frames.write(measured().ngb.to_dataframe(), tmp_path / "a.parquet")
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(("rows", "count"), [("trials", 4), ("samples", 40)])
def test_the_shell_writes_trials_and_samples(
    rows: str, count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The shell writes the rows to a file, or prints them."""
    file = str(storage.save(measured(), tmp_path / "a.nc"))
    command = ["show", file, "--rows", rows]
    for suffix in (".csv", ".parquet"):
        assert 0 == cli.main([*command, "-o", str(tmp_path / f"a{suffix}")])
    assert 0 == cli.main(command)
    printed = capsys.readouterr().out

    assert count == len(pd.read_csv(tmp_path / "a.csv")) == len(pd.read_parquet(tmp_path / "a.parquet"))
    assert count == len(pd.read_csv(StringIO(printed)))
    assert 0 == cli.main([*command, "--json"])
    assert count == len(json.loads(capsys.readouterr().out))
    assert 2 == cli.main([*command, "-o", str(tmp_path / "a.csv")])
    assert "replace it with --overwrite" in capsys.readouterr().err
    assert 2 == cli.main([*command, "-o", str(tmp_path / "a.txt")])


def test_a_file_of_the_shell_is_of_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error of `show -o` without --rows names the argument that is missing."""
    file = str(storage.save(measured(), tmp_path / "a.nc"))

    assert 2 == cli.main(["show", file, "-o", str(tmp_path / "a.csv")])
    assert "unexpected argument --out without --rows" in capsys.readouterr().err
    assert not (tmp_path / "a.csv").exists()
