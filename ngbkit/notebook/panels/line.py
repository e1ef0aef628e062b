"""What a sweep panel asks for: the line of a magic, so that a panel can do nothing that a cell cannot."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ngbkit import options
from ngbkit.commands import arguments
from ngbkit.commands.arguments import Parser
from ngbkit.errors import UsageError
from ngbkit.notebook.magics import TABLES
from ngbkit.sweep import parsing
from ngbkit.sweep.grid import Sweep
from ngbkit.workloads.base import Workload

MAGIC = "ngbench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The words of ``%ngbench``, by what they are about.

    Parameters
    ----------
    workloads
        As they are typed: ``resnet18``, ``blocks.conv``, ``model.onnx``, the name of a module of the notebook.
    compilers
        Labels, with their options.
    devices
        Labels.
    batch_sizes
        ``1,4,8`` or ``1:4``.
    factors
        As they are typed: ``width=64,96 depth=1:6``.
    repeats, precision
        One of them, as it is typed; both empty for the default.
    out
        The variable that the dataset is bound to.
    more
        Further options, as they are typed.
    """

    workloads: tuple[str, ...] = ()
    compilers: tuple[str, ...] = ("identity",)
    devices: tuple[str, ...] = field(default_factory=lambda: (options.device(),))
    batch_sizes: str = "1"
    factors: str = ""
    repeats: str = ""
    precision: str = ""
    out: str = "ds"
    more: str = ""

    def words(self) -> list[str]:
        """The words of the line, without the name that the dataset is bound to.

        Raises
        ------
        UsageError
            There is no workload, or repeats and precision are both given.
        """
        if not self.workloads:
            raise UsageError("pick a network: a timm name, a block, an ONNX file, or a module of this notebook.")
        if self.repeats and self.precision:
            raise UsageError("repeats and precision exclude each other: empty one of them.")
        found = [*self.workloads, "-c", ",".join(self.compilers), "-b", self.batch_sizes.replace(" ", "")]
        if self.devices != (options.device(),):
            found += ["-d", ",".join(self.devices)]
        for factor in self.factors.split():
            found += ["--factor", factor]
        found += ["-r", self.repeats.strip()] if self.repeats.strip() else []
        found += ["--precision", self.precision.strip()] if self.precision.strip() else []
        return [*found, *parsing.split_words(self.more)]

    def text(self) -> str:
        """The line after the name of the magic.

        Raises
        ------
        UsageError
            As for `words`; `out` is no name of a variable.
        """
        if not self.out.isidentifier():
            raise UsageError(f"{self.out!r} is no name of a variable for the dataset; ds is one.")
        return " ".join([*self.words(), "-o", self.out])

    def cell(self) -> str:
        """The cell that does what the panel would."""
        return f"%{MAGIC} {self.text()}"

    def sweep(self, modules: Collection[str] = ()) -> Sweep:
        """The sweep that it asks for, to be counted and not to be run: modules of the notebook are not exported for it.

        Parameters
        ----------
        modules
            The variables of the notebook that hold one.

        Raises
        ------
        UsageError
            Something that it asks for is not valid.
        """
        parser = Parser(prog=f"%{MAGIC}", add_help=False)
        for argument in TABLES[MAGIC]:
            parser.add_argument(*argument.flags, **argument.keywords)
        asked = arguments.parse(parser, self.words())
        return arguments.to_sweep(asked, [_counted(one, modules) for one in asked.workloads])


def _counted(word: str, modules: Collection[str]) -> str | Workload:
    return Workload(name=word, source="module", spec={}) if word in modules else word
