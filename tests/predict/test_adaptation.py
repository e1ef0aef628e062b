"""A predictor is adapted to a family that it was not fitted to by a few networks of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from learned import build_examples
from numpy.typing import NDArray

from ngbkit import predict
from ngbkit.errors import NgbkitWarning, UnknownNameError, UsageError
from ngbkit.predict import Examples, Predictor, adaptation

pytestmark = pytest.mark.filterwarnings("ignore:beyond the labels")

NEW = "width32"
FACTOR = 1.5


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    """Families of which one is slower than a model of the others would say."""
    built = build_examples(tmp_path_factory.mktemp("graphs"))
    is_new = np.array(built.families) == NEW
    # Without variants: each network is one.
    return replace(
        built,
        seconds=np.where(is_new[:, None], FACTOR, 1.0) * built.seconds,
        parents=built.names,
        rules=("",) * len(built),
    )


def select(examples: Examples) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the indices of known networks, and of those of the new family."""
    is_new = np.array(examples.families) == NEW
    return np.flatnonzero(~is_new), np.flatnonzero(is_new)


@pytest.fixture(scope="module")
def fitted(examples: Examples) -> Predictor:
    return predict.fit(examples.take(select(examples)[0]), "linear")


def compute_errors(fitted: Predictor, examples: Examples) -> NDArray[np.float64]:
    """Return the mean error by runtime."""
    return np.abs(fitted.model.predict(examples.graphs) / examples.seconds - 1).mean(axis=0)


def test_a_few_networks_correct_their_family(fitted: Predictor, examples: Examples) -> None:
    """The error falls on both runtimes, on networks that it was not adapted to."""
    new = select(examples)[1]
    few, others = examples.take(new[::2]), examples.take(new[1::2])
    adapted = fitted.adapt(few)

    assert (compute_errors(fitted, others) > 0.25).all()
    assert (compute_errors(adapted, others) < 0.08).all()


def test_a_runtime_without_a_measurement_is_predicted_as_before(fitted: Predictor, examples: Examples) -> None:
    """A runtime without a measurement is predicted as before and has no interval."""
    new = examples.take(select(examples)[1])
    profiles = tuple(values[:, 1:] for values in new.operator_seconds or ())
    adapted = fitted.adapt(
        replace(new, runtimes=new.runtimes[1:], seconds=new.seconds[:, 1:], operator_seconds=profiles)
    )
    with pytest.warns(NgbkitWarning, match="openvino on cpu: 0"):
        seconds, _, high = adapted.seconds(new.graphs, ci=0.7)

    np.testing.assert_array_equal(fitted.model.predict(new.graphs)[:, 0], seconds[:, 0])
    assert np.isinf(high[:, 0]).all()
    assert np.isfinite(high[:, 1]).all()
    assert (np.abs(seconds[:, 1] / new.seconds[:, 1] - 1) < 0.1).all()


def test_intervals_are_by_the_networks_that_were_left_out(fitted: Predictor, examples: Examples) -> None:
    """Each has an error of a model without it, so that the interval of few networks is wide and honest."""
    new = examples.take(select(examples)[1])
    adapted = fitted.adapt(new)
    _, low, high = adapted.seconds(new.graphs, ci=0.8)

    assert len(new) == adapted.calibration.count_networks(0) == len(adapted.calibration.models)
    assert ((low <= new.seconds) & (new.seconds <= high)).mean() >= 0.8
    _, _, high = adapted.seconds(new.graphs)
    assert np.isfinite(high).all()
    with pytest.warns(NgbkitWarning, match="expected at least 5"):
        fitted.adapt(new.take(range(4))).seconds(new.graphs)


def test_an_adapted_predictor_is_saved(fitted: Predictor, examples: Examples, tmp_path: Path) -> None:
    """The loaded one predicts the same, and so do contributions of operators."""
    new = examples.take(select(examples)[1])
    adapted = fitted.adapt(new)
    again = predict.load(adapted.save(tmp_path / "adapted.safetensors"))

    for expected, actual in zip(adapted.seconds(new.graphs, 0.5), again.seconds(new.graphs, 0.5), strict=True):
        np.testing.assert_array_equal(expected, actual)
    np.testing.assert_array_equal(adapted.costs(new.graphs[0], "openvino"), again.costs(new.graphs[0], "openvino"))


def test_adapting_again_starts_from_the_fitted_model(fitted: Predictor, examples: Examples, tmp_path: Path) -> None:
    """The result is that of adapting to the last labels alone, and can be saved."""
    new = select(examples)[1]
    first, last = examples.take(new[:3]), examples.take(new[3:])
    twice = fitted.adapt(first).adapt(last)

    np.testing.assert_array_equal(fitted.adapt(last).model.predict(first.graphs), twice.model.predict(first.graphs))
    predict.load(twice.save(tmp_path / "twice.safetensors"))


def test_other_runtimes_are_an_error(fitted: Predictor, examples: Examples) -> None:
    """The error of another runtime names both."""
    others = replace(examples, runtimes=(("orin", "tensorrt"), ("orin", "openvino")))

    with pytest.raises(
        UsageError, match="got runtimes tensorrt on orin, openvino on orin; expected openvino on cpu, onn"
    ):
        fitted.adapt(others)


def test_adaptation_is_evaluated(examples: Examples) -> None:
    """The evaluation by family excludes the networks that the predictor was adapted to."""
    plain = predict.evaluate(examples, ["linear"], split="family", seeds=[0])
    adapted = predict.evaluate(examples, ["linear"], split="family", seeds=[0], adapt=3)

    assert list(plain["graphs"] - 3) == list(adapted["graphs"])
    is_new = plain["left_out"] == NEW
    assert is_new.any()
    assert (adapted["mape"][is_new] < 0.5 * plain["mape"][is_new]).all()
    # At most half of a family.
    half = predict.evaluate(examples, ["linear"], split="family", seeds=[0], adapt=100)
    assert list(plain["graphs"] // 2) == list(half["graphs"])
    for split, adapt in (("random", 3), ("family", -1)):
        with pytest.raises(UsageError, match=f"invalid adapt={adapt} with split='{split}'"):
            predict.evaluate(examples, ["flops"], split=split, adapt=adapt)


def test_a_new_device_is_predicted_from_ten_labels(fitted: Predictor, examples: Examples, tmp_path: Path) -> None:
    """A device of the same prices times a factor is found to be one; its intervals are finite, and it can be saved."""
    runtimes = (("board", "openvino"),)
    labels = replace(examples, runtimes=runtimes, seconds=4 * examples.seconds[:, [1]], operator_seconds=None)
    few = labels.take([labels.names.index(name) for name in fitted.suggest(examples, 10)["workload"]])
    lines: list[str] = []
    board = fitted.adapt(few, device="board", report=lambda _share, text: lines.append(text))
    seconds, low, high = board.seconds(labels.graphs)

    assert runtimes == board.runtimes
    assert str(board.choice) in lines
    assert np.abs(seconds / labels.seconds - 1).mean() < 0.08
    assert np.isfinite(high).all()
    assert ((low <= labels.seconds) & (labels.seconds <= high)).mean() >= 0.9
    again = predict.load(board.save(tmp_path / "board.safetensors"))
    np.testing.assert_array_equal(seconds, again.seconds(labels.graphs)[0])


def test_an_unlike_device_has_prices_of_its_own(fitted: Predictor, examples: Examples, tmp_path: Path) -> None:
    """A device that takes as long for each operator, whatever its work, is predicted by prices, and can be saved."""
    few = replace(examples, runtimes=(("board", "openvino"),), seconds=examples.seconds[:, :1], operator_seconds=None)
    few = few.take(range(0, 40, 4))
    counts = np.array([[len(graph.operators)] for graph in few.graphs])
    board = fitted.adapt(replace(few, seconds=1e-3 * counts), device="board")
    again = predict.load(board.save(tmp_path / "board.safetensors"))

    assert adaptation.OWN == board.choice.approach
    assert board.choice == again.choice
    assert "linear" == again.model.kind
    assert len(few.graphs[0].operators) == len(again.costs(few.graphs[0], "openvino"))


def test_labels_of_another_device_need_its_name(fitted: Predictor, examples: Examples) -> None:
    """Labels of a single device, such as those of a CSV, are of the named one; three are too few."""
    single = replace(examples, runtimes=(("cpu", "tflite"), ("cpu", "openvino")))
    mixed = replace(examples, runtimes=(("orin", "tensorrt"), ("pi", "openvino")))

    assert (("pi", "tflite"), ("pi", "openvino")) == fitted.adapt(single.take(range(0, 40, 8)), device="pi").runtimes
    assert (("pi", "openvino"),) == fitted.adapt(mixed.take(range(0, 40, 8)), device="pi").runtimes
    with pytest.raises(UnknownNameError, match="device of these labels 'phone'"):
        fitted.adapt(mixed, device="phone")
    with pytest.raises(UsageError, match=r"too few networks to adapt to pi: got 3 of tflite; .* Predictor\.suggest"):
        fitted.adapt(single.take(range(3)), device="pi")


def test_the_most_informative_networks_are_suggested(fitted: Predictor, examples: Examples) -> None:
    """They differ, and each leaves less variance; no network comes twice."""
    suggested = fitted.suggest(examples, 10)

    assert 10 == len(set(suggested["workload"])) == len(suggested)
    assert (suggested["left"].diff().dropna() <= 0).all()
    assert suggested["left"].iloc[-1] < 0.05
