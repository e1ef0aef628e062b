"""The controls of a sweep panel: networks, compilers, devices, batch sizes and samples."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

import ipywidgets as widgets

from ngbkit import options, registry
from ngbkit.commands.compilers import list_compilers
from ngbkit.errors import NgbkitError
from ngbkit.notebook import preload
from ngbkit.notebook.panels.line import Line
from ngbkit.notebook.panels.panel import render_error
from ngbkit.sweep.trials import BASELINE

_WIDE = widgets.Layout(width="100%")
_STYLE = {"description_width": "7.5em"}
# Wide enough for a placeholder of this many characters, which a test holds.
_FIELD, PLACEHOLDER_LENGTH = "31em", 40
# Ticked at first, if they work on this machine.
_DEFAULTS = ("identity", "onnxruntime", "openvino")


class Form(widgets.VBox):  # type: ignore[misc, unused-ignore]
    """Composes a `Line`, and calls `on_change` at each change; `modules` lists the notebook's torch modules."""

    def __init__(self, modules: Callable[[], Iterable[str]], on_change: Callable[[], None]) -> None:
        self._modules, self._on_change = modules, on_change
        self.search = widgets.Combobox(
            description="network",
            placeholder="search: resnet…, blocks.conv, net.onnx",
            style=_STYLE,
            layout={"width": _FIELD},
        )
        self.add = widgets.Button(description="Add", tooltip="add this network to the sweep")
        self.networks = widgets.TagsInput(value=[], allow_duplicates=False, layout=_WIDE)
        self.factors = self._build_text("factors", "", "width=64,96 depth=1:6, of a block")
        names = sorted(registry.list_names(registry.COMPILERS), key=lambda name: (name != BASELINE, name))
        self.compilers = {name: self._build_checkbox(name) for name in names}
        #: Why compilers are not available; the panel shows it below the form.
        self.reasons = widgets.HTML("<small>checking which compilers work here…</small>")
        self.columns = self._build_text("with options", "", 'openvino{"hint":"throughput"},tvm{…}')
        self.devices = {name: self._build_checkbox(name) for name in _list_devices()}
        self.batch_sizes = self._build_text("batch sizes", "1", "1,4,8 or 1:4")
        self.repeats = self._build_text("samples", "", "per trial (default: 100)")
        self.precision = self._build_text("or precision", "", "until speed-ups are this precise: 1%")
        self.out = self._build_text("dataset", "ds", "the variable to bind the dataset to")
        self.more = self._build_text("more options", "", "--threads 2 --timeout 300")
        self._set_defaults()
        self._observe_controls()
        super().__init__(self._build_rows(), layout=_WIDE)
        # Probing starts processes, and the list of networks imports timm: the panel does not wait for them.
        threading.Thread(target=self._probe, name="ngbkit-panel-probe", daemon=True).start()

    @property
    def line(self) -> Line:
        """The line that the controls compose now."""
        ticked = [name for name, checkbox in self.compilers.items() if checkbox.value and not checkbox.disabled]
        with_options = self.columns.value.strip()
        return Line(
            workloads=tuple(self.networks.value),
            compilers=(*ticked, *([with_options] if with_options else [])),
            devices=tuple(name for name, checkbox in self.devices.items() if checkbox.value),
            batch_sizes=self.batch_sizes.value,
            factors=self.factors.value,
            repeats=self.repeats.value,
            precision=self.precision.value,
            out=self.out.value,
            more=self.more.value,
        )

    def show_compilers(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Disable the compilers that do not work here, and show why; `rows` are from `list_compilers`."""
        missing = {row["compiler"]: row["missing"] for row in rows if not row["available"]}
        for name, checkbox in self.compilers.items():
            checkbox.disabled = name in missing
            checkbox.value = checkbox.value and name not in missing
            checkbox.tooltip = missing.get(name, "")
        self.reasons.value = _render_reasons(missing)

    def _set_defaults(self) -> None:
        for name in _DEFAULTS:
            if name in self.compilers:
                self.compilers[name].value = True
        if options.get_device() in self.devices:
            self.devices[options.get_device()].value = True

    def _observe_controls(self) -> None:
        self.add.on_click(self._on_add)
        texts = (self.factors, self.columns, self.batch_sizes, self.repeats, self.precision, self.out, self.more)
        for control in (self.networks, *texts, *self.compilers.values(), *self.devices.values()):
            control.observe(lambda _: self._on_change(), names="value")

    def _build_rows(self) -> list[widgets.Widget]:
        wrap = widgets.Layout(flex_flow="row wrap", width="100%")
        return [
            widgets.HBox([self.search, self.add]),
            self.networks,
            widgets.HBox([self.factors, self.batch_sizes], layout=wrap),
            _add_label("compilers", widgets.HBox(list(self.compilers.values()), layout=wrap)),
            self.columns,
            _add_label("devices", widgets.HBox(list(self.devices.values()), layout=wrap)),
            widgets.HBox([self.repeats, self.precision], layout=wrap),
            widgets.HBox([self.out, self.more], layout=wrap),
        ]

    def _on_add(self, _: Any) -> None:
        word = self.search.value.strip()
        # First: who sees the tag may type the next name, which this would clear.
        self.search.value = ""
        if word and word not in self.networks.value:
            self.networks.value = [*self.networks.value, word]

    def _probe(self) -> None:
        try:
            self._list_choices()
        except Exception as error:  # noqa: BLE001  an exception would end this thread unseen
            self.reasons.value = render_error(error)

    def _list_choices(self) -> None:
        self.show_compilers(list_compilers())
        names = [name for source in registry.load_all(registry.WORKLOADS).values() for name in source.complete("")]
        self.search.options = tuple(dict.fromkeys([*self._modules(), *names]))
        self._on_change()
        preload.import_libraries()

    @staticmethod
    def _build_text(description: str, value: str, placeholder: str) -> widgets.Text:
        return widgets.Text(
            value=value, description=description, placeholder=placeholder, style=_STYLE, layout={"width": _FIELD}
        )

    @staticmethod
    def _build_checkbox(name: str) -> widgets.Checkbox:
        return widgets.Checkbox(
            value=False, description=name, indent=False, layout=widgets.Layout(width="auto", margin="0 1em 0 0")
        )


def _render_reasons(missing: Mapping[str, str]) -> str:
    """Render which compilers are not available, and folded below, why; nothing if all are."""
    if not missing:
        return ""
    lines = "".join(f"<li>{escape(name)}: {escape(reason)}</li>" for name, reason in missing.items())
    return (
        f"<details><summary><small>not available here: {escape(', '.join(missing))}</small></summary>"
        f"<small><ul style='margin: 0'>{lines}</ul></small></details>"
    )


def _add_label(name: str, control: widgets.Widget) -> widgets.HBox:
    label = widgets.Label(name, layout={"width": _STYLE["description_width"], "justify_content": "flex-end"})
    label.layout.margin = "0 0.6em 0 0"
    return widgets.HBox([label, control], layout=_WIDE)


def _list_devices() -> list[str]:
    from ngbkit.cluster import devices

    try:
        return list(devices.load())
    except (NgbkitError, OSError):  # the command that uses the devices file reports what is invalid in it
        return ["cpu"]
