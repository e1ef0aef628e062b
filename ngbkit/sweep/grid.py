"""The grid of trials that a user asks for: validated, expanded, identified."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from attrs import field, frozen

from ngbkit import options
from ngbkit.errors import UsageError
from ngbkit.sweep import expansion, feeding
from ngbkit.sweep.conversion import (
    MIN_ROUNDS,
    to_batch_sizes,
    to_compilers,
    to_devices,
    to_factors,
    to_float,
    to_min_rounds,
    to_precision,
    to_seed,
    to_timeout,
    to_workloads,
    vary,
)
from ngbkit.sweep.json_values import to_json_value
from ngbkit.sweep.option import format_parameters, option, options_of
from ngbkit.sweep.parsing import (
    format_factor_values,
    format_numbers,
    parse_compilers,
    parse_factors,
    parse_numbers,
    restore_quotes,
)
from ngbkit.sweep.trials import BASELINE, Bundle, Group, Trial, split_labels
from ngbkit.sweep.validation import at_least, check, count, flag, multiple, one_of, optional, seconds
from ngbkit.user_text import read_docstring
from ngbkit.workloads.base import FactorValue, Workload, hash_json

if TYPE_CHECKING:
    from typing_extensions import Self

GpuTimer = Literal["host", "events"]
GPU_TIMERS: tuple[str, ...] = get_args(GpuTimer)
MAX_SECONDS = 60.0


@frozen
class Grid:
    """The grid of trials to measure, each of its options declared once: see `ngbkit.sweep.option`."""

    workloads: tuple[Workload, ...] = field(
        converter=to_workloads,
        metadata=option(
            'Networks: names (``"resnet18"``, ``"blocks.conv"``, ``"net.onnx"``) or `Workload` objects.',
            "workloads",
            nargs="*",
            metavar="WORKLOAD",
            completes="workload",
            parse=lambda words: [restore_quotes(word) if isinstance(word, str) else word for word in words],
            help='what to run: a timm name such as resnet18 or resnet18{"img_size":160}, blocks.conv, blocks.mha, '
            "an .onnx file, or a .py file that defines a model",
        ),
    )
    compilers: tuple[str, ...] = field(
        default=(BASELINE,),
        converter=to_compilers,
        metadata=option(
            'Labels: ``"onnxruntime"``, ``\'openvino{"hint":"throughput"}\'``. `identity`, the baseline of every '
            "ratio, comes first in each group if it is among them.",
            "-c",
            "--compilers",
            action="append",
            metavar="NAMES",
            completes="compiler",
            parse=lambda texts: _flatten(parse_compilers, texts),
            format=lambda labels: [",".join(labels)],
            always=True,
            help='separated by commas, each with its own options if needed: identity,openvino{"hint":"throughput"} '
            "(default: identity)",
        ),
    )
    batch_sizes: tuple[int, ...] = field(
        default=(1,),
        converter=to_batch_sizes,
        metadata=option(
            "Samples in one call, each at least 1.",
            "-b",
            "--batch-sizes",
            action="append",
            metavar="SIZES",
            parse=lambda texts: _flatten(lambda text: parse_numbers("batch size", text), texts),
            format=lambda sizes: [format_numbers(sizes)],
            always=True,
            help="samples in one call: 1,4,8 or a range with both its ends, 1:4 (default: 1)",
        ),
    )
    factors: Mapping[str, tuple[FactorValue, ...]] = field(
        default=None,
        converter=to_factors,
        metadata=option(
            'Values to sweep of factors that workloads take: ``{"width": [64, 96], "depth": range(1, 7)}``, or texts, '
            '``{"variant": ["plain", "residual"]}``.',
            "--factor",
            action="append",
            metavar="NAME=VALUES",
            completes="factor",
            parse=parse_factors,
            format=lambda factors: [f"{name}={format_factor_values(values)}" for name, values in factors.items()],
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
    devices: tuple[str, ...] = field(
        default=None,
        converter=to_devices,
        metadata=option(
            'Labels of the devices to measure on. Default: the option `device`, ``"cpu"``, which is this machine.',
            "-d",
            "--devices",
            action="append",
            metavar="NAMES",
            completes="device",
            parse=lambda texts: _flatten(split_labels, texts),
            format=lambda labels: [",".join(labels)],
            help="where to measure (default: cpu)",
        ),
    )
    repeats: int | None = field(
        default=None,
        validator=check(optional(count)),
        metadata=option(
            "Samples a trial. Default: the option `repeats`, 100.",
            "-r",
            "--repeats",
            metavar="N",
            type=int,
            always=True,
            help="timed samples a trial (default: 100, as in the paper)",
        ),
    )
    precision: float | None = field(
        default=None,
        converter=to_precision,
        metadata=option(
            "Instead of `repeats`: measure until the 95 % interval of each speed-up over the baseline has a half width "
            'of this share of it, such as 0.01 or ``"1%"``. The interval is corrected for repeated looks. It is over '
            "rounds; no number of rounds reduces how much two processes of the same network differ (`ngbkit "
            "selfcheck`).",
            "--precision",
            metavar="SHARE",
            always=True,
            help="instead of --repeats: measure until the 95 %% interval of every speed-up is this narrow on either "
            "side, such as 1%%",
        ),
    )
    min_rounds: int = field(
        default=None,
        converter=to_min_rounds,
        validator=check(count),
        metadata=option(
            f"Interleaving rounds that a trial takes at least. Default: {MIN_ROUNDS}. With fewer repeats, as many "
            "rounds as repeats.",
            "--min-rounds",
            metavar="N",
            type=int,
            help=f"interleaving rounds that a trial takes at least (default: {MIN_ROUNDS})",
        ),
    )
    max_seconds: float | None = field(
        default=None,
        converter=to_float,
        validator=check(optional(seconds)),
        metadata=option(
            "A group is not timed for longer than this, whatever `repeats` and `precision` ask for, once it has "
            f"`min_rounds`. Default: none; {MAX_SECONDS:g} with `precision`.",
            "--max-seconds",
            metavar="SECONDS",
            type=float,
            help=f"time no group for longer than this (default: no limit; {MAX_SECONDS:g} with --precision)",
        ),
    )
    patience: float | None = field(
        default=None,
        converter=to_float,
        validator=check(optional(multiple)),
        metadata=option(
            "Turns that other work disturbed are repeated until this multiple of the time of a group's calls has been "
            "spent on repetitions; 0 repeats nothing. Disturbed samples are kept and marked. Default: "
            f"``${options.PATIENCE}`` of the device, 2.",
            "--patience",
            metavar="FACTOR",
            type=float,
            help="repeat what other work disturbed, for this multiple of the time of a group's calls at most "
            "(default: 2; 0 repeats nothing)",
        ),
    )
    interleave: bool = field(
        default=True,
        validator=check(flag),
        metadata=option(
            "Whether the compilers of a group take turns. False measures one after the other, as most benchmarks do: "
            "for a device that cannot hold them all, and to see what difference it makes.",
            "--sequential",
            action="store_true",
            parse=lambda sequential: not sequential,
            help="measure the compilers of a group one after the other and not in turns",
        ),
    )
    together: bool = field(
        default=False,
        validator=check(flag),
        metadata=option(
            "Whether networks are compared with each other as compilers are: at each batch size all networks, with all "
            "values of their factors, take turns in the same rounds. What does not fit in memory is measured later, "
            "beside the baseline of the first network, to which its throughputs are tied.",
            "--together",
            action="store_true",
            help="let the networks of the sweep take turns in the same rounds, as the compilers of one do: for `which "
            "network is the fastest?`",
        ),
    )
    race: bool = field(
        default=False,
        validator=check(flag),
        metadata=option(
            "Whether a compiler is measured no further once another one of its group is surely faster: the rounds go "
            "to what may still be the fastest, until one is left. With `together`, networks race as well. With "
            "`precision`, a race among equals ends when their ratio to the fastest is that precise.",
            "--race",
            action="store_true",
            help="measure a compiler no further once another one is surely faster: for `which is the fastest?`",
        ),
    )
    threads: int | None = field(
        default=None,
        validator=check(optional(count)),
        metadata=option(
            "Worker threads of every runtime. Default: one a core that the device's engine may use.",
            "--threads",
            metavar="N",
            type=int,
            help="worker threads of every runtime (default: one a core)",
        ),
    )
    timeout_s: float = field(
        default=None,
        converter=to_timeout,
        validator=check(seconds),
        metadata=option(
            "How long one step of a child may take, in seconds. Default: the option `timeout_s`, 600. A compile that "
            "tunes may take longer, as long as it reports progress.",
            "--timeout",
            metavar="SECONDS",
            type=float,
            help="how long one step of a trial may take (default: 600)",
        ),
    )
    tuning_seconds: float | None = field(
        default=None,
        converter=to_float,
        validator=check(optional(seconds)),
        metadata=option(
            "Seconds that compilers which search for fast code may spend on each device in this run, in all; they are "
            "shared out evenly among the trials that tune. Default: only the limits of the compilers' own options.",
            "--tuning-seconds",
            metavar="SECONDS",
            type=float,
            help="seconds that compilers which search for fast code may spend on each device, in all (default: no "
            "limit)",
        ),
    )
    tuning_candidates: int | None = field(
        default=None,
        validator=check(optional(count)),
        metadata=option(
            "Candidates that such compilers may try on each device in this run; shared out as `tuning_seconds`.",
            "--tuning-candidates",
            metavar="N",
            type=int,
            help="candidates that such compilers may try on each device, in all (default: no limit)",
        ),
    )
    gpu_timer: GpuTimer = field(
        default="host",
        validator=check(one_of(GPU_TIMERS)),
        metadata=option(
            'The clock of samples on a GPU: ``"host"``, the CPU\'s clock around a call that waits for its outputs; or '
            '``"events"``, CUDA events before and after the work on the GPU.',
            "--gpu-timer",
            choices=GPU_TIMERS,
            help="time samples on a GPU by the CPU's clock around a whole call, or by CUDA events (default: host)",
        ),
    )
    flush_l2: bool = field(
        default=False,
        validator=check(flag),
        metadata=option(
            "Whether a GPU's L2 cache is overwritten before each sample: the network then finds none of its weights "
            "there.",
            "--flush-l2",
            action="store_true",
            help="overwrite a GPU's L2 cache before each sample",
        ),
    )
    seed: int = field(
        default=None,
        converter=to_seed,
        validator=check(at_least(0)),
        metadata=option(
            "Seeds weights, inputs and the order of measuring. Default: the option `seed`, 0.",
            "--seed",
            metavar="N",
            type=int,
            help="seeds weights, inputs and the order of measuring (default: 0)",
        ),
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
        object.__setattr__(self, "workloads", vary(fed, self.factors))  # a frozen record fills itself
        if self.precision is None and self.repeats is None:
            object.__setattr__(self, "repeats", options.get_options()["repeats"])
        if self.precision is not None and self.max_seconds is None:
            # A rule that stops when something is precise enough needs an end where it never is.
            object.__setattr__(self, "max_seconds", MAX_SECONDS)

    def groups(self, device: str | None = None) -> Iterator[Group]:
        """The groups by network, factors and batch size, of one device or of all, one at a time."""
        for target in self.devices if device is None else [device]:
            yield from expansion.expand_groups(self, target)

    def bundles(self, device: str) -> Iterator[Bundle]:
        """The groups of a device, in the order in which they are measured, with those that take turns together."""
        return expansion.expand_bundles(self, device)

    def trials(self, device: str | None = None) -> list[Trial]:
        """Every trial, by network, factors and batch size."""
        return [trial for group in self.groups(device) for trial in group.trials]

    def __len__(self) -> int:
        per_device = sum(math.prod(map(len, workload.factors.values())) for workload in self.workloads)
        return per_device * len(self.batch_sizes) * len(self.compilers) * len(self.devices)

    @property
    def id(self) -> str:
        """A content hash of the whole request."""
        return hash_json(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """The sweep as plain JSON values."""
        return {name: to_json_value(getattr(self, name)) for name in options_of(type(self))}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], **locate: Any) -> Self:
        """The sweep that `to_json` described; ``locate=`` is passed on to `Workload.from_json`."""
        fields = dict(data)
        fields["workloads"] = [Workload.from_json(workload, **locate) for workload in data["workloads"]]
        return cls(**fields)


def _flatten(parse: Callable[[str], Iterable[Any]], texts: Iterable[str]) -> list[Any]:
    return [value for text in texts for value in parse(text)]


Grid.__doc__ = f"{read_docstring(Grid)}\n\n{format_parameters(Grid)}\n"
