"""The words of a command line: one table of arguments for the magics and the shell, and the sweep that they ask for."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from ngbkit import options
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.sweep.grid import GPU_TIMERS, MAX_SECONDS, MIN_ROUNDS, Sweep
from ngbkit.sweep.parsing import read_factors, read_numbers, restore_quotes, write_numbers
from ngbkit.sweep.trials import split_labels
from ngbkit.workloads.base import Workload

if TYPE_CHECKING:
    from ngbkit.cluster.engine import Engine
    from ngbkit.runs import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of a command.

    Parameters
    ----------
    flags
        As argparse takes them: ``("-c", "--compilers")``, or a bare name for a positional one.
    help
        One line; the same in a shell and in ``%ngbench?``.
    completes
        What Tab offers for its value, a kind that `ngbkit.notebook.completion` knows; empty for nothing.
    settings
        Further keywords of ``add_argument``.
    """

    flags: tuple[str, ...]
    help: str
    completes: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def keywords(self) -> dict[str, Any]:
        """What ``add_argument`` takes."""
        return {"help": self.help, **self.settings}


def argument(*flags: str, help: str, completes: str = "", **settings: Any) -> Argument:
    """An `Argument`, its settings as keywords."""
    return Argument(flags=flags, help=help, completes=completes, settings=settings)


def _list(*flags: str, **about: Any) -> Argument:
    """An argument that may be given twice and then holds both."""
    return argument(*flags, action="append", **about)


WORKLOADS = argument(
    "workloads",
    nargs="*",
    metavar="WORKLOAD",
    completes="workload",
    help='what to run: a timm name such as resnet18 or resnet18{"img_size":160}, blocks.conv, blocks.mha, '
    "an .onnx file, or a .py file that defines a model",
)
COMPILERS = _list(
    "-c",
    "--compilers",
    metavar="NAMES",
    completes="compiler",
    help='separated by commas, each with options of its own where wanted: identity,openvino{"hint":"throughput"} '
    "(default: identity)",
)
OUT = argument("-o", "--out", metavar="NAME", completes="variable", help="bind the dataset to this variable")
FILE = argument("-o", "--out", metavar="FILE", help="write the dataset to this file, such as results/out.nc")
BACKGROUND = argument("--background", action="store_true", help="return the live run at once and measure meanwhile")
CLUSTER = argument(
    "--cluster",
    metavar="ID",
    completes="path",
    help="measure on the engines of a running ipyparallel cluster: its id, or its connection file",
)
REPEATS = argument(
    "-r", "--repeats", metavar="N", type=int, help="timed samples a trial (default: 100, as in the paper)"
)

SWEEP: tuple[Argument, ...] = (
    COMPILERS,
    _list(
        "-b",
        "--batch-sizes",
        metavar="SIZES",
        help="samples in one call: 1,4,8 or a range with both its ends, 1:4 (default: 1)",
    ),
    REPEATS,
    argument(
        "--precision",
        metavar="SHARE",
        help="in the place of --repeats: measure until the 95 %% interval of every speed-up is this narrow on either "
        "side, such as 1%%",
    ),
    argument(
        "--min-rounds", metavar="N", type=int, help="interleaving rounds that a trial takes at least (default: 10)"
    ),
    argument(
        "--max-seconds",
        metavar="SECONDS",
        type=float,
        help="time no group for longer than this (default: no limit; 60 with --precision)",
    ),
    argument(
        "--sequential",
        action="store_true",
        help="measure the compilers of a group one after the other and not in turns",
    ),
    _list("-d", "--devices", metavar="NAMES", completes="device", help="where to measure (default: cpu)"),
    _list(
        "--factor",
        metavar="NAME=VALUES",
        completes="factor",
        help="values of a factor that a workload takes: width=64,96 or a range with both its ends, depth=1:6, "
        "depth=1:9:2; once a factor",
    ),
    argument("--threads", metavar="N", type=int, help="worker threads of every runtime (default: one a core)"),
    argument("--timeout", metavar="SECONDS", type=float, help="how long one step of a trial may take (default: 600)"),
    argument(
        "--tuning-seconds",
        metavar="SECONDS",
        type=float,
        help="what compilers that search for fast code may spend on each device, in all (default: no limit)",
    ),
    argument(
        "--tuning-candidates",
        metavar="N",
        type=int,
        help="how many candidates such compilers may try on each device, in all (default: no limit)",
    ),
    argument(
        "--gpu-timer",
        choices=GPU_TIMERS,
        help="time samples on a GPU by the CPU's clock around a whole call, or by CUDA events (default: host)",
    ),
    argument("--flush-l2", action="store_true", help="overwrite a GPU's L2 cache before each sample"),
    argument("--seed", metavar="N", type=int, help="seeds weights, inputs and the order of measuring (default: 0)"),
    CLUSTER,
)

MODULE: tuple[Argument, ...] = (
    _list(
        "--input-shape",
        metavar="SHAPE",
        help="of one sample, for a module of the notebook: 3,224,224; once an input",
    ),
    argument("--inputs", metavar="NAME", completes="variable", help="a variable of example tensors for such a module"),
    argument("--name", metavar="LABEL", help="what the results call that module, or the cell's model"),
)

RUN = argument("--resume", metavar="ID", completes="run", help="go on with this run: its id, or how its id begins")
RESUME: tuple[Argument, ...] = (
    _list(
        "--retry",
        metavar="STATUSES",
        completes="status",
        help="measure trials of these statuses again, such as timeout,crashed",
    ),
    CLUSTER,
)


BUDGET: tuple[Argument, ...] = (
    argument(
        "--budget",
        metavar="TIME",
        help="measure for about so long, 20min or 1.5h, or a share of the trials, 10%%: those that tell most of which "
        "compiler is the best, and predict the others",
    ),
    argument(
        "--predictor",
        metavar="FILE",
        completes="path",
        help="a predictor that was saved, which knows something before anything is measured; with --budget or "
        "--estimate",
    ),
    argument("--estimate", action="store_true", help="measure nothing, and say how long it would take"),
)


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are `UsageError`, and are printed by whoever called it."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. `{self.prog} --help` says what is valid.")


def parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """What the words say; those that may be many, such as workloads, may stand before, between and after the options.

    Raises
    ------
    UnknownNameError
        An option that there is not; the error offers the nearest.
    """
    parsed, rest = parser.parse_known_args(words)
    parser = getattr(parsed, "parser", parser)
    unknown = next((word.partition("=")[0] for word in rest if word.startswith("-")), None)
    if unknown is not None:
        raise UnknownNameError("option", unknown, parser._option_string_actions)
    many = next((one.dest for one in parser._actions if one.nargs == "*" and not one.option_strings), None)
    if rest and many is None:
        raise UsageError(f"{' '.join(rest)!r} is too much: `{parser.prog}` takes no such word.")
    if rest and many is not None:
        setattr(parsed, many, [*getattr(parsed, many), *rest])
    return parsed


def to_sweep(asked: argparse.Namespace, workloads: Iterable[str | Workload] | None = None) -> Sweep:
    """The sweep that parsed arguments ask for.

    Parameters
    ----------
    asked
        What `parse` gave for the arguments `SWEEP`.
    workloads
        In the place of those that were named.

    Raises
    ------
    UsageError
        Something that was asked for is not valid, or there is no device of that name.
    """
    given = asked.workloads if workloads is None else workloads
    wanted: dict[str, Any] = {
        "batch_sizes": _joined(asked.batch_sizes, lambda text: read_numbers("batch size", text)),
        "compilers": _joined(asked.compilers, _read_compilers),
        "devices": _joined(asked.devices, split_labels),
        "factors": read_factors(asked.factor or ()),
        "repeats": asked.repeats,
        "precision": asked.precision,
        "min_rounds": asked.min_rounds,
        "max_seconds": asked.max_seconds,
        "interleave": not asked.sequential,
        "threads": asked.threads,
        "timeout_s": asked.timeout,
        "tuning_seconds": asked.tuning_seconds,
        "tuning_candidates": asked.tuning_candidates,
        "gpu_timer": asked.gpu_timer,
        "flush_l2": asked.flush_l2,
        "seed": asked.seed,
    }
    sweep = Sweep(
        [restore_quotes(one) if isinstance(one, str) else one for one in given],
        **{name: value for name, value in wanted.items() if value is not None},
    )
    if not asked.cluster:
        from ngbkit.cluster import devices

        devices.check(sweep.devices)
    return sweep


def to_run(sweep: Sweep, asked: argparse.Namespace) -> Run:
    """The run of a sweep, begun, as parsed arguments ask for: with a budget, on the engines of a cluster."""
    return sweep.start(budget=asked.budget, predictor=asked.predictor, engines=to_engines(asked.cluster, sweep.devices))


def to_words(sweep: Sweep) -> list[str]:
    """The options that ask for a sweep again, without its workloads and without what is as by default."""
    defaults = options.get_options()
    words = ["-c", ",".join(sweep.compilers), "-b", write_numbers(sweep.batch_sizes)]
    words += ["-r", str(sweep.repeats)] if sweep.precision is None else ["--precision", f"{sweep.precision:g}"]
    if sweep.min_rounds != MIN_ROUNDS:
        words += ["--min-rounds", str(sweep.min_rounds)]
    if sweep.max_seconds != (None if sweep.precision is None else MAX_SECONDS):
        words += ["--max-seconds", f"{sweep.max_seconds:g}"]
    if not sweep.interleave:
        words += ["--sequential"]
    if sweep.devices != (options.device(),):
        words += ["-d", ",".join(sweep.devices)]
    for name, values in sweep.factors.items():
        words += ["--factor", f"{name}={write_numbers(values)}"]
    if sweep.threads is not None:
        words += ["--threads", str(sweep.threads)]
    if sweep.timeout_s != defaults["timeout_s"]:
        words += ["--timeout", f"{sweep.timeout_s:g}"]
    if sweep.tuning_seconds is not None:
        words += ["--tuning-seconds", f"{sweep.tuning_seconds:g}"]
    if sweep.tuning_candidates is not None:
        words += ["--tuning-candidates", str(sweep.tuning_candidates)]
    if sweep.gpu_timer != GPU_TIMERS[0]:
        words += ["--gpu-timer", sweep.gpu_timer]
    if sweep.flush_l2:
        words += ["--flush-l2"]
    if sweep.seed != defaults["seed"]:
        words += ["--seed", str(sweep.seed)]
    return words


def to_engines(cluster: str | None, devices: Sequence[str]) -> dict[str, Engine]:
    """An engine of the user's own cluster for each device; none where no cluster is named.

    Raises
    ------
    UsageError, DeviceError
        The cluster has fewer engines than there are devices, or does not answer.
    """
    if not cluster:
        return {}
    from ngbkit.cluster.attach import attach

    first = attach(cluster, devices[0])
    client = first.view.client
    if len(client.ids) < len(devices):
        raise UsageError(
            f"the cluster {cluster} has {len(client.ids)} engine(s) for {len(devices)} devices; "
            "start more (`ipcluster engines`), or name fewer devices."
        )
    others = zip(devices[1:], client.ids[1:], strict=False)
    return {devices[0]: first, **{device: attach(client, device, target=number) for device, number in others}}


def _joined(given: Sequence[str] | None, read: Any) -> list[Any] | None:
    return None if given is None else [value for text in given for value in read(text)]


def _read_compilers(text: str) -> list[str]:
    labels = [restore_quotes(label) for label in split_labels(text)]
    torn = next((label for label in labels if ":" in label.partition("{")[0]), None)
    if torn is not None:
        raise UsageError(
            f"the compiler {torn!r} has lost its braces, which a shell expands where they hold a comma. "
            """Put it in quotes: -c 'openvino{"hint":"latency","precision":"f32"}'."""
        )
    return labels
