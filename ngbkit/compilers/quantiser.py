"""The protocol of quantisers: a record that lowers the precision of an ONNX file for compilers that read the result.

A package adds one by an entry point; its `precision` is then a value of the option of that name::

    [project.entry-points."ngbkit.quantisers"]
    mine = "my_package.quantising:QUANTISER"      # a ngbkit.compilers.quantiser.Quantiser
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit import registry
from ngbkit.registry import find_version

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantisation:
    """The input of a quantiser, in a child process of its own.

    Parameters
    ----------
    source
        The ONNX file of the network, static in every dimension.
    target
        The file to write.
    batches
        The calibration samples: by input name, arrays of the shapes in the file. Empty if the quantiser calibrates
        nothing.
    threads
        Number of worker threads to use.
    accelerator
        The accelerator that will run the file, as in `ngbkit.compilers.base.Task`.
    """

    source: Path
    target: Path
    batches: Iterable[Mapping[str, np.ndarray]]
    threads: int
    accelerator: str = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiser:
    """A way to lower the precision of a network.

    Parameters
    ----------
    name, summary
        Its name, and one line that describes its method.
    precision
        The value of the option `precision` that selects it.
    compilers
        The compilers that read the result.
    packages
        The required distributions, whose versions are part of the recipe.
    install
        The command that installs them.
    quantise
        Writes the file of a `Quantisation`, and returns its settings as plain JSON, with the precision that it
        ``computes`` in where this processor only stores the other. Raises
        `ngbkit.errors.UnsupportedError` for a network that it cannot quantise; any other exception is a failure.
    calibrates
        Whether it needs samples.
    suffix
        The ending of the file that it writes.
    accelerators
        The kinds of accelerator on which the compilers run the result.
    """

    name: str
    summary: str
    precision: str
    compilers: tuple[str, ...]
    packages: tuple[str, ...]
    install: str
    quantise: Callable[[Quantisation], dict[str, Any]]
    calibrates: bool = True
    suffix: str = ".onnx"
    accelerators: tuple[str, ...] = ("cpu",)

    def unavailable(self, accelerator: str = "cpu") -> str:
        """Return the reason why it cannot be used here for an accelerator, with the remedy, or ``""``."""
        kind = accelerator.partition(":")[0]
        if kind not in self.accelerators:
            return f"{self.precision} by {self.name} is for {' or '.join(self.accelerators)}; this device has {kind}"
        missing = [package for package in self.packages if find_version(package) is None]
        return f"{', '.join(missing)} not installed; install with: {self.install}" if missing else ""


def list_quantisers(compiler: str) -> tuple[Quantiser, ...]:
    """List the quantisers whose results a compiler reads."""
    return tuple(each for each in _load_quantisers() if compiler in each.compilers)


@cache
def _load_quantisers() -> tuple[Quantiser, ...]:
    return tuple(sorted(registry.load_all(registry.QUANTISERS).values(), key=lambda quantiser: quantiser.precision))
