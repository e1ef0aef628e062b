"""The protocol of a simplifier, and its run in a process of its own: it may crash or hang, and harms nothing else.

A simplifier is a value with an entry point in the group ``ngbkit.simplifiers``::

    SIMPLIFIER = Simplifier(name="mine", summary="…", packages=("my-tool",), install="pip install my-tool",
                            simplify=simplify)

    def simplify(source: Path, target: Path) -> None: ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ngbkit import registry
from ngbkit.errors import UnknownNameError, UnsupportedError
from ngbkit.requirements import find_problem
from ngbkit.workloads.subprocesses import run_module

ALL = "all"
"""The word for every simplifier."""

LIMIT_S = 300.0
"""A simplifier that takes longer is stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simplifier:
    """A tool that rewrites an ONNX file without a measurement.

    Parameters
    ----------
    name, summary
        The name, and one line on the effect.
    packages
        The distributions that it needs; the version of the first is that of the tool.
    install
        The command that installs them.
    simplify
        Reads one ONNX file, static in every dimension, and writes an equivalent one. Called in a process of its own.
    """

    name: str
    summary: str
    packages: tuple[str, ...]
    install: str
    simplify: Callable[[Path, Path], None]

    @property
    def version(self) -> str:
        """The version of the tool; empty if it is not installed."""
        return registry.find_version(self.packages[0]) or ""

    @property
    def problem(self) -> str:
        """The packages that are missing or too old, and the command that installs them; empty if there are none."""
        return find_problem(self.packages, self.install)


def resolve(names: Iterable[str]) -> list[Simplifier]:
    """Return the simplifiers of these names, each once; the name `ALL` is every one.

    UnknownNameError: there is no such simplifier. UnsupportedError: a simplifier that is called by its name is not
    installed.
    """
    available: dict[str, Simplifier] = registry.load_all(registry.SIMPLIFIERS)
    selected: dict[str, Simplifier] = {}
    for name in names:
        if name == ALL:
            selected |= available
        elif name not in available:
            raise UnknownNameError("simplifier", name, [ALL, *available])
        elif available[name].problem:
            raise UnsupportedError(f"invalid simplifier: got {name}; {available[name].problem}")
        else:
            selected[name] = available[name]
    return list(selected.values())


def simplify(simplifier: Simplifier, source: Path, target: Path, limit_s: float = LIMIT_S) -> str:
    """Write the simplified model of `source` to `target`; return why there is none, or an empty text."""
    if simplifier.problem:
        return simplifier.problem
    arguments = [simplifier.name, str(source), str(target)]
    problem = run_module("ngbkit.predict.optimizer.simplifiers.child", arguments, limit_s, own_session=True)
    if problem:
        return problem
    return "" if target.is_file() else "failed: it wrote no file"
