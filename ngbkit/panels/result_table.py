"""The table of trials: those that pass the filters, with one metric and its interval, sorted by any column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import htpy as h
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError
from ngbkit.metrics import tables
from ngbkit.metrics.estimate import Estimate
from ngbkit.metrics.metric import Metric
from ngbkit.panels import trial as trials
from ngbkit.panels.page import Page
from ngbkit.user_text import format_value

PAGE_ROWS = 100
"""The rows that are shown at first, and those that each click adds."""

INCONCLUSIVE = "not conclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """A trial of the dataset by its index, with its labels, its estimate, and what became of it."""

    index: int
    trial: Mapping[str, Any]
    value: Estimate
    samples: int
    status: str

    @property
    def is_conclusive(self) -> bool:
        """Return whether the value, if there is one, answers the question."""
        return not math.isfinite(self.value) or self.value.conclusive

    @property
    def outcome(self) -> str:
        """The outcome of the trial, in words."""
        return self.status if self.is_conclusive else f"{self.status}, {INCONCLUSIVE}"


def list_rows(data: Data, metric: Metric, **options: Any) -> tuple[list[ResultRow], str]:
    """List the row of each trial, in the order of `trial.list_trials`, and why networks lack the metric, if any do."""
    rows: list[ResultRow] = []
    problem = ""
    every = trials.list_trials(data)
    for node in nodes(data).values():
        statuses = list(map(str, trials.list_values(node, node["status"])))
        counts = trials.list_values(node, _count_samples(node))
        try:
            values = trials.list_values(node, tables.estimate(node, metric, **options))
        except MetricError as error:
            values, problem = [math.nan] * len(statuses), str(error)
        for status, samples, value in zip(statuses, counts, values, strict=True):
            estimate = value if isinstance(value, Estimate) else Estimate(value)
            index = len(rows)
            rows.append(ResultRow(index=index, trial=every[index], value=estimate, samples=int(samples), status=status))
    return rows, problem


class TrialFilter:
    """Checkboxes for the labels of each dim that has several; each is an action of the page."""

    def __init__(self, page: Page, trials: Sequence[Mapping[str, Any]], on_change: Any) -> None:
        dims = dict.fromkeys(dim for trial in trials for dim in trial)
        self.labels = {dim: list(dict.fromkeys(trial[dim] for trial in trials if dim in trial)) for dim in dims}
        self._excluded: dict[str, set[Any]] = {dim: set() for dim in self.labels}
        self._on_change = on_change
        for dim, labels in self.labels.items():
            page.actions[f"filter-{dim}"] = partial(self._exclude_all, dim)
            for number, name in enumerate(labels):
                page.actions[f"filter-{dim}-{number}"] = partial(self._toggle, dim, name)

    @property
    def selection(self) -> dict[str, list[Any]]:
        """The labels of each dim of which some are excluded."""
        return {
            dim: [name for name in self.labels[dim] if name not in excluded]
            for dim, excluded in self._excluded.items()
            if excluded
        }

    def accepts(self, trial: Mapping[str, Any]) -> bool:
        """Return whether a trial passes."""
        return all(trial.get(dim) in labels for dim, labels in self.selection.items())

    def render(self) -> h.Element:
        """Render a folded group of checkboxes for each dim with more than one label."""
        dims = [dim for dim, labels in self.labels.items() if len(labels) > 1]
        return h.div(class_="fields")[(self._render_dim(dim) for dim in dims)]

    def _render_dim(self, dim: str) -> h.Element:
        labels, excluded = self.labels[dim], self._excluded[dim]
        title = dim.replace("_", " ")
        count = f"{len(labels) - len(excluded)} of {len(labels)}" if excluded else f"all {len(labels)}"
        every = (
            h.button(type="button", data_click=f"filter-{dim}", data_value=text, aria_label=f"{text} {title}")[text]
            for text in ("all", "none")
        )
        boxes = (
            h.label(class_="check")[
                h.input(type="checkbox", checked=name not in excluded, data_change=f"filter-{dim}-{number}"),
                format_value(name),
            ]
            for number, name in enumerate(labels)
        )
        return h.details(data_key=f"filter-{dim}")[
            h.summary[f"{title}: {count}"],
            h.fieldset[h.legend[f"{title} in table and chart"], boxes, every],
        ]

    def _toggle(self, dim: str, name: Any, checked: bool) -> None:
        (self._excluded[dim].discard if checked else self._excluded[dim].add)(name)
        self._on_change()

    def _exclude_all(self, dim: str, value: str) -> None:
        self._excluded[dim] = set() if value == "all" else set(self.labels[dim])
        self._on_change()


class ResultTable:
    """The table of rows: how it is sorted, how many rows it shows, and which trial is marked."""

    def __init__(self) -> None:
        self.column = ""
        self.is_descending = False
        self.marked: int | None = None
        self._most = PAGE_ROWS

    def sort(self, column: str) -> None:
        """Sort by a column; by the same column again, the other way round."""
        self.is_descending = column == self.column and not self.is_descending
        self.column = column

    def show_more(self) -> None:
        """Show more rows."""
        self._most += PAGE_ROWS

    def order(self, rows: Sequence[ResultRow]) -> list[ResultRow]:
        """Order rows by the column; those without a value in it are last, either way."""
        if not self.column:
            return list(rows)
        keyed = [(_find_value(row, self.column), row) for row in rows]
        present = [(value, row) for value, row in keyed if not _is_missing(value)]
        is_mixed = len({isinstance(value, str) for value, _ in present}) > 1
        present.sort(key=lambda pair: str(pair[0]) if is_mixed else pair[0], reverse=self.is_descending)
        return [row for _, row in present] + [row for value, row in keyed if _is_missing(value)]

    def render(self, rows: Sequence[ResultRow], metric: Metric, labels: Mapping[str, Sequence[Any]]) -> h.Node:
        """Render the first rows; `labels` are those of each dim, of which a column that never varies is left out."""
        if not rows:
            return h.p(class_="hint")["No trial passes the filters. Check a label of each."]
        ordered = self.order(rows)
        dims = [dim for dim in labels if dim != "device" or len(labels[dim]) > 1]
        columns = {dim: dim.replace("_", " ") for dim in dims}
        columns |= {metric.name: f"{metric.name.replace('_', ' ')}{metric.unit_suffix}"}
        columns |= {"samples": "samples", "status": "status"}
        heads = (self._render_head(name, text) for name, text in columns.items())
        body = (self._render_row(row, dims, metric) for row in ordered[: self._most])
        return h.fragment[
            h.div(class_="scroll", tabindex="0", role="region", aria_label="trials")[
                h.table[h.caption[metric.meaning[0].upper() + metric.meaning[1:]], h.thead[h.tr[heads]], h.tbody[body]]
            ],
            self._render_rest(len(ordered)),
        ]

    def _render_head(self, name: str, text: str) -> h.Element:
        state = "none" if name != self.column else "descending" if self.is_descending else "ascending"
        sign = {"none": "", "ascending": " ▲", "descending": " ▼"}[state]
        return h.th(scope="col", aria_sort=state)[
            h.button(type="button", data_click="sort", data_value=name)[text, sign]
        ]

    def _render_row(self, row: ResultRow, dims: Sequence[str], metric: Metric) -> h.Element:
        first, *others = dims
        is_marked = row.index == self.marked
        hint = f"{_name_value(row, metric)}; {row.samples} samples"
        opener = h.button(
            type="button",
            data_click="open-trial",
            data_value=str(row.index),
            aria_pressed=str(is_marked).lower(),
            aria_label=f"details of {trials.to_text(row.trial)}",
        )[_format_label(row, first)]
        return h.tr(data_key=str(row.index), aria_selected=str(is_marked).lower())[
            h.th(scope="row")[opener],
            (
                h.td(class_="number" if isinstance(row.trial.get(dim), (int, float)) else None)[_format_label(row, dim)]
                for dim in others
            ),
            h.td(class_="number", title=hint)[str(row.value)],
            h.td(class_="number")[str(row.samples) if row.samples else ""],
            h.td[row.outcome],
        ]

    def _render_rest(self, count: int) -> h.Node:
        if count <= self._most:
            return h.small[f"{count} trials"]
        return h.div(class_="row")[
            h.small[f"the first {self._most} of {count} trials; filter or sort them, or"],
            h.button(type="button", data_click="more-trials")[f"show {min(PAGE_ROWS, count - self._most)} more"],
        ]


def _count_samples(node: xr.Dataset) -> xr.DataArray:
    if "latency" not in node:
        return xr.zeros_like(node["status"], dtype=int)
    return node["latency"].notnull().sum("repeat")


def _find_value(row: ResultRow, column: str) -> Any:
    """Find the value by which a column sorts a row; that of a metric is its number."""
    if column in row.trial:
        return row.trial[column]
    return {"samples": row.samples, "status": row.outcome}.get(column, row.value)


def _is_missing(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _format_label(row: ResultRow, dim: str) -> str:
    return format_value(row.trial[dim]) if dim in row.trial else ""


def _name_value(row: ResultRow, metric: Metric) -> str:
    """Write a value with its unit and its interval in full."""
    name, unit = metric.name.replace("_", " "), metric.unit_symbol or metric.units
    if not math.isfinite(row.value):
        return f"no {name}"
    text = f"{name} {float(row.value):.4g}{'' if unit == '1' else f' {unit}'}"
    if row.value.low == row.value.high:
        return f"{text}, by definition"
    if not row.value.bounded:
        return f"{text}, without an interval"
    return f"{text}, between {row.value.low:.4g} and {row.value.high:.4g}"
