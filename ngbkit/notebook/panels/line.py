"""The line of %ngbench that a sweep panel composes: a panel can do nothing that a cell cannot."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ngbkit import options
from ngbkit.commands import arguments
from ngbkit.commands.parser import build_parser, parse
from ngbkit.commands.run import COMMAND
from ngbkit.errors import UsageError
from ngbkit.sweep import parsing
from ngbkit.sweep.grid import Grid
from ngbkit.workloads.base import Workload

MAGIC = "ngbench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The arguments of ``%ngbench``, as typed."""

    workloads: tuple[str, ...] = ()  # resnet18, blocks.conv, model.onnx, or the name of a module of the notebook
    compilers: tuple[str, ...] = ("identity",)  # labels, with their options
    devices: tuple[str, ...] = field(default_factory=lambda: (options.get_device(),))
    batch_sizes: str = "1"  # 1,4,8 or 1:4
    factors: str = ""  # width=64,96 depth=1:6
    repeats: str = ""
    precision: str = ""  # excludes repeats; both empty: the default
    out: str = "ds"  # the variable to bind the dataset to
    more: str = ""  # further options

    def to_words(self) -> list[str]:
        """List the words of the line, without the variable of the dataset."""
        if not self.workloads:
            raise UsageError(
                "missing a network: pick a timm name, a block, an ONNX file, or a module of this notebook."
            )
        if self.repeats and self.precision:
            raise UsageError("samples and precision exclude each other: empty one of them.")
        words = [*self.workloads, "-c", ",".join(self.compilers), "-b", self.batch_sizes.replace(" ", "")]
        if self.devices != (options.get_device(),):
            words += ["-d", ",".join(self.devices)]
        for factor in self.factors.split():
            words += ["--factor", factor]
        words += ["-r", self.repeats.strip()] if self.repeats.strip() else []
        words += ["--precision", self.precision.strip()] if self.precision.strip() else []
        return [*words, *parsing.split_words(self.more)]

    def to_text(self) -> str:
        """Write the line after the name of the magic."""
        if not self.out.isidentifier():
            raise UsageError(f"invalid variable name for the dataset: got {self.out!r}; expected a name such as ds.")
        words = (f"'{word}'" if '"' in word.partition("{")[0] else word for word in self.to_words())
        return " ".join([*words, "-o", self.out])

    def to_cell(self) -> str:
        """Write the cell that does what the panel does."""
        return f"%{MAGIC} {self.to_text()}"

    def to_sweep(self, modules: Collection[str] = ()) -> Grid:
        """Build the sweep to count its trials, not to run it: `modules` of the notebook are not exported."""
        args = parse(build_parser(f"%{MAGIC}", COMMAND.magic_arguments), self.to_words())
        return arguments.to_sweep(args, [_to_workload(word, modules) for word in args.workloads])


def _to_workload(word: str, modules: Collection[str]) -> str | Workload:
    return Workload(name=word, source="module", spec={}) if word in modules else word
