"""A model of one kind with what it knows of its own errors: fitted, asked, judged, saved and loaded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ngbkit.dataset.storage import Data
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.predictor.examples import Examples, Runtime, collect, graph
from ngbkit.predictor.graphs import Graph
from ngbkit.predictor.kinds import kind as kind_of
from ngbkit.predictor.kinds.base import Floats, Model, Progress, silent
from ngbkit.predictor.splits import holdout
from ngbkit.sweep.grid import Sweep

if TYPE_CHECKING:
    import pandas as pd

_LAYOUT = 1
_ABOUT = "ngbkit"
HOLDOUT = 0.15
"""The share of the networks that intervals are made from, and that the model does not learn from."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictor:
    """Predicts what networks take on the runtimes that it has learned from.

    Parameters
    ----------
    model
        What predicts.
    runtimes
        Devices and compilers, a column each.
    errors
        Absolute logarithms of prediction over measurement, of networks that it has not learned from: of shape
        ``(networks, runtimes)``, NaN where there is none.
    """

    model: Model
    runtimes: tuple[Runtime, ...]
    errors: NDArray[np.float64]

    def seconds(self, graphs: Sequence[Graph], ci: float = 0.95) -> tuple[Floats, Floats, Floats]:
        """What calls take, with both ends of an interval: each of shape ``(graphs, runtimes)``.

        Parameters
        ----------
        graphs
            Each at its batch size.
        ci
            The share of such networks whose latency is to be inside: split conformal prediction, so that it holds of
            networks that come from where those of `errors` came, whatever the model is.

        Raises
        ------
        UsageError
            `ci` is not a probability.
        """
        if not 0 < ci < 1:
            raise UsageError(f"an interval came with {ci=}; it is a probability between 0 and 1: ci=0.95.")
        found = self.model.predict(graphs)
        factor = np.exp(_quantiles(self.errors, ci))
        return found, found / factor, found * factor

    def costs(self, graph: Graph, compiler: str, device: str | None = None) -> NDArray[np.float64]:
        """What each operator adds on one runtime, in milliseconds, for `ngbkit.predictor.draw`.

        Parameters
        ----------
        graph
            A network at one batch size.
        compiler, device
            One of its runtimes: see `column`.

        Raises
        ------
        UnknownNameError, UsageError
            As `column`; or its kind of model is no sum of operators.
        """
        found = self.model.contributions(graph)
        if found is None:
            raise UsageError(
                f"a model of the kind {self.model.kind!r} sees a network as a whole, and knows no cost of an operator. "
                "Fit one that adds them up: 'gnn', 'linear', 'operators'."
            )
        return np.asarray(1e3 * found[:, self.column(compiler, device)])

    def column(self, compiler: str, device: str | None = None) -> int:
        """The place of a runtime among `runtimes`.

        Parameters
        ----------
        compiler, device
            Its names; the device may be left out where there is one only.

        Raises
        ------
        UnknownNameError
            It has not learned from such a runtime.
        UsageError
            It has learned from several devices, and none was named.
        """
        fitting = [at for at, (_, one) in enumerate(self.runtimes) if one == compiler]
        if not fitting:
            raise UnknownNameError("compiler of this predictor", compiler, {one for _, one in self.runtimes})
        if device is not None:
            fitting = [at for at in fitting if self.runtimes[at][0] == device]
            if not fitting:
                raise UnknownNameError("device of this predictor", device, {one for one, _ in self.runtimes})
        if len(fitting) > 1:
            devices = ", ".join(self.runtimes[at][0] for at in fitting)
            raise UsageError(
                f"this predictor has learned {compiler} on several devices: {devices}. Name one: device=…."
            )
        return fitting[0]

    def predict(self, workloads: Any, batch_sizes: Iterable[int] = (1,), *, ci: float = 0.95) -> pd.DataFrame:
        """What networks take, a row a network, its factors, a batch size and a runtime.

        Parameters
        ----------
        workloads
            What `Sweep` takes: names, workloads, files; or a `Sweep`, whose batch sizes count then.
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

        sweep = workloads if isinstance(workloads, Sweep) else Sweep(workloads, batch_sizes=list(batch_sizes))
        asked = [
            (workload, dict(zip(workload.factors, values, strict=True)), size)
            for workload in sweep.workloads
            for values in product(*workload.factors.values())
            for size in sweep.batch_sizes
        ]
        graphs = [graph(workload, size, factors) for workload, factors, size in asked]
        middle, low, high = self.seconds(graphs, ci)
        rows = [
            {
                **{"workload": workload.name, **factors, "device": device, "compiler": compiler, "batch_size": size},
                **{"latency": middle[at, column], "ci_low": low[at, column], "ci_high": high[at, column]},
                "throughput": size / middle[at, column],
            }
            for at, (workload, factors, size) in enumerate(asked)
            for column, (device, compiler) in enumerate(self.runtimes)
        ]
        return pd.DataFrame(rows)

    def save(self, path: str | Path) -> Path:
        """Write one ``.safetensors`` file: numbers, and JSON in its header; nothing in it is ever executed."""
        from safetensors.numpy import save_file

        about = {
            "layout": _LAYOUT,
            "kind": self.model.kind,
            "settings": self.model.settings(),
            "runtimes": self.runtimes,
        }
        arrays = {f"model.{name}": np.ascontiguousarray(value) for name, value in self.model.arrays().items()}
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        save_file({**arrays, "errors": np.ascontiguousarray(self.errors)}, target, {_ABOUT: json.dumps(about)})
        return target


def fit(
    data: Data | Examples,
    kind: str = "gnn",
    *,
    seed: int = 0,
    progress: Progress = silent,
    **settings: Any,
) -> Predictor:
    """Learn to predict what networks take on the runtimes of a dataset.

    Parameters
    ----------
    data
        Of a run, or of several by `ngbkit.merge`; or examples that were made of one.
    kind
        ``"gnn"``; or ``"boosting"``, ``"linear"``, ``"operators"``, ``"flops"``.
    seed
        Of all that is random: the same data, settings and seed give the same predictor.
    progress
        Told how far it is.
    **settings
        Of the kind, such as ``epochs=100``; with ``folder=``, training goes on where it was ended.

    Raises
    ------
    UnknownNameError
        There is no such kind.
    UsageError
        The dataset has no latency, or too few networks for some to be left out.
    MissingDependencyError
        A library is not installed.
    """
    found = data if isinstance(data, Examples) else collect(data)
    model = kind_of(kind)(**settings)
    learned, held = holdout(found, HOLDOUT, seed)
    if not len(held):
        raise UsageError(
            f"this dataset has {len(set(found.parents))} network(s); a predictor takes at least four, one of which it "
            "is judged by."
        )
    model.fit(found.take(learned), seed=seed, progress=progress)
    judged = found.take(held)
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.abs(np.log(model.predict(judged.graphs) / judged.seconds))
    return Predictor(model=model, runtimes=found.runtimes, errors=errors)


def load(path: str | Path) -> Predictor:
    """The predictor that `Predictor.save` wrote.

    Raises
    ------
    UsageError
        The file is none of it, or of a newer ngbkit.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            about = json.loads((file.metadata() or {}).get(_ABOUT, "{}"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no mapping
    except (SafetensorError, OSError) as error:
        raise UsageError(f"{path} is no predictor: {error}. Take a file that predictor.save() wrote.") from error
    if about.get("layout") != _LAYOUT:
        raise UsageError(
            f"{path} is no predictor of this version of ngbkit, which reads layout {_LAYOUT}; it has "
            f"{about.get('layout', 'none')}. Fit it again."
        )
    own = {name.removeprefix("model."): value for name, value in arrays.items() if name.startswith("model.")}
    model = kind_of(about["kind"]).restore(about["settings"], own)
    runtimes = tuple((device, compiler) for device, compiler in about["runtimes"])
    return Predictor(model=model, runtimes=runtimes, errors=arrays["errors"])


def _quantiles(errors: Floats, ci: float) -> Floats:
    """Of each column the error that a new one is at most, with that probability; NaN where too few are known to say."""
    found = np.full(errors.shape[1], np.nan)
    for column, values in enumerate(errors.T):
        known = np.sort(values[np.isfinite(values)])
        place = int(np.ceil((len(known) + 1) * ci))
        if place <= len(known):
            found[column] = known[place - 1]
    return found
