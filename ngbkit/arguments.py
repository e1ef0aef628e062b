"""The words of a command line: one table of arguments for the magics and the shell, and the sweep that they ask for."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from ngbkit import options
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.sweep import Sweep, split_labels
from ngbkit.workloads.base import Number, Workload

if TYPE_CHECKING:
    from ngbkit.cluster.engine import Engine

_IN_BRACES = r"\{(?:[^{}]|\{[^{}]*\})*\}"
_WORD = re.compile(rf"""(?:{_IN_BRACES}|'[^']*'|"[^"]*"|[^\s'"{{])+""")
_QUOTED = re.compile(rf"""({_IN_BRACES})|'([^']*)'|"([^"]*)\"""")
_LEFTOVER = re.compile(r"\S+")
# A word of a JSON object whose quotes are gone; the e of 1e5 is none.
_BARE = re.compile(r"(?<![\w.])[A-Za-z_][\w./+-]*")
_JSON_WORDS = ("true", "false", "null")
_RANGE = re.compile(r"[^:]+:[^:]+(:[^:]+)?")
_MOST_VALUES = 100_000


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


def _argument(*flags: str, help: str, completes: str = "", **settings: Any) -> Argument:
    return Argument(flags=flags, help=help, completes=completes, settings=settings)


def _list(*flags: str, **about: Any) -> Argument:
    """An argument that may be given twice and then holds both."""
    return _argument(*flags, action="append", **about)


WORKLOADS = _argument(
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
OUT = _argument("-o", "--out", metavar="NAME", completes="variable", help="bind the dataset to this variable")
FILE = _argument("-o", "--out", metavar="FILE", help="write the dataset to this file, such as results/out.nc")
BACKGROUND = _argument("--background", action="store_true", help="return the live run at once and measure meanwhile")
CLUSTER = _argument(
    "--cluster",
    metavar="ID",
    completes="path",
    help="measure on the engines of a running ipyparallel cluster: its id, or its connection file",
)
REPEATS = _argument(
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
    _list("-d", "--devices", metavar="NAMES", completes="device", help="where to measure (default: cpu)"),
    _list(
        "--factor",
        metavar="NAME=VALUES",
        completes="factor",
        help="values of a factor that a workload takes: width=64,96 or a range with both its ends, depth=1:6, "
        "depth=1:9:2; once a factor",
    ),
    _argument("--threads", metavar="N", type=int, help="worker threads of every runtime (default: one a core)"),
    _argument("--timeout", metavar="SECONDS", type=float, help="how long one step of a trial may take (default: 600)"),
    _argument("--seed", metavar="N", type=int, help="seeds weights, inputs and the order of measuring (default: 0)"),
    CLUSTER,
)

MODULE: tuple[Argument, ...] = (
    _list(
        "--input-shape",
        metavar="SHAPE",
        help="of one sample, for a module of the notebook: 3,224,224; once an input",
    ),
    _argument("--inputs", metavar="NAME", completes="variable", help="a variable of example tensors for such a module"),
    _argument("--name", metavar="LABEL", help="what the results call that module, or the cell's model"),
)

RUN = _argument("--resume", metavar="ID", completes="run", help="go on with this run: its id, or how its id begins")
RESUME: tuple[Argument, ...] = (
    _list(
        "--retry",
        metavar="STATUSES",
        completes="status",
        help="measure trials of these statuses again, such as timeout,crashed",
    ),
    CLUSTER,
)


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are `UsageError`, and are printed by whoever called it."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. `{self.prog} --help` says what is valid.")


def parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """What the words say; workloads may stand before, between and after the options.

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
    if rest and not hasattr(parsed, WORKLOADS.flags[0]):
        raise UsageError(f"{' '.join(rest)!r} is too much: `{parser.prog}` takes no such word.")
    if rest:
        parsed.workloads = [*parsed.workloads, *rest]
    return parsed


def split_words(line: str) -> list[str]:
    """The words of a magic's line, split at blanks that are neither quoted nor inside braces.

    >>> split_words('resnet18 -c identity,openvino{"hint": "throughput"}')
    ['resnet18', '-c', 'identity,openvino{"hint": "throughput"}']

    Raises
    ------
    UsageError
        A quote or a brace that is not closed.
    """
    lost = _LEFTOVER.search(_WORD.sub("", line))
    if lost:
        raise UsageError(f"{lost[0][0]} is opened in {line.strip()!r} and not closed.")
    return [_QUOTED.sub(lambda piece: piece[1] or piece[2] or piece[3] or "", word) for word in _WORD.findall(line)]


def restore_quotes(label: str) -> str:
    """A label with the quotes in its braces that a shell takes away, or that nobody wanted to type.

    >>> restore_quotes("openvino{hint:throughput}"), restore_quotes("resnet18{img_size=160}")
    ('openvino{"hint":"throughput"}', 'resnet18{"img_size":160}')
    """
    name, brace, rest = label.partition("{")
    if not brace or '"' in rest:
        return label
    quoted = _BARE.sub(lambda word: word[0] if word[0] in _JSON_WORDS else json.dumps(word[0]), rest)
    return name + brace + quoted.replace("=", ":")


def read_numbers(kind: str, text: str) -> list[Number]:
    """The numbers that ``64,96``, ``1:6`` (both ends included) or ``1:9:2`` stands for.

    Raises
    ------
    UsageError
        It reads as none of these; `kind` says what it was meant to be.
    """
    pieces = [piece.strip() for piece in text.split(",")]
    try:
        return [number for piece in pieces for number in _stretch(piece)]
    except (ValueError, OverflowError):
        raise UsageError(
            f"{kind} {text!r} does not read; write values as 64,96, or a range with both its ends as 1:6 or 1:9:2."
        ) from None


def read_factors(given: Iterable[str]) -> dict[str, list[Number]]:
    """The values by factor that several ``width=64,96`` ask for.

    Raises
    ------
    UsageError
        Not ``NAME=VALUES``, or a factor that is given twice.
    """
    factors: dict[str, list[Number]] = {}
    for text in given:
        name, equals, values = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier():
            raise UsageError(
                f"--factor {text!r} does not read; write it as --factor width=64,96 or --factor depth=1:6."
            )
        if name in factors:
            raise UsageError(f"the factor {name} is given twice; name all its values at once: --factor {name}=64,96.")
        factors[name] = read_numbers(f"factor {name}", values)
    return factors


def read_shape(text: str) -> tuple[int, ...]:
    """The shape of one sample that ``3,224,224`` stands for.

    Raises
    ------
    UsageError
        It is not made of positive integers.
    """
    sides = [side.strip() for side in text.strip("(), ").split(",")]
    if not all(side.isdecimal() and int(side) for side in sides):
        raise UsageError(f"--input-shape {text!r} does not fit; valid is the shape of one sample, such as 3,224,224.")
    return tuple(int(side) for side in sides)


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
        "threads": asked.threads,
        "timeout_s": asked.timeout,
        "seed": asked.seed,
    }
    sweep = Sweep(
        [restore_quotes(one) if isinstance(one, str) else one for one in given],
        **{name: value for name, value in wanted.items() if value is not None},
    )
    if not asked.cluster:
        _check_devices(sweep.devices)
    return sweep


def to_words(sweep: Sweep) -> list[str]:
    """The options that ask for a sweep again, without its workloads and without what is as by default."""
    defaults = options.get_options()
    words = ["-c", ",".join(sweep.compilers), "-b", _write_numbers(sweep.batch_sizes), "-r", str(sweep.repeats)]
    if sweep.devices != ("cpu",):
        words += ["-d", ",".join(sweep.devices)]
    for name, values in sweep.factors.items():
        words += ["--factor", f"{name}={_write_numbers(values)}"]
    if sweep.threads is not None:
        words += ["--threads", str(sweep.threads)]
    if sweep.timeout_s != defaults["timeout_s"]:
        words += ["--timeout", f"{sweep.timeout_s:g}"]
    if sweep.seed != defaults["seed"]:
        words += ["--seed", str(sweep.seed)]
    return words


def read_statuses(given: Iterable[str] | None) -> list[str]:
    """The statuses that one or more ``timeout,crashed`` name."""
    return [status for text in given or () for status in split_labels(text)]


def to_engines(cluster: str | None, devices: Sequence[str]) -> dict[str, Engine]:
    """An engine of the user's own cluster for each device; none where no cluster is named.

    Raises
    ------
    UsageError, DeviceError
        The cluster has fewer engines than there are devices, or does not answer.
    """
    if not cluster:
        return {}
    from ngbkit.cluster import attach

    first = attach(cluster, devices[0])
    client = first.view.client
    if len(client.ids) < len(devices):
        raise UsageError(
            f"the cluster {cluster} has {len(client.ids)} engine(s) for {len(devices)} devices; "
            "start more (`ipcluster engines`), or name fewer devices."
        )
    others = zip(devices[1:], client.ids[1:], strict=False)
    return {devices[0]: first, **{device: attach(client, device, target=number) for device, number in others}}


def _stretch(piece: str) -> list[Number]:
    if not _RANGE.fullmatch(piece):
        return [_number(piece)]
    first, last, *steps = (_number(part) for part in piece.split(":"))
    step = steps[0] if steps else 1
    count = int((last - first) / step + 1e-9) + 1 if step else 0
    if not step or (last - first) * step < 0 or count > _MOST_VALUES:
        raise ValueError(piece)
    return [first + index * step for index in range(count)]


def _number(text: str) -> Number:
    try:
        return int(text)
    except ValueError:
        number = float(text)
    if number != number or abs(number) == float("inf"):
        raise ValueError(text)
    return number


def _write_numbers(values: Sequence[Number]) -> str:
    """The numbers as `read_numbers` takes them: a range where they are one."""
    first, last = values[0], values[-1]
    if len(values) > 2 and isinstance(first, int) and list(values) == list(range(first, first + len(values))):
        return f"{first}:{last}"
    return ",".join(map(str, values))


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


def _check_devices(devices: Iterable[str]) -> None:
    from ngbkit.cluster.dispatch import known_devices

    known = known_devices()
    for device in devices:
        if device not in known:
            raise UnknownNameError("device", device, known, "`ngbkit devices` lists them all.")
