"""One small protocol for every graph compiler: a record that says what it is and how it compiles.

A compiler is a value, not a class to inherit from::

    COMPILER = Compiler(name="mine", summary="…", forms={"onnx": ("my_runtime",)}, packages=("my-runtime",),
                        install="pip install my-runtime", compile=compile)

    def compile(task: Task) -> Program: ...

`ngbkit.testing.CompilerConformance` is the suite that each one passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.registry import version
from ngbkit.sweep.records import Contract
from ngbkit.workloads.base import TensorSpec

if TYPE_CHECKING:
    import numpy as np
    import torch

Form = Literal["module", "onnx"]
Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a compiler.

    Parameters
    ----------
    default
        Its value where none is given; its type is the type that is asked for.
    help
        One line.
    choices
        The only valid values; empty where any value of the type will do.
    """

    default: Scalar
    help: str
    choices: tuple[Scalar, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a search for fast code has come.

    Parameters
    ----------
    done, total
        Candidates tried, and how many there are to try at most.
    best_s
        What a call is estimated to take with the best found so far, in seconds; None before that is known.
    left_s
        How long the search will probably go on, in seconds; None where nothing is known of it.
    """

    done: int
    total: int
    best_s: float | None = None
    left_s: float | None = None


def _untold(progress: Progress) -> None:
    del progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Where a compiler that searches for fast code keeps what it finds, and what the search may cost.

    Parameters
    ----------
    folder
        Of this device, shared by all sweeps: it outlives a cold compile and a killed process. Below it a compiler names
        what it keeps by all that it depends on: the network's content, batch size, target, threads and versions.
    seconds, candidates
        What is left of the sweep's budget; None where the sweep sets none. The compiler's own options may set less.
    report
        Tells how far the search is. Whoever searches calls it at least once a minute: it also says that the child
        is alive, which keeps it from being ended for want of an answer.
    """

    folder: Path
    seconds: float | None = None
    candidates: int | None = None
    report: Callable[[Progress], None] = _untold


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a compiler is given, in a child process of its own.

    Parameters
    ----------
    form
        Which of the compiler's forms this is: a torch module, or an ONNX file.
    module
        The module in ``eval()``, on the CPU; only with the form ``"module"``.
    onnx
        The ONNX file at this very batch size, static in every dimension; only with the form ``"onnx"``.
    inputs
        What the network is fed, in order.
    arrays
        The values, one array an input, each of shape ``(batch_size, *shape)``, C-contiguous. Bind them before the first
        call.
    batch_size
        Samples in a call.
    options
        Every option of the compiler, defaults filled in.
    threads
        How many worker threads to use.
    cache
        A folder of this workload's own on this device, for what may be kept between runs. Whatever a compiler keeps, it
        keeps below this folder and nowhere else, so that a compile with an empty one is a cold compile. Only what
        tuning found is kept apart.
    tuning
        For compilers that search.
    accelerator
        What to compile for and to run on, one of `Compiler.accelerators`: ``"cpu"``, or ``"cuda"``, which is the first
        GPU that this process may see (ordinal 0): the devices file chose it.
    """

    form: Form
    module: torch.nn.Module | None
    onnx: Path | None
    inputs: Sequence[TensorSpec]
    arrays: Sequence[np.ndarray]
    batch_size: int
    options: Mapping[str, Any]
    threads: int
    cache: Path
    tuning: Tuning
    accelerator: str = "cpu"


def _unexplained() -> dict[str, Any]:
    return {}


@dataclass(slots=True, kw_only=True)
class Program:
    """A compiled network, ready to be called.

    Parameters
    ----------
    run
        One inference of the batch with the bound inputs. This, and nothing else, is timed; it returns when the outputs
        are ready. With ``contract.overlap = n`` it is n inferences in flight at once.
    fetch
        Turns what `run` returned into NumPy arrays, one an output, in the network's own order.
    contract
        What `run` includes.
    facts
        What the compiler did, as plain JSON, where it costs next to nothing to know. ``cache`` is ``"hit"`` or
        ``"miss"`` where the compiler keeps something and can tell whether it was used.
    explain
        More of what the compiler did, as plain JSON, found out when asked; it may take seconds and memory (a second
        session), so ask when everything is timed and the peak memory is read. Names that mean the same everywhere,
        each left out where it cannot be known: ``nodes_before`` (operators of the graph that came), ``nodes_after``
        (what is executed in a call), ``nodes_fused`` (executed nodes that do the work of more than one),
        ``fallbacks`` (executed nodes that run on another provider or device than was asked for), ``graph_breaks``, and
        ``precision`` (what the convolutions and matrix products really compute in, where only a look tells).
    within
        Makes a context that saves time in each call where `run` is called inside it: enter it once, in the thread that
        calls, before the first timed call. `run` is right outside it as well.
    enqueue
        On an accelerator that works beside the CPU: what `run` does without waiting for the outputs. It is what CUDA
        events are put around, on `stream`.
    stream
        The CUDA stream (a ``CUstream``, as a number) that `enqueue` works on.
    reused_s
        Seconds of earlier work, tuning above all, that this compile took from `Task.tuning` rather than do it again.
        They count as time of a cold compile.
    """

    run: Callable[[], Any]
    fetch: Callable[[Any], list[np.ndarray]]
    contract: Contract
    facts: dict[str, Any] = field(default_factory=dict)
    explain: Callable[[], dict[str, Any]] = _unexplained
    within: Callable[[], AbstractContextManager[Any]] = nullcontext
    enqueue: Callable[[], Any] | None = None
    stream: int = 0
    reused_s: float = 0.0


def always() -> str:
    """The probe of what works wherever it is installed."""
    return ""


def _never(options: Mapping[str, Any]) -> bool:
    del options
    return False


def _on_cpu() -> dict[str, Callable[[], str]]:
    return {"cpu": always}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """A graph compiler or runtime.

    Parameters
    ----------
    name, summary
        What it is called, and one line on what it is.
    forms
        What it can compile from, best first, each with the modules that a fork server should import for it.
    packages
        The distributions that it needs, the one whose version names it first.
    install
        The command that brings them.
    compile
        Makes a `Program` of a `Task`. The whole call counts as compile time, so build nothing lazily.
        Raises `ngbkit.errors.UnsupportedError` for a network it cannot do; anything else that it raises is a failure.
    accelerators
        The kinds of accelerator that it compiles for, ``"cpu"`` and ``"cuda"``, each with a probe: why it cannot work
        on one of these here although its packages are installed (no C++ compiler, no driver, a build without CUDA), or
        ``""``. On a device of another kind it is `unsupported`, so that no number of a CPU stands under the label of a
        GPU. A probe leaves no trace in this process: what would, it does in a process of its own.
    options
        Its options by name.
    refusals
        Regular expressions: an error whose ``Type: message`` matches one is an `unsupported`, not a failure.
    tunes
        Whether `compile` searches for fast code with these options. Such compiles share the sweep's tuning budget.
    caches
        Whether `compile` keeps something below ``task.cache`` that makes the next compile of the same task faster.
    """

    name: str
    summary: str
    forms: Mapping[Form, tuple[str, ...]]
    packages: tuple[str, ...]
    install: str
    compile: Callable[[Task], Program]
    accelerators: Mapping[str, Callable[[], str]] = field(default_factory=_on_cpu)
    options: Mapping[str, Option] = field(default_factory=dict)
    refusals: tuple[str, ...] = ()
    tunes: Callable[[Mapping[str, Any]], bool] = _never
    caches: bool = False

    def missing(self) -> list[str]:
        """Its packages that are not installed here."""
        return [package for package in self.packages if version(package) is None]

    def unavailable(self, accelerator: str | None = None) -> str:
        """Why it cannot be used here, with the way out, or ``""`` where it can.

        Parameters
        ----------
        accelerator
            On what: ``"cpu"``, ``"cuda:0"``. Default: on the first kind of `accelerators`.
        """
        missing = self.missing()
        if missing:
            return f"{', '.join(missing)} not installed; get it by: {self.install}"
        kind = next(iter(self.accelerators)) if accelerator is None else accelerator.partition(":")[0]
        if kind not in self.accelerators:
            return (
                f"{self.name} measures on {' and '.join(self.accelerators)}, and the device is {accelerator}: "
                "name a device with another `accelerator` in the devices file"
            )
        return self.accelerators[kind]()

    def settle(self, options: Mapping[str, Any]) -> dict[str, Scalar]:
        """Those `options`, checked, with the defaults of all others; of `GRAPH` only where it is asked for.

        Raises
        ------
        UnknownNameError, UsageError
            An option that the compiler does not have, or a value that does not fit.
        """
        settled: dict[str, Scalar] = {name: option.default for name, option in self.options.items()}
        for name, value in options.items():
            if name not in self._known():
                raise UnknownNameError(f"option of {self.name}", name, self._known())
            settled[name] = self._checked(name, value)
        return settled

    def _known(self) -> Mapping[str, Option]:
        return {**self.options, **({GRAPH: _GRAPH} if "onnx" in self.forms else {})}

    def _checked(self, name: str, value: Any) -> Scalar:
        option = self._known()[name]
        kind = type(option.default)
        fits = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value, fits = float(value), True
        if not fits or (option.choices and value not in option.choices):
            valid = " or ".join(repr(choice) for choice in option.choices) or f"a value of type {kind.__name__}"
            raise UsageError(f"{self.name} option {name}={value!r} does not fit; valid: {valid} ({option.help}).")
        settled: Scalar = value
        return settled


GRAPH = "graph"
"""The option that every compiler has which reads ONNX: the content hash of a file that it is to compile in the place of
the network's own, such as a rewritten one. The file is an artifact of the workload, static at the batch size of the
trial, and is held against the network's own reference."""

_GRAPH = Option(default="", help="the content hash of an ONNX file to compile in the place of the network's own")
