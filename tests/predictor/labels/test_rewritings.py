"""Examples as tables, and rewritings that gain on one runtime and lose on another."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ngbkit import predictor
from ngbkit.errors import UsageError
from ngbkit.predictor.graphs import Operator, Tensor
from ngbkit.predictor.labels.example_set import Examples

# The original of each pair takes a second on both runtimes; its variants take these.
SECONDS = {"a-1": (0.5, 0.5), "a-2": (0.8, 1.3), "b-1": (0.9, 1.01), "b-2": (1.02, 0.5), "c-1": (0.7, np.nan)}


def build(seconds: dict[str, tuple[float, float]], devices: tuple[str, str] = ("cpu", "cpu")) -> Examples:
    parents = sorted({name[0] for name in seconds})
    names = [*parents, *seconds]
    graphs: Any = tuple(
        SimpleNamespace(digest=name, lowering="") for name in names
    )  # of which only these two count here
    return Examples(
        graphs=graphs,
        seconds=np.array([*[(1.0, 1.0)] * len(parents), *seconds.values()]),
        runtimes=tuple(zip(devices, ("onnxruntime", "openvino"), strict=True)),
        names=tuple(names),
        families=("x",) * len(names),
        parents=tuple(name[0] for name in names),
        rules=tuple("" if name in parents else "merge" for name in names),
    )


def test_examples_are_a_table() -> None:
    """One row per network, with a column per runtime."""
    table = predictor.to_frame(build({"a-1": (0.5, 0.25)}))

    assert ["name", "family", "parent", "rule", "onnxruntime", "openvino"] == list(table.columns)
    assert [("a", "x", "a", "", 1.0, 1.0), ("a-1", "x", "a", "merge", 0.5, 0.25)] == list(
        table.itertuples(index=False, name=None)
    )
    assert ["onnxruntime on cpu", "openvino on orin"] == list(predictor.to_frame(build(SECONDS, ("cpu", "orin"))))[4:]


def test_what_gains_on_one_runtime_may_lose_on_another() -> None:
    """A variant counts that gains on the first and was measured on the second."""
    table = predictor.compare_rewritings(build(SECONDS))
    third = pytest.approx(1 / 3)

    assert [
        ("onnxruntime", "openvino", 3, third, third, third),
        ("openvino", "onnxruntime", 2, 0.5, 0.5, 0.0),
    ] == list(table.itertuples(index=False, name=None))


def test_a_larger_gain_counts_fewer_variants() -> None:
    """A pair without any has no row."""
    table = predictor.compare_rewritings(build({"a-1": (0.5, 1.0), "a-2": (0.9, 1.0)}), gain=0.5)

    assert [("onnxruntime", 1)] == list(table[["gains on", "variants"]].itertuples(index=False, name=None))


def test_rewritings_need_their_originals() -> None:
    """The error says so."""
    with pytest.raises(UsageError, match="Collect them together"):
        predictor.compare_rewritings(build(SECONDS).take(range(3)))


def build_operator(kernel: str, bias: bool = False, **attributes: Any) -> Operator:
    value = Tensor(shape=(1, 8, 4, 4), dtype="float32", bytes=512)
    weights = (Tensor(shape=(8, 8, 1, 1), dtype="float32", bytes=256), *([value] if bias else []))
    stated = {"kernel": kernel, "kernel_shape": (1, 1), **attributes}
    return Operator(
        name="", kind="Conv", inputs=(value,), outputs=(value,), weights=weights, attributes=stated, macs=1024
    )


def test_pairs_that_do_the_same_work_show_the_noise_of_labels() -> None:
    """Neither a stated default nor a bias is work; another kernel is, and another network is no variant."""
    operators = {
        "a": [build_operator("brgconv"), build_operator("jit")],
        "a-1": [build_operator("jit", auto_pad="NOTSET"), build_operator("brgconv", bias=True)],
        "a-2": [build_operator("brgconv"), build_operator("brgconv")],
        "b": [build_operator("brgconv"), build_operator("jit")],
    }
    labels = build({"a-1": (0.5, np.nan), "a-2": (0.5, 0.5)})
    graphs: Any = [SimpleNamespace(operators=operators[name], digest=name, lowering="") for name in labels.names]
    labels = replace(labels, graphs=tuple(graphs), errors=np.full(labels.seconds.shape, 0.1))

    table = predictor.compare_equal_work(labels)

    assert ["parent", "rule", "other rule", "runtime", "gain", "error"] == list(table)
    assert [("a", "", "merge", "onnxruntime", pytest.approx(np.log(2)), pytest.approx(0.1))] == list(
        table.itertuples(index=False, name=None)
    )
    assert predictor.compare_equal_work(replace(labels, errors=None))["error"].isna().all()
    assert predictor.compare_equal_work(labels.take([0])).empty
