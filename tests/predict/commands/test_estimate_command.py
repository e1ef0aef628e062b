"""An estimate in words: the same in a shell and in a notebook, with the digits that its intervals support."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from cells import run_cell
from drawn import measured, sweep
from IPython.core.interactiveshell import InteractiveShell

from ngbkit.commands.run import answer_estimate, list_notices
from ngbkit.metrics.estimate import format_time
from ngbkit.predict.forecast import SweepEstimate
from ngbkit.predict.forecast.imputation import VARIABLES, fill

# The package has a function of that name.
estimation = import_module("ngbkit.predict.forecast.estimate")


@pytest.fixture
def estimated() -> SweepEstimate:
    """A sweep of which two trials of three are predicted, one without an interval that says much."""
    data = measured(batch_sizes=[1, 4])
    pending = data.assign(status=data["status"].copy(data=np.full(data["status"].shape, "pending", dtype=object)))
    pending["latency"] = pending["latency"] * np.nan
    predictions = {
        ("net", (), "cpu", "openvino", 1): (0.12863036474046108, 0.11, 0.15),
        ("net", (), "cpu", "identity", 1): (0.2, 0.19, 0.21),
        ("net", (), "cpu", "identity", 4): (0.0000123, np.nan, np.nan),
    }
    return SweepEstimate(seconds=84.2, text="4 trials in 2 groups, about 1 min 24 s", data=fill(pending, predictions))


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ((0.12863036474046108, 0.11, 0.15), "129 ± 20 ms"),
        ((0.0000123, None, None), "~12 µs"),
        ((2.5, 2.4, 2.6), "2.50 ± 0.10 s"),
        ((3e-9, None, None), "~0.0030 µs"),
    ],
)
def test_a_time_has_sensible_digits_and_a_unit(times: tuple[float, float | None, float | None], text: str) -> None:
    """A time has as many digits as its interval supports, or two."""
    assert text == format_time(*times)


def test_the_likely_results_are_a_table(estimated: SweepEstimate) -> None:
    """A row a group, with the interval of the prediction and the distance to the next compiler, if there is one."""
    first, second = answer_estimate(estimated).report.frames[0].cells

    assert ["openvino", "129 ± 20 ms", "1.55"] == first[-3:]
    assert ["identity", "~12 µs", ""] == second[-3:]


def test_text_and_html_have_the_same_words(estimated: SweepEstimate) -> None:
    """The text and the HTML of an estimate have the same words and no float of full length."""
    text, html = answer_estimate(estimated).to_text(), answer_estimate(estimated)._repr_html_()

    for word in ("4 trials in 2 groups, about 1 min 24 s", "likely fastest", "129 ± 20 ms", "lead"):
        assert word in text
        assert word in html
    assert "0.1286" not in text + html


def test_programs_get_every_digit(estimated: SweepEstimate) -> None:
    """The JSON of an estimate has every digit, and None for a missing end of an interval."""
    report = answer_estimate(estimated).json

    assert 84.2 == report["seconds"]
    assert (0.12863036474046108, 0.11, 0.15) == tuple(report["best"][0][name] for name in ("latency", "low", "high"))
    assert report["best"][1]["low"] is None


def test_the_table_of_python_is_as_before(estimated: SweepEstimate) -> None:
    """The ends of the interval are in the dataset."""
    assert ["compiler", "latency", "measured", "lead", "conclusive"] == list(estimated.best().columns)[-5:]
    assert set(VARIABLES) <= set(estimated.data)
    assert "<SweepEstimate: 4 trials in 2 groups, about 1 min 24 s>" == repr(estimated)


def test_the_number_of_trials_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first notice of a run has the number of trials, and the expected time if an earlier run gives it."""
    monkeypatch.setattr(estimation, "load_earlier_trials", lambda: iter(()))
    before = list_notices(sweep())
    monkeypatch.setattr(estimation, "estimate_seconds", lambda grid: 80.2)

    assert ["4 trials in 2 groups; the duration is unknown without an earlier run"] == before
    assert ["4 trials in 2 groups, about 1 min 20 s"] == list_notices(sweep())
    assert [] == list_notices(sweep(), with_time=False)


def test_a_list_of_networks_is_several_networks(shell: InteractiveShell, mlp_file: Path, tmp_path: Path) -> None:
    """A list variable gives one network per element, even if a path has a blank or a comma."""
    files = [tmp_path / name for name in ("a b.onnx", "c,d.onnx")]
    for file in files:
        file.write_bytes(mlp_file.read_bytes())
    shell.user_ns.update(nets=files, sizes=np.array([1, 2]))
    estimate, _ = run_cell(shell, "%ngbench $nets -c onnxruntime -b $sizes --estimate")

    assert "4 trials in 4 groups" in str(estimate)
