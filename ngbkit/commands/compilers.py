"""``ngbkit compilers`` and ``%ngcompilers``: the packages, accelerators and options of each compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import cache
from typing import Any

from ngbkit import registry
from ngbkit.commands.answer import Answer
from ngbkit.commands.command import Call, Command, Magic
from ngbkit.compilers.base import KINDS, WRITERS, Compiler
from ngbkit.registry import find_version
from ngbkit.sweep.argument import argument
from ngbkit.sweep.trials import split_labels
from ngbkit.tabular import Row
from ngbkit.workloads.subprocesses import run_module

_CANNOT_TUNE = next(field.default for field in fields(Compiler) if field.name == "tunes")
_MOST_IMPORT_S = 300.0
_KINDS = {"file": "ONNX files", "program": "exported modules", "module": "modules", "timm": "networks of timm"}
_FORMS = {"module": "a torch module", "onnx": "an ONNX file"}


def answer_compilers(call: Call) -> Answer:
    """List the compilers that a call names, or all."""
    names = call.args.names
    rows = list_compilers(names)
    described = describe_compilers(rows) if names else summarize_compilers(rows)
    return Answer.of_rows(described, "There is no compiler.", json=rows, form="sheets" if names else "table")


DETAILS = """
::

    %ngcompilers
    %ngcompilers openvino
"""
COMMAND = Command(
    name="compilers",
    help="List the compilers: the installed ones, and the command that installs each other; or all details of some.",
    arguments=(
        argument(
            "names NAME", "all details of these (default: one line for each compiler)", nargs="*", completes="compiler"
        ),
    ),
    run=answer_compilers,
    magic=Magic(name="ngcompilers", details=DETAILS),
)


def list_compilers(names: Sequence[str] = ()) -> list[Row]:
    """Every compiler, or each of that name, as plain JSON.

    ``packages`` has the version of each package that it needs, or None; ``accelerators`` why it does not work on each
    that it supports, or ``""``; ``networks`` the same for each kind of network that it compiles, with the remedy; and
    ``missing`` why it works on none. Only the packages of `names` are imported to try them.
    """
    labels = dict.fromkeys(label for name in names for label in split_labels(name))
    compilers: list[Compiler] = [registry.load(registry.COMPILERS, label) for label in labels]
    compilers = compilers or list(registry.load_all(registry.COMPILERS).values())
    reasons = _probe(compilers)
    try_imports = cache(_try_imports if names else lambda _modules: "")
    return [_to_row(each, reasons[each.name], _find_kind_problems(each, try_imports)) for each in compilers]


def summarize_compilers(rows: Iterable[Row]) -> list[Row]:
    """One line for each, as a table."""
    return [
        {
            "compiler": row["compiler"],
            "measures on": _format_accelerators(row),
            "packages": _format_packages(row["packages"]),
            "options": {name: _format_value(option["default"]) for name, option in row["options"].items()},
            "is": f"{row['summary']}: {reason}" if (reason := _find_gap(row)) else row["summary"],
        }
        for row in rows
    ]


def describe_compilers(rows: Iterable[Row]) -> list[Row]:
    """All details of each, as a sheet."""
    return [dict(_describe(row)) for row in rows]


def _probe(compilers: Sequence[Compiler]) -> dict[str, dict[str, str]]:
    """Explain why each does not work on each of its accelerators; some probe in a process of their own, all at once."""
    questions = [(compiler, kind) for compiler in compilers for kind in compiler.accelerators]
    with ThreadPoolExecutor(max_workers=max(1, len(questions)), thread_name_prefix="ngbkit-probe") as pool:
        reasons = pool.map(lambda question: _find_reason(*question), questions)
        return {compiler.name: {kind: next(reasons) for kind in compiler.accelerators} for compiler in compilers}


def _find_reason(compiler: Compiler, kind: str) -> str:
    try:
        return compiler.unavailable(kind)
    except Exception as error:  # noqa: BLE001  a plugin may raise anything
        return f"unknown on {kind}: its probe raised {type(error).__name__}: {error}"


def _find_kind_problems(compiler: Compiler, try_imports: Callable[[tuple[str, ...]], str]) -> dict[str, str]:
    """Find why it does not work for each kind of network, and for those of timm, if that is here."""
    problems: dict[str, str] = {}
    for kind in KINDS:
        if form := compiler.choose_form(kind):
            modules = (*compiler.forms[form], *(WRITERS[kind] if form == "onnx" else ()))
            problems[kind] = compiler.find_package_problem(kind) or try_imports(modules)
    if "module" in problems and find_version("timm"):
        problems["timm"] = problems["module"] or try_imports(("timm",))
    return problems


def _try_imports(modules: tuple[str, ...]) -> str:
    return run_module("ngbkit.requirements", modules, _MOST_IMPORT_S).removeprefix("failed: ")


def _to_row(compiler: Compiler, reasons: Mapping[str, str], problems: Mapping[str, str]) -> Row:
    works = "" in reasons.values()
    available = works and "" in problems.values()
    return {
        "compiler": compiler.name,
        "summary": compiler.summary,
        "packages": {package: find_version(package) for package in compiler.packages},
        "accelerators": dict(reasons),
        "available": available,
        "networks": dict(problems),
        "missing": "" if available else "; ".join(dict.fromkeys((problems if works else reasons).values())),
        "install": compiler.install,
        "options": {
            name: {"default": option.default, "choices": list(option.choices), "help": option.help}
            for name, option in compiler.list_options().items()
        },
        "forms": {form: list(preload) for form, preload in compiler.forms.items()},
        "caches": compiler.caches,
        "tunes": compiler.tunes is not _CANNOT_TUNE,
    }


def _describe(row: Row) -> Iterator[tuple[str, Any]]:
    yield "compiler", row["compiler"]
    yield "is", row["summary"]
    yield "packages", _format_packages(row["packages"])
    if None in row["packages"].values():
        yield "measures on", list(row["accelerators"])
        yield "install it by", row["install"]
    else:
        for kind, reason in row["accelerators"].items():
            yield f"on {kind}", reason or _format_kinds(row["networks"])
    yield "compiles from", ", else from ".join(_FORMS[form] for form in row["forms"])
    items = ["compiled networks"] * row["caches"] + ["results of tuning"] * row["tunes"]
    listed = f"{' and '.join(items)}, for the next run; `ngbkit cache` lists them"
    yield "keeps", listed if items else "nothing between runs"
    for name, option in row["options"].items():
        yield f"option {name}", _format_option(option)


def _format_accelerators(row: Row) -> str:
    works = [kind for kind, reason in row["accelerators"].items() if not reason]
    others = [kind for kind, reason in row["accelerators"].items() if reason]
    return ", ".join([*works, *(f"not {kind}" for kind in others)])


def _find_gap(row: Row) -> str:
    return row["missing"] or (_format_kinds(row["networks"]) if any(row["networks"].values()) else "")


def _format_kinds(problems: Mapping[str, str]) -> str:
    """Format the kinds of network that it compiles, and why it compiles no others."""
    kinds: dict[str, list[str]] = {}
    for kind, problem in problems.items():
        kinds.setdefault(problem, []).append(_KINDS[kind])
    works = [f"works for {', '.join(kinds.pop(''))}"] if "" in kinds else []
    return "; ".join([*works, *(f"not for {', '.join(names)}: {problem}" for problem, names in kinds.items())])


def _format_packages(packages: Mapping[str, str | None]) -> str:
    return ", ".join(f"{package} {version or 'is missing'}" for package, version in packages.items())


def _format_option(option: Mapping[str, Any]) -> str:
    text = f"{_format_value(option['default'])} by default"
    others = [_format_value(choice) for choice in option["choices"] if choice != option["default"]]
    if others:
        text += f", or {', '.join(others)}"
    return f"{text}: {option['help']}"


def _format_value(value: Any) -> str:
    """As in the braces after a compiler's name."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if value != "" else '""'
