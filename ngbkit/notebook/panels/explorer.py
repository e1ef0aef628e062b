"""A panel that draws any figure of a dataset, tells all of any trial, and gives the code that would do the same."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from ngbkit import figures
from ngbkit.commands import listing
from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.dataset.storage import Data
from ngbkit.errors import NgbkitError
from ngbkit.figures import renderer
from ngbkit.figures.plots import Plots
from ngbkit.metrics.tables import trial_table
from ngbkit.notebook.panels import trial as trials
from ngbkit.notebook.panels.copying import CopyButton
from ngbkit.notebook.panels.picking import EMBED, PICKS, Picker
from ngbkit.sweep.trials import BASELINE

_STYLE = {"description_width": "6em"}
# A list of more trials would be no list to choose from: a filter makes it shorter.
_MOST_TRIALS = 500
_LINES = 6


class ExplorerPanel(widgets.VBox):  # type: ignore[misc, unused-ignore]
    """Choose a figure, what its panels and its baseline are, and which labels it shows; look into any trial; export.

    Parameters
    ----------
    data
        A dataset or a tree.
    name
        The variable that holds it, for the code that the panel stands for.
    """

    def __init__(self, data: Data, name: str = "ds") -> None:
        self._data, self._name = data, name
        found = nodes(data).values()
        self._factors = list(dict.fromkeys(factor for node in found for factor in factor_dims(node)))
        self._trials = trials.labels(data)
        self.figure = _choice("figure", _figures(data), "throughput")
        self.options = self._options()
        self.filters = {dim: _several(dim, labels) for dim, labels in self._labels().items() if len(labels) > 1}
        self.chart = widgets.Output()
        self.message, self.code, self.sheet = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.trial = widgets.Dropdown(description="trial", options=[], style=_STYLE, layout={"width": "100%"})
        self.path = widgets.Text(value="results/figure", description="file", style=_STYLE)
        self.copy, self.picker = CopyButton(), Picker()
        saves = [self._button(suffix) for suffix in ("png", "svg", "csv")]
        for control in (self.figure, *self.options.values(), *self.filters.values()):
            control.observe(lambda _: self.draw(), names="value")
        self.trial.observe(lambda _: self._tell(), names="value")
        self.picker.observe(lambda change: self.pick(change.new), names="row")
        wrap = widgets.Layout(flex_flow="row wrap", width="100%")
        super().__init__(
            [
                widgets.HBox([self.figure, *self.options.values()], layout=wrap),
                widgets.HBox(list(self.filters.values()), layout=wrap),
                self.message,
                widgets.VBox([self.chart, self.picker]).add_class(PICKS),
                widgets.HBox([self.path, *saves, self.copy], layout=wrap),
                self.code,
                self.trial,
                self.sheet,
            ]
        )
        self.draw()

    @property
    def arguments(self) -> dict[str, Any]:
        """What the figure is called with: what is not as by default."""
        asked = {
            name: control.value
            for name, control in self.options.items()
            if name in self._takes() and control.value != self._takes()[name].default
        }
        chosen = {dim: list(control.value) for dim, control in self.filters.items() if control.value}
        return {**asked, **{dim: values for dim, values in chosen.items() if len(values) < len(self._labels()[dim])}}

    def draw(self) -> None:
        """Draw what is asked for, or say why that cannot be."""
        for name, control in self.options.items():
            control.layout.display = "" if name in self._takes() else "none"
        call = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        code = f"{self._name}.ngb.plot.{self.figure.value}({call})"
        self.copy.text, self.code.value = code, f"<code>{escape(code)}</code>"
        self._list_trials()
        try:
            bundle = renderer.mimebundle(self._drawn().to_dict())
        except NgbkitError as error:
            self.chart.outputs = ()
            self._say(str(error))
            return
        self._say("")
        self.chart.outputs = ({"output_type": "display_data", "data": bundle, "metadata": {renderer.MIME: EMBED}},)

    def pick(self, row: Mapping[str, Any]) -> None:
        """Tell of the trial that a mark of the figure, drawn from this row, is of; nothing where it is of none."""
        at = next(trials.drawn_from(row, self._trials), None)
        if at is None:
            return
        if at not in {value for _, value in self.trial.options}:
            self.trial.options = [*self.trial.options, (trials.name(self._trials[at]), at)]
        self.trial.value = at

    def save(self, suffix: str) -> Path:
        """Write the figure as ``png`` or ``svg``, or the trials that it shows as ``csv``; the file."""
        target = Path(f"{self.path.value}.{suffix}")
        if suffix == "csv":
            table = trial_table(self._data)
            for dim, values in self._chosen().items():
                table = table[table[dim].isin(values)]
            target.parent.mkdir(parents=True, exist_ok=True)
            table.to_csv(target, index=False)
        else:
            figures.save(self._drawn(), target)
        self._say(f"written to {target}")
        return target

    def _drawn(self) -> Any:
        return getattr(Plots(self._data), self.figure.value)(**self.arguments)

    def _takes(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(getattr(Plots, self.figure.value)).parameters

    def _options(self) -> dict[str, widgets.Widget]:
        """By the name of the parameter that it sets."""
        compilers = self._labels()["compiler"]
        baseline = BASELINE if BASELINE in compilers else compilers[0]
        found = {
            "by": _choice("panels by", ["network", "compiler"], "network"),
            "baseline": _choice("baseline", compilers, baseline),
            "cache": _choice("cache", ["cold", "warm"], "cold"),
            "ci": _choice("interval", [("95 %", 0.95), ("90 %", 0.9), ("none", None)], 0.95),
            "probability": _choice("probability", [("95 %", 0.95), ("80 %", 0.8), ("any", 0.0)], 0.95),
        }
        if self._factors:
            found["factor"] = _choice("factor", self._factors, self._factors[0])
        return found

    def _labels(self) -> dict[str, list[Any]]:
        """By dim, the labels that there are."""
        dims = dict.fromkeys(dim for one in self._trials for dim in one)
        return {dim: list(dict.fromkeys(one[dim] for one in self._trials if dim in one)) for dim in dims}

    def _chosen(self) -> dict[str, list[Any]]:
        return {dim: list(control.value) for dim, control in self.filters.items() if control.value}

    def _list_trials(self) -> None:
        chosen = self._chosen().items()
        shown = [at for at, one in enumerate(self._trials) if all(one.get(dim) in values for dim, values in chosen)]
        listed = [(trials.name(self._trials[at]), at) for at in shown[:_MOST_TRIALS]]
        first = f"click a mark, or choose one of {len(shown)} trials" + (
            f", the first {_MOST_TRIALS} of them" if len(shown) > len(listed) else ""
        )
        self.trial.options = [(first, None), *listed]

    def _tell(self) -> None:
        at = self.trial.value
        rows = [] if at is None else [trials.describe(self._data, self._trials[at])]
        self.sheet.value = listing.to_html_sheets(rows, "") if rows else ""

    def _button(self, suffix: str) -> widgets.Button:
        button = widgets.Button(description=suffix.upper(), tooltip=f"write a {suffix} file")

        def save(_: Any) -> None:
            try:
                self.save(suffix)
            except (NgbkitError, OSError) as error:
                self._say(str(error))

        button.on_click(save)
        return button

    def _say(self, text: str) -> None:
        self.message.value = f'<span role="status">{escape(text)}</span>' if text else ""


def _figures(data: Data) -> list[str]:
    """Those that this dataset may have: a depth needs a factor."""
    varied = any(factor_dims(node) for node in nodes(data).values())
    return [name for name in figures.__all__ if name != "save" and (varied or name not in ("depth", "heatmap"))]


def _choice(description: str, options: list[Any], value: Any) -> widgets.Dropdown:
    return widgets.Dropdown(
        description=description, options=options, value=value, style=_STYLE, layout={"width": "15em"}
    )


def _several(dim: str, labels: list[Any]) -> widgets.SelectMultiple:
    return widgets.SelectMultiple(
        description=dim.replace("_", " "),
        options=[(str(label), label) for label in labels],
        rows=min(_LINES, len(labels)),
        style=_STYLE,
        layout={"width": "22em"},
    )
