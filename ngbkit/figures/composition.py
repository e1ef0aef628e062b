"""Charts that compose: `alt.hconcat`, `alt.vconcat` and `alt.concat` accept them, and look and provenance survive.

Vega-Lite allows one `config` and one `usermeta`, at the top. A figure therefore adds them when it is written as a
whole, and not when it is a part of another chart; `build_spec` collects those of the parts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import altair as alt

from ngbkit.figures import theme
from ngbkit.figures.provenance import KEY, merge

_Chart = TypeVar("_Chart", bound=alt.TopLevelMixin)
_PARTS = ("layer", "concat", "hconcat", "vconcat")
# Figures encode different things by these channels; a composition would otherwise mix their colours and shapes.
_SEPARATE = dict.fromkeys(("color", "fill", "shape", "strokeDash", "opacity"), "independent")
# The data transformer of altair is one for all threads.
_SWITCHING = threading.Lock()


@alt.theme.register(theme.NAME, enable=False)
def build_theme() -> alt.theme.ThemeConfig:
    """Build the look of every figure, for other charts too: ``alt.theme.enable("ngbkit")``."""
    return {"config": dict(theme.CONFIG)}  # type: ignore[typeddict-item]  # a plain mapping


class Figure(alt.TopLevelMixin):
    """A chart that ngbkit drew."""

    def to_dict(
        self, validate: bool = True, *, context: dict[str, Any] | None = None, **options: Any
    ) -> dict[str, Any]:
        """Convert the figure to its specification; as a part of another chart, without look and provenance."""
        if (context or {}).get("top_level", True):
            # The data of a figure is inline: there is nothing for altair's transformer "vegafusion" to prepare.
            inline = {**(context or {}), "pre_transform": False}
            return super(Figure, _complete(self)).to_dict(validate, context=inline, **options)
        ignored = {**options, "ignore": [*(options.get("ignore") or ()), "usermeta"]}
        spec = super().to_dict(validate, context=context, **ignored)
        return spec if "layer" in spec else {"concat": [spec], "resolve": {"scale": dict(_SEPARATE)}}


class FacetFigure(Figure, alt.FacetChart):
    """A figure of panels."""


class ConcatFigure(Figure, alt.ConcatChart):
    """A figure of charts in a grid."""


class VConcatFigure(Figure, alt.VConcatChart):
    """A figure of charts in a column."""


class LayerFigure(Figure, alt.LayerChart):
    """A figure of one panel."""


_KINDS: Mapping[type[alt.TopLevelMixin], type[Figure]] = {
    alt.FacetChart: FacetFigure,
    alt.ConcatChart: ConcatFigure,
    alt.VConcatChart: VConcatFigure,
    alt.LayerChart: LayerFigure,
}


def to_figure(chart: _Chart) -> _Chart:
    """Convert a chart to a figure, which is an instance of its altair class too."""
    altered: Any = chart
    figure: _Chart = _KINDS[type(chart)](**altered._kwds)  # type: ignore[assignment]  # a subclass of the chart's
    return figure


def build_spec(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """Build the specification of any chart: a composition has the look and the provenance of its figures.

    A chart without a figure of ngbkit is as altair writes it. Data is inline, whichever transformer the user enabled.
    """
    if isinstance(chart, Figure):
        return chart.to_dict()
    with _inline_data():
        return (_complete(chart) if has_figure(chart) else chart).to_dict()


def has_figure(chart: alt.TopLevelMixin) -> bool:
    """Return whether a chart is a figure of ngbkit, or has one as a part."""
    return next(_find_figures(chart), None) is not None


@contextmanager
def _inline_data() -> Iterator[None]:
    """Embed all rows of data frames, and then restore the transformer of the user."""
    with _SWITCHING:
        if alt.data_transformers.active == "default":
            yield
        else:
            with alt.data_transformers.enable("default", max_rows=None):
                yield


def _complete(chart: Any) -> Any:
    """A copy of a chart with the look, below its own configuration, and the provenance of its figures."""
    configuration = chart._get("config", {})
    complete = chart.copy(deep=False)
    complete.config = alt.utils.update_nested(
        theme.CONFIG, getattr(configuration, "to_dict", lambda: configuration)(), copy=True
    )
    provenances = [figure._get("usermeta", {}).get(KEY) for figure in _find_figures(chart)]
    provenance = merge([provenance for provenance in provenances if provenance])
    if provenance:
        complete.usermeta = {**chart._get("usermeta", {}), KEY: provenance}
    return complete


def _find_figures(chart: Any) -> Iterator[Any]:
    """The figures in a chart, in order: itself, or its parts' figures."""
    if isinstance(chart, Figure):
        yield chart
        return
    parts = [part for name in _PARTS for part in chart._get(name, [])]
    for part in [*parts, chart._get("spec", None)]:
        if isinstance(part, alt.TopLevelMixin):
            yield from _find_figures(part)
