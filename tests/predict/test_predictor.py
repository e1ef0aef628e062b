"""A predictor predicts with intervals, survives saving, and its kinds compare in one table."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learned import build_examples
from onnxgraphs import residual
from safetensors.numpy import save_file

from ngbkit import predict, set_options
from ngbkit.errors import NgbkitWarning, UnknownNameError, UsageError
from ngbkit.predict import Examples
from ngbkit.predict import predictor_storage as files
from ngbkit.predict.kinds import KINDS


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return build_examples(tmp_path_factory.mktemp("graphs"), alone=True)


def test_networks_are_predicted_with_an_interval(examples: Examples, tmp_path: Path) -> None:
    """The table has a row per network, batch size and runtime; the interval contains the prediction."""
    fitted = predict.fit(examples, "linear")
    file = residual(tmp_path, 20, 2)
    with set_options(state_dir=tmp_path / "state"):
        table = fitted.predict(str(file), batch_sizes=[1, 2], ci=0.5)

    assert [
        ("cpu", "openvino", 1),
        ("cpu", "onnxruntime", 1),
        ("cpu", "openvino", 2),
        ("cpu", "onnxruntime", 2),
    ] == list(table[["device", "compiler", "batch_size"]].itertuples(index=False, name=None))
    assert (table["ci_low"] <= table["latency"]).all()
    assert (table["latency"] <= table["ci_high"]).all()
    np.testing.assert_allclose(table["throughput"], table["batch_size"] / table["latency"])


def test_every_network_has_an_error_of_a_model_that_it_was_not_fitted_to(examples: Examples) -> None:
    """The folds keep the variants of a network together and exclude single operators."""
    fitted = predict.fit(examples, "linear", folds=3)
    calibration = fitted.calibration
    networks = np.flatnonzero(~examples.isolated)

    assert 3 == len(calibration.models)
    assert len(networks) == len(calibration.errors)
    assert np.isfinite(calibration.errors).all()
    assert {0, 1, 2} == set(calibration.fold)
    pairs = {(examples.parents[index], network) for index, network in zip(networks, calibration.network, strict=True)}
    assert 10 == len(pairs) == len({parent for parent, _ in pairs})
    for network in range(10):
        assert 1 == len(set(calibration.fold[calibration.network == network]))
    index, fold = networks[0], calibration.fold[0]
    prediction = calibration.models[fold].predict([examples.graphs[index]])[0]
    np.testing.assert_allclose(np.abs(np.log(prediction / examples.seconds[index])), calibration.errors[0], atol=1e-12)


def test_few_networks_have_an_interval(examples: Examples) -> None:
    """Ten networks have one of CV+ for 90 %, and one of Student's t for 95 %."""
    fitted = predict.fit(examples, "linear")
    networks = examples.take(np.flatnonzero(~examples.isolated)).graphs
    seconds, low, high = fitted.seconds(networks, ci=0.9)

    assert np.isfinite(high).all()
    assert (0 < low).all()
    assert ((low <= seconds) & (seconds <= high)).all()
    _, low, high = fitted.seconds(networks, ci=0.95)
    assert np.isfinite(high).all()
    assert ((low <= seconds) & (seconds <= high)).all()
    with pytest.raises(UsageError, match="invalid ci: got 95"):
        fitted.seconds(networks, ci=95)


def test_without_folds_there_is_no_interval(examples: Examples) -> None:
    """Fitting is faster then; other numbers of folds than 0 and from 2 on are errors."""
    fitted = predict.fit(examples, "flops", folds=0)

    with pytest.warns(NgbkitWarning, match="got openvino on cpu: 0, .* Measure more networks"):
        assert np.isinf(fitted.seconds(examples.graphs[:40], ci=0.5)[2]).all()
    for folds in (1, -1, 2.5):
        with pytest.raises(UsageError, match=f"invalid folds={folds}; expected 0 or an integer"):
            predict.fit(examples, "flops", folds=folds)


@pytest.mark.parametrize("kind", KINDS)
def test_a_predictor_is_saved_as_arrays(kind: str, examples: Examples, tmp_path: Path) -> None:
    """The loaded predictor predicts the same."""
    settings = {
        **{"gnn": {"epochs": 3, "width": 16, "layers": 1}},
        **{"boosting": {"rounds": 20}},
    }.get(kind, {})
    fitted = predict.fit(examples, kind, **settings)
    again = predict.load(fitted.save(tmp_path / "deep" / "one.safetensors"))

    assert fitted.runtimes == again.runtimes
    networks = examples.graphs[:40]
    for expected, actual in zip(fitted.seconds(networks, 0.5), again.seconds(networks, 0.5), strict=True):
        np.testing.assert_array_equal(expected, actual)


def test_another_file_is_rejected(tmp_path: Path) -> None:
    """The error names the file and the expected kind of file."""
    (tmp_path / "text").write_text("hello, this is no predictor at all")
    save_file({"a": np.zeros(1)}, tmp_path / "other.safetensors")
    for name in ("text", "other.safetensors", "missing"):
        with pytest.raises(UsageError, match=r"is not a predictor|invalid layout"):
            predict.load(tmp_path / name)


@pytest.fixture
def saved(examples: Examples, tmp_path: Path) -> Path:
    """The file of a small predictor."""
    return predict.fit(examples, "linear").save(tmp_path / "linear.safetensors")


def rewrite(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """Change the metadata and the arrays of a predictor's file, and sign it as whoever made it would."""
    metadata, arrays = files._read(path)
    metadata.pop("digest")
    change(metadata, arrays)
    metadata["digest"] = files._hash(metadata, arrays)
    save_file(arrays, path, {files._METADATA: json.dumps(metadata)})


@pytest.mark.parametrize("place", [0.2, 0.5, 0.9])
def test_a_flipped_bit_is_found(saved: Path, place: float) -> None:
    """A weight that changed a little would predict wrong numbers without a word."""
    content = bytearray(saved.read_bytes())
    content[int(place * len(content))] ^= 1
    saved.write_bytes(content)

    with pytest.raises(UsageError, match=r"is damaged|is not a predictor|invalid layout"):
        predict.load(saved)


def test_a_shortened_file_is_refused(saved: Path) -> None:
    """The end of it is missing."""
    saved.write_bytes(saved.read_bytes()[:-8])

    with pytest.raises(UsageError, match="is not a predictor"):
        predict.load(saved)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda metadata, arrays: metadata["runtimes"].append(["cpu", "x"]), "runtimes"),
        (lambda metadata, arrays: metadata.update(runtimes=[["cpu"]]), "ValueError"),
        (lambda metadata, arrays: metadata.update(runtimes=None), "TypeError"),
        (lambda metadata, arrays: metadata.pop("settings"), "KeyError"),
        (lambda metadata, arrays: metadata["settings"].pop("fold4"), "a fold beyond 4 folds"),
        (lambda metadata, arrays: arrays.pop("fold0.prices"), "KeyError"),
        (lambda metadata, arrays: arrays.update(fold=arrays["fold"][1:]), "are not those of 40 errors"),
        (lambda metadata, arrays: arrays.update(network=arrays["network"].astype(np.int32)), "are not those of"),
        (lambda metadata, arrays: arrays.pop("errors"), "KeyError"),
        (lambda metadata, arrays: arrays.update(errors=np.zeros(3, np.float32)), "float32"),
        (lambda metadata, arrays: arrays.update(errors=np.full_like(arrays["errors"], np.inf)), "infinite"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(
    saved: Path, change: Callable[[dict[str, Any], dict[str, Any]], None], reason: str
) -> None:
    """A file that contradicts itself is refused, even if its hash is right."""
    rewrite(saved, change)

    with pytest.raises(UsageError, match=rf"is not a predictor: .*{reason}"):
        predict.load(saved)


def test_an_unknown_kind_in_a_file_is_refused(saved: Path) -> None:
    """The error lists the known ones."""
    rewrite(saved, lambda metadata, arrays: metadata.update(kind="oracle"))

    with pytest.raises(UnknownNameError, match="oracle"):
        predict.load(saved)


def test_too_few_networks_are_an_error(examples: Examples) -> None:
    """A single network leaves none to hold out."""
    with pytest.raises(UsageError, match=r"got 1; expected at least four"):
        predict.fit(examples.take([0]), "flops")


def test_kinds_are_compared_in_one_table(examples: Examples) -> None:
    """The table has a row per kind, runtime, seed and fold; the summary has one per kind and runtime."""
    table = predict.evaluate(examples, ("flops", "linear"), split="family", seeds=(0, 1))
    summary = predict.summary(table)

    assert 2 * 2 * 2 * 5 == len(table)
    assert {f"width{width}" for width in (8, 12, 16, 24, 32)} == set(table["left_out"])
    linear, flops = (summary.xs(kind, level="kind") for kind in ("linear", "flops"))
    assert (linear["mape"] < 0.05).all()
    assert flops["mape"].max() > linear["mape"].max()
    assert (linear["sign"] > 0.9).all()
    assert [2] == summary["seeds"].unique().tolist()
    rows = table[(table["kind"] == "flops") & (table["compiler"] == "openvino")]
    mean = (rows["mape"] * rows["graphs"]).sum() / rows["graphs"].sum()
    assert pytest.approx(mean) == flops.loc[("family", "cpu", "openvino"), "mape"]


def test_noisy_labels_are_fitted_and_not_scored(examples: Examples) -> None:
    """Variants are scored: their errors are those of gains."""
    networks = examples.take(np.flatnonzero(~examples.isolated))
    original = np.array([not rule for rule in networks.rules])
    errors = np.full(networks.seconds.shape, 0.01)
    errors[original, 0] = 0.2
    noisy = dataclasses.replace(networks, errors=errors)
    table = predict.evaluate(noisy, ["linear"], seeds=[0], max_error=0.05)
    graphs = table.groupby("compiler")["graphs"].sum()

    assert int((~original).sum()) == graphs["openvino"]
    assert len(networks) == graphs["onnxruntime"]
    for wrong in (0.0, -1.0, math.nan):
        with pytest.raises(UsageError, match=r"expected a share above 0, such as 0\.05"):
            predict.evaluate(noisy, ["linear"], max_error=wrong)


@pytest.mark.parametrize("kind", ["linear", "boosting", "gnn"])
def test_the_cost_of_each_operator_is_part_of_the_whole(kind: str, examples: Examples) -> None:
    """Costs are in milliseconds; the rest is the cost of the call."""
    settings = {"gnn": {"epochs": 3}, "boosting": {"rounds": 5}}.get(kind, {})
    fitted = predict.fit(examples, kind, **settings)
    graph = examples.graphs[0]
    costs = fitted.costs(graph, "onnxruntime")
    (seconds,), _, _ = fitted.seconds([graph], ci=0.5)

    assert (len(graph.operators),) == costs.shape
    assert (costs >= 0).all()
    assert 0 < costs.sum() <= 1e3 * seconds[fitted.column("onnxruntime")] * (1 + 1e-5)


def test_an_unknown_runtime_is_an_error(examples: Examples) -> None:
    """The error lists the runtimes that the predictor has."""
    fitted = predict.fit(examples, "flops", folds=0)

    with pytest.raises(UnknownNameError, match="openvino"):
        fitted.column("openvno")
    with pytest.raises(UnknownNameError, match="cpu"):
        fitted.column("openvino", "gpu")
