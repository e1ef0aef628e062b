"""A fitted model with its errors on held-out networks: fit, predict, save and load."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ngbkit.dataset.storage import Data, write_whole
from ngbkit.errors import MissingDependencyError, UnknownNameError, UsageError
from ngbkit.predictor.collection import collect
from ngbkit.predictor.example_set import Examples
from ngbkit.predictor.graphs import Graph, Operator, Tensor
from ngbkit.predictor.kinds import find_kind
from ngbkit.predictor.kinds.base import Floats, Model, Progress, ignore_progress
from ngbkit.predictor.network_graphs import graph
from ngbkit.predictor.rows import Runtime
from ngbkit.predictor.splits import split_holdout
from ngbkit.sweep.grid import Grid
from ngbkit.user_text import parse_path

if TYPE_CHECKING:
    import pandas as pd

_LAYOUT = 1
_METADATA = "ngbkit"
# A graph that every model can predict.
_VALUE = Tensor(shape=(1, 1), dtype="float", bytes=4)
_PROBE = Graph(
    operators=(Operator(name="", kind="Relu", inputs=(_VALUE,), outputs=(_VALUE,), weights=(), attributes={}, macs=0),),
    edges=(),
    inputs=(_VALUE,),
    outputs=(_VALUE,),
    shared=(),
    digest="",
)
HOLDOUT = 0.15
"""The share of the networks held out from fitting, whose errors determine the intervals."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictor:
    """Predicts the latency of networks on the runtimes that it was fitted to.

    Parameters
    ----------
    model
        The fitted model.
    runtimes
        A device and a compiler per column.
    errors
        Absolute logarithms of prediction over measurement, of networks that the model was not fitted to: of shape
        ``(networks, runtimes)``, NaN where there is none.
    """

    model: Model
    runtimes: tuple[Runtime, ...]
    errors: NDArray[np.float64]

    def seconds(self, graphs: Sequence[Graph], ci: float = 0.95) -> tuple[Floats, Floats, Floats]:
        """The latencies of calls and both ends of their intervals: each of shape ``(graphs, runtimes)``.

        Parameters
        ----------
        graphs
            Each at its batch size.
        ci
            The share of networks whose latency is inside the interval: a split conformal prediction, valid for
            networks drawn like those of `errors`, whatever the model.

        Raises
        ------
        UsageError
            `ci` is not a probability.
        """
        if not 0 < ci < 1:
            raise UsageError(f"invalid {ci=}; expected a probability between 0 and 1, such as ci=0.95.")
        seconds = self.model.predict(graphs)
        factor = np.exp(_compute_quantiles(self.errors, ci))
        return seconds, seconds / factor, seconds * factor

    def costs(self, graph: Graph, compiler: str, device: str | None = None) -> NDArray[np.float64]:
        """The milliseconds that each operator adds on one runtime, for `ngbkit.predictor.draw`.

        Parameters
        ----------
        graph
            A network at one batch size.
        compiler, device
            One of the runtimes: see `column`.

        Raises
        ------
        UnknownNameError, UsageError
            As `column`; or the kind of model is not a sum of operators.
        """
        contributions = self.model.compute_contributions(graph)
        if contributions is None:
            raise UsageError(
                f"a model of kind {self.model.kind!r} has no cost per operator; expected one of 'gnn', 'linear', "
                "'operators'. Fit such a predictor."
            )
        return np.asarray(1e3 * contributions[:, self.column(compiler, device)])

    def column(self, compiler: str, device: str | None = None) -> int:
        """The index of a runtime in `runtimes`.

        Parameters
        ----------
        compiler, device
            The names of the runtime; the device is optional if there is only one.

        Raises
        ------
        UnknownNameError
            The predictor was not fitted to such a runtime.
        UsageError
            The predictor was fitted to several devices, and `device` is None.
        """
        columns = [column for column, (_, name) in enumerate(self.runtimes) if name == compiler]
        if not columns:
            raise UnknownNameError("compiler of this predictor", compiler, {name for _, name in self.runtimes})
        if device is not None:
            columns = [column for column in columns if self.runtimes[column][0] == device]
            if not columns:
                raise UnknownNameError("device of this predictor", device, {name for name, _ in self.runtimes})
        if len(columns) > 1:
            devices = ", ".join(self.runtimes[column][0] for column in columns)
            raise UsageError(
                f"ambiguous compiler {compiler}: this predictor has several devices; expected device= one of {devices}."
            )
        return columns[0]

    def predict(self, workloads: Any, batch_sizes: Iterable[int] = (1,), *, ci: float = 0.95) -> pd.DataFrame:
        """A table of latencies, a row per network, factors, batch size and runtime.

        Parameters
        ----------
        workloads
            As for `Sweep`: names, workloads, files; or a `Sweep`, whose batch sizes then apply.
        batch_sizes
            Samples in a call.
        ci
            As for `seconds`.

        Returns
        -------
        pandas.DataFrame
            ``workload``, the factors, ``device``, ``compiler``, ``batch_size``, ``latency``, ``ci_low``, ``ci_high``
            (seconds), and ``throughput`` (samples/s).

        Raises
        ------
        UsageError
            As `Sweep` and `seconds`.
        UnsupportedError
            A network has no ONNX form.
        """
        import pandas as pd

        sweep = workloads if isinstance(workloads, Grid) else Grid(workloads, batch_sizes=list(batch_sizes))
        tasks = [
            (workload, dict(zip(workload.factors, values, strict=True)), size)
            for workload in sweep.workloads
            for values in product(*workload.factors.values())
            for size in sweep.batch_sizes
        ]
        graphs = [graph(workload, size, factors) for workload, factors, size in tasks]
        latency, low, high = self.seconds(graphs, ci)
        rows = [
            {
                **{"workload": workload.name, **factors, "device": device, "compiler": compiler, "batch_size": size},
                **{"latency": latency[index, column], "ci_low": low[index, column], "ci_high": high[index, column]},
                "throughput": size / latency[index, column],
            }
            for index, (workload, factors, size) in enumerate(tasks)
            for column, (device, compiler) in enumerate(self.runtimes)
        ]
        return pd.DataFrame(rows)

    def save(self, path: str | Path) -> Path:
        """Write one ``.safetensors`` file: arrays, and JSON in its header; loading it never executes code."""
        from safetensors.numpy import save

        metadata: dict[str, Any] = {
            "layout": _LAYOUT,
            "kind": self.model.kind,
            "settings": self.model.dump_settings(),
            "runtimes": self.runtimes,
        }
        arrays = {f"model.{name}": np.ascontiguousarray(value) for name, value in self.model.dump_arrays().items()}
        arrays["errors"] = np.ascontiguousarray(self.errors)
        metadata["digest"] = _hash(metadata, arrays)
        target = parse_path(path)
        write_whole(target, save(arrays, {_METADATA: json.dumps(metadata)}))
        return target


def fit(
    data: Data | Examples,
    kind: str = "gnn",
    *,
    seed: int = 0,
    progress: Progress = ignore_progress,
    **settings: Any,
) -> Predictor:
    """Fit a predictor to the runtimes of a dataset.

    Parameters
    ----------
    data
        The dataset of a run, or of several by `ngbkit.merge`; or examples that were collected from one.
    kind
        ``"gnn"``; or ``"boosting"``, ``"linear"``, ``"operators"``, ``"flops"``.
    seed
        Seed of the split and the model: the same data, settings and seed give the same predictor.
    progress
        Called with the share that is complete and a message.
    **settings
        Settings of the kind, such as ``epochs=100``; with ``folder=``, interrupted training resumes.

    Raises
    ------
    UnknownNameError
        There is no such kind.
    UsageError
        The dataset has no latency, or too few networks to hold some out.
    MissingDependencyError
        A library is not installed.
    """
    examples = data if isinstance(data, Examples) else collect(data)
    model = find_kind(kind)(**settings)
    train, test = split_holdout(examples, HOLDOUT, seed)
    if not len(test):
        raise UsageError(
            f"too few networks to fit a predictor: got {len(set(examples.parents))}; expected at least four, one of "
            "which is held out. Measure more networks."
        )
    model.fit(examples.take(train), seed=seed, progress=progress)
    test_examples = examples.take(test)
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.abs(np.log(model.predict(test_examples.graphs) / test_examples.seconds))
    return Predictor(model=model, runtimes=examples.runtimes, errors=errors)


def load(path: str | Path) -> Predictor:
    """The predictor that `Predictor.save` wrote.

    Raises
    ------
    UsageError
        The file is missing, damaged or not a predictor, or its layout is unknown to this ngbkit.
    """
    metadata, arrays = _read(Path(path))
    if metadata.get("layout") != _LAYOUT:
        raise UsageError(
            f"invalid layout of {path}: got {str(metadata.get('layout', 'none'))[:40]}; expected {_LAYOUT}. Fit the "
            "predictor again with this version of ngbkit."
        )
    digest = metadata.pop("digest", None)  # older files have none
    if digest is not None and digest != _hash(metadata, arrays):
        raise UsageError(f"{path} is damaged: its content is not what was saved. Copy it again, or fit the predictor.")
    try:
        return _restore(metadata, arrays)
    except (MissingDependencyError, UnknownNameError):
        raise
    except Exception as error:  # each kind of model fails in its own way about arrays that do not fit
        reason = str(error).strip().partition("\n")[0][:200]
        raise UsageError(
            f"{path} is not a predictor: {type(error).__name__}: {reason}. Pass a file that predictor.save() wrote."
        ) from error


def _read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = json.loads((file.metadata() or {}).get(_METADATA, "{}"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a mapping
    # Arrays of a dtype that NumPy lacks are a TypeError or an AttributeError, and nested JSON is a RecursionError.
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path} is not a predictor: {error}. Pass a file that predictor.save() wrote.") from error
    return metadata if isinstance(metadata, dict) else {}, arrays


def _restore(metadata: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Predictor:
    """Build a predictor from the content of a file; any exception if it is none."""
    runtimes = tuple((device, compiler) for device, compiler in metadata["runtimes"])
    errors = arrays["errors"]
    if not all(isinstance(name, str) for runtime in runtimes for name in runtime):
        raise TypeError("a runtime is a device and a compiler")
    if errors.dtype != np.float64 or errors.ndim != 2 or errors.shape[1] != len(runtimes):
        raise ValueError(f"errors of {errors.dtype}{list(errors.shape)} are not of {len(runtimes)} runtimes")
    if any(np.isinf(array).any() for array in arrays.values() if array.dtype.kind == "f"):
        raise ValueError("an infinite number")  # it would predict NaN
    model_arrays = {name.removeprefix("model."): value for name, value in arrays.items() if name.startswith("model.")}
    model = find_kind(metadata["kind"]).restore(metadata["settings"], model_arrays)
    predicted = model.predict([_PROBE])
    if predicted.shape != (1, len(runtimes)):
        raise ValueError(f"the model predicts {list(predicted.shape)[1:]} runtimes; expected {len(runtimes)}")
    return Predictor(model=model, runtimes=runtimes, errors=errors)


def _hash(metadata: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """Hash all that a file contains; safetensors itself has no checksum."""
    hasher = hashlib.blake2b(json.dumps(metadata, sort_keys=True).encode(), digest_size=16)
    for name, array in sorted(arrays.items()):
        hasher.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        hasher.update(np.ascontiguousarray(array).tobytes())
    return hasher.hexdigest()


def _compute_quantiles(errors: Floats, ci: float) -> Floats:
    """Return the conformal quantile of each column of errors; NaN if there are too few errors for it."""
    quantiles = np.full(errors.shape[1], np.nan)
    for column, values in enumerate(errors.T):
        finite = np.sort(values[np.isfinite(values)])
        rank = int(np.ceil((len(finite) + 1) * ci))
        if rank <= len(finite):
            quantiles[column] = finite[rank - 1]
    return quantiles
