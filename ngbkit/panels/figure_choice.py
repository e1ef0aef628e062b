"""The figure of a panel: its options as controls, its chart, and the code that draws the same."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import xarray as xr
from htpy import Element, Node, input, label, option, select, span

from ngbkit import figures
from ngbkit.dataset import selection
from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import list_factors, list_labels
from ngbkit.dataset.storage import Data
from ngbkit.device.serving.load import QUANTILES
from ngbkit.errors import UsageError
from ngbkit.figures.accessor import Plots
from ngbkit.figures.composition import build_spec
from ngbkit.metrics.metric import load_metrics
from ngbkit.metrics.originals import find_originals, find_referred
from ngbkit.user_text import format_size

MOST_BYTES = 1_000_000
"""The longest specification that a panel draws."""

_INTERVALS = {"95 %": 0.95, "90 %": 0.9}
# By parameter, and by its annotation where that matters: the choices, by the text that people read.
_CHOICES: Mapping[str, Mapping[str, Any]] = {
    "by lines.By": {"network": "network", "compiler": "compiler"},
    "by By": {"the best compiler": "best", "every compiler": "compiler"},
    "cache": {"empty": "cold", "filled": "warm"},
    "ci float": _INTERVALS,
    "ci": {**_INTERVALS, "none": None},
    "probability": {"95 %": 0.95, "80 %": 0.8, "any": 0.0},
    "quantile": {f"p{100 * share:g}": share for share in QUANTILES},
    "untuned": {"no": False, "yes": True},
}
_NAMES = {"by": "panels by", "cache": "caches", "ci": "interval", "untuned": "with untuned"}
_EXAMPLES = {"cost": "accuracy", "accept": "agreement>=0.99"}
_LOWER = ("precision_gain", "accuracy_change")
_VARIED = ("depth", "heatmap")


class FigureChoice:
    """A figure of a dataset and the texts of its options that the user chose, which stay for other figures."""

    def __init__(self, data: Data, name: str = "throughput") -> None:
        self._data = data
        self._factors = list_factors(data)
        self.name = name
        self.values: dict[str, str] = {}

    def list_figures(self) -> dict[str, str]:
        """List every figure, each with what the dataset lacks for it, or an empty text."""
        datasets = list(nodes(self._data).values())
        lacks = dict.fromkeys(_VARIED, "" if self._factors else "needs a factor")
        networks = {str(name) for node in datasets for name in node["workload"].values.ravel()}
        lacks["networks"] = "" if len(networks) > 1 or self._factors else "needs two networks"
        lacks["roofline"] = "" if any("macs" in node.variables for node in datasets) else "needs counts of operations"
        lacks |= {name: "needs samples" for name, metric in load_metrics().items() if not metric.is_in(self._data)}
        labels = [label for node in datasets for label in list_labels(node, "compiler")]
        if not find_originals(labels):
            is_referred = any(bool(find_referred(node).any()) for node in datasets)
            lacks |= dict.fromkeys(_LOWER[:1] if is_referred else _LOWER, "needs a lower precision")
        if not any("evaluated_samples" in node for node in datasets):
            lacks["tradeoff"] = "needs samples that judge"
        lacks["tcr"] = "" if any(map(_compresses, datasets)) else "needs a network that compresses"
        return {name: lacks.get(name, "") for name in figures.list_figures()}

    def arguments(self, baseline: str) -> dict[str, Any]:
        """The arguments of the figure that differ from its defaults, without its selection."""
        parameters = self._list_parameters()
        values = {name: self._find_value(name, parameter) for name, parameter in parameters.items()}
        if "baseline" in values:
            values["baseline"] = baseline
        return {name: value for name, value in values.items() if value != parameters[name].default}

    def write_code(self, variable: str, baseline: str, select_labels: Mapping[str, Any]) -> str:
        """Write the code that draws the figure of the dataset in a variable."""
        arguments = self.arguments(baseline)
        if self._selects:
            arguments |= select_labels
        elif select_labels:
            variable += f".sel({_write_call(select_labels)})"
        return f"{variable}.ngb.plot.{self.name}({_write_call(arguments)})"

    def draw(self, baseline: str, select_labels: Mapping[str, Any]) -> Any:
        """Draw the chart of the selected labels."""
        arguments = self.arguments(baseline)
        if self._selects:
            return getattr(Plots(self._data), self.name)(**arguments, **select_labels)
        data = selection.select(self._data, **select_labels) if select_labels else self._data
        return getattr(Plots(data), self.name)(**arguments)

    def build_spec(self, baseline: str, select_labels: Mapping[str, Any]) -> dict[str, Any]:
        """Build the specification of the chart; `UsageError` if it is too long for a panel."""
        spec = build_spec(self.draw(baseline, select_labels))
        size = len(json.dumps(spec))
        if size > MOST_BYTES:
            raise UsageError(
                f"invalid figure: got {format_size(size)} of data; expected at most {format_size(MOST_BYTES)}. Uncheck "
                "some labels, or draw it in a cell by the line below."
            )
        return spec

    def render_options(self) -> Iterator[Element]:
        """Render a control for each option, but the baseline, which the table has too."""
        for name, parameter in self._list_parameters().items():
            if name == "baseline":
                continue
            choices = self._list_choices(name, parameter)
            action = f"figure-{name}"
            if choices is None:
                example = f"such as {_EXAMPLES.get(name, '50ms')}"
                control: Node = input(
                    type="text", value=self.values.get(name, ""), placeholder=example, data_change=action
                )
            elif len(choices) > 1:
                current = self._find_value(name, parameter)
                texts = (option(value=text, selected=value == current)[text] for text, value in choices.items())
                control = select(data_change=action)[texts]
            else:
                continue
            yield label(class_="field", data_key=action)[span[_NAMES.get(name, name)], control]

    def _list_parameters(self) -> dict[str, inspect.Parameter]:
        parameters = inspect.signature(getattr(Plots(self._data), self.name)).parameters
        return {name: item for name, item in parameters.items() if item.kind is not item.VAR_KEYWORD}

    @property
    def _selects(self) -> bool:
        """Return whether the figure selects labels itself, so that their reference need not be among them."""
        parameters = inspect.signature(getattr(Plots(self._data), self.name)).parameters
        return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())

    def _list_choices(self, name: str, parameter: inspect.Parameter) -> Mapping[str, Any] | None:
        """List the choices of an option; None for a text."""
        if name == "factor":
            return {factor: factor for factor in self._factors}
        return _CHOICES.get(f"{name} {parameter.annotation}", _CHOICES.get(name))

    def _find_value(self, name: str, parameter: inspect.Parameter) -> Any:
        """Find the value of an option: the chosen one, if the figure has that choice, else its default."""
        choices, text = self._list_choices(name, parameter), self.values.get(name, "")
        if choices is None:
            return text or parameter.default
        default = parameter.default
        if name == "factor" and default not in self._factors and self._factors:
            default = self._factors[0]
        return choices.get(text, default)


OPTIONS: Sequence[str] = ("by", "cache", "ci", "deadline", "factor", "probability", "quantile", "untuned")
"""The options of figures that a panel has controls for."""


def _compresses(node: xr.Dataset) -> bool:
    """Return whether any network of a dataset has an output smaller than its input."""
    is_counted = {"input_bytes", "output_bytes"} <= set(node.variables)
    return is_counted and bool((node["output_bytes"] < node["input_bytes"]).any())


def _write_call(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
