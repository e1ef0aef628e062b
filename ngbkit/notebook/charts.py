"""Displays altair charts in a notebook without a network, once the extension is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import altair as alt
    from IPython.core.interactiveshell import InteractiveShell

# The base class of every chart, by name: loading the extension does not import altair.
_CHART = ("altair.vegalite.v6.api", "TopLevelMixin")


def register(shell: InteractiveShell) -> None:
    """Display charts with `ngbkit.figures.renderer`, unless the user chose another renderer of altair."""
    formatters: Any = shell.display_formatter
    formatters.mimebundle_formatter.for_type_by_name(*_CHART, render)


def unregister(shell: InteractiveShell) -> None:
    """Restore altair's own display."""
    formatters: Any = shell.display_formatter
    formatters.mimebundle_formatter.pop(".".join(_CHART), None)


def render(chart: alt.TopLevelMixin) -> Any:
    """Render a chart as the MIME bundle that a notebook stores."""
    import altair as alt

    from ngbkit.figures import composition, renderer

    is_transformed = alt.data_transformers.active != "default" and not composition.has_figure(chart)
    if alt.renderers.active not in ("", "default") or is_transformed:
        return chart._repr_mimebundle_()
    return renderer.to_mimebundle(composition.build_spec(chart))
