"""The base of every panel: it shows each error of its controls and threads, and none ends it."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

import ipywidgets as widgets

from ngbkit import files
from ngbkit.errors import translate_commands


class Panel(widgets.VBox):  # type: ignore[misc, unused-ignore]
    """A box with a `message` to its user."""

    def __init__(self) -> None:
        self.message = widgets.HTML()
        super().__init__()

    def __repr__(self) -> str:
        # ipywidgets shows it, up to 110 characters, where a front end has no widgets.
        return "A panel needs a notebook with widgets, such as JupyterLab. Here, `%ngbench?` lists what a line can do."

    def _report(self, text: str) -> None:
        self.message.value = _render_status(text) if text else ""

    def _report_error(self, error: Exception) -> None:
        self.message.value = render_error(error)

    def _guard(self, action: Callable[..., object], *arguments: object) -> Callable[..., None]:
        """Build a callback for a control or a thread: it calls the action, and shows the error that it raises."""

        def call(*_: object) -> None:
            try:
                action(*arguments)
            except Exception as error:  # noqa: BLE001  nobody sees an error of a callback or of a thread elsewhere
                self._report_error(error)

        return call

    def _start_thread(self, name: str, action: Callable[..., object], *arguments: object) -> None:
        threading.Thread(target=self._guard(action, *arguments), name=f"ngbkit-panel-{name}", daemon=True).start()


def render_error(error: Exception) -> str:
    """Render an error as its sentence; below one that ngbkit does not know, folded, its traceback for a report."""
    explained = files.explain(error)
    if explained is not None:
        return _render_status(str(explained))
    lines = escape("".join(traceback.format_exception(error)))
    return (
        f"{_render_status(f'unexpected error: {type(error).__name__}: {error}')}"
        f"<details><summary><small>traceback, for a report</small></summary><pre>{lines}</pre></details>"
    )


def build_outputs(spec: dict[str, Any], embedding: Mapping[str, Any] | None = None) -> tuple[dict[str, Any], ...]:
    """Build the outputs of a widget that shows a figure, in the colours of the page, with options of its embedding."""
    from ngbkit.figures import renderer

    data, metadata = renderer.to_mimebundle(spec), {renderer.MIME: dict(embedding or {})}
    return ({"output_type": "display_data", "data": data, "metadata": metadata},)


def _render_status(text: str) -> str:
    return f'<span role="status">{escape(translate_commands(text, "magic"))}</span>'
