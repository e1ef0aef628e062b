"""The labels that a command learns from: a table of files and milliseconds, examples, or the dataset of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ngbkit.errors import UsageError

if TYPE_CHECKING:
    from ngbkit.predictor import Examples
    from ngbkit.predictor.kinds.base import Progress
    from ngbkit.predictor.labels.rows import Runtime


def is_table(path: Path) -> bool:
    """Return whether a file is a table by its name: its labels depend on the files that it names, too."""
    from ngbkit.predictor.labels.label_table import SUFFIXES

    return path.suffix.lower() in SUFFIXES


def load_labels(
    paths: Sequence[Path],
    option: str,
    *,
    runtime: Runtime | None = None,
    lowered: bool = False,
    report: Progress | None = None,
) -> Examples:
    """Load and merge the labels in files, which `option` named; a table that names no runtime was of `runtime`."""
    from ngbkit import predictor

    tables = [is_table(path) for path in paths]
    sets = [
        # Without any table, the runtime is refused.
        _load_file(path, option, runtime if table or not any(tables) else None, lowered, report)
        for path, table in zip(paths, tables, strict=True)
    ]
    return predictor.merge(*sets) if len(sets) > 1 else sets[0]


def _load_file(path: Path, option: str, runtime: Runtime | None, lowered: bool, report: Progress | None) -> Examples:
    from ngbkit import predictor
    from ngbkit.dataset import storage
    from ngbkit.predictor.kinds.base import ignore_progress

    if not path.is_file():
        raise UsageError(f"invalid {option}: got {path}, which is no file. Name a CSV, a dataset, or saved examples.")
    if is_table(path):
        report = report or ignore_progress
        return predictor.examples(path, runtime=runtime, lowered=lowered, report=report)
    if runtime is not None:
        raise UsageError(f"unexpected runtime or device: {path} says what was measured. They are for a CSV.")
    try:
        examples = predictor.load_examples(path)
    except UsageError:
        return predictor.collect(storage.load(path), lowered=lowered)
    if lowered and not examples.lowering:
        raise UsageError(
            f"{path} holds examples with graphs as they were exported, and not the networks themselves. Build lowered "
            "ones where the networks are: ngbkit.predictor.examples(…, lowered=True)."
        )
    return examples


def to_progress(report: Callable[[str], None] | None) -> Progress:
    """Report the progress of learning as lines; None reports nothing."""
    from ngbkit.predictor.kinds.base import ignore_progress

    return ignore_progress if report is None else lambda share, text: report(f"{share:.0%}: {text}")
