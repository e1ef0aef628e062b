"""How altair's charts are shown in a notebook that has loaded the extension: without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import altair as alt
    from IPython.core.interactiveshell import InteractiveShell

# Every chart is one of these. By name, so that altair is imported by whoever draws, and not by loading an extension.
_CHART = ("altair.vegalite.v6.api", "TopLevelMixin")


def register(shell: InteractiveShell) -> None:
    """Have a shell show charts by `ngbkit.figures.renderer`, unless the user gave altair another renderer."""
    formatters: Any = shell.display_formatter
    formatters.mimebundle_formatter.for_type_by_name(*_CHART, show)


def unregister(shell: InteractiveShell) -> None:
    """Have it show them as altair does by itself."""
    formatters: Any = shell.display_formatter
    formatters.mimebundle_formatter.pop(".".join(_CHART), None)


def show(chart: alt.TopLevelMixin) -> Any:
    """What a notebook keeps of a chart."""
    import altair as alt

    from ngbkit.figures import renderer

    if alt.renderers.active not in ("", "default"):
        return chart._repr_mimebundle_()
    return renderer.mimebundle(chart.to_dict())
