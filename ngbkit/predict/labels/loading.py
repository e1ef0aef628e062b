"""Labels in each of their forms, for all that learns from them: `fit`, `evaluate`, `adapt` and the shell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ngbkit.dataset import storage
from ngbkit.dataset.storage import Data
from ngbkit.errors import UsageError
from ngbkit.predict.graphs import UNPRUNED
from ngbkit.predict.kinds.base import Progress, ignore_progress
from ngbkit.predict.labels.collection import collect
from ngbkit.predict.labels.example_set import Examples, load_examples
from ngbkit.predict.labels.label_table import is_table
from ngbkit.predict.labels.labelling import RuntimeName, examples, is_pairs
from ngbkit.predict.labels.merging import merge
from ngbkit.predict.lowering import EXPORT
from ngbkit.user_text import parse_path

EXPECTED = (
    "the dataset of a run, Examples, the file of either, a CSV or a DataFrame of networks and milliseconds, pairs of a "
    "network and its seconds, or a list of these"
)


def load_labels(
    data: Any,
    title: str = "labels",
    *,
    runtime: RuntimeName | None = None,
    lowered: bool = False,
    report: Progress = ignore_progress,
) -> Examples:
    """Load labels in any form, nameless runtimes as `runtime`, and merge several; errors call them `title`."""
    if isinstance(data, Examples):
        return _check_lowered(data, title, lowered=lowered)
    if isinstance(data, Data):
        return collect(data, lowered=lowered)
    if isinstance(data, Mapping) or is_table(data) or is_pairs(data):
        path = parse_path(data) if isinstance(data, (str, Path)) else None
        _check_file(path, title)
        table = data if path is None else path
        return examples(table, runtime=runtime, lowered=lowered, report=report)
    if isinstance(data, (str, Path)):
        return _load_file(parse_path(data), title, runtime, lowered=lowered)
    items = list(data) if isinstance(data, Iterable) else []
    if not items:
        raise UsageError(f"invalid {title}: got a {type(data).__name__}; expected {EXPECTED}.")
    if all(isinstance(item, Data) for item in items):
        return collect(*items, lowered=lowered)
    if len(items) == 1:
        return load_labels(items[0], title, runtime=runtime, lowered=lowered, report=report)
    # Without any table, the runtime is refused.
    tables = [is_table(item) or is_pairs(item) for item in items]
    return merge(
        *(
            load_labels(
                item,
                title,
                runtime=runtime if table or not any(tables) else None,
                lowered=lowered,
                report=report,
            )
            for item, table in zip(items, tables, strict=True)
        )
    )


def load_similar(
    data: Any,
    lowering: str,
    title: str = "labels",
    *,
    runtime: RuntimeName | None = None,
    report: Progress = ignore_progress,
) -> Examples:
    """Load labels with graphs of the lowering of a predictor, as `load_labels`."""
    lowered = lowering not in (EXPORT, UNPRUNED)
    return load_labels(data, title, runtime=runtime, lowered=lowered, report=report)


def _load_file(path: Path, title: str, runtime: RuntimeName | None, *, lowered: bool) -> Examples:
    _check_file(path, title)
    if runtime is not None:
        raise UsageError(f"unexpected runtime or device: {path} says what was measured. They are for a CSV.")
    try:
        loaded = load_examples(path)
    except UsageError:
        return collect(storage.load(path), lowered=lowered)
    return _check_lowered(loaded, str(path), lowered=lowered)


def _check_file(path: Path | None, title: str) -> None:
    if path is not None and not path.is_file():
        raise UsageError(f"invalid {title}: got {path}, which is no file. Name a CSV, a dataset, or saved examples.")


def _check_lowered(loaded: Examples, title: str, *, lowered: bool) -> Examples:
    if lowered and not loaded.lowering:
        raise UsageError(
            f"{title} holds examples with graphs as they were exported, and not the networks themselves. Build lowered "
            "ones where the networks are: ngbkit.predict.examples(…, lowered=True)."
        )
    return loaded
