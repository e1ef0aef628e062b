"""What there is: the devices, compilers and runs that the notebook and the shell list, as rows."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from ngbkit import environment, registry
from ngbkit.arguments import to_words
from ngbkit.compilers.base import Compiler, version

Row = dict[str, Any]
_LINE = "padding: 0.25em 0.8em; text-align: left; border-bottom: 1px solid rgba(128, 128, 128, 0.4);"


def list_devices() -> list[Row]:
    """The devices that can be named: ``device``, ``what``; of this machine's own also ``chip`` and ``cores``."""
    from ngbkit.cluster.dispatch import known_devices

    here = {"chip": environment.chip(), "cores": environment.cores_usable()}
    return [
        {"device": label, "what": what, **(here if label == "cpu" else {})} for label, what in known_devices().items()
    ]


def list_compilers() -> list[Row]:
    """Every compiler: ``compiler``, ``version``, ``available``, ``summary``, ``options``, ``missing``.

    ``missing`` says why it is not available, with the way out; ``options`` holds the defaults.
    """
    return [_compiler(compiler) for compiler in registry.load_all(registry.COMPILERS).values()]


def list_runs() -> list[Row]:
    """Every run, the latest first: ``run``, ``created``, ``trials``, ``statuses``, ``workloads``, ``options``."""
    from ngbkit import runs

    return [
        {
            "run": summary.id,
            "created": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(summary.created)),
            "trials": len(summary.sweep),
            "statuses": dict(summary.statuses),
            "workloads": [workload.name for workload in summary.sweep.workloads],
            "options": shlex.join(to_words(summary.sweep)),
        }
        for summary in runs.summaries()
    ]


def to_text(rows: Iterable[Row], empty: str) -> str:
    """The rows as aligned columns; the sentence `empty` where there is none."""
    header, cells = _written(rows)
    if not cells:
        return empty
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (header, *cells))
    return "\n".join(line.rstrip() for line in lines)


def to_html(rows: Iterable[Row], empty: str) -> str:
    """The rows as one table without script or request; the sentence `empty` where there is none."""
    header, cells = _written(rows)
    if not cells:
        return f"<p>{escape(empty)}</p>"
    head = "".join(f'<th style="{_LINE}">{escape(name)}</th>' for name in header)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_LINE}">{escape(cell)}</td>' for cell in row) + "</tr>" for row in cells
    )
    style = "border-collapse: collapse; color: inherit;"
    return f'<table style="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _compiler(compiler: Compiler) -> Row:
    missing = compiler.unavailable()
    return {
        "compiler": compiler.name,
        "version": version(compiler.packages[0]) if compiler.packages else None,
        "available": not missing,
        "summary": compiler.summary,
        "options": {name: option.default for name, option in compiler.options.items()},
        "missing": missing,
    }


def _written(rows: Iterable[Row]) -> tuple[list[str], list[list[str]]]:
    found = list(rows)
    names = list(dict.fromkeys(name for row in found for name in row))
    return names, [[_cell(row.get(name)) for name in names] for row in found]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {number}" for name, number in value.items())
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
