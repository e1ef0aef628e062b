"""The compilers that there are, as rows: what each needs and has, what it measures on, and its options."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Any

from ngbkit import registry
from ngbkit.commands.arguments import Argument
from ngbkit.commands.listing.answer import Answer
from ngbkit.commands.listing.layout import Row
from ngbkit.compilers.base import Compiler
from ngbkit.registry import version
from ngbkit.sweep.trials import split_labels

#: The words of the verb that is about compilers.
COMPILERS: tuple[Argument, ...] = (
    Argument(
        flags=("names",),
        help="all there is to know of these (default: a line on each compiler)",
        completes="compiler",
        settings={"nargs": "*", "metavar": "NAME"},
    ),
)
_CANNOT_TUNE = next(field.default for field in fields(Compiler) if field.name == "tunes")
_FORMS = {"module": "a torch module", "onnx": "an ONNX file"}


def see_to_compilers(asked: argparse.Namespace) -> Answer:
    """Carry out the verb that is about compilers, with the words `COMPILERS`.

    Raises
    ------
    UnknownNameError
        There is no compiler of such a name.
    """
    rows = list_compilers(asked.names)
    written = describe_compilers(rows) if asked.names else write_compilers(rows)
    return Answer(json=rows, rows=written, empty="There is no compiler.", sheets=bool(asked.names))


def list_compilers(names: Sequence[str] = ()) -> list[Row]:
    """Every compiler, or those of that name, as plain JSON.

    Returns
    -------
    list of dict
        ``compiler``, ``summary``; ``packages``: the version of each that it needs, or None; ``accelerators``: why it
        does not work on each that it is for, or ``""``; ``available``: whether it works on any; ``missing``: why it
        works on none, with the way out; ``install``; ``options``: ``default``, ``choices`` and ``help`` of each;
        ``forms``; ``caches`` and ``tunes``: whether it keeps what it compiled, and can search for fast code.

    Raises
    ------
    UnknownNameError
        There is no compiler of such a name.
    """
    wanted = dict.fromkeys(label for name in names for label in split_labels(name))
    found = {name: registry.load(registry.COMPILERS, name) for name in wanted} or registry.load_all(registry.COMPILERS)
    compilers: list[Compiler] = list(found.values())
    reasons = _ask(compilers)
    return [_compiler(compiler, reasons[compiler.name]) for compiler in compilers]


def write_compilers(rows: Iterable[Row]) -> list[Row]:
    """The same in a line each, for a table."""
    return [
        {
            "compiler": row["compiler"],
            "measures on": _write_accelerators(row),
            "packages": _write_packages(row["packages"]),
            "options": {name: _write_value(option["default"]) for name, option in row["options"].items()},
            "is": f"{row['summary']}: {row['missing']}" if row["missing"] else row["summary"],
        }
        for row in rows
    ]


def describe_compilers(rows: Iterable[Row]) -> list[Row]:
    """The same with all there is to know, for a sheet each."""
    return [dict(_described(row)) for row in rows]


def _ask(compilers: Sequence[Compiler]) -> dict[str, dict[str, str]]:
    """Why each does not work on each of its accelerators: all are asked at once, for some start a process to look."""
    questions = [(compiler, kind) for compiler in compilers for kind in compiler.accelerators]
    with ThreadPoolExecutor(max_workers=max(1, len(questions)), thread_name_prefix="ngbkit-probe") as pool:
        answers = list(pool.map(lambda question: _reason(*question), questions))
    reasons: dict[str, dict[str, str]] = {compiler.name: {} for compiler in compilers}
    for (compiler, kind), answer in zip(questions, answers, strict=True):
        reasons[compiler.name][kind] = answer
    return reasons


def _reason(compiler: Compiler, kind: str) -> str:
    try:
        return compiler.unavailable(kind)
    except Exception as error:  # noqa: BLE001  a stranger's plugin may raise anything
        return f"whether it works on {kind} cannot be told: {type(error).__name__}: {error}"


def _compiler(compiler: Compiler, reasons: Mapping[str, str]) -> Row:
    available = "" in reasons.values()
    return {
        "compiler": compiler.name,
        "summary": compiler.summary,
        "packages": {package: version(package) for package in compiler.packages},
        "accelerators": dict(reasons),
        "available": available,
        "missing": "" if available else "; ".join(dict.fromkeys(reasons.values())),
        "install": compiler.install,
        "options": {
            name: {"default": option.default, "choices": list(option.choices), "help": option.help}
            for name, option in compiler.options.items()
        },
        "forms": {form: list(preload) for form, preload in compiler.forms.items()},
        "caches": compiler.caches,
        "tunes": compiler.tunes is not _CANNOT_TUNE,
    }


def _described(row: Row) -> Iterator[tuple[str, Any]]:
    yield "compiler", row["compiler"]
    yield "is", row["summary"]
    yield "packages", _write_packages(row["packages"])
    if None in row["packages"].values():
        yield "measures on", list(row["accelerators"])
        yield "get it by", row["install"]
    else:
        for kind, reason in row["accelerators"].items():
            yield f"on {kind}", reason or "works here"
    yield "compiles from", ", else from ".join(_FORMS[form] for form in row["forms"])
    yield "keeps", _write_kept(row)
    for name, option in row["options"].items():
        yield f"option {name}", _write_option(option)


def _write_accelerators(row: Row) -> str:
    works = [kind for kind, reason in row["accelerators"].items() if not reason]
    others = [kind for kind, reason in row["accelerators"].items() if reason]
    return ", ".join([*works, *(f"not {kind}" for kind in others)])


def _write_packages(packages: Mapping[str, str | None]) -> str:
    return ", ".join(f"{package} {found or 'is missing'}" for package, found in packages.items())


def _write_kept(row: Row) -> str:
    kept = ["what it compiled"] * row["caches"] + ["what its tuning found"] * row["tunes"]
    return f"{' and '.join(kept)}, for the next run; `ngbkit cache` lists it" if kept else "nothing between runs"


def _write_option(option: Mapping[str, Any]) -> str:
    text = f"{_write_value(option['default'])} by default"
    others = [_write_value(choice) for choice in option["choices"] if choice != option["default"]]
    if others:
        text += f", or {', '.join(others)}"
    return f"{text}: {option['help']}"


def _write_value(value: Any) -> str:
    """As it is written in the braces after a compiler's name."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if value != "" else '""'
