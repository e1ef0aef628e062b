"""The fields of a form: the networks and devices to choose from, and boxes, options and errors as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import htpy as h

from ngbkit import options, registry
from ngbkit.cluster import devices
from ngbkit.compilers.base import Compiler, Option
from ngbkit.errors import NgbkitError, translate_commands
from ngbkit.sweep.column import Column

_FIELD = "release"
_MOST_SUGGESTIONS = 12


def suggest(typed: str, names: Iterable[str]) -> list[str]:
    """List the first names that have what is typed, those that begin with it before others."""
    text = typed.strip().lower()
    matches = [name for name in names if text in name.lower()]
    begin = (name for name in matches if name.lower().startswith(text))
    others = (name for name in matches if not name.lower().startswith(text))
    return list(islice(chain(begin, others), _MOST_SUGGESTIONS))


def list_networks() -> list[str]:
    """List the ONNX files of the present folder, and the names that the sources of networks know."""
    names = (name for source in registry.load_all(registry.WORKLOADS).values() for name in source.complete(""))
    return [*sorted(path.name for path in Path().glob("*.onnx")), *names]


def list_devices() -> list[str]:
    """List the devices of the devices file; the default device where that cannot be read."""
    try:
        return list(devices.load())
    except (NgbkitError, OSError):  # the command that uses the devices file reports what is invalid in it
        return [options.get_device()]


def list_fields(compiler: Compiler) -> dict[str, Option]:
    """List the fields of a column of a compiler: its release, if it can have one, and its options."""
    help_text = f"of {compiler.distribution}, such as 1.23.2; empty for the one that is installed"
    release = {_FIELD: Option(default="", help=help_text)} if compiler.distribution else {}
    return {**release, **compiler.list_options()}


def build_label(compiler: Compiler, texts: Mapping[str, str]) -> str:
    """Build the label of a column from the typed texts of its fields; UsageError for an invalid one."""
    fields = list_fields(compiler)
    chosen = {name: parse_option(fields[name], text) for name, text in texts.items() if text}
    release = chosen.pop(_FIELD, "")
    return Column.parse(Column(compiler=compiler.name, release=release, options=chosen).label).label


def parse_option(declared: Option, text: str) -> Any:
    """Convert a typed value to the type of an option; `Column` reports what is none."""
    if isinstance(declared.default, bool):
        return text == "true"
    try:
        return type(declared.default)(text)
    except ValueError:
        return text


def render_option(compiler: str, name: str, declared: Option, typed: str) -> h.Element:
    """Render the field of an option of a compiler."""
    action = f"option-{compiler}-{name}"
    choices = declared.choices or (("true", "false") if isinstance(declared.default, bool) else ())
    default = str(declared.default).lower() if isinstance(declared.default, bool) else str(declared.default)
    control = (
        h.select({"data-change": action})[
            h.option(value="", selected=not typed)[f"{default} (default)"],
            (
                h.option(value=str(choice), selected=str(choice) == typed)[str(choice)]
                for choice in choices
                if str(choice) != default
            ),
        ]
        if choices
        else h.input({"data-input": action}, value=typed, placeholder=default)
    )
    return h.label(".field", title=declared.help)[h.span[f"{compiler}: {name}"], control]


def render_chips(action: str, title: str, words: Sequence[str]) -> h.Element:
    """Render words as chips that a press removes."""
    return h.ul(".chips", {"data-arrows": "", "aria-label": title}, hidden=not words)[
        (
            h.li({"data-key": word})[
                h.button(
                    ".chip", {"data-click": action, "data-value": word, "aria-label": f"remove {word}"}, type="button"
                )[word]
            ]
            for word in words
        )
    ]


def render_check(kind: str, name: str, checked: bool, disabled: bool) -> h.Element:
    """Render a box that takes a compiler or a device."""
    return h.label(".check", {"data-key": name})[
        h.input({"data-change": f"use-{kind}-{name}"}, type="checkbox", checked=checked, disabled=disabled), name
    ]


def render_missing(missing: Mapping[str, str]) -> h.Node:
    """Render the compilers that do not work here, with what installs them, folded."""
    if not missing:
        return None
    return h.details[
        h.summary[f"not available here: {', '.join(missing)}"],
        h.ul[(h.li[h.b[name], f": {translate_commands(reason, 'magic')}"] for name, reason in missing.items())],
    ]


def mark(error: str, identifier: str) -> dict[str, Any]:
    """Build the attributes of a field that tell of its error."""
    return {"aria_invalid": "true", "aria_describedby": identifier} if error else {}


def show_error(error: str, identifier: str) -> h.Element:
    """Render the error of a field, which is empty without any."""
    return h.div(".error", id=identifier)[translate_commands(error, "magic")]
