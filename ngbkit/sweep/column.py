"""A column of the results: a compiler, its release, precision, memory and options, and the label that names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ngbkit import registry
from ngbkit.errors import UsageError
from ngbkit.sweep.memory import MEMORY
from ngbkit.user_text import parse_json
from ngbkit.workloads import labels
from ngbkit.workloads.precision import PRECISION

if TYPE_CHECKING:
    from ngbkit.compilers.base import Compiler, Scalar

BASELINE = "identity"
"""The compiler that every ratio is over, unless another is named."""

MARK = "†"
"""The end of the label of a column that is compared although it was timed under another contract."""

_RELEASE = "@"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A compiler with its release, if one was chosen, its precision, its memory and its options."""

    compiler: str
    release: str = ""  # of the compiler's distribution; empty for the one that is installed on the device
    precision: str = ""  # empty for the compiler's default
    memory: str = ""  # empty for that of the sweep
    options: Mapping[str, Scalar] = field(default_factory=dict, hash=False)  # without the precision and the memory
    is_marked: bool = field(default=False, compare=False)  # by the `MARK`, which makes it no other column

    @classmethod
    def parse(cls, text: str) -> Column:
        """Parse a label that a user wrote; UnknownNameError or UsageError if no compiler here has such a column."""
        head, braces = labels.separate(text.strip())
        name, sign, release = (part.strip() for part in head.partition(_RELEASE))
        column = cls(compiler=name, release=release)
        compiler = column.load_compiler()
        if sign:
            compiler.check_release(release)
        try:
            chosen = parse_json(braces or "{}")
        except UsageError as error:
            raise UsageError(
                f'the options of {text!r} are not JSON: {error}. Write them as {name}{{"option":"value"}}.'
            ) from None
        resolved = compiler.settle(chosen)
        return column._set_all({option: resolved[option] for option in chosen})

    @classmethod
    @lru_cache(maxsize=4096)
    def read(cls, label: str) -> Column:
        """Read a label of a dataset, whose compiler may be one of another machine; what is no label is a compiler."""
        text = label.removesuffix(MARK).rstrip()
        head, braces = labels.separate(text)
        try:
            options = parse_json(braces or "{}")
        except UsageError:
            head, options = text, {}
        name, _, release = head.partition(_RELEASE)
        return cls(compiler=name, release=release, is_marked=label.endswith(MARK))._set_all(options)

    def _set_all(self, settings: Mapping[str, Scalar]) -> Column:
        options = dict(settings)
        texts = (PRECISION, MEMORY)
        precision, memory = (str(options.pop(name)) if isinstance(options.get(name), str) else "" for name in texts)
        return replace(self, precision=precision, memory=memory, options=options)

    @property
    def label(self) -> str:
        """Its name in the results: ``openvino``, ``openvino@2024.3.0{"hint":"throughput"}``."""
        return labels.join(self.name, self._all_settings) + f" {MARK}" * self.is_marked

    @property
    def name(self) -> str:
        """The compiler with its release: ``openvino@2024.3.0``."""
        return f"{self.compiler}{_RELEASE}{self.release}" if self.release else self.compiler

    @property
    def settings(self) -> dict[str, Scalar]:
        """The options as its compiler gets them: the precision is one."""
        return {**self.options, **({PRECISION: self.precision} if self.precision else {})}

    @property
    def _all_settings(self) -> dict[str, Scalar]:
        return {**self.settings, **({MEMORY: self.memory} if self.memory else {})}

    @property
    def base(self) -> Column:
        """The same column in its compiler's default precision, over which a lower precision gains."""
        return replace(self, precision="")

    @property
    def is_baseline(self) -> bool:
        """Return whether it runs the program of the baseline: of the options, only `copy` changes nothing."""
        return self.name == BASELINE and self._all_settings.keys() <= {"copy"}

    def matches(self, text: str) -> bool:
        """Return whether a text names it, with the `MARK` or without, and with its options in any order."""
        return self == Column.read(text)

    def differs_from(self, other: Column) -> dict[str, str]:
        """Describe what differs from another column, by field: ``{"release": "release 1.23.2 instead of 1.19.2"}``."""
        first, second = (
            {"compiler": each.compiler, **({"release": each.release} if each.release else {}), **each._all_settings}
            for each in (self, other)
        )
        names = [name for name in {**first, **second} if first.get(name) != second.get(name)]
        return {name: f"{name} {first.get(name, 'default')} instead of {second.get(name, 'default')}" for name in names}

    def load_compiler(self) -> Compiler:
        """Load its compiler; UnknownNameError if this machine has none of that name."""
        compiler: Compiler = registry.load(registry.COMPILERS, self.compiler)
        return compiler
