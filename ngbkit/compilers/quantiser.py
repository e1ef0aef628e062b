"""The protocol of quantisers: a record that writes a network in a lower precision, for compilers that run the result.

A package adds one by an entry point; its `precision` is then a value of the option of that name::

    [project.entry-points."ngbkit.quantisers"]
    mine = "my_package.quantising:QUANTISER"      # a ngbkit.compilers.quantiser.Quantiser
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ngbkit import registry
from ngbkit.hardware.environment import read_cpu_flags
from ngbkit.requirements import find_problem

if TYPE_CHECKING:
    import numpy as np
    import torch

# Without these instructions of x86, 8 bits of a weight times 8 bits of a value saturate.
_DOT_PRODUCTS = {"avx512_vnni", "avx_vnni", "amx_int8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantisation:
    """The input of a quantiser, in a child process of its own.

    Parameters
    ----------
    source
        The ONNX file of the network, static in every dimension; None for a quantiser of modules.
    module
        The torch module, in evaluation mode, which may be changed in place; None for a quantiser of ONNX files.
    target
        The file to write.
    batches
        The calibration samples, or what stands for them if the quantiser calibrates nothing: by input name, in the
        order of the network's inputs, arrays of the shapes that it is compiled for.
    threads
        Number of worker threads to use.
    accelerator
        The accelerator that will run the file, as in `ngbkit.compilers.base.Task`.
    """

    source: Path | None
    module: torch.nn.Module | None
    target: Path
    batches: Iterable[Mapping[str, np.ndarray]]
    threads: int
    accelerator: str = "cpu"

    def require_source(self) -> Path:
        """Return the ONNX file; ValueError without one."""
        if self.source is None:
            raise ValueError("invalid quantisation: got no ONNX file; expected a file.")
        return self.source

    def require_module(self) -> torch.nn.Module:
        """Return the module; ValueError without one."""
        if self.module is None:
            raise ValueError("invalid quantisation: got no module; expected a module.")
        return self.module


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
        The compilers that run the result.
    packages
        The required distributions, whose versions are part of the recipe.
    install
        The command that installs them.
    quantise
        Writes the file of a `Quantisation`, and returns its settings as plain JSON, with the precision that it
        ``computes`` in where this processor only stores the other, and with ``notes`` of the contract. Raises
        `ngbkit.errors.UnsupportedError` for a network that it cannot quantise; any other exception is a failure.
    calibrates
        Whether it needs samples.
    suffix
        The ending of the file that it writes.
    load
        For a quantiser of torch modules: returns the module that a compiler then gets, from the file and the network's
        own module, which it may change in place. None for a file that the compilers themselves read in place of the
        ONNX file.
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
    load: Callable[[Path, torch.nn.Module], torch.nn.Module] | None = None
    accelerators: tuple[str, ...] = ("cpu",)

    @property
    def form(self) -> Literal["module", "onnx"]:
        """The form of the networks that it quantises."""
        return "onnx" if self.load is None else "module"

    def unavailable(self, accelerator: str = "cpu") -> str:
        """Return the reason why it cannot be used here for an accelerator, with the remedy, or ``""``."""
        kind = accelerator.partition(":")[0]
        if kind not in self.accelerators:
            return f"{self.precision} by {self.name} is for {' or '.join(self.accelerators)}; this device has {kind}"
        return find_problem(self.packages, self.install)


def is_arm() -> bool:
    """Return whether the processor is an Arm of 64 bits."""
    return platform.machine() in ("aarch64", "arm64")


def needs_reduced_range() -> bool:
    """Return whether weights in the whole range of int8 would saturate on this processor."""
    return not is_arm() and not read_cpu_flags() & _DOT_PRODUCTS


def list_quantisers(compiler: str) -> tuple[Quantiser, ...]:
    """List the quantisers whose results a compiler reads."""
    return tuple(each for each in _load_quantisers() if compiler in each.compilers)


@cache
def _load_quantisers() -> tuple[Quantiser, ...]:
    return tuple(sorted(registry.load_all(registry.QUANTISERS).values(), key=lambda quantiser: quantiser.precision))
