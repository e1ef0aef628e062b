"""A panel that draws any figure of a dataset, describes any trial, and writes the code that draws the same."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from ngbkit import figures, tabular
from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.dataset.storage import Data
from ngbkit.figures.plots import Plots
from ngbkit.metrics.tables import build_trial_table
from ngbkit.notebook.panels import trial as trials
from ngbkit.notebook.panels.copying import CopyButton
from ngbkit.notebook.panels.panel import Panel, build_outputs
from ngbkit.notebook.panels.picking import EMBED, PICKS, Picker
from ngbkit.sweep.trials import BASELINE

_STYLE = {"description_width": "6em"}
_NARROW = {"width": "15em"}
# A dropdown whose value is None shows no choice.
_NONE = ""
_INTERVALS = [("95 %", 0.95), ("90 %", 0.9)]
# The choices of an option, by the annotation of the figure's parameter.
_CHOICES: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "by": {"lines.By": ["network", "compiler"], "By": ["best", "compiler"]},
    "ci": {"float": _INTERVALS, "float | None": [*_INTERVALS, ("none", _NONE)]},
}
# A longer list is of no use; filters shorten it.
_MOST_TRIALS = 500
_MOST_ROWS = 6


class ExplorerPanel(Panel):
    """Choose a figure, its panels, its baseline and the labels to draw; inspect any trial; export.

    Parameters
    ----------
    data
        A dataset or a tree.
    name
        The variable of the dataset, for the code that draws the same figure.
    """

    def __init__(self, data: Data, name: str = "ds") -> None:
        super().__init__()
        self._data, self._name = data, name
        self._factors = list(dict.fromkeys(factor for node in nodes(data).values() for factor in factor_dims(node)))
        self._trials = trials.list_trials(data)
        self._labels = _collect_labels(self._trials)
        self.figure = _build_dropdown("figure", _list_figures(bool(self._factors)), "throughput")
        self.options = self._build_options()
        self.filters = {dim: _build_filter(dim, labels) for dim, labels in self._labels.items() if len(labels) > 1}
        self.chart = widgets.Output()
        self.code, self.sheet = widgets.HTML(), widgets.HTML()
        # A list in the page: the menu of a dropdown with hundreds of entries would leave it.
        self.trial = widgets.Select(
            description="trial",
            options=[],
            rows=_MOST_ROWS,
            style=_STYLE,
            layout={"width": "100%", "max_width": "48em"},
        )
        self.path = widgets.Text(value="results/figure", description="file", style=_STYLE)
        self.copy, self.picker = CopyButton(), Picker()
        saves = [self._build_save_button(suffix) for suffix in ("png", "svg", "csv")]
        for control in (self.figure, *self.options.values(), *self.filters.values()):
            control.observe(self._guard(self.draw), names="value")
        self.trial.observe(self._guard(self._show_trial), names="value")
        self.picker.observe(self._guard(lambda: self.pick(self.picker.row)), names="row")
        wrap = widgets.Layout(flex_flow="row wrap", width="100%")
        self.children = [
            widgets.HBox([self.figure, *self.options.values()], layout=wrap),
            widgets.HBox(list(self.filters.values()), layout=wrap),
            self.message,
            widgets.VBox([self.chart, self.picker]).add_class(PICKS),
            widgets.HBox([self.path, *saves, self.copy], layout=wrap),
            self.code,
            self.trial,
            self.sheet,
        ]
        self.draw()

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the figure that differ from its defaults."""
        parameters = self._list_parameters()
        values = {name: control.value for name, control in self.options.items() if name in parameters}
        settings = {name: None if value == _NONE else value for name, value in values.items()}
        changed = {name: value for name, value in settings.items() if value != parameters[name].default}
        selected = self._list_selected().items()
        return {**changed, **{dim: labels for dim, labels in selected if len(labels) < len(self._labels[dim])}}

    def draw(self) -> None:
        """Draw the chosen figure, or report why that is not possible."""
        parameters = self._list_parameters()
        for name, control in self.options.items():
            control.layout.display = "" if name in parameters else "none"
            choices = _CHOICES[name][parameters[name].annotation] if name in parameters and name in _CHOICES else ()
            if choices and tuple(choices) != control.options:
                control.options = choices
        call = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        code = f"{self._name}.ngb.plot.{self.figure.value}({call})"
        self.copy.text, self.code.value = code, f"<code>{escape(code)}</code>"
        self._list_trials()
        try:
            outputs = build_outputs(self._draw_chart().to_dict(), EMBED)
        except Exception as error:  # noqa: BLE001  no older figure stays above the controls of this one
            self.chart.outputs = ()
            self._report_error(error)
            return
        self._report("")
        self.chart.outputs = outputs

    def pick(self, row: Mapping[str, Any]) -> None:
        """Show the trial of a mark, which the figure draws from this row, if there is one."""
        index = next(trials.match_row(row, self._trials), None)
        if index is None:
            return
        if index not in {value for _, value in self.trial.options}:
            self.trial.options = [*self.trial.options, (trials.to_text(self._trials[index]), index)]
        self.trial.value = index

    def save(self, suffix: str) -> Path:
        """Save the figure as ``png`` or ``svg``, or its trials as ``csv``, and return the file."""
        target = Path(f"{self.path.value}.{suffix}")
        if suffix == "csv":
            table = build_trial_table(self._data)
            for dim, values in self._list_selected().items():
                table = table[table[dim].isin(values)]
            target.parent.mkdir(parents=True, exist_ok=True)
            table.to_csv(target, index=False)
        else:
            figures.save(self._draw_chart(), target)
        self._report(f"saved {target}")
        return target

    def _draw_chart(self) -> Any:
        return getattr(Plots(self._data), self.figure.value)(**self.arguments)

    def _list_parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(getattr(Plots(self._data), self.figure.value)).parameters

    def _build_options(self) -> dict[str, widgets.Widget]:
        """Build the control of each parameter of the figures, by its name."""
        compilers = self._labels["compiler"]
        baseline = BASELINE if BASELINE in compilers else compilers[0]
        options = {
            "deadline": widgets.Text(
                description="deadline",
                placeholder="such as 50ms",
                continuous_update=False,
                style=_STYLE,
                layout=_NARROW,
            ),
            "by": _build_dropdown("by", ["network", "compiler"], "network"),
            "baseline": _build_dropdown("baseline", compilers, baseline),
            "cache": _build_dropdown("cache", ["cold", "warm"], "cold"),
            "ci": _build_dropdown("interval", _INTERVALS, 0.95),
            "probability": _build_dropdown("probability", [("95 %", 0.95), ("80 %", 0.8), ("any", 0.0)], 0.95),
        }
        if self._factors:
            options["factor"] = _build_dropdown("factor", self._factors, self._factors[0])
        return options

    def _list_selected(self) -> dict[str, list[Any]]:
        return {dim: list(control.value) for dim, control in self.filters.items() if control.value}

    def _list_trials(self) -> None:
        selected = self._list_selected().items()
        indices = [
            index
            for index, trial in enumerate(self._trials)
            if all(trial.get(dim) in labels for dim, labels in selected)
        ]
        entries = [(trials.to_text(self._trials[index]), index) for index in indices[:_MOST_TRIALS]]
        prompt = f"click a mark, or choose one of {len(indices)} trials"
        if len(indices) > len(entries):
            prompt += f" (the first {_MOST_TRIALS} are listed)"
        self.trial.options = [(prompt, None), *entries]

    def _show_trial(self) -> None:
        index = self.trial.value
        sheet = "" if index is None else tabular.to_html_sheets([trials.describe(self._data, self._trials[index])], "")
        self.sheet.value = sheet

    def _build_save_button(self, suffix: str) -> widgets.Button:
        button = widgets.Button(description=suffix.upper(), tooltip=f"save as {suffix}")
        button.on_click(self._guard(self.save, suffix))
        return button


def _collect_labels(table: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Collect the labels of trials by dim."""
    dims = dict.fromkeys(dim for trial in table for dim in trial)
    return {dim: list(dict.fromkeys(trial[dim] for trial in table if dim in trial)) for dim in dims}


def _list_figures(with_factors: bool) -> list[str]:
    """List the figures; without factors there is neither depth nor heatmap."""
    excluded = set() if with_factors else {"depth", "heatmap"}
    return [name for name in figures.list_figures() if name not in excluded]


def _build_dropdown(description: str, options: list[Any], value: Any) -> widgets.Dropdown:
    return widgets.Dropdown(description=description, options=options, value=value, style=_STYLE, layout=_NARROW)


def _build_filter(dim: str, labels: list[Any]) -> widgets.SelectMultiple:
    return widgets.SelectMultiple(
        description=dim.replace("_", " "),
        options=[(str(label), label) for label in labels],
        rows=min(_MOST_ROWS, len(labels)),
        style=_STYLE,
        layout={"width": "22em"},
    )
