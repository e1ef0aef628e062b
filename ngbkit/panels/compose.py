"""The section of a panel that composes a sweep: its fields, and the line of the magic that they are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import htpy as h

from ngbkit import registry
from ngbkit.cluster import engines
from ngbkit.cluster.dispatch import build_spec
from ngbkit.commands.compilers import list_compilers
from ngbkit.commands.run import list_notices
from ngbkit.compilers.base import Compiler
from ngbkit.device.world import World
from ngbkit.errors import NgbkitError, translate_commands
from ngbkit.notebook import preload
from ngbkit.panels import fields
from ngbkit.panels.line import MAGIC, Line
from ngbkit.panels.page import Page
from ngbkit.runs.known import EarlierRuns
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.grid import Grid

# Ticked at first, if they work on this machine.
_DEFAULTS = ("identity", "onnxruntime", "openvino")
# What is known is looked up after the user has not typed for so long.
_PAUSE_S = 0.4
_AGAIN = "--again"
# The chip of a cell that this kernel did not execute.
_CELL = "a cell"
# By field: its label, a placeholder, and a help text.
_TEXTS: Mapping[str, tuple[str, str, str]] = {
    "batch_sizes": ("batch sizes", "1,4,8 or 1:4", "samples in a call; a list, or a range with both its ends"),
    "repeats": ("samples", "100", "timed calls of each trial"),
    "precision": ("or to within", "1%", "measure until each speed-up is this precise"),
    "out": ("dataset", "ds", "the variable that has the results"),
    "more": ("more options", "--threads 2 --together", "further options of the line; `%ngbench?` lists them"),
}


class ComposeSection:
    """Composes a `Line` from modules and cells that the notebook lists; `start` measures it."""

    def __init__(
        self,
        page: Page,
        list_modules: Callable[[], Iterable[str]],
        start: Callable[[Line], None],
        list_cells: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._page, self._list_modules, self._start, self._list_cells = page, list_modules, start, list_cells
        self.line = Line(compilers=tuple(name for name in _DEFAULTS if name in registry.list_names(registry.COMPILERS)))
        self._text: str | None = None  # what the user typed as a line, while it is none
        self._errors: dict[str, str] = {}
        self._search, self._search_error = "", ""
        self._names: list[str] = []
        self._choices: dict[str, dict[str, str]] = {}  # of the options of compilers, as typed
        self._rows: dict[str, Mapping[str, Any]] = {}
        self._timer: threading.Timer | None = None
        self._lock = threading.RLock()
        self._engines_started = False
        #: The panel sets it while a run is in progress.
        self.is_busy = False
        page.actions |= {
            "search": self._on_search,
            "network-add": self._on_add,
            "network-remove": self._on_remove,
            "line": self._on_line,
            "run": lambda _: self._start(self.line),
            "again": self._set_again,
            **{f"field-{name}": partial(self._set_text, name) for name in _TEXTS},
        }
        page.start_thread("probe", self._probe)

    def close(self) -> None:
        """Look up nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    def refresh(self) -> None:
        """Show the fields, their errors, the line, and the trials with the time that they take."""
        # The probe and the end of a run refresh the fields from threads of their own.
        with self._lock:
            modules = tuple(self._list_modules())
            self._errors = self.line.find_errors(modules)
            outlook: Sequence[str] = ()
            if not self._errors and self.line.has_networks:
                sweep = self.line.to_sweep(modules)
                if not self._engines_started:
                    self._engines_started = True
                    preload.start_engines(sweep)
                outlook = self._list_notices(sweep)
            self._schedule_lookup()
            self._page.show("compose", self._render(outlook))

    def _list_notices(self, sweep: Grid) -> Sequence[str]:
        try:
            return list_notices(sweep, with_time="--budget" not in self.line.more)
        except Exception as error:  # noqa: BLE001  Run may work, and reports its own error
            return [f"the time is unknown: {error}"]

    def _schedule_lookup(self) -> None:
        """Look up, a while later, which trials of the line earlier runs know."""
        self.close()
        self._page.show("known", "")
        if self._errors or not self.line.has_networks or _AGAIN in self.line.more or self.is_busy:
            return
        self._timer = threading.Timer(_PAUSE_S, self._page.guard, [self._look_up, self.line])
        self._timer.daemon = True
        self._timer.start()

    def _look_up(self, line: Line) -> None:
        modules = tuple(self._list_modules())
        if {*line.workloads} & {*modules}:
            return  # a module is known by what its export contains
        sweep = line.to_sweep(modules)
        running = engines.find_running()
        world = World.capture(sweep.workloads)
        earlier = EarlierRuns("", sweep)
        sentences = []
        for engine in (running[label] for label in sweep.devices if label in running):
            engine.hello()
            spec = build_spec(engine, sweep, run_id="", world=engine.adapt(world))
            trials = earlier.find_known(engine.device, engine.describe(spec), engine.identify(spec))
            sentences.append(trials.text)
        if line is self.line:
            sentence = " ".join(filter(None, sentences))
            self._page.show("known", h.p[sentence] if sentence else "")
            self._page.flush()

    def _render(self, outlook: Sequence[str]) -> h.Element:
        return h.div[
            self._render_networks(),
            self._render_factors(),
            self._render_compilers(),
            self._render_devices(),
            h.div(".fields")[(self._render_text(name) for name in _TEXTS)],
            self._render_line(),
            h.div(role="status")[(h.p[translate_commands(line, "magic")] for line in outlook)],
            h.div({"data-part": "known"}),
            self._render_buttons(),
        ]

    def _render_networks(self) -> h.Element:
        error = self._search_error or self._errors.get("workloads", "")
        identifier = self._page.model_id
        return h.div[
            h.label(".field.wide")[
                h.span["networks: type a name and press Enter"],
                h.input(
                    {"data-input": "search", "data-enter": "network-add"},
                    value=self._search,
                    list=f"{identifier}-networks",
                    placeholder="resnet18, blocks.conv, model.onnx, a module of this notebook, or a cell: In[3]",
                    autocomplete="off",
                    **fields.mark(error, f"{identifier}-error-networks"),
                ),
            ],
            h.datalist(id=f"{identifier}-networks")[(h.option(value=name) for name in self._suggest())],
            fields.show_error(error, f"{identifier}-error-networks"),
            fields.render_chips("network-remove", "networks of the sweep", self._list_chips()),
        ]

    def _render_factors(self) -> h.Node:
        factors = self.line.list_factors(tuple(self._list_modules()))
        error = self._errors.get("factors", "")
        self._page.actions |= {f"factor-{name}": partial(self._set_factor, name) for name in factors}
        identifier = f"{self._page.model_id}-error-factors"
        if not factors and not error:
            return None
        return h.div(".fields")[
            (
                h.label(".field")[
                    h.span[f"{name} (factor)"],
                    h.input(
                        {"data-input": f"factor-{name}"},
                        value=values.text,
                        placeholder="as the network has it" if values.is_optional else "64,96 or 1:6",
                        **fields.mark(error, identifier),
                    ),
                ]
                for name, values in factors.items()
            ),
            fields.show_error(error, identifier),
        ]

    def _render_compilers(self) -> h.Element:
        names = sorted(registry.list_names(registry.COMPILERS), key=lambda name: (name != BASELINE, name))
        self._page.actions |= {f"use-compiler-{name}": partial(self._switch, "compilers", name) for name in names}
        missing = {name: row["missing"] for name, row in self._rows.items() if not row["available"]}
        columns = [label for label in self.line.compilers if label not in names]
        self._page.actions["column-remove"] = lambda label: self._switch("compilers", label, False)
        identifier = f"{self._page.model_id}-error-compilers"
        return h.fieldset[
            h.legend["compilers"],
            (fields.render_check("compiler", name, name in self.line.compilers, name in missing) for name in names),
            fields.render_chips("column-remove", "compilers with a release or options", columns),
            fields.show_error(self._errors.get("compilers", ""), identifier),
            h.details[
                h.summary["a compiler with another release or other options"],
                (self._render_options(name) for name in names if name not in missing),
            ],
            fields.render_missing(missing),
        ]

    def _render_options(self, name: str) -> h.Node:
        compiler: Compiler = registry.load(registry.COMPILERS, name)
        options = fields.list_fields(compiler)
        if not options:
            return None
        typed = self._choices.setdefault(name, {})
        for option in options:
            self._page.actions[f"option-{name}-{option}"] = partial(self._set_option, name, option)
        self._page.actions["column-add"] = self._on_add_column
        return h.div(".fields", {"data-key": f"options-{name}"})[
            (
                fields.render_option(name, option, declared, typed.get(option, ""))
                for option, declared in options.items()
            ),
            h.button({"data-click": "column-add", "data-value": name}, type="button")[f"Add {name} with these"],
        ]

    def _render_devices(self) -> h.Node:
        labels = fields.list_devices()
        self._page.actions |= {f"use-device-{name}": partial(self._switch, "devices", name) for name in labels}
        if len(labels) < 2 and not self._errors.get("devices"):
            return None
        return h.fieldset[
            h.legend["devices"],
            (fields.render_check("device", name, name in self.line.devices, False) for name in labels),
            fields.show_error(self._errors.get("devices", ""), f"{self._page.model_id}-error-devices"),
        ]

    def _render_text(self, name: str) -> h.Element:
        label, placeholder, hint = _TEXTS[name]
        error = self._errors.get(name, "")
        identifier = f"{self._page.model_id}-error-{name}"
        return h.label(".field", {"data-key": name}, title=hint)[
            h.span[label],
            h.input(
                {"data-input": f"field-{name}"},
                value=getattr(self.line, name),
                placeholder=placeholder,
                **fields.mark(error, identifier),
            ),
            fields.show_error(error, identifier),
        ]

    def _render_line(self) -> h.Element:
        error = self._errors.get("line", "")
        identifier = f"{self._page.model_id}-error-line"
        return h.div[
            h.label(".field.wide")[
                h.span["the line that does the same; paste another to fill the fields"],
                h.input(
                    ".line",
                    {"data-input": "line"},
                    value=self._write(Line.to_line) if self._text is None else self._text,
                    spellcheck="false",
                    **fields.mark(error, identifier),
                ),
            ],
            fields.show_error(error, identifier),
        ]

    def _render_buttons(self) -> h.Element:
        is_ready = self.line.has_networks and not self._errors
        return h.div(".row")[
            h.button(".main", {"data-click": "run"}, type="button", disabled=not is_ready or self.is_busy)["Run"],
            h.button({"data-copy": self._write(Line.to_cell)}, type="button", disabled=not is_ready)["Copy as cell"],
            h.label(".check")[
                h.input({"data-change": "again"}, type="checkbox", checked=_AGAIN in self.line.more),
                "measure known trials again",
            ],
        ]

    def _write(self, write: Callable[[Line], str]) -> str:
        """Write the line or its cell, as far as there is one."""
        try:
            return write(self.line)
        except NgbkitError:
            return f"%{MAGIC} "

    def _on_search(self, text: str) -> None:
        self._search, self._search_error = text, ""
        self.refresh()

    def _list_chips(self) -> list[str]:
        """List the networks, with the name of the cell that has some of them."""
        names = {source: name for name, source in self._list_cells().items()}
        return [*self.line.workloads, *([names.get(self.line.source, _CELL)] if self.line.source else [])]

    def _on_add(self, text: str) -> None:
        words = text.replace(",", " ").split() if "{" not in text else [text.strip()]
        cells = self._list_cells()
        added = Line(
            workloads=tuple(word for word in words if word not in cells),
            source=next((cells[word] for word in words if word in cells), ""),
        )
        errors = added.find_errors(tuple(self._list_modules())) if words else {}
        self._search_error = errors.get("workloads", "")
        if self._search_error:
            self._search = text
        else:
            self._search = ""
            workloads = tuple(dict.fromkeys([*self.line.workloads, *added.workloads]))
            self._set(workloads=workloads, source=added.source or self.line.source)
        self.refresh()

    def _on_remove(self, word: str) -> None:
        workloads = tuple(name for name in self.line.workloads if name != word)
        is_network = word in self.line.workloads
        self._set(workloads=workloads, source=self.line.source if is_network else "")

    def _on_line(self, text: str) -> None:
        try:
            self.line = replace(Line.from_text(text), source=self.line.source)
        except NgbkitError as error:
            self._text = text
            self._errors = {"line": str(error)}
            self._page.show("compose", self._render(()))
            return
        self._text = None
        self.refresh()

    def _on_add_column(self, name: str) -> None:
        compiler: Compiler = registry.load(registry.COMPILERS, name)
        label = fields.build_label(compiler, self._choices.get(name, {}))
        self._choices[name] = {}
        self._switch("compilers", label, True)

    def _set(self, **values: Any) -> None:
        self._text = None
        self.line = replace(self.line, **values)
        self.refresh()

    def _set_again(self, is_on: bool) -> None:
        words = [word for word in self.line.more.split() if word != _AGAIN]
        self._set(more=" ".join([*words, *([_AGAIN] if is_on else [])]))

    def _switch(self, field: str, label: str, is_on: bool) -> None:
        labels = [name for name in getattr(self.line, field) if name != label]
        self._set(**{field: (*labels, label) if is_on else tuple(labels)})

    def _set_text(self, name: str, text: str) -> None:
        self._set(**{name: text.strip()})

    def _set_factor(self, name: str, text: str) -> None:
        self._set(factors=self.line.with_factor(name, text).factors)

    def _set_option(self, name: str, option: str, text: Any) -> None:
        self._choices[name][option] = str(text).strip()

    def _suggest(self) -> list[str]:
        """List the networks whose names have what is typed, those that begin with it first."""
        names = dict.fromkeys([*self._list_cells(), *self._list_modules(), *self._names])
        return fields.suggest(self._search, [name for name in names if name not in self._list_chips()])

    def _probe(self) -> None:
        """Find which compilers work, and the names of networks; it starts processes, and imports timm."""
        self._rows = {row["compiler"]: row for row in list_compilers()}
        works = [label for label in self.line.compilers if self._rows.get(label, {"available": True})["available"]]
        self.line = replace(self.line, compilers=tuple(works))
        self._names = fields.list_networks()
        self.refresh()
        preload.prepare_charts()
