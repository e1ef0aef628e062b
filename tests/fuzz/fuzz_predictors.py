"""Fuzzes files of predictors: a damaged or hostile one is read and predicts, or is refused with an error of ngbkit.

    python tests/fuzz/run.py predictors --cases 10000

A damaged file that loads must predict what the undamaged one predicts: nothing altered is read as genuine.
"""

from __future__ import annotations

import functools
import json
import struct
import tempfile
import warnings
from pathlib import Path
from typing import Any

import damage
import numpy as np
from cases import run_on_files
from hypothesis import strategies as st

from ngbkit import predict
from ngbkit.errors import NgbkitError, NgbkitWarning
from ngbkit.predict import Examples, Graph
from ngbkit.predict import predictor_storage as files
from ngbkit.predict.graphs import Operator, Tensor

_KINDS: dict[str, dict[str, Any]] = {
    "flops": {},
    "linear": {},
    "boosting": {"rounds": 3, "leaves": 4},
    "gnn": {"epochs": 1, "width": 4, "layers": 1},
}
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
) | st.sampled_from([10**9, "gnn", "linear", ["cpu", "x"], {"members": 10**9}, {"width": 10**9}, {"layers": 10**9}])


@functools.cache
def build_files() -> tuple[Examples, dict[str, bytes]]:
    """Graphs to predict, and a small predictor of each kind as a file."""
    with tempfile.TemporaryDirectory(prefix="ngbkit-fuzz-") as name:
        folder = Path(name)
        examples = _build_examples()
        saved = {
            kind: predict.fit(examples, kind, **settings).save(folder / kind).read_bytes()
            for kind, settings in _KINDS.items()
        }
    return examples, saved


@functools.cache
def predict_undamaged(kind: str) -> np.ndarray[Any, Any]:
    """What the undamaged predictor of a kind predicts."""
    examples, saved = build_files()
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(saved[kind])
        return _predict(predict.load(file.name), examples)


def check_predictors(data: st.DataObject, folder: Path) -> str:
    """Damage a file, load it and predict, and return what became of it."""
    examples, saved = build_files()
    kind = data.draw(st.sampled_from(sorted(saved)))
    is_damaged = data.draw(st.booleans())
    content = damage.apply(saved[kind], data.draw(damage.DAMAGES)) if is_damaged else _edit(data, saved[kind])
    path = folder / "predictor.safetensors"
    path.unlink(missing_ok=True)  # a loaded file is mapped into memory
    path.write_bytes(content)
    try:
        loaded = predict.load(path)
    except NgbkitError:
        return "refused"
    seconds = _predict(loaded, examples)
    assert seconds.shape == (2, len(loaded.runtimes))
    if is_damaged:
        np.testing.assert_array_equal(predict_undamaged(kind), seconds)
    return "unharmed" if is_damaged else "read"


def _predict(fitted: predict.Predictor, examples: Examples) -> np.ndarray[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NgbkitWarning)  # an infinite interval, or a network beyond the labels
        return fitted.seconds(examples.graphs[:2], 0.5)[0]


def run(cases: int, seed: int) -> None:
    """Check that many files; see `cases.run_on_files`."""
    run_on_files("predictors", check_predictors, cases, seed)


def _build_examples() -> Examples:
    """Chains of operators of several widths and lengths, and each operator alone."""
    graphs = [_build_chain(width, length) for width in (8, 16, 24, 32, 48, 64) for length in (1, 2, 3)]
    seconds = [[1e-5 + 1e-10 * (graph.macs or 0), 2e-5 + 1e-9 * graph.weight_bytes] for graph in graphs]
    names = tuple(f"{graph.inputs[0].shape}x{len(graph.operators)}" for graph in graphs)
    families = tuple("operator" if len(graph.operators) == 1 else "chain" for graph in graphs)
    runtimes = (("cpu", "openvino"), ("cpu", "onnxruntime"))
    return Examples(
        graphs=tuple(graphs),
        seconds=np.array(seconds),
        runtimes=runtimes,
        names=names,
        families=families,
        parents=names,
        rules=("",) * len(graphs),
        operator_seconds=tuple(
            np.tile(np.array(row) / len(graph.operators), (len(graph.operators), 1))
            for graph, row in zip(graphs, seconds, strict=True)
        ),
    )


def _build_chain(width: int, length: int) -> Graph:
    value = Tensor(shape=(1, width), dtype="float", bytes=4 * width)
    weight = Tensor(shape=(width, width), dtype="float", bytes=4 * width * width)
    operators = tuple(
        Operator(
            name=f"{index}",
            kind="MatMul",
            inputs=(value,),
            outputs=(value,),
            weights=(weight,),
            attributes={},
            macs=width * width,
        )
        for index in range(length)
    )
    edges = tuple((index, index + 1) for index in range(length - 1))
    digest = f"{width}x{length}"
    return Graph(operators=operators, edges=edges, inputs=(value,), outputs=(value,), shared=(), digest=digest)


def _edit(data: st.DataObject, content: bytes) -> bytes:
    """Replace a part of the metadata or an array by another, with a checksum that is right: a hostile file."""
    (length,) = struct.unpack("<Q", content[:8])
    header: dict[str, Any] = json.loads(content[8 : 8 + length])
    body = content[8 + length :]
    metadata = json.loads(header.pop("__metadata__")["ngbkit"])
    arrays = {
        name: np.frombuffer(body[slice(*entry["data_offsets"])], _DTYPES[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in header.items()
    }
    if data.draw(st.booleans()):
        key = data.draw(st.sampled_from([*metadata, "other"]))
        value = metadata.get(key)
        if isinstance(value, dict) and value and data.draw(st.booleans()):
            value[data.draw(st.sampled_from(sorted(value)))] = data.draw(_JSON)
        else:
            metadata[key] = data.draw(_JSON)
    else:
        name = data.draw(st.sampled_from(sorted(arrays)))
        arrays[name] = _alter(data, arrays[name])
        if arrays[name] is None:
            del arrays[name]
    metadata.pop("digest", None)
    if hasattr(files, "_hash"):
        metadata["digest"] = files._hash(metadata, arrays)
    from safetensors.numpy import save

    return save(arrays, {"ngbkit": json.dumps(metadata)})


_DTYPES = {"F64": np.float64, "F32": np.float32, "I64": np.int64, "U8": np.uint8}


def _alter(data: st.DataObject, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    kind = data.draw(st.sampled_from(["remove", "shape", "dtype", "cut", "value", "text"]))
    if kind == "remove":
        return None
    if kind == "shape":
        return np.ascontiguousarray(array.ravel())
    if kind == "dtype":
        return array.astype(data.draw(st.sampled_from([np.float16, np.int8, np.float64, np.uint8])), casting="unsafe")
    if kind == "cut":
        return np.ascontiguousarray(array[: data.draw(st.integers(0, 3))]) if array.ndim else array
    altered = array.copy()
    if kind == "value" and altered.size:
        special = [np.nan, np.inf, -1, 0] if altered.dtype.kind == "f" else [0, 1, 127]
        altered.flat[data.draw(st.integers(0, altered.size - 1))] = data.draw(st.sampled_from(special))
    if kind == "text" and altered.dtype == np.uint8:
        damaged = damage.apply(altered.tobytes(), data.draw(damage.DAMAGES))
        return np.frombuffer(damaged, np.uint8)
    return altered
