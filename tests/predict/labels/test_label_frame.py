"""Examples as a table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ngbkit import predict
from ngbkit.predict.labels.example_set import Examples

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
    table = predict.to_frame(build({"a-1": (0.5, 0.25)}))

    assert ["name", "family", "parent", "rule", "onnxruntime", "openvino"] == list(table.columns)
    assert [("a", "x", "a", "", 1.0, 1.0), ("a-1", "x", "a", "merge", 0.5, 0.25)] == list(
        table.itertuples(index=False, name=None)
    )
    assert ["onnxruntime on cpu", "openvino on orin"] == list(predict.to_frame(build(SECONDS, ("cpu", "orin"))))[4:]
