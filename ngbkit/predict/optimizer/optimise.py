"""Rewrites a network for one runtime: a cost model finds candidates, float64 proves them, and measurements choose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ngbkit import options, validation
from ngbkit.dataset.storage import check_target
from ngbkit.errors import NgbkitError
from ngbkit.predict.optimizer import proof, variants
from ngbkit.predict.optimizer.beam_search import USUAL, Beam, Step, compute_ratio, format_steps, search, select_cheaper
from ngbkit.predict.optimizer.costs import Cost
from ngbkit.predict.optimizer.editing import load_model, open_model
from ngbkit.predict.optimizer.rules import RULES
from ngbkit.predict.optimizer.rules.rule_selection import select
from ngbkit.predict.optimizer.saving import save_model, write_network
from ngbkit.predict.optimizer.simplifiers import Simplifier, resolve, simplify
from ngbkit.predict.optimizer.variants import Outcome, Values
from ngbkit.workloads.base import FactorValue

if TYPE_CHECKING:
    import xarray as xr

TOP = 3
"""The number of measured candidates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The result of one candidate.

    Parameters
    ----------
    steps
        The rewritings, in order.
    predicted
        The speed-up over the original by the cost model.
    error
        The error in float64 against the original: see `ngbkit.predict.optimizer.proof`.
    outcome
        The measured speed-up; a candidate with another result was not measured.
    """

    steps: tuple[Step, ...]
    predicted: float
    error: float
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Simplified:
    """The result of another tool, whose version is empty if it is not installed; `error` is that of a candidate."""

    name: str
    version: str
    error: float
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimised:
    """The result of `optimize`.

    Parameters
    ----------
    name, compiler, device, batch_size, factors
        The network and its runtime.
    tried
        The candidates that were proved and measured, the cheapest by the cost model first.
    simplified
        The models of other tools, proved and measured beside the candidates; none of them is kept.
    chosen
        The index of the kept candidate; None if the original is kept.
    looked_at
        The number of rewritten networks that the cost model priced.
    data
        All measurements; None if no proved candidate is cheaper by the cost model and no other tool has a result.
    """

    name: str
    compiler: str
    device: str
    batch_size: int
    factors: Mapping[str, FactorValue]
    tried: tuple[Tried, ...]
    simplified: tuple[Simplified, ...]
    chosen: int | None
    looked_at: int
    data: xr.Dataset | None

    @property
    def speedup(self) -> float:
        """The speed-up of the kept network: 1 for the original."""
        return 1.0 if self.chosen is None else self.tried[self.chosen].outcome.speedup


def optimize(
    network: Any,
    compiler: str = "onnxruntime",
    *,
    cost: Cost,
    batch_size: int = 1,
    factors: Mapping[str, Values] | None = None,
    device: str | None = None,
    inputs: Any = None,
    batch_axis: Mapping[str, int | None] | None = None,
    rules: Iterable[Any] = tuple(RULES.values()),
    beam: Beam = USUAL,
    top: int = TOP,
    simplifiers: Iterable[str] = (),
    out: str | Path | None = None,
    report: Callable[[str], None] | None = None,
    **sweep_settings: Any,
) -> Optimised:
    """Rewrite a network for lower latency on a runtime.

    Parameters
    ----------
    network
        One network, as for `Sweep`: a name, a file, a workload.
    compiler
        A runtime that reads ONNX, with its options: ``'openvino{"hint":"throughput"}'``.
    cost
        The cost model that guides the search: see `ngbkit.predict.optimizer.costs`.
    batch_size, factors, device
        The batch size, the value of each factor (such as an open dimension of an ONNX file), and the device to optimise
        for and to measure on; default device: the option `device`.
    inputs, batch_axis
        The values of inputs, and the dimension of each that is the batch, as for `Sweep`.
    rules, beam
        The rules and the size of the search. A rule is one of ngbkit or of `onnxscript.rewriter`, or a name: see
        `ngbkit.predict.optimizer.rules.rule_selection.select`.
    top
        The number of cheapest candidates that are measured, interleaved with the original. The original is kept unless
        the 95 % interval of a speed-up is above 1.
    simplifiers
        The names of other tools, such as ``"onnxslim"``, whose models are proved and measured beside the candidates;
        ``"all"`` for every one: see `ngbkit.predict.optimizer.simplifiers`.
    out
        The ONNX file to write with the kept network. Weights that are too large for one file are written beside it, to
        its name with ``.data``.
    report
        Called with a message on progress.
    **sweep_settings
        Further arguments of `Sweep`: ``repeats=100``, ``threads=4``.

    Raises
    ------
    UsageError
        `network` is not one network with one value of each factor, or the runtime does not read ONNX.
    UnsupportedError
        The network has no ONNX form, cannot run in float64, or has values that no rewriting reads, such as maps; or
        one of the `simplifiers` is not installed.
    """
    report_line, device = report or _ignore, device or options.get_device()
    batch_size = validation.check("batch size", validation.PositiveCount, batch_size)
    top = validation.check("top", validation.PositiveCount, top)
    validation.check("seconds", validation.Duration, beam.seconds)
    target = None if out is None else check_target(out, overwrite=True)
    workload = variants.parse_network(network, [compiler], factors, inputs=inputs, batch_axis=batch_axis)
    tools, selected = resolve(simplifiers), select(rules)
    with TemporaryDirectory(prefix="ngbkit-optimize-") as scratch:
        folder = Path(scratch)
        start = variants.export(workload, batch_size, folder)
        candidates = search(
            open_model(load_model(start)),
            cost,
            selected,
            beam,
            lambda number, best: report_line(f"round {number}: {format_steps(best.steps) or 'the original'}"),
        )
        original, cheaper = select_cheaper(candidates, top)
        files = [
            save_model(candidate.model, folder / f"candidate-{index + 1}.onnx")
            for index, candidate in enumerate(cheaper)
        ]
        report_line(f"proving {len(cheaper)} candidates")
        errors = [proof.measure_error(start, file) for file in files]
        sound = [file for file, error in zip(files, errors, strict=True) if error <= proof.LIMIT]
        others = simplify_all(tools, start, folder, report_line)
        measured = [*sound, *(other.file for other in others if other.file is not None)]
        data, outcomes = None, {}
        if measured:
            report_line(f"measuring {len(measured)} candidates beside the original")
            data = variants.measure(
                workload.name,
                start,
                measured,
                [compiler],
                batch_size=batch_size,
                device=device,
                settings=sweep_settings,
            )
            outcomes = dict(zip(measured, variants.compute_outcomes(data, compiler, measured), strict=True))
        attempts = tuple(
            Tried(
                steps=candidate.steps,
                predicted=compute_ratio(original.cost, candidate.cost),
                error=error,
                outcome=outcomes.get(file) or Outcome(problem=f"wrong result: error {error:.3g} in float64"),
            )
            for candidate, file, error in zip(cheaper, files, errors, strict=True)
        )
        simplified = tuple(
            Simplified(
                name=other.name,
                version=other.version,
                error=other.error,
                outcome=outcomes[other.file] if other.file is not None else Outcome(problem=other.problem),
            )
            for other in others
        )
        chosen = choose([attempt.outcome for attempt in attempts])
        if target is not None:
            write_network(start if chosen is None else files[chosen], target)
    return Optimised(
        name=workload.name,
        compiler=compiler,
        device=device,
        batch_size=batch_size,
        factors={name: value for name, (value,) in workload.factors.items()},
        tried=attempts,
        simplified=simplified,
        chosen=chosen,
        looked_at=len(candidates) - 1,
        data=data,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Simplification:
    """The model of a tool before it is measured: its file, or the problem."""

    name: str
    version: str
    error: float = float("nan")
    file: Path | None = None
    problem: str = ""


def simplify_all(
    tools: Iterable[Simplifier],
    start: Path,
    folder: Path,
    report: Callable[[str], None] | None = None,
) -> list[Simplification]:
    """Simplify a static ONNX file with each tool, and prove each result; a tool that fails is a problem, no error."""
    simplifications = []
    for tool in tools:
        if report is not None:
            report(f"simplifying with {tool.name}")
        simplifications.append(_simplify(tool, start, folder / f"simplified-{tool.name}.onnx"))
    return simplifications


def _simplify(tool: Simplifier, start: Path, file: Path) -> Simplification:
    problem = simplify(tool, start, file)
    if problem:
        return Simplification(name=tool.name, version=tool.version, problem=problem)
    try:
        error = proof.measure_error(start, file)
    except NgbkitError as failure:
        return Simplification(name=tool.name, version=tool.version, problem=f"cannot be proved: {failure}")
    if error > proof.LIMIT:
        problem = f"wrong result: error {error:.3g} in float64"
        return Simplification(name=tool.name, version=tool.version, error=error, problem=problem)
    return Simplification(name=tool.name, version=tool.version, error=error, file=file)


def choose(outcomes: Sequence[Outcome]) -> int | None:
    """Return the index of the outcome that is kept, the best that is surely faster; None for the original."""
    faster = [index for index, outcome in enumerate(outcomes) if outcome.low > 1]
    return max(faster, key=lambda index: outcomes[index].speedup, default=None)


def _ignore(text: str) -> None:
    del text
