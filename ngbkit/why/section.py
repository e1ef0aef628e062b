"""The choice of two columns whose gap is explained: of the compilers of a dataset that have profiles."""

from __future__ import annotations

from typing import Any

from htpy import Element, Node, button, div, label, option, p, select, span

from ngbkit.dataset.storage import Data
from ngbkit.why.explain import PROFILE, explain, list_profiles
from ngbkit.why.explanation import Explanation

_DIMS = ("compiler", "workload", "batch_size", "device")


class ExplanationChoice:
    """The trial and the two columns to explain, of a dataset with profiles: a chosen label of each select."""

    # The names of the selects: those of factors that people sweep most, among them.
    NAMES = ("first", "second", "workload", "batch_size", "device", "width", "depth")

    def __init__(self, data: Data) -> None:
        self._data = data
        profiles = list_profiles(data)
        factors = [str(name) for name in profiles if name not in (*_DIMS, PROFILE)]
        names = (*_DIMS, *factors)
        self.labels = {name: list(dict.fromkeys(profiles[name].dropna().tolist())) for name in names}
        compilers = list(map(str, self.labels["compiler"]))
        self.chosen = {name: str(labels[0]) for name, labels in self.labels.items() if labels and name != "compiler"}
        if self.is_possible:
            self.chosen |= {"first": compilers[1], "second": compilers[0]}

    @property
    def is_possible(self) -> bool:
        """Return whether two compilers have profiles."""
        return len(self.labels["compiler"]) > 1

    def render(self) -> Node:
        """Render the selects and the button; a sentence where there is nothing to explain."""
        if not self.is_possible:
            return p(class_="hint")["Measure with --profile to explain why one compiler is faster than another."]
        compilers = list(map(str, self.labels["compiler"]))
        others = [name for name, labels in self.labels.items() if name != "compiler" and len(labels) > 1]
        return div(class_="row")[
            self._render_select("first", compilers, "explain"),
            self._render_select("second", compilers, "against"),
            (self._render_select(name, list(map(str, self.labels[name])), name.replace("_", " ")) for name in others),
            button(type="button", data_click="explain")["Explain"],
        ]

    def explain(self) -> Explanation:
        """Explain the gap between the chosen columns."""
        return explain(self._data, self.chosen["first"], self.chosen["second"], **self._list_labels())

    def write_code(self, expression: str) -> str:
        """Write the call that explains the same."""
        words = [repr(self.chosen["first"]), repr(self.chosen["second"])]
        words += [f"{name}={value!r}" for name, value in self._list_labels().items() if len(self.labels[name]) > 1]
        return f"{expression}.ngb.explain({', '.join(words)})"

    def _list_labels(self) -> dict[str, Any]:
        """List the chosen labels of the trial by dim, in the types of the dataset."""
        return {
            name: next(each for each in labels if str(each) == self.chosen[name])
            for name, labels in self.labels.items()
            if name in self.chosen
        }

    def _render_select(self, name: str, labels: list[str], title: str) -> Element:
        choices = (option(value=text, selected=text == self.chosen[name])[text] for text in labels)
        return label(class_="field")[span[title], select(data_change=f"explain-{name}", aria_label=title)[choices]]
