"""An option of a sweep: one declaration, from which its checks, documentation, JSON, flags and words follow.

A field of `ngbkit.sweep.grid.Grid` is an option. Its annotation checks the value and says how a shell parses it, its
default is the signature's, and its metadata, made by `option`, documents it::

    threads: PositiveCount | None = field(
        default=None,
        metadata=option("Worker threads of every runtime. Default: one a core of the device's engine."),
    )
"""

from __future__ import annotations

import argparse
import re
import textwrap
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import attrs

from ngbkit.sweep.argument import Argument

if TYPE_CHECKING:
    from attrs import AttrsInstance

_WIDTH = 116
_DEFAULT = re.compile(r" Default: (.*?)(?:;|\. |\.$)")
_NAME = re.compile(r"(?<!`)`([a-z_]+)`")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOption:
    """The form in which people read and write a field of a sweep: its documentation, its argument, and its words."""

    doc: str
    argument: Argument
    parse: Callable[[Any], Any]
    format: Callable[[Any], list[str]]
    always: bool
    in_shell: bool


def option(
    doc: str,
    *flags: str,
    help: str = "",
    completes: str = "",
    parse: Callable[[Any], Any] | None = None,
    format: Callable[[Any], list[str]] | None = None,
    always: bool = False,
    in_shell: bool = True,
    **settings: Any,
) -> dict[str, Callable[[str, Any], SweepOption]]:
    """Declare how people read and write a field; the metadata of an attrs field.

    The flag is by default that of the name, and the help the first sentence of `doc` with its default. `parse` turns
    the value that argparse leaves into the field's; `format` turns the field's value into one text for each time that
    the flag is written, empty for a flag without a value. `always`: also where it has its default. `in_shell`: whether
    a line can set it, too, and not only Python.
    """

    def build(name: str, annotation: Any) -> SweepOption:
        has_long = any(not flag.startswith("-") or flag.startswith("--") for flag in flags)
        argument = Argument(
            flags=flags if has_long else (*flags, f"--{name.replace('_', '-')}"),
            help=help or _build_help(doc),
            completes=completes,
            settings=settings if "action" in settings else {**_find_settings(annotation), **settings},
        )
        switch = None if argument.takes_value else (lambda _: [""])
        return SweepOption(
            doc=doc,
            argument=argument,
            parse=parse or (lambda value: value),
            format=format or switch or (lambda value: [f"{value:g}" if isinstance(value, float) else str(value)]),
            always=always,
            in_shell=in_shell,
        )

    return {"option": build}


def options_of(sweep: type[AttrsInstance]) -> dict[str, SweepOption]:
    """The options of a kind of sweep by the name of their field, in the order of its signature."""
    return {field.name: field.metadata["option"](field.name, field.type) for field in attrs.fields(sweep)}


def _build_help(doc: str) -> str:
    """Build the help of an argument: the first sentence of its documentation, and its default."""
    sentence = re.split(r"\. |\.$", doc)[0]
    default = _DEFAULT.search(doc)
    text = f"{sentence[0].lower()}{sentence[1:]}{f' (default: {default[1]})' if default else ''}"
    text = _NAME.sub(lambda name: f"--{name[1].replace('_', '-')}", text)
    return text.replace("``", "").replace("%", "%%")


def _find_settings(annotation: Any) -> dict[str, Any]:
    """Find how argparse parses a value of that type; one of several values by itself."""
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    if get_origin(annotation) in (Union, types.UnionType):
        return _find_settings(kinds[0])
    if get_origin(annotation) is Literal:
        return {"choices": get_args(annotation)}
    if annotation is bool:
        return {"action": "store_true"}
    plain = kinds[0] if get_origin(annotation) is Annotated else annotation
    settings: dict[type, dict[str, Any]] = {int: {"type": int, "metavar": "N"}, float: {"type": float}}
    return settings.get(plain, {})


def _list_typed(sweep: type[AttrsInstance]) -> dict[str, SweepOption]:
    """List the options that a line can set."""
    return {name: option for name, option in options_of(sweep).items() if option.in_shell}


def arguments_of(sweep: type[AttrsInstance]) -> tuple[Argument, ...]:
    """The arguments of a command that measures a sweep, its positional one first."""
    return tuple(option.argument for option in _list_typed(sweep).values())


def parse_options(sweep: type[AttrsInstance], args: argparse.Namespace) -> dict[str, Any]:
    """The keywords of a sweep that parsed arguments ask for; an argument that is not used has none."""
    typed = _list_typed(sweep)
    values = {name: getattr(args, option.argument.dest) for name, option in typed.items()}
    # 0 is a value: only what argparse leaves for an unused argument has none.
    used = {name: value for name, value in values.items() if not (value is None or value is False or value == [])}
    return {name: typed[name].parse(value) for name, value in used.items()}


def format_options(sweep: AttrsInstance, defaults: AttrsInstance) -> list[str]:
    """Format the words that ask for a sweep again, without its positional arguments and without defaults."""
    words: list[str] = []
    for name, option in _list_typed(type(sweep)).items():
        value = getattr(sweep, name)
        flag = option.argument.flags[0]
        if not flag.startswith("-") or value is None:
            continue
        if option.always or value != getattr(defaults, name):
            words += [word for text in option.format(value) for word in (flag, text) if word]
    return words


def format_parameters(sweep: type[AttrsInstance]) -> str:
    """The section of a docstring that documents every option."""
    lines = ["Parameters", "----------"]
    for name, option in options_of(sweep).items():
        lines += [name, textwrap.indent(textwrap.fill(option.doc, _WIDTH), "    ")]
    return "\n".join(lines)
