"""Whether cost models are portable: what one of them makes of networks is run on every runtime, its own and others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx_ir as ir
import pandas as pd
import xarray as xr

from ngbkit.optimizer import proof, variants
from ngbkit.optimizer.editing import open_model
from ngbkit.optimizer.optimise import save
from ngbkit.optimizer.rules import RULES, Rule
from ngbkit.optimizer.search import USUAL, Beam, Candidate, Cost, search
from ngbkit.workloads.base import Workload

MEASURED = "measured on {}"
"""What the cost model is called that is measurement itself: the best of all that was measured on a runtime."""

NOISE = 0.02
"""A speed-up within this of 1 is neither a gain nor a regression."""


def study(
    networks: Iterable[Any],
    costs: Mapping[str, Cost],
    compilers: Sequence[str],
    *,
    batch_size: int = 1,
    device: str = "cpu",
    rules: Iterable[Rule] = tuple(RULES.values()),
    beam: Beam = USUAL,
    told: Callable[[str], None] | None = None,
    **how: Any,
) -> xr.Dataset:
    """Optimise every network by every cost model, and run what comes out on every runtime.

    All that the cost models make of a network, and the network itself, take turns in one run.

    Parameters
    ----------
    networks
        Each as for `ngbkit.optimizer.optimize`.
    costs
        Cost models by name.
    compilers
        Runtimes that read ONNX.
    batch_size, device, rules, beam, told, **how
        As for `ngbkit.optimizer.optimize`.

    Returns
    -------
    xarray.Dataset
        Dims ``network, cost, compiler``: ``speedup`` over the network as it came, ``low`` and ``high``, the ends of its
        95 % interval (1 where the cost model leaves the network as it is, NaN where nothing ran), and ``steps``, the
        rules that were applied. Beside the cost models stands one for each runtime that is measurement itself.

    Raises
    ------
    UsageError, UnsupportedError
        As for `ngbkit.optimizer.optimize`.
    """
    asked = [variants.single(one, compilers) for one in networks]
    names = [*costs, *(MEASURED.format(one) for one in compilers)]
    shape = (len(asked), len(names), len(compilers))
    numbers = {name: np.full(shape, np.nan) for name in ("speedup", "low", "high")}
    steps = np.full(shape[:2], "", dtype=object)
    for at, workload in enumerate(asked):
        if told is not None:
            told(f"{workload.name}, {at + 1} of {len(asked)}")
        rows, written = _of_one(workload, costs, compilers, batch_size, device, list(rules), beam, how)
        steps[at] = written
        for name, values in numbers.items():
            values[at] = rows[name]
    dims = ("network", "cost", "compiler")
    labels = {"network": [one.name for one in asked], "cost": names, "compiler": list(compilers)}
    found = {name: (dims, values) for name, values in numbers.items()}
    return xr.Dataset({**found, "steps": (dims[:2], steps)}, labels, {"batch_size": batch_size, "device": device})


def summary(found: xr.Dataset) -> pd.DataFrame:
    """The matrix of a study: how well each cost model does on each runtime.

    Returns
    -------
    pandas.DataFrame
        A row a cost model and a runtime: ``networks``; ``speedup``, the geometric mean; ``regressions``, the share of
        networks that became slower, surely and by more than `NOISE`; ``worst``; and ``regret``, the share by which it
        stays behind the best that was measured on that runtime, in the mean.
    """
    rows = []
    for compiler in found["compiler"].values.tolist():
        best = found["speedup"].sel(compiler=compiler, cost=MEASURED.format(compiler))
        for cost in found["cost"].values.tolist():
            own = found.sel(compiler=compiler, cost=cost)
            values = own["speedup"].values
            there = np.isfinite(values)
            slower = (own["high"].values < 1) & (values < 1 - NOISE)
            rows.append(
                {
                    **{"cost": cost, "compiler": compiler, "networks": int(there.sum())},
                    "speedup": float(np.exp(np.mean(np.log(values[there])))) if there.any() else np.nan,
                    "regressions": float(np.mean(slower[there])) if there.any() else np.nan,
                    "worst": float(values[there].min()) if there.any() else np.nan,
                    "regret": float(np.mean(1 - values[there] / best.values[there])) if there.any() else np.nan,
                }
            )
    return pd.DataFrame(rows).set_index(["cost", "compiler"])


def _of_one(
    workload: Workload,
    costs: Mapping[str, Cost],
    compilers: Sequence[str],
    batch_size: int,
    device: str,
    rules: Sequence[Rule],
    beam: Beam,
    how: Mapping[str, Any],
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The speed-ups of one network with their intervals, by cost model and runtime, and what was applied."""
    with TemporaryDirectory(prefix="ngbkit-portability-") as place:
        folder = Path(place)
        start = variants.write(workload, batch_size, folder)
        model = open_model(ir.load(start))
        chosen = {name: search(model, cost, rules, beam)[0] for name, cost in costs.items()}
        files = _sound(chosen.values(), start, folder)
        known: dict[str, list[variants.Outcome]] = {compiler: [] for compiler in compilers}
        if files:
            data = variants.measure(
                workload.name, start, list(files.values()), compilers, batch_size=batch_size, device=device, how=how
            )
            known = {one: variants.outcomes(data, one, list(files.values())) for one in compilers}
    places = {digest: at for at, digest in enumerate(files)}
    same = variants.Outcome(speedup=1.0, low=1.0, high=1.0)
    table: list[list[variants.Outcome]] = []
    for one in chosen.values():
        at = places.get(one.graph.digest)
        unsound = variants.Outcome(problem="it computes something else")
        table.append([same if not one.steps else unsound if at is None else known[on][at] for on in compilers])
    written = ["+".join(name for name, _ in one.steps) for one in chosen.values()]
    by_place = {at: one for one in chosen.values() if (at := places.get(one.graph.digest)) is not None}
    for on in compilers:
        ran = [at for at, one in enumerate(known[on]) if np.isfinite(one.speedup)]
        best = max(ran, key=lambda at, on=on: known[on][at].speedup, default=None)  # type: ignore[misc]
        better = best is not None and known[on][best].speedup > 1
        table.append([known[one][best] if better and best is not None else same for one in compilers])
        written.append("+".join(name for name, _ in by_place[best].steps) if better and best is not None else "")
    return {name: np.array([[getattr(one, name) for one in row] for row in table]) for name in _NUMBERS}, written


_NUMBERS = ("speedup", "low", "high")


def _sound(chosen: Iterable[Candidate], start: Path, folder: Path) -> dict[str, Path]:
    """By the digest of its graph, the file of each candidate that computes what the network does."""
    found: dict[str, Path] = {}
    for one in chosen:
        if one.steps and one.graph.digest not in found:
            file = save(one, folder / f"{one.graph.digest}.onnx")
            if proof.error(start, file) <= proof.LIMIT:
                found[one.graph.digest] = file
    return found
