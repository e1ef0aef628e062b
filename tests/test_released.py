"""Files of release 0.1 still load. They were written by its code."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from keeping import run_cache
from safetensors.numpy import save_file

import ngbkit
from ngbkit import runs
from ngbkit.dataset import nodes
from ngbkit.errors import NgbkitWarning, UsageError
from ngbkit.metrics.tables import compact
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Measurement

FILES = Path(__file__).parent / "released" / "0.1"
RECORDINGS = sorted((Path(__file__).parent / "recordings").iterdir())


def test_a_sweep_is_the_same_sweep() -> None:
    """Its id and those of its trials are what journals and recordings go by."""
    sweep = ngbkit.Sweep.from_json(json.loads((FILES / "sweep.json").read_text()))
    first, *trials = (FILES / "sweep-id.txt").read_text().split()

    assert first == sweep.id
    assert trials == [trial.id for trial in sweep.trials()]


def test_a_dataset_loads() -> None:
    """With its dims, its statuses and its metrics."""
    tree = ngbkit.load(FILES / "tree.nc")
    blocks = nodes(tree)["/conv"]

    assert ("device", "workload", "width", "depth", "compiler", "batch_size", "repeat") == blocks["latency"].dims
    assert {"ok", "failed"} <= set(blocks["status"].values.ravel())
    assert float(blocks.ngb.speedup().sel(compiler="identity").min()) == 1.0


def test_older_units_are_read() -> None:
    """A table of a dataset whose attributes have the symbols that people read, as those of 0.1 do, has its unit."""
    tree = ngbkit.load(FILES / "tree.nc")
    units = {name: nodes(tree)["/conv"][name].attrs["units"] for name in ("peak_memory", "throughput")}
    titles = [compact(tree, name).attrs["title"] for name in units]

    assert {"peak_memory": "B", "throughput": "samples/s"} == units
    assert ["peak resident memory of the measuring process (B)", "throughput (samples/s)"] == titles


@pytest.mark.parametrize("folder", RECORDINGS, ids=lambda folder: folder.name[:8])
def test_a_run_loads(folder: Path) -> None:
    """What was asked for, and every record of its journal."""
    sweep = runs.read_sweep(folder)
    with Journal(folder / "journal.sqlite", writable=False) as journal:
        records = list(journal.records())

    assert records
    assert any(isinstance(record, Measurement) and record.latency_s for record in records)
    assert {trial.id for trial in sweep.trials()} & {record.trial_id for record in records}
    assert any("ok" in dataset["status"].values for dataset in nodes(runs.load_dataset(folder)).values())


@pytest.mark.parametrize("kind", ["linear", "operators"])
def test_a_predictor_loads(kind: str) -> None:
    """It predicts what it predicted."""
    fitted = ngbkit.predictor.load(FILES / f"{kind}.safetensors")
    graphs = ngbkit.predictor.load_examples(FILES / "examples.nc").graphs[:2]
    expected = json.loads((FILES / "seconds.json").read_text())[kind]

    seconds, _, _ = expected
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NgbkitWarning)  # of runtimes without an error
        latency, low, high = fitted.seconds(graphs, ci=0.5)

    np.testing.assert_allclose(seconds, latency, rtol=1e-6)
    # One network was held out, which is just enough for half: its split conformal interval.
    finite = np.isfinite(high)
    assert finite.any()
    np.testing.assert_allclose(low[finite] * high[finite], (latency**2)[finite], rtol=1e-6)


def test_a_graph_network_of_other_features_says_to_fit_again(tmp_path: Path) -> None:
    """Its weights are those of features that are no more."""
    file = tmp_path / "gnn.safetensors"
    save_file({"errors": np.zeros(1)}, file, {"ngbkit": json.dumps({"layout": 2, "kind": "gnn"})})

    with pytest.raises(UsageError, match=r"got 2; expected 4\. Fit the predictor again"):
        ngbkit.predictor.load(file)


def test_an_archive_of_tuning_results_is_imported() -> None:
    """With its records."""
    imports = run_cache("import", str(FILES / "tuned.tar.gz"), "--anyway").json["came"]

    assert ["0123456789abcdef0123456789abcdef"] == [result["key"] for result in imports]
