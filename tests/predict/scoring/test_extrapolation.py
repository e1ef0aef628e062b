"""Networks beyond the labels are named, have wider intervals or no prediction, and lead no search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from learned import RUNTIMES, build_examples, compute_seconds, graph
from onnx import helper
from onnxgraphs import Builder, residual

from ngbkit import predict
from ngbkit.errors import NgbkitWarning
from ngbkit.predict import Examples, Graph, Predictor, read
from ngbkit.predict.optimizer import predicted
from ngbkit.predict.optimizer.beam_search import search
from ngbkit.predict.optimizer.editing import load_model, open_model
from ngbkit.predict.scoring.extrapolation import Extrapolation

pytestmark = pytest.mark.filterwarnings("ignore:too few networks for intervals")


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    """Stacks of blocks of 8 to 32 channels, with windows of 1 and 3, each a network of its own."""
    labels = build_examples(tmp_path_factory.mktemp("graphs"))
    return replace(labels, parents=labels.names, rules=("",) * len(labels))


@pytest.fixture(scope="module")
def fitted(examples: Examples) -> Predictor:
    return predict.fit(examples, "linear")


def build_foreign(folder: Path, operator: str, domain: str = "") -> Graph:
    """Build a network of a single operator that no label has."""
    build = Builder(8)
    if operator == "Einsum":
        value = build.add("Einsum", "x", "x", equation="nchw,ncwk->nchk")
    else:
        value = build.add(operator, "x", domain=domain)
    model = build.model(value)
    if domain:
        model.opset_import.append(helper.make_opsetid(domain, 1))
        del model.graph.output[0].type.tensor_type.shape.dim[:]
    return graph(model, folder)


FOREIGN: dict[str, Callable[[Path], Graph]] = {
    "Einsum": lambda folder: build_foreign(folder, "Einsum"),
    r"my\.ops\.Fancy": lambda folder: build_foreign(folder, "Fancy", "my.ops"),
    "DepthwiseConv 3x3": lambda folder: graph((build := Builder(64)).model(build.conv("x", 64, group=64)), folder),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_an_operator_without_a_price_has_no_prediction(name: str, fitted: Predictor, tmp_path: Path) -> None:
    """The warning and the table name the operator that the labels lack."""
    foreign = FOREIGN[name](tmp_path)
    with pytest.warns(NgbkitWarning, match=f"no prediction of network 1: no label has {name}"):
        table = fitted.predict([foreign])

    assert table[["latency", "ci_low", "ci_high", "throughput"]].isna().all(axis=None)
    assert table["beyond"].str.contains(f"no label has {name}").all()


def test_a_network_between_the_labels_is_within_their_range(
    fitted: Predictor, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """Its interval is about that of held-out networks, without a word."""
    between = read(residual(tmp_path, 20, 3))
    _, low, high = fitted.seconds([between], ci=0.9)
    expected_low, expected_high = fitted.calibration.predict([between], 0.9)

    assert not fitted.find_beyond([between]).any()
    assert [] == [str(warning.message) for warning in recwarn if "beyond" in str(warning.message)]
    np.testing.assert_allclose(low, expected_low, rtol=0.05)
    np.testing.assert_allclose(high, expected_high, rtol=0.05)


def test_a_larger_network_has_a_wider_interval(fitted: Predictor, tmp_path: Path) -> None:
    """The factor by which it exceeds the labels is the reason; the errors without the largest widen its interval."""
    large = read(residual(tmp_path, 64, 6))
    with pytest.warns(NgbkitWarning, match=r"beyond the labels.*network 1: .* times the MACs of the largest label"):
        seconds, low, high = fitted.seconds([large], ci=0.9)
    _, narrow = fitted.calibration.predict([large], 0.9)

    assert (high > narrow).all()
    assert ((low < compute_seconds(large)) & (compute_seconds(large) < high)).all()
    assert np.isfinite(seconds).all()


def test_an_interval_that_says_nothing_is_no_prediction(fitted: Predictor, tmp_path: Path) -> None:
    """A network whose interval would span a factor of 100 has no prediction, but the reason."""
    large = read(residual(tmp_path, 64, 6))
    wrong = replace(fitted.extrapolation, errors=fitted.extrapolation.errors + 10.0)
    with pytest.warns(NgbkitWarning, match="no prediction of network 1: .* times the MACs of the largest label"):
        seconds, _, _ = replace(fitted, extrapolation=wrong).seconds([large], ci=0.9)

    assert np.isnan(seconds).all()


def test_a_window_that_was_left_out_is_beyond_the_labels(examples: Examples) -> None:
    """Fitted to windows of 1, a predictor knows no convolution with a window of 3."""
    kernels = np.array([examples.graphs[index].operators[0].attributes["kernel_shape"][0] for index in range(40)])
    narrow, wide = np.flatnonzero(kernels == 1), np.flatnonzero(kernels == 3)
    fitted = predict.fit(examples.take(narrow), "flops", folds=3)

    assert fitted.find_beyond([examples.graphs[index] for index in wide]).all()
    assert fitted.find_beyond([examples.graphs[index] for index in narrow]).mean() < 0.1


def test_an_operator_that_was_only_measured_alone_is_beyond_the_labels(tmp_path: Path) -> None:
    """It has a price, but no network of the labels tells how it differs inside one: its share widens the interval."""
    labels = build_examples(tmp_path, alone=True)
    is_wide = np.array([each.operators[0].attributes.get("kernel_shape", (0,))[0] == 3 for each in labels.graphs])
    wide = np.flatnonzero(is_wide & ~labels.isolated)
    fitted = predict.fit(labels.take(np.setdiff1d(np.arange(len(labels)), wide)), "linear", folds=3)
    network = labels.graphs[wide[-1]]
    with pytest.warns(
        NgbkitWarning, match=r"beyond the labels.*no network of the labels has Conv 3x3 \(\d+ % of its work"
    ):
        seconds, low, high = fitted.seconds([network], ci=0.9)

    assert fitted.find_beyond([labels.graphs[index] for index in wide]).all()
    assert np.isfinite(seconds).all()
    assert (high / low > 4).all()


def test_few_networks_price_no_operator_that_none_of_them_has(tmp_path: Path) -> None:
    """Below twenty networks, an operator that none of them has is refused, and their number is a reason."""
    labels = build_examples(tmp_path, alone=True)
    labels = replace(labels, parents=labels.names, rules=("",) * len(labels))
    is_wide = np.array([each.operators[0].attributes.get("kernel_shape", (0,))[0] == 3 for each in labels.graphs])
    narrow = np.flatnonzero(~is_wide & ~labels.isolated)[:12]
    fitted = predict.fit(labels.take([*narrow, *np.flatnonzero(labels.isolated)]), "linear", folds=3)
    network = labels.graphs[np.flatnonzero(is_wide & ~labels.isolated)[0]]
    with pytest.warns(NgbkitWarning, match=r"no prediction of.*Conv 3x3.*; too few networks for new operators: 12"):
        seconds, _, _ = fitted.seconds([network], ci=0.9)

    assert np.isnan(seconds).all()


def test_the_largest_error_of_few_parts_is_enlarged(fitted: Predictor) -> None:
    """Three of four networks keep the largest error of three parts; 95 of 100 keep only a larger one."""
    distances = np.ones((3, len(RUNTIMES)))
    few = replace(fitted.extrapolation, errors=0.1 * distances, distances=distances, parts=np.arange(3.0))

    np.testing.assert_allclose(few.compute_errors(distances, 0.75), 0.1)
    assert (few.compute_errors(distances, 0.95) > 0.2).all()


def test_errors_beyond_the_labels_follow_from_what_is_left_out(examples: Examples) -> None:
    """Families, operators and sizes are left out in turn; without folds, there are no such errors."""
    measured = Extrapolation.build(examples)

    assert len(measured.errors) > len(examples) / 2
    assert np.isfinite(measured.errors).all()
    assert 0 == len(Extrapolation.build(examples, shifts=False).errors)


def test_the_range_is_saved(fitted: Predictor, tmp_path: Path) -> None:
    """A loaded predictor has the same reasons and intervals."""
    again = predict.load(fitted.save(tmp_path / "linear.safetensors"))
    large = read(residual(tmp_path, 64, 6))
    with pytest.warns(NgbkitWarning, match="beyond the labels"):
        expected, actual = (each.predict([large], ci=0.9) for each in (fitted, again))

    assert expected.equals(actual)


def test_an_adapted_predictor_spans_what_it_was_adapted_to(fitted: Predictor, tmp_path: Path) -> None:
    """Networks that were measured meanwhile are within its range."""
    large = [read(residual(tmp_path, width, 6)) for width in (48, 56, 64)]
    labels = predict.examples(large, np.array(list(map(compute_seconds, large))), runtime=list(RUNTIMES))
    adapted = fitted.adapt(labels)

    assert fitted.find_beyond(large).all()
    assert not adapted.find_beyond(large).any()


def test_a_search_does_not_follow_predictions_beyond_the_labels(fitted: Predictor, tmp_path: Path) -> None:
    """They cost infinity, and the search of a network of that cost follows its operations."""
    cost = predicted(fitted, "openvino")
    large = residual(tmp_path, 64, 6)

    assert np.isinf(cost([read(large)])).all()
    assert np.isfinite(cost([read(residual(tmp_path, 16, 2))])).all()
    with pytest.warns(NgbkitWarning, match=r"beyond the labels of its cost model.* follows multiply-accumulate"):
        (original,) = search(open_model(load_model(large)), cost, [])
    assert np.isfinite(original.cost)
