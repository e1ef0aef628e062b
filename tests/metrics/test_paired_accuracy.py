"""The change of accuracy is over pairs: exact tests, score intervals, and the right columns."""

from __future__ import annotations

import base64
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import synthetic
import xarray as xr
from drawn import LOW, change_texts

from ngbkit import Sweep, metrics
from ngbkit.dataset.assembly import assemble
from ngbkit.errors import MetricError
from ngbkit.metrics import paired_accuracy
from ngbkit.metrics.acceptance import accept
from ngbkit.metrics.conclusions import conclude
from ngbkit.metrics.originals import find_originals
from ngbkit.workloads.base import Workload

COUNT = 200


def label(correct: np.ndarray) -> dict[str, object]:
    """Build the facts of a trial that answers these samples right."""
    bits = base64.b64encode(np.packbits(correct).tobytes()).decode()
    return {"evaluated_samples": len(correct), "accuracy": float(correct.mean()), "correct": bits}


def build_labelled(workload: Workload, lost: int, gained: int = 0) -> xr.Dataset:
    """Build a dataset in which bf16 answers some samples wrong that f32 of OpenVINO answers right."""
    right = np.ones(COUNT, bool)
    right[:20] = False
    low = right.copy()
    low[20 : 20 + lost] = False
    low[:gained] = True
    answers = {"identity": np.ones(COUNT, bool), "openvino": right, LOW: low}
    samples = np.random.default_rng(0).random((COUNT, 16), np.float32)
    sweep = Sweep(workload, list(answers), repeats=20, evaluate={"x": samples, "labels": np.zeros(COUNT, int)})
    records = [
        replace(record, facts={**record.facts, **label(answers[trial.compiler])})
        for trial, record in zip(sweep.trials(), synthetic.make_records(sweep), strict=True)
    ]
    return assemble(sweep, records)


def test_a_test_of_pairs_is_exact() -> None:
    """The probabilities are those of a fair coin, both ways."""
    cases = {(0, 0): 1.0, (5, 5): 1.0, (0, 5): 2 / 32, (10, 0): 2 / 1024, (1, 5): 2 * 7 / 64}

    assert {pair: pytest.approx(chance) for pair, chance in cases.items()} == {
        pair: paired_accuracy.compute_chance(*pair) for pair in cases
    }


def test_the_score_interval_contains_what_it_does_not_reject() -> None:
    """It is symmetric, contains the difference, and shrinks with the number of pairs."""
    low, high = paired_accuracy.bound_difference([3, 0, 30], [9, 0, 90], [100, 100, 1000], 0.95)

    assert (low < [-0.06, 0, -0.06]).all()
    assert (high > [-0.06, 0, -0.06]).all()
    np.testing.assert_allclose(
        [-end for end in high[::-1]],
        paired_accuracy.bound_difference([90, 0, 9], [30, 0, 3], [1000, 100, 100], 0.95)[0],
        atol=1e-9,
    )
    assert (high - low)[2] < (high - low)[0] / 2


def test_the_score_interval_covers() -> None:
    """Over all tables of 30 pairs with a true loss of 10 points, it covers at least 93 % of the time."""
    from scipy.stats import multinomial

    gained, lost = np.array(list(product(range(31), repeat=2))).T
    is_table = gained + lost <= 30
    gained, lost = gained[is_table], lost[is_table]
    low, high = paired_accuracy.bound_difference(gained, lost, 30, 0.95)
    chances = multinomial.pmf(np.stack([gained, lost, 30 - gained - lost], 1), 30, [0.05, 0.15, 0.8])

    assert 0.93 < float(chances[(low <= -0.1) & (high >= -0.1)].sum()) < 0.99


def test_a_column_is_compared_with_f32_of_its_runtime() -> None:
    """The label without the precision is the original; the baseline stands in where it is missing."""
    labels = ["identity", "openvino", LOW, 'onnxruntime{"optimization":"basic","precision":"int8"}']

    assert {LOW: "openvino", labels[3]: "identity"} == find_originals(labels)


def test_a_loss_is_a_metric(mlp: Workload) -> None:
    """The change has its interval, and its probability is that of McNemar; f32 itself has neither."""
    ds = build_labelled(mlp, lost=8, gained=1)
    change = metrics.accuracy_change(ds, ci=0.95).sel(compiler=LOW).squeeze()
    chance = ds.ngb.accuracy_chance().sel(compiler=LOW).item()

    assert -7 / COUNT == pytest.approx(change["accuracy_change"].item())
    assert change["ci_low"].item() < -7 / COUNT < change["ci_high"].item() < 0
    assert paired_accuracy.compute_chance(1, 8) == pytest.approx(chance)
    assert metrics.accuracy_change(ds).sel(compiler=["identity", "openvino"]).isnull().all()
    assert 0.9 == ds.ngb.accuracy().sel(compiler="openvino").item()


@pytest.mark.parametrize(("lost", "is_flagged"), [(0, False), (2, False), (8, True)])
def test_a_significant_loss_is_concluded(mlp: Workload, lost: int, is_flagged: bool) -> None:
    """The verdict names the column, its loss and the test, if chance hardly explains it."""
    verdict = "\n".join(conclude(build_labelled(mlp, lost=lost)).lines)

    assert is_flagged == ("Loses accuracy: " in verdict)
    assert is_flagged == (f"{LOW} on mlp, 4.0 points" in verdict)


def test_damaged_bits_are_no_answers(mlp: Workload) -> None:
    """A trial whose facts hold no readable bits is not compared."""
    ds = build_labelled(mlp, lost=8)

    assert metrics.accuracy_change(change_texts(ds, "facts", correct="?")).isnull().all()


def test_a_dataset_without_labels_has_no_accuracy(mlp: Workload) -> None:
    """The error says how to measure it."""
    sweep = Sweep(mlp, ["identity"], repeats=20)
    ds = assemble(sweep, synthetic.make_records(sweep))

    for name in ("accuracy", "accuracy_change", "accuracy_chance"):
        with pytest.raises(MetricError, match=r"Measure with evaluate=FILE"):
            getattr(ds.ngb, name)()
    with pytest.raises(MetricError, match=r"Measure with precisions="):
        ds.ngb.precision_gain()


def test_a_reference_stands_in_for_f32(mlp: Workload) -> None:
    """The answers of the file that a sweep refers to are the other of each pair, and bounds judge its columns."""
    columns = ["identity", "openvino"]
    ds = build_labelled(mlp, lost=0).sel(compiler=columns)
    with pytest.raises(MetricError, match=r"Measure with precisions="):
        metrics.accuracy_change(ds)
    answers = {f"reference_{name}": value for name, value in label(np.ones(COUNT, bool)).items()}
    referred = change_texts(ds, "facts", **answers, reference="mlp.onnx")
    change = metrics.accuracy_change(referred).squeeze()
    statuses = accept(referred, "accuracy>=0.95")["status"].squeeze()

    assert [0.0, -20 / COUNT] == change.sel(compiler=columns).values.tolist()
    assert ["ok", "not-equivalent"] == statuses.sel(compiler=columns).values.tolist()
    assert ["ok", "ok"] == accept(ds, "accuracy>=0.95")["status"].values.ravel().tolist()
    assert "openvino on mlp, 10.0 points" in "\n".join(conclude(referred).lines)


def test_the_gain_of_a_precision_is_over_its_own_runtime(mlp: Workload) -> None:
    """It is the ratio of both columns' speed-ups, and NaN for those in f32."""
    ds = build_labelled(mlp, lost=0)
    gain = metrics.precision_gain(ds, ci=0.95)
    both = metrics.speedup(ds, unlike="allow").squeeze()

    expected = both.sel(compiler=LOW) / both.sel(compiler="openvino")
    assert expected.item() == pytest.approx(gain["precision_gain"].sel(compiler=LOW).item(), rel=0.05)
    assert gain["ci_low"].sel(compiler=LOW).item() < gain["ci_high"].sel(compiler=LOW).item()
    assert gain["precision_gain"].sel(compiler=["identity", "openvino"]).isnull().all()
