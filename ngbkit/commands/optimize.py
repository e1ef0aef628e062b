"""What ``ngbkit optimize`` and ``%ngoptimize`` do: learn a cost model where one is asked for, rewrite, and tell."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from ngbkit import options, predictor
from ngbkit.commands.listing import Answer
from ngbkit.dataset import storage
from ngbkit.errors import UsageError
from ngbkit.files import hash_file
from ngbkit.optimizer import costs
from ngbkit.optimizer.optimise import Optimised, optimize
from ngbkit.optimizer.rules import RULES, rule
from ngbkit.optimizer.search import USUAL, Cost
from ngbkit.predictor import Examples, Predictor
from ngbkit.predictor import examples as collected
from ngbkit.predictor.kinds import KINDS, kind
from ngbkit.predictor.kinds.base import Progress, silent
from ngbkit.sweep.to_json import plain
from ngbkit.sweep.trials import Choice

Tell = Callable[[str], None]


def see_to_optimizing(asked: argparse.Namespace, tell: Tell | None = None) -> Answer:
    """Rewrite a network, as the words of `ngbkit.commands.optimize_arguments.OPTIMIZE` ask for.

    Raises
    ------
    UsageError
        Words that do not go together, or as `optimize`.
    UnsupportedError
        As `optimize`.
    """
    rules = [rule(name.strip()) for name in asked.rules.split(",")] if asked.rules else list(RULES.values())
    found = optimize(
        asked.network,
        asked.runtime,
        cost=to_cost(asked, tell),
        batch_size=asked.batch_size,
        device=asked.device,
        rules=rules,
        beam=replace(USUAL, seconds=asked.seconds),
        top=asked.top,
        guard=not asked.no_guard,
        out=asked.out,
        told=tell,
        repeats=asked.repeats,
    )
    return answer(found)


def to_cost(asked: argparse.Namespace, tell: Tell | None = None) -> Cost:
    """The cost model that is asked for; one that is learned is kept, and learned once.

    Raises
    ------
    UsageError
        It has to be learned, and there is nothing to learn from; or a file that is none.
    UnknownNameError
        There is no such kind of cost model.
    """
    label = Choice.parse(asked.runtime).label
    # A model of another device is no model of this one, however many it knows.
    device = asked.device or options.device()
    if asked.cost not in KINDS and Path(asked.cost).is_file():
        return costs.predicted(predictor.load(asked.cost), label, device)
    if asked.cost == "flops" and asked.labels is None:
        return costs.operations
    kind(asked.cost)
    if asked.labels is None:
        raise UsageError(
            f"--cost {asked.cost} is learned from measurements of this runtime: name them by --labels FILE. "
            "--cost flops needs none."
        )
    return costs.predicted(_learned(asked.cost, Path(asked.labels), tell), label, device)


def answer(found: Optimised) -> Answer:
    """What became of it: a row a candidate."""
    rows = [
        {
            "kept": "yes" if at == found.chosen else "",
            "steps": ", ".join(name for name, _ in one.steps),
            "predicted": f"{one.predicted:.3f}",
            "measured": f"{one.outcome.speedup:.3f}" if not one.outcome.problem else one.outcome.problem,
            "95 %": f"{one.outcome.low:.3f} to {one.outcome.high:.3f}" if not one.outcome.problem else "",
            "apart": f"{one.error:.1e}",
        }
        for at, one in enumerate(found.tried)
    ]
    told = plain(
        {
            **{"network": found.name, "compiler": found.compiler, "device": found.device},
            **{"batch_size": found.batch_size, "looked_at": found.looked_at, "chosen": found.chosen},
            **{"speedup": found.speedup, "tried": [asdict(one) for one in found.tried]},
        }
    )
    if rows and found.chosen is None:
        rows.append({"kept": "yes", "steps": "none: the original", "measured": "1.000"})
    empty = f"The cost model prefers none of {found.looked_at} rewritten networks: the original stays."
    return Answer(json=told, rows=rows, empty=empty)


def _learned(name: str, labels: Path, tell: Tell | None) -> Predictor:
    """A predictor of that kind, learned from a file; kept by what the file holds."""
    if not labels.is_file():
        raise UsageError(f"there is no file {labels} to learn from.")
    kept = options.state_dir() / "predictors" / f"{name}-{hash_file(labels)}.safetensors"
    if not kept.exists():
        found = predictor.fit(_examples(labels), name, progress=_progress(tell))
        found.save(kept)
    return predictor.load(kept)


def _progress(tell: Tell | None) -> Progress:
    return silent if tell is None else lambda share, text: tell(f"{share:.0%}: {text}")


def _examples(labels: Path) -> Examples:
    try:
        return collected.load(labels)
    except UsageError:
        return predictor.collect(storage.load(labels))
