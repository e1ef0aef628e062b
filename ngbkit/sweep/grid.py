"""The grid of trials that a user asks for: validated, expanded, identified."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from attrs import evolve, field, frozen, resolve_types

from ngbkit import options
from ngbkit.errors import UsageError
from ngbkit.sweep import conversion, feeding, low_precision, parsing
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.json_values import to_json_value
from ngbkit.sweep.memory import HELP, KEPT, Memory
from ngbkit.sweep.option import format_options, format_parameters, option, options_of
from ngbkit.sweep.trials import Bundle, Group, Trial, bundle_groups, expand_groups, split_labels
from ngbkit.user_text import read_docstring
from ngbkit.validation import Count, Duration, Multiple, PositiveCount, check_fields
from ngbkit.workloads.base import FactorValue, Workload, hash_json

if TYPE_CHECKING:
    from typing_extensions import Self

GpuTimer = Literal["host", "events"]
MIN_ROUNDS, MAX_SECONDS = 10, 60.0
# Described where they were chosen, as the choices of a workload are.
_CHOICES = ("precisions", "calibrate", "evaluate", "reference", "accept", "profile")
# The rounds of a wave, at least: fewer say nothing of their own spread.
_LEAST_ROUNDS = 4
# An option that went: the ids of sweeps, which name recordings, are hashes with it.
_RETIRED = {"tuning_candidates": None}
# The paths of what a workload has by content.
_PATHS = ("calibrate", "evaluate", "reference")


@frozen(field_transformer=check_fields)
class Grid:
    """The grid of trials to measure, each of its options declared once: see `ngbkit.sweep.option`."""

    workloads: tuple[Workload, ...] = field(
        converter=conversion.to_workloads,
        metadata=option(
            'Networks: names (``"resnet18"``, ``"blocks.conv"``, ``"net.onnx"``) or `Workload` objects.',
            "workloads",
            nargs="*",
            metavar="WORKLOAD",
            completes="workload",
            parse=lambda words: [parsing.restore_quotes(word) if isinstance(word, str) else word for word in words],
            help='what to run: a timm name such as resnet18 or resnet18{"img_size":160}, blocks.conv, blocks.mha, '
            "an .onnx file, or a .py file that defines a model",
        ),
    )
    compilers: tuple[str, ...] = field(
        default=(BASELINE,),
        converter=conversion.to_compilers,
        metadata=option(
            'Labels: ``"onnxruntime"``, ``"onnxruntime@1.23.2"``, ``\'openvino{"hint":"throughput"}\'``. `identity`, '
            "the baseline of every ratio, comes first in each group if it is among them.",
            "-c",
            action="append",
            metavar="NAMES",
            completes="compiler",
            parse=lambda texts: _flatten(parsing.parse_compilers, texts),
            format=lambda labels: [",".join(labels)],
            always=True,
            help="separated by commas, each with a release or options of its own if needed: "
            'identity,onnxruntime@1.23.2,openvino{"hint":"throughput"} (default: identity)',
        ),
    )
    batch_sizes: tuple[int, ...] = field(
        default=(1,),
        converter=conversion.to_batch_sizes,
        metadata=option(
            "Samples in one call, each at least 1.",
            "-b",
            action="append",
            metavar="SIZES",
            parse=lambda texts: _flatten(lambda text: parsing.parse_numbers("batch size", text), texts),
            format=lambda sizes: [parsing.format_numbers(sizes)],
            always=True,
            help="samples in one call: 1,4,8 or a range with both its ends, 1:4 (default: 1)",
        ),
    )
    factors: Mapping[str, tuple[FactorValue, ...]] = field(
        default=None,
        converter=conversion.to_factors,
        metadata=option(
            'Values to sweep of factors that workloads take: ``{"width": [64, 96], "depth": range(1, 7)}``, or texts, '
            '``{"variant": ["plain", "residual"]}``.',
            "--factor",
            action="append",
            metavar="NAME=VALUES",
            completes="factor",
            parse=parsing.parse_factors,
            format=parsing.format_factors,
            always=True,
            help="values of a factor that a workload takes: numbers, width=64,96; a range with both its ends, "
            "depth=1:6, depth=1:9:2; or texts, variant=plain,residual; once a factor",
        ),
    )
    inputs: Mapping[str, str] | None = field(
        default=None,
        converter=feeding.to_inputs,
        metadata=feeding.INPUTS,
    )
    batch_axis: Mapping[str, int | None] | None = field(
        default=None,
        converter=feeding.to_batch_axes,
        metadata=feeding.BATCH_AXIS,
    )
    precisions: tuple[str, ...] = field(
        default=None,
        converter=low_precision.to_precisions,
        metadata=low_precision.PRECISIONS,
    )
    calibrate: Mapping[str, str] | None = field(
        default=None,
        converter=low_precision.to_calibration,
        metadata=low_precision.CALIBRATE,
    )
    evaluate: Mapping[str, str] | None = field(
        default=None,
        converter=low_precision.to_evaluation,
        metadata=low_precision.EVALUATE,
    )
    reference: Mapping[str, str] | None = field(
        default=None,
        converter=low_precision.to_reference,
        metadata=low_precision.REFERENCE,
    )
    accept: tuple[str, ...] = field(
        default=None,
        converter=low_precision.to_bounds,
        metadata=low_precision.ACCEPT,
    )
    devices: tuple[str, ...] = field(
        default=None,
        converter=conversion.to_devices,
        metadata=option(
            "Labels of the devices to measure on. Default: cpu, which is this machine; the option `device` changes it.",
            "-d",
            action="append",
            metavar="NAMES",
            completes="device",
            parse=lambda texts: _flatten(split_labels, texts),
            format=lambda labels: [",".join(labels)],
        ),
    )
    repeats: PositiveCount | None = field(
        default=None,
        metadata=option(
            "Timed samples a trial. Default: 100, as in the paper; the option `repeats` changes it.", "-r", always=True
        ),
    )
    precision: float | None = field(
        default=None,
        converter=conversion.to_precision,
        metadata=option(
            "Instead of `repeats`: measure until the 95 % interval of each speed-up over the baseline has a half width "
            "of this share of it, such as 0.01 or ``1%``. The interval is corrected for repeated looks. It is over "
            "rounds; no number of rounds reduces how much two processes of the same network differ (`ngbkit "
            "selfcheck`).",
            metavar="SHARE",
            type=str,
            always=True,
        ),
    )
    min_rounds: PositiveCount = field(
        default=MIN_ROUNDS,
        metadata=option(
            f"Interleaving rounds that a trial takes at least, also beyond `max_seconds`. Default: {MIN_ROUNDS}. With "
            "fewer repeats, as many rounds as repeats.",
            in_shell=False,
        ),
    )
    waves: PositiveCount = field(
        default=1,
        metadata=option(
            "Measure each group so many times, in new processes and with its share of the samples: first all groups "
            "once, then all once more. By how much processes and minutes change a ratio is then measured, and no "
            "longer assumed. Default: 1.",
            metavar="NUMBER",
        ),
    )
    max_seconds: Duration | None = field(
        default=None,
        metadata=option(
            f"Time no group for longer than this once it has {MIN_ROUNDS} rounds, whatever `repeats` and `precision` "
            f"ask for. Default: no limit, or {MAX_SECONDS:g} with `precision`.",
            metavar="SECONDS",
        ),
    )
    patience: Multiple | None = field(
        default=None,
        metadata=option(
            "Repeat what other work slowed, for this multiple of the time of a group's calls at most; 0 repeats "
            f"nothing. Contended samples are kept and marked. Default: 2, or ``${options.PATIENCE}`` of the device.",
            metavar="FACTOR",
        ),
    )
    interleave: bool = field(
        default=True,
        metadata=option(
            "Whether the compilers of a group take turns. False measures one after the other, as most benchmarks do: "
            "for a device that cannot hold them all, and to see what difference it makes.",
            in_shell=False,
        ),
    )
    together: bool = field(
        default=False,
        metadata=option(
            "Let the networks take turns in the same rounds, as the compilers of one do: for `which network is the "
            "fastest?`. At each batch size, all values of their factors take part. What does not fit in memory is "
            "measured later, beside the baseline of the first network, to which its throughputs are tied.",
        ),
    )
    race: bool = field(
        default=False,
        metadata=option(
            "Measure a compiler no further once another one of its group is surely faster: for `which is the "
            "fastest?`. The rounds go to what may still be the fastest, until one is left. With `together`, networks "
            "race as well. With `precision`, a race among equals ends when their ratio to the fastest is that precise.",
        ),
    )
    threads: PositiveCount | None = field(
        default=None,
        metadata=option(
            "Worker threads of every runtime. Default: one a core of the device's engine, within a container's quota."
        ),
    )
    memory: Memory = field(
        default=KEPT,
        metadata=option(f"{HELP}. Default: {KEPT}."),
    )
    timeout_s: Duration = field(
        default=None,
        converter=conversion.to_timeout,
        metadata=option(
            "How long one step of a trial may take, in seconds. Default: 600; the option `timeout_s` changes it. A "
            "compile that tunes may take longer, as long as it reports progress.",
            "--timeout",
            metavar="SECONDS",
        ),
    )
    tuning_seconds: Duration | None = field(
        default=None,
        metadata=option(
            "Seconds that compilers which search for fast code may spend on each device in this run, in all. They are "
            "shared out evenly among the trials that tune. Default: no limit but those of the compilers' own options.",
            metavar="SECONDS",
        ),
    )
    gpu_timer: GpuTimer = field(
        default="host",
        metadata=option(
            "Time samples on a GPU by the CPU's clock around a call that waits for its outputs, or by CUDA events "
            "before and after the work on the GPU. Default: host."
        ),
    )
    flush_l2: bool = field(
        default=False,
        metadata=option(
            "Overwrite a GPU's L2 cache before each sample. The network then finds none of its weights there."
        ),
    )
    profile: bool = field(
        default=False,
        metadata=option(
            "Profile every column after its timed rounds, in turns: which kernels run, for how long, and which nodes "
            "of the network each computes. `ngbkit explain` reads where a gap between two columns comes from."
        ),
    )
    seed: Count = field(
        default=None,
        converter=conversion.to_seed,
        metadata=option("Seeds weights, inputs and the order of measuring. Default: 0; the option `seed` changes it."),
    )

    def __attrs_post_init__(self) -> None:
        if self.repeats is not None and self.precision is not None:
            raise UsageError(
                f"invalid sweep: got repeats={self.repeats!r} and precision={self.precision!r}, which exclude each "
                "other: the one is a number of samples, the other says when to stop. Give one of them."
            )
        if self.race and not self.interleave:
            raise UsageError(
                "invalid sweep: got race=True and interleave=False; compilers that are measured one after the other "
                "cannot race. Leave one of them out."
            )
        fed = feeding.feed(self.workloads, self.inputs, self.batch_axis)
        fed = low_precision.calibrate(fed, self.calibrate, self.evaluate, self.reference)
        object.__setattr__(self, "workloads", conversion.vary(fed, self.factors))  # a frozen record fills itself
        object.__setattr__(self, "compilers", low_precision.expand(self.compilers, self.precisions))
        low_precision.check(self.workloads, self.compilers, self.accept)
        if self.precision is None and self.repeats is None:
            object.__setattr__(self, "repeats", options.get_options()["repeats"])
        if self.precision is not None and self.max_seconds is None:
            # A rule that stops when something is precise enough needs an end where it never is.
            object.__setattr__(self, "max_seconds", MAX_SECONDS)

    def groups(self, device: str | None = None) -> Iterator[Group]:
        """The groups by network, factors and batch size, of one device or of all, one at a time."""
        for target in self.devices if device is None else [device]:
            yield from expand_groups(self.workloads, self.compilers, self.batch_sizes, target)

    def bundles(self, device: str) -> Iterator[Bundle]:
        """The groups of a device, in the order in which they are measured, with those that take turns together."""
        return bundle_groups(self.groups(device), self.together and self.interleave)

    def to_wave(self) -> Self:
        """The sweep with the samples of one of its waves."""
        if self.waves == 1:
            return self
        return evolve(
            self,
            repeats=None if self.repeats is None else math.ceil(self.repeats / self.waves),
            precision=None if self.precision is None else min(0.99, self.precision * math.sqrt(self.waves)),
            max_seconds=None if self.max_seconds is None else self.max_seconds / self.waves,
            min_rounds=max(_LEAST_ROUNDS, math.ceil(self.min_rounds / self.waves)),
        )

    def to_words(self) -> list[str]:
        """Format the words that ask for this sweep in a shell, without its networks and without defaults."""
        return format_options(
            self, type(self)(workloads=self.workloads, factors=self.factors, precision=self.precision)
        )

    def trials(self, device: str | None = None) -> list[Trial]:
        """Every trial, by network, factors and batch size."""
        return [trial for group in self.groups(device) for trial in group.trials]

    def __len__(self) -> int:
        per_device = sum(math.prod(map(len, workload.factors.values())) for workload in self.workloads)
        return per_device * len(self.batch_sizes) * len(self.compilers) * len(self.devices)

    @property
    def id(self) -> str:
        """A content hash of the whole request, whatever the paths of its samples."""
        return hash_json({name: value for name, value in self.to_json().items() if name not in _PATHS})

    def to_json(self) -> dict[str, Any]:
        """The sweep as plain JSON values."""
        values = {name: getattr(self, name) for name in options_of(type(self))}
        for name, first in (("memory", KEPT), ("waves", 1)):  # recordings from before there was a choice are found
            if values[name] == first:
                del values[name]
        values = {name: to_json_value(value) for name, value in values.items() if value or name not in _CHOICES}
        return _RETIRED | values

    @classmethod
    def from_json(cls, data: Mapping[str, Any], **locate: Any) -> Self:
        """The sweep that `to_json` described; ``locate=`` is passed on to `Workload.from_json`."""
        fields = {name: value for name, value in data.items() if name not in _RETIRED}
        fields["workloads"] = [Workload.from_json(workload, **locate) for workload in data["workloads"]]
        return cls(**fields)


def _flatten(parse: Callable[[str], Iterable[Any]], texts: Iterable[str]) -> list[Any]:
    return [value for text in texts for value in parse(text)]


resolve_types(Grid, include_extras=True)
Grid.__doc__ = f"{read_docstring(Grid)}\n\n{format_parameters(Grid)}\n"
