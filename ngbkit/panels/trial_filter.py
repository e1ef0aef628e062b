"""The labels of a dataset that a panel shows, as checkboxes by dim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from htpy import Element, button, details, div, fieldset, input, label, legend, summary

from ngbkit.panels.page import Page
from ngbkit.user_text import format_value


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

    def render(self) -> Element:
        """Render a folded group of checkboxes for each dim with more than one label."""
        dims = [dim for dim, labels in self.labels.items() if len(labels) > 1]
        return div(class_="fields")[(self._render_dim(dim) for dim in dims)]

    def _render_dim(self, dim: str) -> Element:
        labels, excluded = self.labels[dim], self._excluded[dim]
        title = dim.replace("_", " ")
        count = f"{len(labels) - len(excluded)} of {len(labels)}" if excluded else f"all {len(labels)}"
        every = (
            button(type="button", data_click=f"filter-{dim}", data_value=text, aria_label=f"{text} {title}")[text]
            for text in ("all", "none")
        )
        boxes = (
            label(class_="check")[
                input(type="checkbox", checked=name not in excluded, data_change=f"filter-{dim}-{number}"),
                format_value(name),
            ]
            for number, name in enumerate(labels)
        )
        return details(data_key=f"filter-{dim}")[
            summary[f"{title}: {count}"],
            fieldset[
                legend[f"{title} in table and chart"],
                boxes,
                every,
            ],
        ]

    def _toggle(self, dim: str, name: Any, checked: bool) -> None:
        (self._excluded[dim].discard if checked else self._excluded[dim].add)(name)
        self._on_change()

    def _exclude_all(self, dim: str, value: str) -> None:
        self._excluded[dim] = set() if value == "all" else set(self.labels[dim])
        self._on_change()
