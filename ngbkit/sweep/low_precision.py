"""Lower precisions as columns of a sweep: their labels, the samples that calibrate them, and the accepted costs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit import validation
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.sweep import feeding
from ngbkit.sweep.column import Column
from ngbkit.sweep.option import option
from ngbkit.sweep.trials import split_labels
from ngbkit.user_text import parse_path
from ngbkit.workloads.base import RANDOM, Workload
from ngbkit.workloads.precision import PRECISION

if TYPE_CHECKING:
    from ngbkit.compilers.base import Compiler

COSTS = ("agreement", "relative_error", "sqnr", "accuracy")
"""The costs of a lower precision in answers: facts of a trial, and variables of the dataset."""

UNJUDGED = "is not judged without --accept"
"""Explains a lower precision whose cost is known, and no bound of it."""

_BOUND = re.compile(r"\s*(\w+)\s*(>=|<=)\s*([0-9.eE+-]+)\s*(%?)\s*")
_EXAMPLE = "agreement>=0.99, relative_error<=0.05, sqnr>=20 or accuracy>=0.95"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A bound of a cost."""

    cost: str
    is_least: bool
    value: float

    @classmethod
    def parse(cls, text: str) -> Bound:
        """The bound in ``agreement>=0.99``; UsageError if there is none."""
        match = _BOUND.fullmatch(text)
        if match is None:
            raise UsageError(f"invalid accept: got {text!r}; expected a cost and its bound, such as {_EXAMPLE}.")
        cost, sign, number, percent = match.groups()
        if cost not in COSTS:
            raise UnknownNameError("cost", cost, COSTS)
        value: float = validation.check(f"accept, the bound of {cost}", validation.Finite, _to_float(number))
        return cls(cost=cost, is_least=sign == ">=", value=value / 100 if percent else value)

    def __str__(self) -> str:
        return f"{self.cost}{'>=' if self.is_least else '<='}{self.value:g}"

    def admits(self, value: float) -> bool:
        """Return whether a cost is within the bound."""
        return value >= self.value if self.is_least else value <= self.value


def _to_float(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def to_precisions(value: str | Iterable[str] | None) -> tuple[str, ...]:
    """Names of precisions, each once."""
    names = split_labels(value) if isinstance(value, str) else list(value or ())
    if any(not isinstance(name, str) for name in names):
        raise UsageError(f"invalid precisions: got {value!r}; expected names such as f32, bf16 and int8.")
    return tuple(dict.fromkeys(names))


def to_calibration(value: Any) -> dict[str, str] | None:
    """The files of samples by network, or `RANDOM`."""
    if isinstance(value, str) and value == RANDOM:
        return {feeding.ALL: RANDOM}
    if isinstance(value, Mapping) and any(source == RANDOM for source in value.values() if isinstance(source, str)):
        files = {name: source for name, source in value.items() if source != RANDOM}
        randoms = {str(name): RANDOM for name, source in value.items() if source == RANDOM}
        return {**(feeding.to_inputs(files) or {}), **randoms}
    return feeding.to_inputs(value)


def to_evaluation(value: Any) -> dict[str, str] | None:
    """The files of labelled samples by network; arrays, with their function of outputs and targets, become a file."""
    from ngbkit.workloads import targets  # imports NumPy, which the magics load when they are used

    return None if value is None else feeding.to_inputs(targets.to_source(value))


def to_reference(value: Any) -> dict[str, str] | None:
    """The ONNX files in f32 by network."""
    files = value.values() if isinstance(value, Mapping) else [] if value is None else [value]
    if any(not isinstance(file, (str, Path)) for file in files):
        raise UsageError(
            f"invalid reference: got {type(value).__name__}; expected the path of an ONNX file in f32, or a dict of "
            "such paths by network. Save the network to a file."
        )
    return feeding.to_inputs(value)


def to_bounds(value: str | Iterable[str] | None) -> tuple[str, ...]:
    """Bounds as texts, checked."""
    texts = [value] if isinstance(value, str) else list(value or ())
    return tuple(str(Bound.parse(part)) for text in texts for part in str(text).split(","))


def expand(compilers: Sequence[str], precisions: Sequence[str]) -> tuple[str, ...]:
    """The labels with a column for each precision that a compiler has; those that name a precision stay."""
    if not precisions:
        return tuple(compilers)
    labels: dict[str, None] = {}
    for column in map(Column.read, compilers):
        offered = list_offered(column.load_compiler())
        names = ["" if name == offered[0] else name for name in precisions if name in offered]
        if not names and not column.precision:
            raise UsageError(
                f"invalid precisions: got {', '.join(precisions)}; {column.compiler} has {', '.join(offered)}. Add one "
                f"of these, or leave {column.compiler} out."
            )
        chosen = [column] if column.precision else [replace(column, precision=name) for name in names]
        labels |= dict.fromkeys(each.label for each in chosen)
    return tuple(labels)


def list_absent(compilers: Sequence[str], precisions: Sequence[str]) -> Iterator[str]:
    """Yield a sentence on each compiler without a column in a precision that was asked for."""
    for name in dict.fromkeys(Column.read(label).compiler for label in compilers):
        offered = list_offered(Column(compiler=name).load_compiler())
        absent = [precision for precision in precisions if precision not in offered]
        if absent:
            yield f"no column of {name} in {', '.join(absent)}: it has {', '.join(offered)}"


def list_offered(compiler: Compiler) -> tuple[str, ...]:
    """List the precisions of a compiler, its default first; one without the option computes as the network does."""
    declared = compiler.list_options().get(PRECISION)
    if declared is None:
        return ("f32",)
    return tuple(dict.fromkeys(map(str, (declared.default, *declared.choices))))


def calibrate(
    workloads: Sequence[Workload],
    files: Mapping[str, str] | None,
    labelled: Mapping[str, str] | None,
    originals: Mapping[str, str] | None,
) -> tuple[Workload, ...]:
    """The workloads with their samples, their `labelled` ones, and their `originals` in f32, unless they have them."""
    chosen = _attach(workloads, files, "--calibrate", "calibration", _calibrate)
    chosen = _attach(chosen, labelled, "--evaluate", "evaluation", _evaluate)
    return tuple(_attach(chosen, originals, "--reference", "reference", _refer))


def _attach(
    workloads: Sequence[Workload],
    files: Mapping[str, str] | None,
    flag: str,
    choice: str,
    attach: Callable[[Workload, str], Workload],
) -> list[Workload]:
    attached = list(workloads)
    for name, file in (files or {}).items():
        targets = feeding.select_targets(attached, name, flag, choice)
        attached = [attach(workload, file) if workload in targets else workload for workload in attached]
    return attached


def _calibrate(workload: Workload, file: str) -> Workload:
    if file == RANDOM:
        return replace(workload, calibration=RANDOM)
    # They import NumPy, which the magics load when they are used.
    from ngbkit.workloads import pictures, samples, values

    if not pictures.is_folder(parse_path(file)):
        return samples.attach(workload, values.store(values.load(file)))
    array, transform = pictures.load(parse_path(file), workload)
    return samples.attach(workload, values.store({"0": array, samples.TRANSFORM: values.to_text(str(transform))}))


def _evaluate(workload: Workload, file: str) -> Workload:
    from ngbkit.workloads import samples, values

    return samples.attach_labelled(workload, values.store(values.load(file)))


def _refer(workload: Workload, file: str) -> Workload:
    from ngbkit.workloads import reference_file

    return reference_file.attach(workload, parse_path(file))


def check(workloads: Sequence[Workload], compilers: Sequence[str], bounds: Sequence[str]) -> None:
    """Check that columns which need samples have them, and that a bound can be checked."""
    for label in compilers:
        column = Column.read(label)
        quantiser = column.load_compiler().find_quantiser(column.precision)
        bare = [workload.name for workload in workloads if not workload.calibration]
        if quantiser is not None and quantiser.calibrates and bare:
            raise UsageError(
                f"invalid sweep: got {label} without samples of {', '.join(bare)}; expected samples that calibrate it. "
                "Add --calibrate FILE, an .npz of arrays by input name; or --calibrate random, which claims nothing of "
                "accuracy."
            )
    unlabelled = [workload.name for workload in workloads if not workload.evaluation]
    blind = [
        workload.name for workload in workloads if workload.calibration in ("", RANDOM) and workload.name in unlabelled
    ]
    if bounds and blind:
        raise UsageError(
            f"invalid sweep: got accept={', '.join(bounds)} without samples of {', '.join(blind)}; expected samples by "
            "which it is judged. Add --calibrate FILE, an .npz of arrays by input name."
        )
    referring = [workload.name for workload in workloads if workload.reference and workload.name in blind]
    if referring:
        raise UsageError(
            f"invalid sweep: got a reference of {', '.join(referring)} without samples; expected samples for which "
            "outputs are compared. Add --evaluate FILE or --calibrate FILE, an .npz of arrays by input name."
        )
    if unlabelled and any(Bound.parse(bound).cost == "accuracy" for bound in bounds):
        raise UsageError(
            f"invalid sweep: got accept={', '.join(bounds)} without labels of {', '.join(unlabelled)}; expected labels "
            "by which answers are right. Add --evaluate FILE, an .npz of arrays by input name and of labels."
        )


PRECISIONS = option(
    "Precisions, of which each compiler gets a column for those that it has: ``f32``, ``f16``, ``bf16``, ``int8``. A "
    "label with a precision of its own stays one column. Default: each compiler's own.",
    "--precisions",
    action="append",
    metavar="NAMES",
    parse=lambda texts: [name for text in texts for name in split_labels(text)],
    format=lambda names: [",".join(names)],
    help="a column of each compiler for each of these that it has: f32,bf16,int8 (default: the compiler's own)",
)

CALIBRATE = option(
    "Samples by which int8 is calibrated and lower precisions are judged: an ``.npz`` file of arrays by input name, as "
    "for `inputs`, a folder of pictures, which are resized, cropped and normalised as timm publishes it for the "
    "network or as is usual for ImageNet, or a dict of files by network. Every second sample calibrates, and the "
    'others judge, unless those of `evaluate` do. ``"random"`` draws them, and then no accuracy is claimed. Default: '
    "none.",
    "--calibrate",
    completes="variable",
    help="samples that calibrate int8, and by which lower precisions are judged: an .npz file of arrays by input name, "
    "a folder of pictures, or in a notebook a variable of arrays; NETWORK=FILE for one network of several; random "
    "claims no accuracy",
    **feeding.FILES,
)

EVALUATE = option(
    "Labelled samples, by which all precisions are judged: an ``.npz`` file of arrays by input name and of ``labels``, "
    "the place of the right answer of each sample; or a dict of files by network. In Python also a dict of such "
    "arrays, with a function ``correct(outputs, targets)`` where labels are no classes: it returns a truth value for "
    "each sample, and runs on the device. All of these samples judge, at each batch size, and those of `calibrate` "
    "only calibrate. Default: none.",
    "--evaluate",
    completes="variable",
    help="labelled samples that give the accuracy of every column: an .npz file of arrays by input name and of labels, "
    "or in a notebook a variable of these; NETWORK=FILE for one network of several",
    **feeding.FILES,
)

REFERENCE = option(
    "The original in f32 of a network that is quantised already: an ONNX file with the same inputs and outputs, or a "
    "dict of files by network. Agreement, error and noise of every column are then against its outputs, the change of "
    "accuracy is against its answers, and `accept` bounds them, also of columns in the network's own precision. The "
    "check that a compiler computes the network stays one against the network itself. Default: none.",
    "--reference",
    help="the f32 original of a quantised ONNX file, an ONNX file with the same inputs and outputs, against which "
    "agreement, error and accuracy are, and --accept; NETWORK=FILE for one network of several",
    **feeding.FILES,
)

ACCEPT = option(
    "The cost of a lower precision that is accepted, against the outputs of the network itself, or of `reference`, on "
    'half of the samples of `calibrate`: ``"agreement>=0.99"``, ``"relative_error<=0.05"``, ``"sqnr>=20"`` (dB); or '
    'by the labels of `evaluate`: ``"accuracy>=0.95"``. A column that costs more fails, so that it is never the '
    "fastest. Default: f16 and bf16 within their rounding; int8 is not judged.",
    "--accept",
    action="append",
    metavar="BOUND",
    parse=list,
    format=list,
    help="fail columns of lower precision that cost more, on half of the samples of --calibrate: agreement>=0.99, "
    "relative_error<=0.05, sqnr>=20; or on those of --evaluate: accuracy>=0.95",
)
