"""The controls of a sweep panel: what to measure, with what, where and how often."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

import ipywidgets as widgets

from ngbkit import options, registry
from ngbkit.commands import listing
from ngbkit.errors import NgbkitError
from ngbkit.notebook.panels import ahead
from ngbkit.notebook.panels.line import Line
from ngbkit.sweep.trials import BASELINE

_WIDE = widgets.Layout(width="100%")
_STYLE = {"description_width": "7.5em"}
# Wide enough for what a field says before anything is written into it.
_FIELD = "31em"
# What is ticked to begin with, as far as it works here.
_FIRST = ("identity", "onnxruntime", "openvino")


class Form(widgets.VBox):  # type: ignore[misc, unused-ignore]
    """Asks for a `Line`, and tells whenever it is another one.

    Parameters
    ----------
    modules
        The variables of the notebook that hold a torch module, now.
    changed
        Called when anything was changed.
    """

    def __init__(self, modules: Callable[[], Iterable[str]], changed: Callable[[], None]) -> None:
        self._modules, self._changed = modules, changed
        self.search = widgets.Combobox(
            description="network",
            placeholder="search: resnet…, blocks.conv, a file, a model of yours",
            style=_STYLE,
            layout={"width": _FIELD},
        )
        self.add = widgets.Button(description="Add", tooltip="add this network to the sweep")
        self.networks = widgets.TagsInput(value=[], allow_duplicates=False, layout=_WIDE)
        self.factors = self._text("factors", "", "width=64,96 depth=1:6, of networks that take them")
        names = sorted(registry.names(registry.COMPILERS), key=lambda name: (name != BASELINE, name))
        self.compilers = {name: self._tick(name) for name in names}
        self.reasons = widgets.HTML("<small>looking for what works here…</small>")
        self.columns = self._text("with options", "", 'openvino{"hint":"throughput"}, separated by commas')
        self.devices = {name: self._tick(name) for name in _devices()}
        self.batch_sizes = self._text("batch sizes", "1", "1,4,8 or 1:4")
        self.repeats = self._text("samples", "", "a trial; 100 by default")
        self.precision = self._text("or precision", "", "measure until a speed-up is known so well: 1%")
        self.out = self._text("dataset", "ds", "the variable that it is bound to")
        self.more = self._text("more options", "", "--threads 2 --timeout 300")
        self._settle()
        super().__init__(self._rows(), layout=_WIDE)
        # Probing starts processes, and the list of networks imports timm: the panel is there meanwhile.
        threading.Thread(target=self._look, name="ngbkit-panel-look", daemon=True).start()

    @property
    def line(self) -> Line:
        """What is asked for now."""
        ticked = [name for name, tick in self.compilers.items() if tick.value and not tick.disabled]
        return Line(
            workloads=tuple(self.networks.value),
            compilers=(*ticked, *([self.columns.value.strip()] if self.columns.value.strip() else [])),
            devices=tuple(name for name, tick in self.devices.items() if tick.value),
            batch_sizes=self.batch_sizes.value,
            factors=self.factors.value,
            repeats=self.repeats.value,
            precision=self.precision.value,
            out=self.out.value,
            more=self.more.value,
        )

    def show_compilers(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Grey out those that do not work here, and say why; `rows` are `ngbkit.commands.listing.list_compilers`'."""
        missing = {row["compiler"]: row["missing"] for row in rows if not row["available"]}
        for name, tick in self.compilers.items():
            tick.disabled = name in missing
            tick.value = tick.value and name not in missing
        lines = "".join(f"<li>{escape(name)}: {escape(reason)}</li>" for name, reason in missing.items())
        self.reasons.value = f"<small>not here:<ul style='margin: 0'>{lines}</ul></small>" if lines else ""

    def _settle(self) -> None:
        for name in _FIRST:
            if name in self.compilers:
                self.compilers[name].value = True
        if options.device() in self.devices:
            self.devices[options.device()].value = True
        self.add.on_click(self._on_add)
        texts = (self.factors, self.columns, self.batch_sizes, self.repeats, self.precision, self.out, self.more)
        for control in (self.networks, *texts, *self.compilers.values(), *self.devices.values()):
            control.observe(lambda _: self._changed(), names="value")

    def _rows(self) -> list[widgets.Widget]:
        wrap = widgets.Layout(flex_flow="row wrap", width="100%")
        return [
            widgets.HBox([self.search, self.add]),
            self.networks,
            widgets.HBox([self.factors, self.batch_sizes], layout=wrap),
            _named("compilers", widgets.HBox(list(self.compilers.values()), layout=wrap)),
            self.reasons,
            self.columns,
            _named("devices", widgets.HBox(list(self.devices.values()), layout=wrap)),
            widgets.HBox([self.repeats, self.precision], layout=wrap),
            widgets.HBox([self.out, self.more], layout=wrap),
        ]

    def _on_add(self, _: Any) -> None:
        word = self.search.value.strip()
        if word and word not in self.networks.value:
            self.networks.value = [*self.networks.value, word]
        self.search.value = ""

    def _look(self) -> None:
        self.show_compilers(listing.list_compilers())
        names = [name for source in registry.load_all(registry.WORKLOADS).values() for name in source.complete("")]
        self.search.options = tuple(dict.fromkeys([*self._modules(), *names]))
        self._changed()
        ahead.load()

    @staticmethod
    def _text(description: str, value: str, placeholder: str) -> widgets.Text:
        return widgets.Text(
            value=value, description=description, placeholder=placeholder, style=_STYLE, layout={"width": _FIELD}
        )

    @staticmethod
    def _tick(name: str) -> widgets.Checkbox:
        return widgets.Checkbox(
            value=False, description=name, indent=False, layout=widgets.Layout(width="auto", margin="0 1em 0 0")
        )


def _named(name: str, control: widgets.Widget) -> widgets.HBox:
    label = widgets.Label(name, layout={"width": _STYLE["description_width"], "justify_content": "flex-end"})
    label.layout.margin = "0 0.6em 0 0"
    return widgets.HBox([label, control], layout=_WIDE)


def _devices() -> list[str]:
    from ngbkit.cluster import devices

    try:
        return list(devices.load())
    except NgbkitError:  # a devices file that is not valid is told about where it is used
        return ["cpu"]
