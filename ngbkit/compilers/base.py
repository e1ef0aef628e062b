"""The protocol of graph compilers: a record that describes a compiler and compiles with it.

A compiler is a value, not a class to inherit from::

    COMPILER = Compiler(name="mine", summary="…", forms={"onnx": ("my_runtime",)}, packages=("my-runtime",),
                        install="pip install my-runtime", compile=compile)

    def compile(task: Task) -> Program: ...

Every compiler must pass `ngbkit.testing.CompilerConformance`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ngbkit import validation
from ngbkit.compilers.quantiser import Quantiser, list_quantisers
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.registry import find_version
from ngbkit.requirements import find_problem
from ngbkit.sweep.memory import HELP, KEPT, MEMORIES, MEMORY
from ngbkit.sweep.records import Contract
from ngbkit.workloads.base import Kind, TensorSpec
from ngbkit.workloads.canonical import Importer
from ngbkit.workloads.precision import PRECISION

if TYPE_CHECKING:
    import numpy as np
    import torch

    from ngbkit.compilers.profiles.profile import Profiler

Form = Literal["module", "onnx"]
KINDS: Mapping[Kind, tuple[Form, ...]] = {
    "file": ("onnx",),
    "program": ("module", "onnx"),
    "module": ("module", "onnx"),
}
"""The forms in which a compiler may get each kind of network."""
Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a compiler.

    Parameters
    ----------
    default
        Default value; its type is the type of the option.
    help
        One line for ``ngbkit compilers NAME`` and Tab completion.
    choices
        The valid values; empty if every value of the type is valid.
    """

    default: Scalar
    help: str
    choices: tuple[Scalar, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningProgress:
    """The progress of a search for fast code.

    Parameters
    ----------
    done, total
        Candidates tried, and the most that the search may try.
    best_s
        Estimated seconds of one call with the best candidate so far; None until known.
    left_s
        Estimated seconds until the search ends; None if unknown.
    """

    done: int
    total: int
    best_s: float | None = None
    left_s: float | None = None


def _ignore(progress: TuningProgress) -> None:
    del progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The folder in which a compiler that searches for fast code stores its results, and the budget of the search.

    Parameters
    ----------
    folder
        A folder of this device, shared by all sweeps; it outlives cold compiles and killed processes. A compiler names
        each entry by everything it depends on: network content, batch size, target, threads and versions.
    seconds
        The rest of the sweep's budget; None if the sweep sets none. The compiler's own options may set less.
    report
        Reports the progress of the search. Call it at least once a minute: a child that stays silent is killed as hung.
    """

    folder: Path
    seconds: float | None = None
    report: Callable[[TuningProgress], None] = _ignore


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The input of a compile, in a child process of its own.

    Parameters
    ----------
    form
        The form of the network: a torch module or an ONNX file.
    module
        The module in ``eval()``, on the CPU; only with the form ``"module"``.
    onnx
        The ONNX file at this batch size, static in every dimension; only with the form ``"onnx"``.
    inputs
        The network's inputs, in order.
    arrays
        One array per input, each of shape ``(batch_size, *shape)``, C-contiguous. Bind them before the first call.
    batch_size
        Samples per call.
    options
        Every option of the compiler, defaults included.
    threads
        Number of worker threads to use.
    cache
        A folder of this workload on this device. A compiler caches below it and nowhere else, so that a compile
        with an empty one is a cold compile; only tuning results are stored elsewhere.
    tuning
        For compilers that search.
    accelerator
        The accelerator to compile for and run on, one of `Compiler.accelerators`: ``"cpu"``, or ``"cuda"`` for the
        first GPU visible to this process (ordinal 0), which the devices file selects.
    precision
        The coarsest numeric precision in the network's own body, ``"f32"``; ``"int"`` without a floating number.
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
    precision: str = "f32"

    @property
    def body_precision(self) -> str:
        """The precision of the body as a contract names it: a quantised network computes on rounded float32 numbers."""
        return "f32" if self.precision == "q8" else self.precision


class Memory(Protocol):
    """The memory from which `Program.run` reads an input, such as a NumPy array: parts of it are written in place."""

    def __getitem__(self, place: Any, /) -> Any: ...

    def __setitem__(self, place: Any, values: Any, /) -> None: ...


@dataclass(slots=True, kw_only=True)
class Program:
    """A compiled network, ready to be called.

    Parameters
    ----------
    run
        One inference of the batch with the bound inputs; it returns when the outputs are ready. Only this call is
        timed. With ``contract.overlap = n`` it is n inferences in flight at once.
    fetch
        Converts the value of `run` to NumPy arrays, one per output, in the network's order.
    contract
        What `run` includes.
    facts
        Facts about the compile as plain JSON, if they cost next to nothing to collect. ``cache`` is ``"hit"`` or
        ``"miss"`` if the compiler caches and can tell which.
    explain
        Returns further facts as plain JSON. It may take seconds and memory (a second session), so it is called after
        all timing, once the peak memory is read. Some keys have one meaning for all compilers; omit those that cannot
        be known: ``nodes_before`` (operators of the original graph), ``nodes_after`` (nodes executed per call),
        ``nodes_fused`` (executed nodes that replace several operators), ``fallbacks`` (executed nodes that run on
        another provider or device than requested), ``graph_breaks``, and ``precision`` (the actual precision of
        convolutions and matrix products, if it shows only in the compiled program).
    within
        Returns a context that saves time in each call of `run`: enter it once, in the calling thread, before the first
        timed call. `run` is correct outside it as well.
    enqueue
        For an asynchronous accelerator: `run` without the wait for the outputs. CUDA events are recorded around it, on
        `stream`.
    stream
        The CUDA stream of `enqueue` (a ``CUstream``, as a number).
    reused_s
        Seconds of earlier work, mostly tuning, that this compile reused from `Task.tuning`. They count towards the time
        of a cold compile.
    feed
        Writes other values, one array per input, over those that `run` reads: how far the outputs for a user's samples
        are from those in f32. None where the runtime cannot; the cost of a precision is then unknown.
    memory
        The memory from which `run` reads: for each input one for each request in flight, of the shape of its array,
        into which a few elements are written before every call. Empty where there is none: all is then fed again.
    profile
        Opens the program once more in the profiler of its runtime, after all timing: which kernels run, for how long,
        and which nodes of the network each computes. None where the runtime does not report that.
    """

    run: Callable[[], Any]
    fetch: Callable[[Any], list[np.ndarray]]
    contract: Contract
    facts: dict[str, Any] = field(default_factory=dict)
    explain: Callable[[], dict[str, Any]] = dict
    within: Callable[[], AbstractContextManager[Any]] = nullcontext
    enqueue: Callable[[], Any] | None = None
    stream: int = 0
    reused_s: float = 0.0
    feed: Callable[[Sequence[np.ndarray]], None] | None = None
    memory: Sequence[Sequence[Memory]] = ()
    profile: Callable[[], Profiler] | None = None


def always() -> str:
    """The probe of an accelerator that works wherever the packages are installed."""
    return ""


def _never_tunes(options: Mapping[str, Any]) -> bool:
    del options
    return False


def _support_cpu() -> dict[str, Callable[[], str]]:
    return {"cpu": always}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """A graph compiler or runtime.

    Parameters
    ----------
    name, summary
        Its name, and one line that describes it.
    forms
        The forms of a network that it compiles, preferred first, each with the modules that a fork server preloads. A
        module that calls CUDA when imported is left to the child, which imports it before it compiles.
    packages
        The required distributions, starting with the one whose version identifies the compiler.
    packages_by_form
        The required distributions in place of these, for a compiler that needs others for each form.
    install
        The command that installs them. Where it names an extra of ngbkit, the bounds of that extra are checked.
    compile
        Compiles a `Task` to a `Program`. The whole call counts as compile time, so build nothing lazily.
        Raises `ngbkit.errors.UnsupportedError` for a network it cannot compile; any other exception is a failure.
    accelerators
        The kinds of accelerator it supports, ``"cpu"`` and ``"cuda"``, each with a probe that returns ``""``, or the
        reason why it cannot work here although its packages are installed (no C++ compiler, no driver, a build without
        CUDA). On any other kind a trial is `unsupported`, so that no CPU number is labelled as a GPU's. A probe leaves
        no trace in this process: it runs whatever would in a process of its own.
    options
        Its options by name.
    refusals
        Regular expressions: an error whose ``Type: message`` matches one is `unsupported` rather than a failure.
    tunes
        Returns whether `compile` searches for fast code with the given options. Such compiles share the sweep's tuning
        budget.
    importer
        The ONNX graphs that it reads, if not all: a user's own file is rewritten to one of them before `compile`, which
        `Task.onnx` then is; the steps and their time are recorded, and are no part of the compile time.
    caches
        Whether `compile` stores anything below ``task.cache`` that speeds up the next compile of the same task.
    distribution
        The distribution that a release in a label is of: ``onnxruntime@1.23.2``. Empty if it cannot have one.
    beside
        Requirements of an environment with such a release, beside the distribution and what ngbkit itself needs.
    numpy_2
        The first release that runs with NumPy 2, if earlier ones do not state that they need NumPy 1: these crash.
    limits
        Regular expressions of the error by which a release refuses an ONNX file, with the latest version that it reads
        as the group ``most_opset`` or ``most_ir``: the file is then converted, proved, and tried again.
    """

    name: str
    summary: str
    forms: Mapping[Form, tuple[str, ...]]
    packages: tuple[str, ...]
    install: str
    compile: Callable[[Task], Program]
    packages_by_form: Mapping[Form, tuple[str, ...]] = field(default_factory=dict)
    accelerators: Mapping[str, Callable[[], str]] = field(default_factory=_support_cpu)
    options: Mapping[str, Option] = field(default_factory=dict)
    refusals: tuple[str, ...] = ()
    tunes: Callable[[Mapping[str, Any]], bool] = _never_tunes
    importer: Importer | None = None
    caches: bool = False
    distribution: str = ""
    beside: tuple[str, ...] = ()
    numpy_2: str = ""
    limits: tuple[str, ...] = ()

    def choose_form(self, kind: Kind) -> Form | None:
        """Choose the first of its forms that networks of that kind have."""
        return next((form for form in self.forms if form in KINDS[kind]), None)

    def find_package_problem(self, kind: Kind | None = None, *, is_release: bool = False) -> str:
        """Describe packages that are missing or too old for a kind of network, or for all, with the remedy."""
        if kind is None:
            kinds = filter(self.choose_form, KINDS)
            problems = [self.find_package_problem(each, is_release=is_release) for each in kinds]
            return problems[0] if all(problems) else ""
        form = self.choose_form(kind) or "module"
        packages = () if is_release else self.packages_by_form.get(form, self.packages)
        return find_problem(packages, self.install, WRITERS[kind] if form == "onnx" else ())

    def unavailable(self, accelerator: str | None = None, kind: Kind | None = None) -> str:
        """Return the reason why it cannot be used here, with the remedy, or ``""``.

        Parameters
        ----------
        accelerator
            The accelerator to use: ``"cpu"``, ``"cuda:0"``. Default: the first kind of `accelerators`.
        kind
            The kind of network; by default any that it can compile here.
        """
        if problem := self.find_package_problem(kind):
            return problem
        name = next(iter(self.accelerators)) if accelerator is None else accelerator.partition(":")[0]
        if name not in self.accelerators:
            return (
                f"{self.name} does not support accelerator {accelerator!r}; expected {' or '.join(self.accelerators)}. "
                "Choose a device with another `accelerator` in the devices file."
            )
        return self.accelerators[name]()

    def check_release(self, release: str) -> None:
        """Check the release in a label; UsageError if it is none, or if this compiler cannot have one."""
        if not self.distribution:
            raise UsageError(
                f"invalid compiler: got {self.name}@{release}; {self.name} has no releases that ngbkit can install. "
                f"Leave @{release} out."
            )
        if not _RELEASE.fullmatch(release):
            example = find_version(self.distribution) or "1.23.0"
            raise UsageError(
                f"invalid compiler: got {self.name}@{release}; expected a release of {self.distribution} after @, such "
                f"as {self.name}@{example}."
            )

    def settle(self, options: Mapping[str, Any]) -> dict[str, Scalar]:
        """Return `options` checked, with the defaults of all others; `GRAPH` and `MEMORY` only if set.

        Raises
        ------
        UnknownNameError, UsageError
            An unknown option, or an invalid value.
        """
        resolved: dict[str, Scalar] = {name: option.default for name, option in self.list_options().items()}
        for name, value in options.items():
            if name not in self._list_all_options():
                raise UnknownNameError(f"option of {self.name}", name, self._list_all_options())
            resolved[name] = self._check_value(name, value)
        return resolved

    def list_options(self) -> dict[str, Option]:
        """List its options by name, with the precisions that quantisers add to its own."""
        precisions = tuple(each.precision for each in list_quantisers(self.name))
        if not precisions:
            return dict(self.options)
        declared = self.options.get(PRECISION, Option(default="f32", help="numeric precision", choices=("f32",)))
        return {**self.options, PRECISION: replace(declared, choices=(*declared.choices, *precisions))}

    def find_quantiser(self, precision: str) -> Quantiser | None:
        """Find the quantiser to the precision of a column; None without any."""
        return next((each for each in list_quantisers(self.name) if each.precision == precision), None)

    def _list_all_options(self) -> Mapping[str, Option]:
        return {**self.list_options(), MEMORY: _MEMORY, **({GRAPH: _GRAPH} if "onnx" in self.forms else {})}

    def _check_value(self, name: str, value: Any) -> Scalar:
        option = self._list_all_options()[name]
        try:
            checked: Scalar = validation.parse(
                Literal[option.choices] if option.choices else type(option.default), value
            )
        except validation.SchemaError as error:
            raise UsageError(f"invalid option {name} of {self.name}: {error} ({option.help}).") from None
        return checked


# The packages with which ngbkit writes the ONNX file of a network.
WRITERS: Mapping[Kind, tuple[str, ...]] = {
    "file": ("onnx",),
    "program": ("onnx", "torch"),
    "module": ("onnx", "onnxscript", "torch"),
}

# https://packaging.python.org/en/latest/specifications/version-specifiers/, without epochs.
_RELEASE = re.compile(r"[0-9]+(\.[0-9]+)*((a|b|rc)[0-9]+)?(\.post[0-9]+)?(\.dev[0-9]+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?")

GRAPH = "graph"
"""The option of every compiler that reads ONNX: the content hash of an ONNX file to compile in place of the network's
own, such as a rewritten one. The file is an artifact of the workload, static at the trial's batch size, and its outputs
are checked against the network's own reference."""

_MEMORY = Option(default=KEPT, help=HELP, choices=MEMORIES)
_GRAPH = Option(default="", help="content hash of an ONNX file to compile instead of the network's own")
