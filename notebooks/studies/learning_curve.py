"""The learning curve of a kind of model: its error against the number of networks that it is fitted to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit.dataset.storage import Data
from ngbkit.errors import UsageError
from ngbkit.figures import marks, theme
from ngbkit.predict.kinds import find_kind
from ngbkit.predict.kinds.base import Progress, ignore_progress
from ngbkit.predict.labels.collection import collect
from ngbkit.predict.labels.example_set import Examples
from ngbkit.predict.scoring.evaluation import check_max_error, drop_noisy, score_predictions
from ngbkit.predict.scoring.splits import Indices, Split, split_examples

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

# The size of a panel in pixels, and the ticks of errors.
_WIDTH, _HEIGHT = 300, 240
_TICKS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
# The fewest networks that a model is fitted to, and the most steps of a curve by default.
_FEWEST, _STEPS = 5, 4


def learning_curve(
    data: Data | Examples,
    kinds: Iterable[str] = ("linear", "gnn"),
    *,
    sizes: Iterable[int] | None = None,
    split: Split = "random",
    seeds: Iterable[int] = (0,),
    max_error: float | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    progress: Progress = ignore_progress,
) -> pd.DataFrame:
    """Fit each kind of model to more and more of the networks, and score its predictions of the same others.

    Parameters
    ----------
    data
        As for `ngbkit.predict.fit`.
    kinds, split, max_error, settings, progress
        As for `ngbkit.predict.evaluate`; of each seed, the first fold of the split is predicted.
    sizes
        Numbers of networks. Default: all that are not predicted, a half, a quarter and an eighth of them.
    seeds
        Seeds of the split, of the networks and of the models.

    Returns
    -------
    pandas.DataFrame
        A row per kind, runtime, seed and size: ``networks``, the number of networks, without their variants; and the
        columns of `ngbkit.predict.evaluate`.

    Raises
    ------
    UnknownNameError, UsageError
        As `evaluate`; or there are fewer networks than a size.
    """
    import pandas as pd

    check_max_error(max_error)
    examples = data if isinstance(data, Examples) else collect(data)
    kinds, seeds, sizes = list(kinds), list(seeds), None if sizes is None else sorted(set(sizes))
    tasks = [
        (kind, seed, left_out, test, chosen)
        for seed in seeds
        for left_out, train, test in [next(split_examples(examples, split, seed))]
        for chosen in _choose_networks(examples, train, sizes, seed)
        for kind in kinds
    ]
    rows: list[dict[str, Any]] = []
    for number, (kind, seed, left_out, test, chosen) in enumerate(tasks):
        model = find_kind(kind)(**(settings or {}).get(kind, {}))
        networks = _count_networks(examples, chosen)

        def report_share(share: float, message: str, number: int = number, title: str = f"{networks} networks") -> None:
            progress((number + share) / len(tasks), f"{title}: {message}")

        model.fit(examples.take(chosen), seed=seed, report=report_share)
        test_examples = drop_noisy(examples.take(test), max_error)
        labels = {"kind": kind, "split": split, "seed": seed, "left_out": left_out, "networks": networks}
        rows += [labels | row for row in score_predictions(model.predict(test_examples.graphs), test_examples)]
    return pd.DataFrame(rows)


def extrapolate(table: pd.DataFrame, times: float = 10.0) -> pd.DataFrame:
    """The error with `times` as many networks, if the curve goes on as a power of their number down to the floor.

    Parameters
    ----------
    table
        The result of `learning_curve`.
    times
        The factor of the largest number of networks.

    Returns
    -------
    pandas.DataFrame
        A row per kind and runtime: ``networks``, their number then; ``mape``, expected with these; ``exponent``, by
        which the error falls; and ``floor``, the noise of the labels. A guess, not a measurement.
    """
    import pandas as pd

    rows = []
    for keys, group in table.groupby(["kind", "device", "compiler"], sort=False):
        means = group.groupby("networks")[["mape", "floor"]].mean()
        if len(means) < 2:
            continue
        slope, level = np.polyfit(np.log(means.index.to_numpy(float)), np.log(means["mape"].to_numpy(float)), 1)
        networks, floor = times * means.index.max(), float(means["floor"].mean())
        mape = float(np.exp(level + slope * np.log(networks)))
        labels = dict(zip(("kind", "device", "compiler"), keys, strict=True))
        numbers = {"networks": round(networks), "mape": np.fmax(mape, floor), "exponent": slope, "floor": floor}
        rows.append(labels | numbers)
    return pd.DataFrame(rows)


def draw_curve(table: pd.DataFrame) -> alt.FacetChart:
    """Error by number of networks, one panel per runtime, one line per kind; the dashed line is the noise of labels.

    A bar spans the errors of all seeds, which leave out other networks.

    Parameters
    ----------
    table
        The result of `learning_curve`.

    Raises
    ------
    UsageError
        The table is empty.
    """
    import altair as alt

    if not len(table):
        raise UsageError("no learning curve: the table is empty; expected the result of learning_curve().")
    keys = ["device", "compiler", "kind", "networks"]
    errors = {"mape": ("mape", "mean"), "low": ("mape", "min"), "high": ("mape", "max"), "floor": ("floor", "mean")}
    frame = table.groupby(keys, sort=False, as_index=False).agg(**errors)
    devices = frame["device"].nunique()
    names = zip(frame["compiler"], frame["device"], strict=True)
    frame["runtime"] = [compiler if devices == 1 else f"{compiler}, {device}" for compiler, device in names]
    frame["floor"] = frame.groupby("runtime")["floor"].transform("mean")
    kinds, numbers = list(dict.fromkeys(frame["kind"])), sorted(set(frame["networks"]))
    ends = [frame[["low", "floor"]].min().min() / 1.3, frame["high"].max() * 1.3]
    scale = alt.Scale(type="log", domain=ends, nice=False)
    ticks = [tick for tick in _TICKS if ends[0] <= tick <= ends[1]]
    x = alt.X("networks:Q", title="networks in training", scale=alt.Scale(type="log"), axis=alt.Axis(values=numbers))
    y = alt.Y("mape:Q", title="MAPE", scale=scale, axis=alt.Axis(values=ticks, format=".1%"))
    colour = alt.Color("kind:N", title=None, scale=alt.Scale(domain=kinds, range=list(_COLOURS[: len(kinds)])))
    tooltip: list[Any] = [
        "kind:N",
        "networks:Q",
        *(alt.Tooltip(f"{name}:Q", format=".1%") for name in ("mape", "low", "high")),
        alt.Tooltip("floor:Q", format=".1%"),
    ]
    base = alt.Chart(marks.inline(frame)).encode(tooltip=tooltip)
    lines = base.mark_line(point={"size": 50, "filled": True}, strokeWidth=2).encode(x, y, colour)
    low = alt.Y("low:Q", title="MAPE", scale=scale)
    bars = base.mark_rule(strokeWidth=1.5, opacity=0.6).encode(x, low, alt.Y2("high:Q"), colour)
    floor = base.mark_rule(strokeDash=[5, 4], color="#888888").encode(alt.Y("min(floor):Q", title="MAPE", scale=scale))
    panels = alt.layer(floor, bars, lines, width=_WIDTH, height=_HEIGHT)
    chart = panels.facet(
        facet=alt.Facet("runtime:N", title=None, sort=list(dict.fromkeys(frame["runtime"]))), columns=2
    )
    seeds = table["seed"].nunique()
    subtitle = [
        "networks that no model was fitted to; dashed: the error of a perfect predictor, from the noise of labels"
    ]
    subtitle += [f"lines: mean of {seeds} seeds; bars: all of them"] if seeds > 1 else []
    chart.title = alt.TitleParams("Error by number of networks", subtitle=subtitle, fontSize=16, offset=12)
    chart.config = theme.CONFIG
    return chart


def _choose_networks(examples: Examples, train: Indices, sizes: list[int] | None, seed: int) -> list[Indices]:
    """Return the examples of ever more networks; each choice contains the smaller ones, and all single operators."""
    parents = np.array(examples.parents, dtype=object)
    isolated = examples.isolated
    names = sorted(set(parents[train[~isolated[train]]]))
    sizes = sorted({len(names) >> step for step in range(_STEPS)}) if sizes is None else sizes
    sizes = [size for size in sizes if size >= min(_FEWEST, len(names))]
    if not sizes or sizes[-1] > len(names):
        raise UsageError(f"invalid sizes: got {sizes}; expected numbers of networks from {_FEWEST} to {len(names)}.")
    order = np.random.default_rng(seed).permutation(len(names))
    chosen = [[names[index] for index in order[:size]] for size in sizes]
    return [train[isolated[train] | np.isin(parents[train], names_)] for names_ in chosen]


def _count_networks(examples: Examples, chosen: Indices) -> int:
    isolated = examples.isolated
    return len({examples.parents[index] for index in chosen if not isolated[index]})
