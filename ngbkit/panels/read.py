"""The section of a panel that reads results: table, figure, sheets of trials, comparisons, and files to download."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

from htpy import Element, Node, button, code, div, fragment, label, optgroup, option, p, section, select, span
from IPython.core.getipython import get_ipython
from markupsafe import Markup

from ngbkit import registry, runs
from ngbkit.commands.shell import choose_figures, read_stored
from ngbkit.dataset.storage import Data
from ngbkit.errors import NgbkitError, UsageError
from ngbkit.metrics import contracts
from ngbkit.metrics.metric import load_frame_metrics
from ngbkit.metrics.pairing import compare
from ngbkit.notebook import variables
from ngbkit.notebook.bound_datasets import Changes
from ngbkit.panels import exports, trial_sheet
from ngbkit.panels import trial as trials
from ngbkit.panels.exports import Export
from ngbkit.panels.figure_choice import OPTIONS, FigureChoice
from ngbkit.panels.page import Page, render_error
from ngbkit.panels.result_table import INCONCLUSIVE, ResultRow, ResultTable, TrialFilter, list_rows
from ngbkit.sweep.column import BASELINE, MARK

# The text of each way to treat columns that were timed under another contract.
_UNLIKE = {"mask": "left out", "allow": f"marked {MARK}"}
# So many runs are offered for a comparison.
_LATEST = 20


class ReadSection:
    """Shows a dataset in the part ``read``: choose a metric, a baseline and a figure; filter, sort, inspect, export.

    `settle` measures a run again, by its id, until it is conclusive; without it there is no such button.
    """

    def __init__(self, page: Page, settle: Callable[[str], object] | None = None) -> None:
        self._page, self.settle = page, settle
        self._rows: list[ResultRow] = []
        self._problem = ""
        self._source = ""
        actions: dict[str, Callable[[Any], None]] = {
            "metric": self._choose_metric,
            "baseline": self._choose_baseline,
            "unlike": self._choose_unlike,
            "figure": self._choose_figure,
            "sort": self._sort,
            "more-trials": self._show_more,
            "open-trial": lambda index: self._open(int(index)),
            "close-trial": lambda _: self._open(None),
            "pick": self._pick,
            "settle": self._settle,
            "compare-choice": self._choose_source,
            "compare": self._compare,
            "download": self._download,
            **{f"figure-{name}": partial(self._set_option, name) for name in OPTIONS},
        }
        page.actions |= actions
        self._explanation: Any = None
        # Another add-on explains gaps: `ngbkit.why.section.ExplanationChoice`.
        self._build_explanation = registry.find(registry.PANELS, "explanation")
        if self._build_explanation is not None:
            page.actions["explain"] = self._explain
            for name in self._build_explanation.NAMES:
                page.actions[f"explain-{name}"] = partial(self._choose_explained, name)

    def show_data(self, data: Data, name: str, run_id: str = "") -> None:
        """Show a dataset or a tree, the variable that holds it, and the run that measured it, if it is known."""
        self._measured, self._name, self._run_id = data, name, run_id
        self._has_unlike = bool(contracts.list_uncompared(data, ("compiler", "batch_size")))
        self._show(data, name)

    def _show(self, data: Data, expression: str) -> None:
        """Show the measured dataset, or the one whose unlike columns are compared, and the code of it."""
        self._data, self._expression = data, expression
        self._trials = trials.list_trials(data)
        self._filter = TrialFilter(self._page, self._trials, self._refresh)
        self._table = ResultTable()
        self._metrics = {name: metric for name, metric in load_frame_metrics().items() if metric.is_in(data)}
        first = choose_figures(data)[0]
        self._figure = FigureChoice(data, first)
        self._metric = self._metrics[first]
        compilers = self._filter.labels.get("compiler", [BASELINE])
        self._baseline = str(BASELINE if BASELINE in compilers else compilers[0])
        self._source = ""
        self._page.show("read", self._render())
        for part in ("sheet", "comparison", "explanation", "read-message"):
            self._page.show(part, "")
        self._show_choice()
        if self._build_explanation is not None:
            self._explanation = self._build_explanation(data)
            self._page.show("explain-choice", self._explanation.render())
        self._load_rows()
        self._refresh()

    def _render(self) -> Element:
        """Render the frame of the section: its parts have their content of their own."""
        kinds = (button(type="button", data_click="download", data_value=kind)[kind] for kind in exports.KINDS)
        return section(aria_label=f"results of {self._name}")[
            div(class_="fields", data_part="read-controls"),
            div(data_part="filters"),
            div(data_part="figure-error"),
            div(class_="chart", data_chart="figure"),
            div(class_="row", data_part="figure-code"),
            div(class_="beside")[
                div(data_part="table"),
                div(aria_live="polite", data_part="sheet"),
            ],
            div(data_part="inconclusive"),
            div(class_="row", role="group", aria_label="download")[span["Download"], kinds],
            div(data_part="read-message"),
            div(data_part="compare-choice"),
            div(data_part="comparison"),
            div(data_part="explain-choice"),
            div(class_="chart", data_chart="explanation"),
            div(data_part="explanation"),
        ]

    def _refresh(self) -> None:
        """Show everything that the filters change."""
        self._page.show("filters", self._filter.render())
        self._show_table()
        self._draw()

    def _load_rows(self) -> None:
        """Estimate the metric of every trial."""
        options = {"baseline": self._baseline} if "baseline" in self._metric.signature.parameters else {}
        self._rows, self._problem = list_rows(self._data, self._metric, **options)

    def _show_table(self) -> None:
        rows = [row for row in self._rows if self._filter.accepts(row.trial)]
        labels = self._filter.labels
        problem = p(class_="hint")[self._problem] if self._problem else None
        self._page.show("table", fragment[self._table.render(rows, self._metric, labels), problem])
        count, total = (sum(not row.is_conclusive for row in part) for part in (rows, self._rows))
        self._page.show("inconclusive", self._render_inconclusive(count, total))

    def _render_inconclusive(self, count: int, total: int) -> Node:
        if not count:
            return ""
        trial = "1 trial is" if count == 1 else f"{count} trials are"
        # A run is settled whole, whatever the filters show of it.
        text = "Measure these again" if count == total else f"Measure all {total} of the run again"
        again = button(type="button", data_click="settle")[text]
        can_settle = self._run_id and self.settle is not None
        return div(class_="row")[span[f"{trial} {INCONCLUSIVE} (?)."], again if can_settle else None]

    def _draw(self) -> None:
        """Draw the figure, or say why that is not possible; then no older chart stays."""
        selection = self._filter.selection
        text = self._figure.write_code(self._expression, self._baseline, selection)
        self._page.show("read-controls", self._render_controls())
        copy = button(type="button", data_copy=text)["Copy as cell"]
        self._page.show("figure-code", fragment[code[text], copy])
        spec, problem = None, ""
        try:
            self._check_selection()
            spec = self._figure.build_spec(self._baseline, selection)
        except Exception as error:  # noqa: BLE001  the table and the other figures need no chart
            problem = render_error(error)
        self._page.show("figure-error", Markup(problem))
        # The chart's element must be there before the chart.
        self._page.flush()
        self._page.draw("figure", spec)

    def _check_selection(self) -> None:
        for dim, labels in self._filter.selection.items():
            if not labels:
                raise UsageError(f"no {dim.replace('_', ' ')} is checked. Check at least one.")

    def _render_controls(self) -> Node:
        lacks = self._figure.list_figures()
        figures = {name: f"{name.replace('_', ' ')}{f' ({lack})' if lack else ''}" for name, lack in lacks.items()}
        compilers = dict.fromkeys(map(str, self._filter.labels.get("compiler", [])))
        metrics = {name: name.replace("_", " ") for name in self._metrics}
        unlike = "mask" if self._data is self._measured else "allow"
        return fragment[
            _render_select("metric", metrics, self._metric.name),
            _render_select("baseline", {name: name for name in compilers}, self._baseline),
            _render_select("unlike", _UNLIKE, unlike) if self._has_unlike else None,
            _render_select("figure", figures, self._figure.name),
            self._figure.render_options(),
        ]

    def _choose_metric(self, name: str) -> None:
        previous, self._metric = self._metric.name, self._metrics[name]
        if self._table.column == previous:
            self._table.column = name
        if self._metric.chart is not None:
            self._figure.name = name
        self._load_rows()
        self._refresh()

    def _choose_baseline(self, name: str) -> None:
        self._baseline = name
        self._load_rows()
        self._refresh()

    def _choose_unlike(self, choice: str) -> None:
        is_allowed = choice == "allow"
        data = contracts.allow_unlike(self._measured) if is_allowed else self._measured
        self._show(data, f"{self._name}.ngb.allow_unlike()" if is_allowed else self._name)

    def _choose_figure(self, name: str) -> None:
        if name not in self._figure.list_figures():
            return
        self._figure.name = name
        if name in self._metrics and name != self._metric.name:
            self._choose_metric(name)
        else:
            self._draw()

    def _set_option(self, name: str, text: str) -> None:
        self._figure.values[name] = text
        self._draw()

    def _sort(self, column: str) -> None:
        self._table.sort(column)
        self._show_table()

    def _show_more(self, _: str) -> None:
        self._table.show_more()
        self._show_table()

    def _pick(self, row: Mapping[str, Any]) -> None:
        """Open the trial that the figure draws from a row, if there is one."""
        index = next(trials.match_row(row, self._trials), None)
        if index is not None:
            self._open(index)

    def _open(self, index: int | None) -> None:
        """Open the sheet of a trial, and mark its row; None closes it."""
        self._table.marked = index
        self._show_table()
        sheet: Node = ""
        if index is not None:
            sheet = fragment[
                trial_sheet.render(self._data, self._trials[index]),
                button(type="button", data_click="close-trial")["Close the details"],
            ]
        self._page.show("sheet", fragment[sheet])

    def _settle(self, _: str) -> None:
        if self.settle is not None:
            self.settle(self._run_id)

    def _choose_source(self, source: str) -> None:
        self._source = source
        self._show_choice()

    def _show_choice(self) -> None:
        """Show a select of the other datasets of the notebook and of the latest runs."""
        names = _get_names()
        datasets = [name for name in variables.list_datasets(names) if names[name] is not self._measured]
        latest = islice(runs.summaries(), _LATEST + 1)
        earlier = {}
        for summary in [summary for summary in latest if summary.id != self._run_id][:_LATEST]:
            created = datetime.fromtimestamp(summary.created).astimezone()
            earlier[summary.id] = f"{created:%d %b %H:%M} {', '.join(summary.networks)}"
        groups = {"datasets of this notebook": dict(zip(datasets, datasets, strict=True)), "runs": earlier}
        choices = (
            optgroup(label=title)[
                (option(value=key, selected=key == self._source)[f"{text:.80}"] for key, text in group.items())
            ]
            for title, group in groups.items()
            if group
        )
        unset = option(value="", selected=not self._source)["choose a dataset or a run"]
        choice = div(class_="row")[
            label(class_="field")[span["compare with"], select(data_change="compare-choice")[unset, choices]],
            button(type="button", data_click="compare", disabled=not self._source)["Compare"],
        ]
        self._page.show("compare-choice", choice)

    def _compare(self, _: str) -> None:
        """Compare the dataset with that of a variable or of a run."""
        if not self._source:
            raise UsageError("no run to compare with. Choose a dataset or a run.")
        names = _get_names()
        earlier = names[self._source] if self._source in variables.list_datasets(names) else read_stored(self._source)
        comparison = compare(earlier, self._measured, names=(self._source, self._name))
        self._page.show("comparison", Markup(Changes(comparison)._repr_html_()))

    def _choose_explained(self, name: str, text: str) -> None:
        self._explanation.chosen[name] = text
        self._page.show("explain-choice", self._explanation.render())

    def _explain(self, _: str) -> None:
        """Explain the gap between two columns: a figure whose blocks open by a click, the sentence and the table."""
        text = self._explanation.write_code(self._expression)
        try:
            result = self._explanation.explain()
        except NgbkitError as error:
            self._page.draw("explanation", None)
            self._page.show("explanation", Markup(render_error(error)))
            return
        copy = button(type="button", data_copy=text)["Copy as cell"]
        self._page.show("explanation", fragment[Markup(result._repr_html_()), div(class_="row")[code[text], copy]])
        self._page.flush()
        self._page.draw("explanation", result.plot().to_dict())

    def _download(self, kind: str) -> None:
        """Let the browser save a file, and say its name, or why there is none."""
        try:
            export = self._export(kind)
        except Exception as error:  # noqa: BLE001  the sentence is beside the button
            self._page.show("read-message", Markup(render_error(error)))
            return
        self._page.download(export.name, export.mime, export.content)
        self._page.show("read-message", p(role="status")[f"{export.name} is in the downloads of the browser."])

    def _export(self, kind: str) -> Export:
        selection = self._filter.selection
        if kind == "NetCDF":
            return exports.export_dataset(self._data, self._name)
        self._check_selection()
        if kind == "CSV":
            return exports.export_table(self._data, self._name, selection)
        draw = lambda: self._figure.draw(self._baseline, selection)  # noqa: E731
        return exports.export_figure(kind, self._name, self._figure.name, draw)


def _render_select(action: str, texts: Mapping[str, str], chosen: str) -> Element:
    choices = (option(value=name, selected=name == chosen)[text] for name, text in texts.items())
    return label(class_="field", data_key=action)[span[action], select(data_change=action, aria_label=action)[choices]]


def _get_names() -> Mapping[str, Any]:
    """Get the variables of the notebook."""
    shell = get_ipython()
    return {} if shell is None else shell.user_ns
