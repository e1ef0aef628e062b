"""The line of %ngbench that a sweep panel composes: a panel can do nothing that a cell cannot."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ngbkit import options
from ngbkit.commands import arguments
from ngbkit.commands.parser import build_parser, parse
from ngbkit.commands.run import COMMAND
from ngbkit.errors import NgbkitError, UnknownNameError, UsageError
from ngbkit.sweep import parsing
from ngbkit.sweep.conversion import parse_workload
from ngbkit.sweep.grid import Grid
from ngbkit.workloads import cell, labels
from ngbkit.workloads.base import Workload

MAGIC = "ngbench"
# The field of an option, by the name of its parsed value; every other option is a part of `Line.more`.
_FIELDS = {
    "compilers": "compilers",
    "batch_sizes": "batch_sizes",
    "factor": "factors",
    "devices": "devices",
    "repeats": "repeats",
    "precision": "precision",
    "out": "out",
}
# The fields whose values are valid or not whatever the others are.
_ALONE = ("compilers", "devices", "batch_sizes", "repeats", "precision", "out", "more")
# The name of a network that stands for any: it takes every option.
_ANY = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorText:
    """The values of a factor, as typed; an optional one needs none."""

    text: str
    is_optional: bool


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
    source: str = ""  # the text of a cell with networks, below its line

    @classmethod
    def from_text(cls, text: str) -> Line:
        """Parse the line of a cell, with or without the name of the magic; UsageError if it is no line of it."""
        words = parsing.split_words(text)
        if words[:1] and words[0].startswith("%"):
            if words[0].lstrip("%") != MAGIC:
                raise UsageError(f"invalid line: got {words[0]}; expected %{MAGIC} with networks and options.")
            words = words[1:]
        texts: dict[str, list[str]] = {"workloads": [], "more": []}
        rest = iter(words)
        for word in rest:
            if not word.startswith("-"):
                texts["workloads"].append(word)
                continue
            flag, value = _split_option(word)
            declared = _BY_FLAG[flag]
            if declared.takes_value and value is None:
                value = next(rest, None)
                if value is None:
                    raise UsageError(f"missing a value: {flag} is the last word. Write it, or remove {flag}.")
            name = _FIELDS.get(declared.dest, "more")
            if declared.dest != "background":
                texts.setdefault(name, []).extend(filter(None, [flag if name == "more" else "", value]))
        return cls(
            workloads=tuple(dict.fromkeys(texts.pop("workloads"))),
            compilers=tuple(
                label for text in texts.pop("compilers", ["identity"]) for label in parsing.parse_compilers(text)
            ),
            devices=tuple(label for text in texts.pop("devices", [options.get_device()]) for label in text.split(",")),
            batch_sizes=",".join(texts.pop("batch_sizes", ["1"])),
            more=" ".join(map(_quote, texts.pop("more"))),
            **{name: " ".join(values) for name, values in texts.items()},
        )

    def find_errors(self, modules: Collection[str] = ()) -> dict[str, str]:
        """Find the errors of each field by itself, by its name; under ``line`` that of all fields together."""
        lines = {name: replace(Line(workloads=(_ANY,)), **{name: getattr(self, name)}) for name in _ALONE}
        errors = {name: line._explain({_ANY, *modules}) for name, line in lines.items()}
        try:
            self._list_networks(modules)
        except NgbkitError as error:
            errors["workloads"] = str(error)
        if self.has_networks and "workloads" not in errors:
            alone = Line(workloads=self.workloads, factors=self.factors, source=self.source)
            errors["factors"] = alone._explain(modules)
        if self.has_networks and not any(errors.values()):
            errors["line"] = self._explain(modules)
        return {name: text for name, text in errors.items() if text}

    def list_factors(self, modules: Collection[str] = ()) -> dict[str, FactorText]:
        """List the values of each factor that the networks take, as typed; empty where there are none yet."""
        typed = dict(word.partition("=")[::2] for word in self.factors.split())
        factors: dict[str, FactorText] = {}
        with suppress(NgbkitError):
            for workload in self._list_networks(modules):
                for name in [name for name in workload.takes if name not in workload.factors]:
                    is_optional = name in workload.optional and (name not in factors or factors[name].is_optional)
                    factors[name] = FactorText(text=typed.get(name, ""), is_optional=is_optional)
        return factors

    @property
    def has_networks(self) -> bool:
        """True if there is anything to measure."""
        return bool(self.workloads or self.source)

    def _list_networks(self, modules: Collection[str]) -> list[Workload]:
        """List the networks of the line and of its cell; `modules` of the notebook are not exported."""
        networks = [_to_workload(word, modules) for word in self.workloads]
        if not self.source:
            return networks
        factors = [word.partition("=")[0] for word in self.factors.split()]
        # The line is the first of the cell.
        return [*networks, *cell.from_source(f"\n{self.source}", factors=factors)]

    def with_factor(self, name: str, values: str) -> Line:
        """Return the line with other values of a factor; without it if they are empty."""
        typed = dict(word.partition("=")[::2] for word in self.factors.split()) | {name: values.replace(" ", "")}
        return replace(self, factors=" ".join(f"{name}={text}" for name, text in typed.items() if text))

    def _explain(self, modules: Collection[str]) -> str:
        """Explain why it is invalid; empty if it is not."""
        try:
            self.to_text()
            self.to_sweep(modules)
        except NgbkitError as error:
            return str(error)
        return ""

    def to_words(self) -> list[str]:
        """List the words of the line, without the variable of the dataset."""
        if not self.has_networks:
            raise UsageError(
                "missing a network: pick a timm name, a block, an ONNX file, or a module or a cell of this notebook."
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
        words = (f"'{word}'" if '"' in labels.separate(word)[0] else word for word in self.to_words())
        return " ".join([*words, "-o", self.out])

    def to_cell(self) -> str:
        """Write the cell that does what the panel does."""
        return f"{self.to_line()}\n{self.source}" if self.source else self.to_line()

    def to_line(self) -> str:
        """Write the first line of that cell."""
        return f"{'%%' if self.source else '%'}{MAGIC} {self.to_text()}"

    def to_sweep(self, modules: Collection[str] = ()) -> Grid:
        """Build the sweep to count its trials, not to run it: `modules` of the notebook are not exported."""
        args = parse(build_parser(f"%{MAGIC}", COMMAND.magic_arguments), self.to_words())
        return arguments.to_sweep(args, self._list_networks(modules))


_BY_FLAG = {flag: declared for declared in COMMAND.magic_arguments for flag in declared.flags}


def _split_option(word: str) -> tuple[str, str | None]:
    """Split ``--flag=value`` and ``-fvalue``; the value is None where the next word has it."""
    flag, equals, value = word.partition("=")
    if flag in _BY_FLAG:
        return flag, value if equals else None
    if word[:2] in _BY_FLAG and not word.startswith("--"):
        return word[:2], word[2:]
    raise UnknownNameError("option", flag, _BY_FLAG)


def _quote(word: str) -> str:
    return f"'{word}'" if " " in word or not word else word


def _to_workload(word: str, modules: Collection[str]) -> Workload:
    return Workload(name=word, source="module", spec={}) if word in modules else parse_workload(word)
