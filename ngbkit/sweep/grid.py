"""The grid of trials that a user asks for: validated, expanded, identified."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, get_args

from ngbkit import options, registry
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.sweep import validation
from ngbkit.sweep.trials import BASELINE, Choice, Group, Trial, split_labels
from ngbkit.workloads.base import Number, Source, Workload, content_hash

if TYPE_CHECKING:
    import xarray as xr

    from ngbkit.predictor import Predictor
    from ngbkit.predictor.forecast import Estimate
    from ngbkit.runs import Run

GpuTimer = Literal["host", "events"]
GPU_TIMERS: tuple[str, ...] = get_args(GpuTimer)
MIN_ROUNDS = 10
MAX_SECONDS = 60.0
# A device's label names a folder on it.
_LABEL = re.compile(r"\w[\w.-]*", re.ASCII)


@dataclass(frozen=True, init=False)
class Sweep:
    """The grid of trials to measure.

    Parameters
    ----------
    workloads
        Networks: names (``"resnet18"``, ``"blocks.conv"``, ``"net.onnx"``) or `Workload` objects.
    compilers
        Labels: ``"onnxruntime"``, ``'openvino{"hint":"throughput"}'``. `identity`, the baseline of every ratio, comes
        first in each group where it is among them.
    batch_sizes
        Samples in one call, each at least 1.
    factors
        Values to sweep of factors that workloads take, such as ``{"width": [64, 96], "depth": range(1, 7)}``.
    devices
        Labels of the devices to measure on. Default: the option `device`, ``"cpu"``, which is this machine.
    repeats
        Samples a trial. Default: the option `repeats`, 100.
    precision
        In the place of `repeats`: measure until the 95 % interval of each speed-up over the baseline has a half width
        of this share of it, such as 0.01 or ``"1%"``. The interval is corrected for being looked at time and again. It
        is of the rounds; what two processes of the same thing differ by (`ngbkit selfcheck`) no round makes smaller.
    min_rounds
        Interleaving rounds that a trial takes at least. Default: 10. With fewer repeats there are as many as repeats.
    max_seconds
        A group is not timed for longer than this, whatever `repeats` and `precision` ask for, as soon as it has
        `min_rounds`. Default: none; 60 with `precision`.
    interleave
        Whether the compilers of a group take turns. False measures one after the other, as most benchmarks do: for
        a device that cannot hold them all, and to see what difference it makes.
    threads
        Worker threads of every runtime. Default: one a core that the device's engine may use.
    timeout_s
        How long one step of a child may take, in seconds. Default: the option `timeout_s`, 600. A compile that tunes
        may take longer, as long as it tells of its progress.
    tuning_seconds, tuning_candidates
        What compilers that search for fast code may spend on each device in this run, in all; it is shared out evenly
        among the trials that tune. Default: no limit but those of the compilers' own options.
    gpu_timer
        By what samples are timed on a GPU: ``"host"``, the CPU's clock around a call that waits for its outputs; or
        ``"events"``, CUDA events before and after the work on the GPU.
    flush_l2
        Whether a GPU's L2 cache is overwritten before each sample: the network finds none of its weights there.
    seed
        Seeds weights, inputs and the order of measuring. Default: the option `seed`, 0.

    Examples
    --------
    >>> from ngbkit import Sweep
    >>> sweep = Sweep(workloads=["resnet18"], compilers=["identity", "openvino"], batch_sizes=[1, 4])
    >>> len(sweep.trials())
    4
    """

    workloads: tuple[Workload, ...]
    compilers: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    factors: Mapping[str, tuple[Number, ...]]
    devices: tuple[str, ...]
    repeats: int | None
    precision: float | None
    min_rounds: int
    max_seconds: float | None
    interleave: bool
    threads: int | None
    timeout_s: float
    tuning_seconds: float | None
    tuning_candidates: int | None
    gpu_timer: GpuTimer
    flush_l2: bool
    seed: int

    def __init__(
        self,
        workloads: str | Workload | Iterable[str | Workload],
        compilers: str | Iterable[str] = (BASELINE,),
        batch_sizes: int | Iterable[int] = (1,),
        factors: Mapping[str, Iterable[Number]] | None = None,
        devices: str | Iterable[str] | None = None,
        repeats: int | None = None,
        precision: float | str | None = None,
        min_rounds: int | None = None,
        max_seconds: float | None = None,
        interleave: bool = True,
        threads: int | None = None,
        timeout_s: float | None = None,
        tuning_seconds: float | None = None,
        tuning_candidates: int | None = None,
        gpu_timer: str = "host",
        flush_l2: bool = False,
        seed: int | None = None,
    ) -> None:
        defaults = options.get_options()
        checked_factors = {
            name: validation.numbers(f"factor {name}", values) for name, values in (factors or {}).items()
        }

        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)  # a frozen record fills itself

        put("workloads", _workloads(workloads, checked_factors))
        put("compilers", _compilers(compilers))
        put("batch_sizes", validation.counts("batch size", batch_sizes))
        put("factors", checked_factors)
        put("devices", _labels("device", options.device() if devices is None else devices))
        if repeats is not None and precision is not None:
            raise UsageError(
                f"repeats={repeats!r} and precision={precision!r} came; the one says how many samples to take, the "
                "other when to stop: give one of them."
            )
        put("precision", None if precision is None else validation.precision(precision))
        wanted = defaults["repeats"] if repeats is None else repeats
        put("repeats", validation.count("repeats", wanted) if precision is None else None)
        put("min_rounds", validation.count("min_rounds", MIN_ROUNDS if min_rounds is None else min_rounds))
        # A rule that stops when something is precise enough needs an end where it never is.
        most = MAX_SECONDS if max_seconds is None and precision is not None else max_seconds
        put("max_seconds", None if most is None else validation.seconds("max_seconds", most))
        put("interleave", validation.flag("interleave", interleave))
        put("threads", None if threads is None else validation.count("threads", threads))
        put("timeout_s", validation.seconds("timeout_s", defaults["timeout_s"] if timeout_s is None else timeout_s))
        put("tuning_seconds", None if tuning_seconds is None else validation.seconds("tuning_seconds", tuning_seconds))
        put(
            "tuning_candidates",
            None if tuning_candidates is None else validation.count("tuning_candidates", tuning_candidates),
        )
        put("gpu_timer", validation.choice("gpu_timer", gpu_timer, GPU_TIMERS))
        put("flush_l2", validation.flag("flush_l2", flush_l2))
        put("seed", defaults["seed"] if seed is None else validation.count("seed", seed, least=0))

    def groups(self, device: str | None = None) -> Iterator[Group]:
        """The groups in the order in which they are measured, of one device or of all, one at a time."""
        for label in self.devices if device is None else [device]:
            for workload in self.workloads:
                workload_id = workload.id
                for values in product(*workload.factors.values()):
                    factors = tuple(zip(workload.factors, values, strict=True))
                    for batch_size in self.batch_sizes:
                        trial = partial(
                            Trial, workload=workload.name, workload_id=workload_id, factors=factors, device=label
                        )
                        trials = (trial(compiler=one, batch_size=batch_size) for one in self.compilers)
                        anchored = batch_size != 1 and 1 in self.batch_sizes and BASELINE in self.compilers
                        anchor = trial(compiler=BASELINE, batch_size=1, beside=batch_size)
                        yield Group(
                            workload=workload,
                            factors=dict(factors),
                            device=label,
                            batch_size=batch_size,
                            trials=tuple(trials),
                            anchor=anchor if anchored else None,
                        )

    def trials(self, device: str | None = None) -> list[Trial]:
        """Every trial, in the order in which they are measured."""
        return [trial for group in self.groups(device) for trial in group.trials]

    def __len__(self) -> int:
        per_device = sum(math.prod(map(len, workload.factors.values())) for workload in self.workloads)
        return per_device * len(self.batch_sizes) * len(self.compilers) * len(self.devices)

    @property
    def id(self) -> str:
        """A content hash of the whole request."""
        return content_hash(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """The sweep as plain JSON values."""
        return {
            "workloads": [workload.to_json() for workload in self.workloads],
            "compilers": list(self.compilers),
            "batch_sizes": list(self.batch_sizes),
            "factors": {name: list(values) for name, values in self.factors.items()},
            "devices": list(self.devices),
            "repeats": self.repeats,
            "precision": self.precision,
            "min_rounds": self.min_rounds,
            "max_seconds": self.max_seconds,
            "interleave": self.interleave,
            "threads": self.threads,
            "timeout_s": self.timeout_s,
            "tuning_seconds": self.tuning_seconds,
            "tuning_candidates": self.tuning_candidates,
            "gpu_timer": self.gpu_timer,
            "flush_l2": self.flush_l2,
            "seed": self.seed,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], **locate: Any) -> Sweep:
        """The sweep that `to_json` described; ``locate=`` is passed on to `Workload.from_json`."""
        fields = dict(data)
        fields["workloads"] = [Workload.from_json(workload, **locate) for workload in data["workloads"]]
        return cls(**fields)

    def estimate(self, predictor: Predictor | str | None = None) -> Estimate:
        """How long it would take, and what would come of it: by what earlier runs measured, and by a predictor.

        Parameters
        ----------
        predictor
            What `ngbkit.predictor.fit` gave, or the file that it was saved to.

        Raises
        ------
        UsageError
            The file holds no predictor.

        Examples
        --------
        >>> from ngbkit import Sweep
        >>> print(Sweep("resnet18", ["identity", "openvino"]).estimate())  # doctest: +SKIP
        2 trials in 1 group, about 24 s
        """
        from ngbkit.predictor.forecast import estimate

        return estimate(self, predictor)

    def start(self, *, budget: str | float | None = None, predictor: Predictor | str | None = None, **how: Any) -> Run:
        """Start measuring in the background; the live `Run`.

        Parameters
        ----------
        budget
            Seconds, a time such as ``"20min"``, or a share of the trials such as ``"10%"``: those that tell most of
            which compiler is the best of each group are measured, and the others are ``predicted`` in the dataset
            (`ngbkit.predictor.forecast.best`). Default: all are measured.
        predictor
            As for `estimate`; with a budget only.
        **how
            As for `ngbkit.runs.start`.

        Raises
        ------
        UsageError
            No such budget, or a predictor without one.
        """
        from ngbkit.runs import start

        if budget is not None:
            from ngbkit.predictor.forecast import guide_of

            return start(self, guide=guide_of(self, budget, predictor), **how)
        if predictor is not None:
            raise UsageError("a predictor came without a budget: a run that measures every trial predicts none.")
        return start(self, **how)

    def run(self, **how: Any) -> xr.Dataset | xr.DataTree:
        """Measure, wait for the end and return the dataset; the arguments are those of `start`.

        Ctrl-C stops the run cleanly; what was measured stays in its journal (`ngbkit.runs.resume`).

        Examples
        --------
        >>> from ngbkit import Sweep
        >>> ds = Sweep("resnet18", ["identity", "openvino"], [1, 2, 4, 8]).run(budget="2min")  # doctest: +SKIP
        """
        return self.start(**how).result()


def _workloads(given: Any, factors: Mapping[str, Sequence[Number]]) -> tuple[Workload, ...]:
    items = [given] if isinstance(given, (str, Workload)) else list(given)
    if not items:
        raise UsageError(
            "a sweep needs at least one workload: a timm name, 'blocks.conv', an ONNX file, or a Workload."
        )
    found = [(item if isinstance(item, Workload) else parse_workload(item)).with_factors(factors) for item in items]
    names = [workload.name for workload in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{names.count(name)} workloads are named {name!r}; give each a name of its own.")
    taken = {name for workload in found for name in workload.takes}
    for name in sorted(taken & validation.RESERVED):
        raise UsageError(f"a factor cannot be called {name!r}, which the dataset needs: call it {name}_factor.")
    for name in factors:
        if name not in taken:
            raise UnknownNameError("factor", name, taken, "It must be an argument that a workload takes.")
    return tuple(found)


def parse_workload(text: str) -> Workload:
    """The workload that a word on a command line names: each source is asked in turn.

    Raises
    ------
    UnknownNameError
        No source knows it; the error offers the nearest names that any source could complete.
    """
    sources: dict[str, Source] = registry.load_all(registry.WORKLOADS)
    for source in sources.values():
        workload = source.parse(text)
        if workload is not None:
            return workload
    known = [name for source in sources.values() for name in source.complete("")]
    raise UnknownNameError(
        "workload", text, known, "A workload is a timm name, blocks.conv, blocks.mha, or an .onnx or .py file."
    )


def _compilers(given: str | Iterable[str]) -> tuple[str, ...]:
    texts = split_labels(given) if isinstance(given, str) else list(given)
    labels = [Choice.parse(text).label for text in texts]
    if not labels:
        raise UsageError("a sweep needs at least one compiler, such as 'identity'; `ngbkit compilers` lists them all.")
    validation.once("compiler", labels)
    return tuple(sorted(labels, key=lambda label: label != BASELINE))


def _labels(kind: str, given: str | Iterable[str]) -> tuple[str, ...]:
    labels = split_labels(given) if isinstance(given, str) else list(given)
    if not labels or not all(isinstance(label, str) and _LABEL.fullmatch(label) for label in labels):
        raise UsageError(f"a sweep needs at least one {kind}, of letters, digits, '_', '-' and '.'; {labels!r} came.")
    validation.once(kind, labels)
    return tuple(labels)
