"""Examples of networks that were measured elsewhere: from files, models or a table, and seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ngbkit import options
from ngbkit.errors import UsageError
from ngbkit.predict.graphs import Graph
from ngbkit.predict.kinds.base import Progress, log_progress
from ngbkit.predict.labels.building import build_examples
from ngbkit.predict.labels.example_set import Examples
from ngbkit.predict.labels.label_table import is_table
from ngbkit.predict.labels.label_table import read as read_table
from ngbkit.predict.labels.measured_networks import NETWORKS, ImportedMeasurement
from ngbkit.predict.labels.rows import Runtime
from ngbkit.user_text import clean_line
from ngbkit.workloads.base import FactorValue, Workload

Floats = NDArray[np.float64]
RuntimeName = str | tuple[str, str]

UNNAMED = "unnamed"
"""The compiler of labels that name none."""

_SHAPES = "one number for each network; an array of shape (networks, runtimes); or a dict of runtimes, each with one "
_SHAPES += "number for each network"
_PAIR = 2


def examples(
    networks: Any,
    seconds: Any = None,
    *,
    runtime: RuntimeName | Sequence[RuntimeName] | None = None,
    family: str | Sequence[str] | None = None,
    parent: Sequence[str] | None = None,
    name: Sequence[str] | None = None,
    errors: ArrayLike | Mapping[RuntimeName, Any] | None = None,
    batch_size: int | Sequence[int] | None = None,
    factors: Mapping[str, FactorValue | Sequence[FactorValue]] | None = None,
    lowered: bool = False,
    report: Progress | None = None,
) -> Examples:
    """The examples of networks that were measured elsewhere.

    Parameters
    ----------
    networks
        Paths of ONNX files, names (``"resnet18"``, ``'resnet18{"img_size":160}'``), `onnx.ModelProto`, workloads such
        as `ngbkit.from_module` returns, and graphs, in any mixture. With `seconds` left out: a list of pairs of a
        network and its seconds, a dict of these, a `pandas.DataFrame`, or the path of a CSV: see the notes.
    seconds
        Seconds of one call with the whole batch: of shape ``(networks,)``, or ``(networks, runtimes)``, or a dict or a
        DataFrame of runtimes. NaN where there is none.
    runtime
        The name of what ran the networks, such as ``"onnxruntime"``; or a device and a name, ``("pixel4", "tflite")``
        or ``"tflite on pixel4"``; a list of these where `seconds` has several columns. Default device: that of this
        machine, ``"cpu"``.
    family
        The family of each network, or of all, for a split that leaves out whole families. Default: the leading letters
        of the names, or the folders of the files where these tell no families apart.
    parent
        The network that each is a variant of: a split keeps these together. Default: its own name.
    name
        Default: as in `networks`.
    errors
        Standard errors of `seconds`, as shares of these (0.01 is 1 %), in the same shape.
    batch_size
        Samples in a call, of all networks or of each. Default: that of the file, 1 if it is open.
    factors
        Values of other open dimensions and of factors, by name: one, or one for each network.
    lowered
        Whether the graphs are those that the runtime executes after its own optimisation, for labels of one runtime
        that tells them: ``"onnxruntime"`` or ``"openvino"``. A `Graph` stays as it is.
    report
        Called with the share that is complete and a message: a network by name is built and exported, once. Default: a
        line every ten seconds.

    Raises
    ------
    UsageError
        An argument is not of this form, a file is missing, or a network is open in a dimension without a value; or
        `lowered` graphs are asked for of several runtimes, or of one that does not tell them.
    UnsupportedError
        A network has no ONNX form.

    Warns
    -----
    NgbkitWarning
        The seconds may be milliseconds; or networks with the same graph differ in latency by more than noise.

    Notes
    -----
    Equal graphs are one example: its label is their geometric mean, weighed by `errors`. Its error is that of the mean
    by `errors`, or else by their spread.

    A table has a row per measurement: a column ``file`` or ``network``, with paths relative to the CSV, and
    ``milliseconds`` (or ``latency_ms``, ``seconds``, …); or a column per runtime, such as ``onnxruntime_ms``. Optional
    columns: ``runtime`` and ``device``, ``family``, ``parent``, ``batch_size``, ``error_ms`` or ``error_percent`` (the
    standard error), and the factors of networks.

    Examples
    --------
    >>> from ngbkit.predict import examples
    >>> labels = examples(["a.onnx", "b.onnx"], [0.0121, 0.0173], runtime="onnxruntime")  # doctest: +SKIP
    >>> labels = examples("labels.csv")  # doctest: +SKIP
    """
    report = log_progress() if report is None else report
    tabular = is_table(networks)
    if tabular and seconds is None:
        _refuse_columns(family=family, parent=parent, name=name, errors=errors, factors=factors)
        (size,) = _parse_sizes(batch_size, [networks])
        default = (options.get_device(), UNNAMED) if runtime is None else _parse_runtime(runtime)
        table = read_table(networks, default, size)
        return build_examples(table, report, lowered=lowered)
    items, seconds = _split_pairs(networks, seconds, tabular)
    runtimes, values = _parse_columns(seconds, runtime, items, "seconds")
    shares = np.full(values.shape, np.nan)
    if errors is not None:
        columns, shares = _parse_columns(errors, runtime, items, "errors")
        if columns != runtimes:
            raise UsageError(f"invalid errors: got runtimes {columns}; expected those of seconds, {runtimes}.")
        if (shares < 0).any() or np.isinf(shares).any():
            raise UsageError("invalid errors: got a negative or infinite one; expected shares such as 0.01 for 1 %.")
    families = [family] * len(items) if isinstance(family, str) else _parse_texts(family, items, "family")
    parents, names = _parse_texts(parent, items, "parent"), _parse_texts(name, items, "name")
    sizes = _parse_sizes(batch_size, items)
    measurements = [
        ImportedMeasurement(
            network=item,
            seconds=dict(zip(runtimes, values[index].tolist(), strict=True)),
            errors=dict(zip(runtimes, shares[index].tolist(), strict=True)),
            batch_size=None if isinstance(item, Graph) and _is_count(batch_size) else sizes[index],
            factors={} if isinstance(item, Graph) else _pick_factors(factors or {}, index, items),
            name=names[index],
            family=families[index],
            parent=parents[index],
            place=f"network {index + 1}",
        )
        for index, item in enumerate(items)
    ]
    return build_examples(measurements, report, lowered=lowered)


def is_pairs(networks: Any) -> bool:
    """Return whether something is a list of pairs, such as of a network and its seconds."""
    items = networks if isinstance(networks, (list, tuple)) else ()
    return bool(items) and all(isinstance(pair, (tuple, list)) and len(pair) == _PAIR for pair in items)


def _refuse_columns(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise UsageError(f"unexpected argument {name}: a table has a column for it. Add it to the table.")


def _split_pairs(networks: Any, seconds: Any, tabular: bool) -> tuple[list[Any], Any]:
    """Return the networks and their seconds, which may be pairs or a dict of them."""
    if isinstance(networks, (str, Path, Graph, Workload)) or tabular or not isinstance(networks, Iterable):
        kind = "a table and seconds" if tabular else f"one {type(networks).__name__}"
        raise UsageError(f"invalid networks: got {kind}; expected a list, each {NETWORKS}; or a table with seconds.")
    if seconds is not None:
        items = list(networks)
        if not items:
            raise UsageError(f"invalid networks: got none; expected a list, each {NETWORKS}.")
        return items, seconds
    pairs = list(networks.items()) if isinstance(networks, Mapping) else list(networks)
    if is_pairs(pairs):
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    raise UsageError(
        f"missing seconds; expected {_SHAPES}. Or pass pairs [('a.onnx', 0.0121), …], a DataFrame or the path of a CSV."
    )


def _parse_columns(
    values: Any, runtime: RuntimeName | Sequence[RuntimeName] | None, items: Sequence[Any], kind: str
) -> tuple[list[Runtime], Floats]:
    """Return the runtimes and an array of shape (networks, runtimes)."""
    if isinstance(values, Mapping) or hasattr(values, "columns"):
        if runtime is not None and kind == "seconds":
            raise UsageError("unexpected runtime: the keys of seconds name the runtimes. Leave it out.")
        columns = dict(values.items())
        runtimes = [_parse_runtime(key) for key in columns]
        arrays = [_to_array(column, kind, f" of {key}") for key, column in columns.items()]
        for key, array in zip(columns, arrays, strict=True):
            if array.shape != (len(items),):
                raise UsageError(
                    f"invalid {kind} of {key}: got shape {array.shape} for {len(items)} networks; expected one number "
                    "for each network."
                )
        table = np.stack(arrays, axis=1) if arrays else np.empty((len(items), 0))
    else:
        table = _to_array(values, kind)
        runtimes = _list_runtimes(runtime)
        table = table[:, None] if table.ndim == 1 and len(runtimes) == 1 else table
        if table.shape != (len(items), len(runtimes)):
            raise UsageError(
                f"invalid {kind}: got shape {np.shape(values)} for {len(items)} networks and {len(runtimes)} runtimes;"
                f" expected {_SHAPES}. Name the runtimes of several columns by a list: runtime=['onnxruntime', …]."
            )
    if not runtimes or len(set(runtimes)) < len(runtimes):
        raise UsageError(f"invalid runtime: got {runtimes}; expected one or more, each once.")
    return runtimes, table


def _to_array(values: Any, kind: str, place: str = "") -> Floats:
    try:
        array = np.asarray(values)
        if array.dtype.kind in "USbMm":
            raise TypeError(f"an array of {array.dtype}")
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"invalid {kind}{place}: {reason}; expected numbers: {_SHAPES}.") from error


def _list_runtimes(runtime: RuntimeName | Sequence[RuntimeName] | None) -> list[Runtime]:
    if runtime is None:
        return [(options.get_device(), UNNAMED)]
    return [_parse_runtime(item) for item in runtime] if isinstance(runtime, list) else [_parse_runtime(runtime)]


def _parse_runtime(runtime: Any) -> Runtime:
    """Parse a compiler, "compiler on device", or a device and a compiler."""
    if isinstance(runtime, str) and runtime.strip():
        compiler, _, device = runtime.partition(" on ")
        return clean_line(device.strip()) or options.get_device(), clean_line(compiler.strip())
    if isinstance(runtime, tuple) and len(runtime) == _PAIR and all(isinstance(text, str) and text for text in runtime):
        return clean_line(runtime[0]), clean_line(runtime[1])
    raise UsageError(
        f"invalid runtime: got {runtime!r}; expected a name such as 'onnxruntime', a device and a name such as "
        "('pixel4', 'tflite'), or a list of these for several columns."
    )


def _parse_texts(values: Sequence[str] | None, items: Sequence[Any], kind: str) -> list[str]:
    if values is None:
        return [""] * len(items)
    texts = [values] if isinstance(values, str) else [clean_line(str(value)) for value in values]
    if len(texts) != len(items):
        raise UsageError(f"invalid {kind}: got {len(texts)} for {len(items)} networks; expected one for each.")
    return texts


def _is_count(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 1)


def _parse_sizes(batch_size: int | Sequence[int] | None, items: Sequence[Any]) -> list[int | None]:
    if batch_size is None:
        return [None] * len(items)
    sizes: list[Any] = list(batch_size) if isinstance(batch_size, Iterable) else [batch_size] * len(items)
    if len(sizes) != len(items) or not all(map(_is_count, sizes)):
        raise UsageError(f"invalid batch_size: got {batch_size!r}; expected an integer >= 1, or one for each network.")
    return [int(size) for size in sizes]


def _pick_factors(
    factors: Mapping[str, FactorValue | Sequence[FactorValue]], index: int, items: Sequence[Any]
) -> dict[str, FactorValue]:
    values: dict[str, FactorValue] = {}
    for name, value in factors.items():
        if isinstance(value, (int, float, str)):
            values[name] = value
        elif len(value) == len(items):
            values[name] = value[index]
        else:
            raise UsageError(
                f"invalid factors: got {len(value)} values of {name} for {len(items)} networks; expected one, or one "
                "for each."
            )
    return values
