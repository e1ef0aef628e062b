"""A network, rewritten for one runtime: found by a cost model, proved in float64, measured before it is believed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from ngbkit import options
from ngbkit.optimizer import proof, variants
from ngbkit.optimizer.editing import open_model
from ngbkit.optimizer.rules import RULES, Rule
from ngbkit.optimizer.search import USUAL, Beam, Candidate, Cost, Step, search
from ngbkit.optimizer.variants import Outcome

if TYPE_CHECKING:
    import xarray as xr

TOP = 3
"""Candidates that are measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What became of one candidate.

    Parameters
    ----------
    steps
        What was applied.
    predicted
        The speed-up over the original that the cost model says.
    error
        In float64, against the original: see `ngbkit.optimizer.proof`.
    outcome
        What was measured; one that computes something else was not.
    """

    steps: tuple[Step, ...]
    predicted: float
    error: float
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimised:
    """What `optimize` found.

    Parameters
    ----------
    name, compiler, device, batch_size
        What was optimised, and for what.
    tried
        The candidates that were proved and measured, the cheapest by the cost model first.
    chosen
        Which of them is kept; None where the original stays.
    looked_at
        How many rewritten networks the cost model has priced.
    data
        All that was measured; None where there was nothing that the cost model prefers and that is proved.
    """

    name: str
    compiler: str
    device: str
    batch_size: int
    tried: tuple[Tried, ...]
    chosen: int | None
    looked_at: int
    data: xr.Dataset | None

    @property
    def speedup(self) -> float:
        """Of what is kept: 1 where the original stays."""
        return 1.0 if self.chosen is None else self.tried[self.chosen].outcome.speedup

    @property
    def unguarded(self) -> float:
        """Of the cost model's first choice, whether it is kept or not: 1 where it prefers the original."""
        return self.tried[0].outcome.speedup if self.tried else 1.0


def optimize(
    network: Any,
    compiler: str = "onnxruntime",
    *,
    cost: Cost,
    batch_size: int = 1,
    device: str | None = None,
    rules: Iterable[Rule] = tuple(RULES.values()),
    beam: Beam = USUAL,
    top: int = TOP,
    guard: bool = True,
    out: str | Path | None = None,
    told: Callable[[str], None] | None = None,
    **how: Any,
) -> Optimised:
    """Rewrite a network so that a runtime takes less for it.

    Parameters
    ----------
    network
        What `Sweep` takes, one network without factors: a name, a file, a workload.
    compiler
        The runtime, one that reads ONNX, with its options: ``'openvino{"hint":"throughput"}'``.
    cost
        What leads the search: see `ngbkit.optimizer.costs`.
    batch_size, device
        What it is optimised for, and where it is measured; by default the option `device`.
    rules, beam
        Of the search.
    top
        How many of the cheapest are measured, beside the original, in one interleaved run.
    guard
        Keep the original unless the 95 % interval of the measured speed-up is above 1. Without it the cost model's
        first choice is kept, as by optimisers that measure nothing.
    out
        The ONNX file to write: what is kept.
    told
        Called with a line on what is being done.
    **how
        More of the sweep: ``repeats=100``, ``threads=4``.

    Raises
    ------
    UsageError
        It is not one network, or the runtime does not read ONNX.
    UnsupportedError
        The network has no ONNX form, or none that can be run in float64.
    """
    tell, where = told or _nobody, device or options.device()
    workload = variants.single(network, [compiler])
    with TemporaryDirectory(prefix="ngbkit-optimize-") as place:
        folder = Path(place)
        start = variants.write(workload, batch_size, folder)
        found = search(open_model(ir.load(start)), cost, rules, beam, lambda at, best: tell(_progress(at, best)))
        original = next(one for one in found if not one.steps)
        better = [one for one in found if one.steps and one.cost < original.cost][:top]
        files = [save(one, folder / f"candidate-{at + 1}.onnx") for at, one in enumerate(better)]
        tell(f"proving {len(better)} candidates")
        errors = [proof.error(start, file) for file in files]
        sound = [file for file, error in zip(files, errors, strict=True) if error <= proof.LIMIT]
        data, known = None, {}
        if sound:
            tell(f"measuring {len(sound)} candidates beside the original")
            data = variants.measure(
                workload.name, start, sound, [compiler], batch_size=batch_size, device=where, how=how
            )
            known = dict(zip(sound, variants.outcomes(data, compiler, sound), strict=True))
        tried = tuple(
            Tried(
                steps=one.steps,
                predicted=original.cost / one.cost,
                error=error,
                outcome=known.get(file) or Outcome(problem=f"it computes something else: {error:.3g} apart in float64"),
            )
            for one, file, error in zip(better, files, errors, strict=True)
        )
        chosen = choose([one.outcome for one in tried], guard=guard)
        if out is not None:
            Path(out).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(start if chosen is None else files[chosen], out)
    return Optimised(
        name=workload.name,
        compiler=compiler,
        device=where,
        batch_size=batch_size,
        tried=tried,
        chosen=chosen,
        looked_at=len(found) - 1,
        data=data,
    )


def choose(several: Sequence[Outcome], *, guard: bool) -> int | None:
    """Which outcome is kept: with a guard the best of the surely faster ones, else the first that has a result."""
    if not guard:
        return next((at for at, one in enumerate(several) if not one.problem), None)
    sure = [at for at, one in enumerate(several) if one.low > 1]
    return max(sure, key=lambda at: several[at].speedup, default=None)


def save(one: Candidate, path: Path) -> Path:
    """Write a candidate's model."""
    ir.save(one.model, path)
    return path


def _progress(at: int, best: Candidate) -> str:
    names = ", ".join(name for name, _ in best.steps) or "the original"
    return f"round {at}: {names}"


def _nobody(text: str) -> None:
    del text
