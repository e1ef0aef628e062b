"""Values that users give, as a sweep keeps them: names become workloads, texts become labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

from ngbkit import options, registry, validation
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.sweep.column import BASELINE, Column
from ngbkit.sweep.trials import split_labels
from ngbkit.sweep.variables import RESERVED
from ngbkit.workloads.base import FactorValue, Number, Source, Workload


def to_workloads(value: str | Workload | Iterable[str | Workload]) -> tuple[Workload, ...]:
    items = [value] if isinstance(value, (str, Workload)) else list(value)
    if not items:
        raise UsageError(
            "invalid workloads: got none; expected at least one: a timm name, 'blocks.conv', an ONNX file, or a "
            "Workload."
        )
    return _distinguish_files([item if isinstance(item, Workload) else parse_workload(item) for item in items])


def _distinguish_files(workloads: Sequence[Workload]) -> tuple[Workload, ...]:
    """Name each file whose name another network has by the shortest end of its path that no other one has."""
    for (path, name), count in Counter((workload.path, workload.name) for workload in workloads).items():
        if path and count > 1:
            raise UsageError(
                f"invalid workloads: got the file {path} {count} times as {name!r}; expected it once. Leave out the "
                "others."
            )
    endings = [_list_endings(workload) for workload in workloads]
    counts = Counter(name for names in endings for name in names)
    return tuple(
        replace(workload, name=next((name for name in names if counts[name] == 1), names[-1]))
        for workload, names in zip(workloads, endings, strict=True)
    )


def _list_endings(workload: Workload) -> list[str]:
    """List the names that a network may have: of a file that is named after its path, the ends of that path."""
    path = PurePath(workload.path)
    if path.stem != workload.name:
        return [workload.name]
    return [
        PurePath(*place.parts[-depth:]).as_posix()
        for place in (path.with_suffix(""), path)  # files that differ in their suffixes alone need them
        for depth in range(1, len(path.parts) + 1)
    ]


def to_factors(
    value: Mapping[str, FactorValue | Iterable[FactorValue]] | None,
) -> dict[str, tuple[FactorValue, ...]]:
    return {name: _to_factor_values(f"factor {name}", values) for name, values in (value or {}).items()}


def _to_factor_values(kind: str, value: FactorValue | Iterable[FactorValue]) -> tuple[FactorValue, ...]:
    """Check one number or text, or several of the same type, each once."""
    values = [value] if isinstance(value, (int, float, str)) else list(value)
    if not values or not all(isinstance(each, str) or validation.is_number(each) for each in values):
        raise UsageError(f"invalid {kind}: got {values!r}; expected one or more numbers, or one or more texts.")
    if len({isinstance(each, str) for each in values}) > 1:
        texts = ", ".join(repr(str(each)) for each in values)
        raise UsageError(
            f"invalid {kind}: got {values!r}, numbers and texts; expected only numbers or only texts. For texts, write "
            f"[{texts}]."
        )
    for each in values:
        if isinstance(each, str) and not _is_label(each):
            raise UsageError(
                f"invalid {kind}: got {each!r}; expected texts of one line without double quotes and without blanks "
                "at their ends, which label the results. Choose another text, and map it in the cell."
            )
    _check_unique(kind, values)
    return tuple(str(each) if isinstance(each, str) else each for each in values)


def _is_label(text: str) -> bool:
    return bool(text) and text.isprintable() and '"' not in text and text == text.strip()


def _check_unique(kind: str, values: Sequence[object]) -> None:
    repeated = sorted(str(value) for value, count in Counter(values).items() if count > 1)
    if repeated:
        raise UsageError(f"invalid {kind}: got {', '.join(repeated)} twice. Name each once.")


def vary(workloads: Sequence[Workload], factors: Mapping[str, Sequence[FactorValue]]) -> tuple[Workload, ...]:
    """The workloads with the values of those factors that each takes."""
    accepted = check_factors(workloads, factors)
    varied = tuple(workload.with_factors(factors) for workload in workloads)
    for workload in varied:
        _check_texts(workload)
    names = [workload.name for workload in varied]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"invalid workloads: got {names.count(name)} named {name!r}; give each its own name.")
    for name in sorted(accepted & RESERVED):
        raise UsageError(f"invalid factor {name!r}: the dataset uses that name. Call it {name}_factor.")
    return varied


def check_factors(workloads: Sequence[Workload], factors: Iterable[str]) -> set[str]:
    """Return the factors that the workloads take; `UnknownNameError` if none takes one of these `factors`."""
    accepted = {name for workload in workloads for name in workload.takes}
    for name in factors:
        if name not in accepted:
            raise UnknownNameError("factor", name, accepted, "It must be an argument that a workload takes.")
    return accepted


def _check_texts(workload: Workload) -> None:
    """Refuse texts as values of a factor that is a size, such as a dimension of an ONNX file."""
    for name, values in workload.factors.items():
        if isinstance(values[0], str) and not workload.load_source().text_factors:
            raise UsageError(
                f"invalid factor {name}: got {values[0]!r}; expected numbers, since {name} is a size of "
                f"{workload.name}. Texts are for the factors of models in cells and .py files."
            )


def parse_workload(text: str) -> Workload:
    """The workload that a word on a command line names, of the first source that knows it."""
    sources: dict[str, Source] = registry.load_all(registry.WORKLOADS)
    for source in sources.values():
        workload = source.parse(text)
        if workload is not None:
            return workload
    names = [name for source in sources.values() for name in source.complete("")]
    raise UnknownNameError(
        "workload", text, names, "A workload is a timm name, blocks.conv, blocks.mha, or an .onnx or .py file."
    )


def to_compilers(value: str | Iterable[str]) -> tuple[str, ...]:
    texts = split_labels(value) if isinstance(value, str) else list(value)
    labels = [Column.parse(text).label for text in texts]
    if not labels:
        raise UsageError(
            "invalid compilers: got none; expected at least one, such as 'identity'. `ngbkit compilers` lists them."
        )
    _check_unique("compiler", labels)
    return tuple(sorted(labels, key=lambda label: label != BASELINE))


def to_devices(value: str | Iterable[str] | None) -> tuple[str, ...]:
    """The labels of devices; None is this machine, or the device of the kernel."""
    if value is None:
        value = options.get_device()
    labels = split_labels(value) if isinstance(value, str) else list(value)
    if not labels:
        raise UsageError("invalid devices: got none; expected at least one label. `ngbkit devices` lists them.")
    checked: tuple[str, ...] = validation.check("devices", tuple[validation.Label, ...], labels)
    _check_unique("device", checked)
    return checked


def to_batch_sizes(value: Number | Iterable[Number]) -> tuple[int, ...]:
    """Positive integers, each once."""
    values = [value] if isinstance(value, (int, float)) else list(value)
    if not values:
        raise UsageError("invalid batch size: got none; expected at least one integer >= 1.")
    checked: tuple[int, ...] = validation.check("batch size", tuple[validation.PositiveCount, ...], values)
    _check_unique("batch size", checked)
    return checked


def to_precision(value: float | str | None) -> float | None:
    """A share such as 0.01, also from ``"1%"``."""
    precision: float | None = validation.check("precision", validation.Precision | None, value)
    return precision


def to_timeout(value: float | None) -> float:
    """Seconds; None is the option `timeout_s`."""
    return options.get_options()["timeout_s"] if value is None else value


def to_seed(value: int | None) -> int:
    """None is the option `seed`."""
    return options.get_options()["seed"] if value is None else value
