"""Tables and sentences that follow from a dataset, as HTML that says of which, so that anyone can render it again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from ngbkit.dataset.storage import Data
from ngbkit.errors import UnknownNameError
from ngbkit.figures import captions, provenance
from ngbkit.metrics import tables
from ngbkit.metrics.rendering import to_texts
from ngbkit.sweep.json_values import to_json_value

ATTRIBUTE = "data-ngbkit"
"""The attribute of an element with the provenance of its content, as JSON: see `ngbkit.figures.provenance`."""


_STATEMENTS: Mapping[str, Callable[..., str]] = {
    "origin": lambda data: f"<p><small>{escape(captions.describe_provenance(data))}</small></p>",
    "table": lambda data, **arguments: to_texts(tables.compact(data, **arguments)).to_html(),
    "report": lambda data, **arguments: tables.build_report(data, **arguments)._repr_html_(),
}


def render(name: str, data: Data, arguments: Mapping[str, Any]) -> str:
    """Render a statement on a dataset, such as the table that a page shows.

    UnknownNameError: there is no such statement. NgbkitError, TypeError: the arguments do not fit.
    """
    if name not in _STATEMENTS:
        raise UnknownNameError("statement", name, _STATEMENTS)
    return _STATEMENTS[name](data, **arguments)


def mark(html: str, name: str, data: Data, **arguments: Any) -> str:
    """Mark the HTML of a statement with its provenance, if notebooks are published and its arguments are JSON."""
    if not os.environ.get(provenance.DATASETS) or not html or _is_lossy(arguments):
        return html
    text = json.dumps(provenance.trace(name, arguments, data))
    return f'<div {ATTRIBUTE}="{escape(text)}">{html}</div>'


def _is_lossy(arguments: Mapping[str, Any]) -> bool:
    """Return whether arguments are more than their JSON."""
    try:
        return bool(json.loads(json.dumps(to_json_value(arguments))) != arguments)
    except (TypeError, ValueError):
        return True
