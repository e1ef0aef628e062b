"""Values that users give, as a sweep keeps them: names become workloads, texts become labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import cast

from ngbkit import options, registry
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.sweep import validation
from ngbkit.sweep.trials import BASELINE, Choice, split_labels
from ngbkit.sweep.variables import RESERVED
from ngbkit.workloads.base import FactorValue, Source, Workload

MIN_ROUNDS = 10
# A device's label names a folder on it.
_LABEL = re.compile(r"\w[\w.-]*", re.ASCII)


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
    return {name: validation.factor_values(f"factor {name}", values) for name, values in (value or {}).items()}


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
        if isinstance(values[0], str):
            source: Source = registry.load(registry.WORKLOADS, workload.source)
            if not source.text_factors:
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
    labels = [Choice.parse(text).label for text in texts]
    if not labels:
        raise UsageError(
            "invalid compilers: got none; expected at least one, such as 'identity'. `ngbkit compilers` lists them."
        )
    validation.unique("compiler", labels)
    return tuple(sorted(labels, key=lambda label: label != BASELINE))


def to_devices(value: str | Iterable[str] | None) -> tuple[str, ...]:
    """The labels of devices; None is this machine, or the device of the kernel."""
    if value is None:
        value = options.get_device()
    labels = split_labels(value) if isinstance(value, str) else list(value)
    if not labels or not all(isinstance(label, str) and _LABEL.fullmatch(label) for label in labels):
        raise UsageError(f"invalid devices: got {labels!r}; expected labels of letters, digits, '_', '-' and '.'.")
    validation.unique("device", labels)
    return tuple(labels)


def to_batch_sizes(value: int | Iterable[int]) -> tuple[int, ...]:
    """Positive integers, each once."""
    return validation.counts("batch size", value)


def to_precision(value: float | str | None) -> float | None:
    """A share such as 0.01, also from ``"1%"``."""
    return None if value is None else validation.precision(value)


def to_float(value: float | None) -> float | None:
    """A number as a float, so that 60 and 60.0 are the same sweep; anything else is left to the check."""
    return float(cast(float, value)) if validation.is_number(value) else value


def to_min_rounds(value: int | None) -> int:
    """Those of the default for None."""
    return MIN_ROUNDS if value is None else value


def to_timeout(value: float | None) -> float:
    """Seconds; None is the option `timeout_s`."""
    seconds: float | None = to_float(options.get_options()["timeout_s"] if value is None else value)
    return cast(float, seconds)


def to_seed(value: int | None) -> int:
    """None is the option `seed`."""
    return cast(int, options.get_options()["seed"]) if value is None else value
