"""The choice of another run to compare a dataset with: the variables of the notebook, and the latest runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from htpy import Element, button, div, label, optgroup, option, select, span

from ngbkit import runs
from ngbkit.commands.shell import read_stored
from ngbkit.dataset.storage import Data
from ngbkit.metrics.comparison import Comparison
from ngbkit.metrics.pairing import compare
from ngbkit.notebook import variables

_LATEST = 20


def render_choice(names: Mapping[str, Any], data: Data, run_id: str, chosen: str) -> Element:
    """Render a select of the other datasets of the notebook and of the latest runs."""
    datasets = [name for name in variables.list_datasets(names) if names[name] is not data]
    summaries = [summary for summary in islice(runs.summaries(), _LATEST + 1) if summary.id != run_id][:_LATEST]
    earlier = {summary.id: f"{_format_time(summary.created)} {', '.join(summary.networks)}" for summary in summaries}
    groups = {"datasets of this notebook": dict(zip(datasets, datasets, strict=True)), "runs": earlier}
    return div(class_="row")[
        label(class_="field")[
            span["compare with"],
            select(data_change="compare-choice")[
                option(value="", selected=not chosen)["choose a dataset or a run"],
                (
                    optgroup(label=title)[
                        (option(value=key, selected=key == chosen)[f"{text:.80}"] for key, text in group.items())
                    ]
                    for title, group in groups.items()
                    if group
                ),
            ],
        ],
        button(type="button", data_click="compare", disabled=not chosen)["Compare"],
    ]


def compare_with(names: Mapping[str, Any], source: str, data: Data, name: str) -> Comparison:
    """Compare a dataset with an earlier one: that of a variable, or of a run."""
    other = names[source] if source in variables.list_datasets(names) else read_stored(source)
    return compare(other, data, names=(source, name))


def _format_time(created: float) -> str:
    return f"{datetime.fromtimestamp(created).astimezone():%d %b %H:%M}"
