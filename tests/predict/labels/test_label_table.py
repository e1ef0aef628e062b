"""Labels in a CSV or a DataFrame: the headers that people use, and errors with line and column."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from onnxgraphs import residual

from ngbkit.errors import NgbkitWarning, UsageError
from ngbkit.predict import examples

CPU = ("cpu", "unnamed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of networks, which is not the current one."""
    (tmp_path / "nets").mkdir()
    for blocks, name in ((1, "a"), (2, "b")):
        residual(tmp_path / "nets", 8, blocks).rename(tmp_path / "nets" / f"{name}.onnx")
    return tmp_path


def write(folder: Path, *lines: str, encoding: str = "utf-8") -> Path:
    path = folder / "labels.csv"
    path.write_text("\n".join(lines) + "\n", encoding=encoding)
    return path


@pytest.mark.parametrize(
    "lines",
    [
        ("file,milliseconds", "nets/a.onnx,1.5", "nets/b.onnx,2.5"),
        ("Network;Latency (ms)", "nets/a.onnx;1,5", "nets/b.onnx;2,5"),
        ("model\tlatency_us", "nets/a.onnx\t1500", "nets/b.onnx\t2500"),
        ("# made by hand", "path, Time [s]", "", '"nets/a.onnx", 0.0015', "nets/b.onnx ,2.5e-3"),
        ("name,latency_ms,latency_std_ms,params", "nets/a.onnx,1.5,0.1,9", "nets/b.onnx,2.5,0.1,9"),
    ],
)
def test_headers_that_people_use(folder: Path, lines: tuple[str, ...]) -> None:
    """Paths are relative to the table; a unit is in the header."""
    labels = examples(write(folder, *lines, encoding="utf-8-sig"))

    assert ("nets/a.onnx batch 1", "nets/b.onnx batch 1") == labels.names
    assert (CPU,) == labels.runtimes
    np.testing.assert_allclose([[1.5e-3], [2.5e-3]], labels.seconds)


def test_a_column_a_runtime(folder: Path) -> None:
    """A name may have its device; an empty cell was not measured."""
    labels = examples(write(folder, "file,onnxruntime_ms,tflite on pi [ms]", "nets/a.onnx,1,4", "nets/b.onnx,2,"))

    assert (("cpu", "onnxruntime"), ("pi", "tflite")) == labels.runtimes
    np.testing.assert_allclose([[1e-3, 4e-3], [2e-3, np.nan]], labels.seconds)


def test_a_row_a_measurement(folder: Path) -> None:
    """Columns name runtime, device, family, batch size and error; a row again is a repetition, weighed by its error."""
    rows = ("nets/a.onnx,ort,pi,x,4,1,0.1", "nets/a.onnx,ov,pi,x,4,2,", "nets/b.onnx,ort,pi,y,4,3,0.3")
    again = "nets/b.onnx,ort,pi,y,4,3.3,0.3"
    header = "file,runtime,device,family,batch_size,ms,error_ms"
    labels = examples(write(folder, header, *rows, again))

    assert (("pi", "ort"), ("pi", "ov")) == labels.runtimes
    assert (("x", "y"), 4) == (labels.families, labels.graphs[0].inputs[0].shape[0])
    # The weights of 3 and 3.3 ms are as the squares of their latencies: their errors are equal in ms.
    mean = 3e-3 * 1.1 ** (1.1**2 / (1 + 1.1**2))
    np.testing.assert_allclose([[1e-3, 2e-3], [mean, np.nan]], labels.seconds)
    np.testing.assert_allclose([[0.1, np.nan], [0.1 / np.sqrt(1 + 1.1**2), np.nan]], labels.errors)


@pytest.mark.parametrize(
    ("column", "cell"), [("error_percent", 5), ("error", 0.05), ("stderr [us]", 50), ("sem_ms", 0.05)]
)
def test_errors_have_a_unit(folder: Path, column: str, cell: float) -> None:
    """An error of a label is a share, a percentage or a time."""
    labels = examples(write(folder, f"file,ms,{column}", f"nets/a.onnx,1,{cell}"))

    np.testing.assert_allclose([[0.05]], labels.errors)


def test_a_data_frame_is_a_table(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data frame is a table of labels with the user's paths."""
    monkeypatch.chdir(folder)
    frame = pd.DataFrame({"file": ["nets/a.onnx", Path("nets/b.onnx")], "ms": [1, np.nan]})
    with pytest.warns(NgbkitWarning, match="1 without a latency are left out: the table, row 1"):
        labels = examples(frame, runtime=("pi", "tflite"))

    assert (("pi", "tflite"),) == labels.runtimes
    np.testing.assert_allclose([[1e-3]], labels.seconds)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((), "holds no rows; expected a column 'file'"),
        (("file,ms",), "holds no rows"),
        (("file,latency", "a,1"), r"no column of a latency.*'latency' has no unit: call it 'latency_ms'"),
        (("milliseconds", "1"), "no column of a network in labels.csv: got 'milliseconds'"),
        (("file,ms,ms", "a,1,2"), "got ms twice"),
        (("file,ms,seconds", "a,1,2"), "ambiguous latencies of labels.csv: got the columns 'ms', 'seconds'"),
        (("file,a_ms,b_ms,error_ms", "a,1,2,3"), "ambiguous column 'error_ms'"),
        (("file,ms", "nets/a.onnx,fast"), "line 2, column 'ms': got 'fast'; expected a number"),
        (
            ("file,ms", "nets/a.onnx,1", "nets/b.onnx,-1", ",3"),
            "line 3, column 'ms': got '-1'.*; line 4, column 'file'",
        ),
        (("file,ms", "nets/a.onnx,1,2"), "line 2: got 3 cells; expected 2"),
        (("file,ms,batch", "nets/a.onnx,1,0.5"), "line 2, column 'batch': got 0.5; expected an integer"),
        (("file,ms,error", "nets/a.onnx,1,-2"), "line 2, column 'error': got '-2'; expected a number >= 0"),
        (("file,ms", "nets/a.onnx,1", "a.onnx,1"), "labels.csv, line 3: there is no file .*relative to the folder"),
        (("network,ms", "resnet81,1"), "labels.csv, line 2: unknown workload 'resnet81'"),
        (("network,ms", "evil.py,1"), "line 2: invalid network 'evil.py'.*runs no code"),
    ],
)
def test_what_does_not_fit_is_an_error(folder: Path, lines: tuple[str, ...], message: str) -> None:
    """The error of an invalid table has its line and column."""
    (folder / "evil.py").write_text("raise SystemExit")
    with pytest.raises(UsageError, match=message):
        examples(write(folder, *lines))


def test_a_file_that_is_no_table_is_an_error(folder: Path) -> None:
    """A table of labels that is missing or no text is an error."""
    (folder / "labels.csv").write_bytes(b"PK\x03\x04\xff\xfe")
    with pytest.raises(UsageError, match="is not a text in UTF-8"):
        examples(folder / "labels.csv")
    with pytest.raises(UsageError, match=r"there is no file nowhere.csv; expected a CSV"):
        examples("nowhere.csv")
    with pytest.raises(UsageError, match="unexpected argument family: a table has a column"):
        examples(folder / "labels.csv", family="x")


def test_a_factor_is_a_column(folder: Path) -> None:
    """A network takes the numbers of those factors that it has."""
    labels = examples(write(folder, "network,ms,width,depth,params", "blocks.conv,1,8,1,99", "blocks.conv,2,8,2,99"))

    assert ["width=8 depth=1", "width=8 depth=2"] == [
        name.partition(" ")[2].partition(" batch")[0] for name in labels.names
    ]
