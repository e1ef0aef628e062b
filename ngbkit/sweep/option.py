"""An option of a sweep: one declaration, from which its checks, documentation, JSON, flags and words follow.

A field of `ngbkit.sweep.grid.Grid` is an option. Its converter checks the value, its default is the signature's, and
its metadata, made by `option`, says how people read and write it::

    threads: int | None = field(
        default=None,
        converter=lambda value: optional(count, "threads", value),
        metadata=option(
            "Worker threads of every runtime. Default: one a core that the device's engine may use.",
            "--threads",
            metavar="N",
            type=int,
            help="worker threads of every runtime (default: one a core)",
        ),
    )
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import attrs

from ngbkit.sweep.argument import Argument

if TYPE_CHECKING:
    from ngbkit.sweep.grid import Grid

_WIDTH = 116


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """How people read and write a field of a sweep: its documentation, its argument, and its words."""

    doc: str
    argument: Argument
    parse: Callable[[Any], Any]
    format: Callable[[Any], list[str]]
    always: bool


def option(
    doc: str,
    *flags: str,
    help: str,
    completes: str = "",
    parse: Callable[[Any], Any] | None = None,
    format: Callable[[Any], list[str]] | None = None,
    always: bool = False,
    **settings: Any,
) -> dict[str, Option]:
    """Declare how people read and write a field; the metadata of an attrs field.

    `parse` turns the value that argparse leaves into the field's; `format` turns the field's value into one text for
    each time that the flag is written, empty for a flag without a value. `always`: also where it has its default.
    """
    declared = Argument(flags=flags, help=help, completes=completes, settings=settings)
    switch = (lambda _: [""]) if not declared.takes_value else None
    return {
        "option": Option(
            doc=doc,
            argument=declared,
            parse=parse or (lambda value: value),
            format=format or switch or (lambda value: [f"{value:g}" if isinstance(value, float) else str(value)]),
            always=always,
        )
    }


def options_of(sweep: type[Grid]) -> dict[str, Option]:
    """The options of a kind of sweep by the name of their field, in the order of its signature."""
    return {field.name: field.metadata["option"] for field in attrs.fields(sweep)}


def arguments_of(sweep: type[Grid]) -> tuple[Argument, ...]:
    """The arguments of a command that measures a sweep, its positional one first."""
    return tuple(option.argument for option in options_of(sweep).values())


def parse_options(sweep: type[Grid], args: argparse.Namespace) -> dict[str, Any]:
    """The keywords of a sweep that parsed arguments ask for; an argument that is not used has none."""
    values = {name: getattr(args, option.argument.dest) for name, option in options_of(sweep).items()}
    # 0 is a value: only what argparse leaves for an unused argument has none.
    used = {name: value for name, value in values.items() if not (value is None or value is False or value == [])}
    return {name: options_of(sweep)[name].parse(value) for name, value in used.items()}


def format_options(sweep: Grid) -> list[str]:
    """The words that ask for a sweep again, without its positional arguments and without defaults."""
    defaults = type(sweep)(workloads=sweep.workloads, factors=sweep.factors, precision=sweep.precision)
    words: list[str] = []
    for name, option in options_of(type(sweep)).items():
        value = getattr(sweep, name)
        flag = option.argument.flags[0]
        if not flag.startswith("-") or value is None:
            continue
        if option.always or value != getattr(defaults, name):
            words += [word for text in option.format(value) for word in (flag, text) if word]
    return words


def format_parameters(sweep: type[Grid]) -> str:
    """The section of a docstring that documents every option."""

    def lines() -> Iterator[str]:
        yield from ("Parameters", "----------")
        for name, option in options_of(sweep).items():
            yield name
            yield textwrap.indent(textwrap.fill(option.doc, _WIDTH), "    ")

    return "\n".join(lines())
