"""The page of a panel: an anywidget whose script shows HTML that Python sends, and sends back what the user does.

Nothing is decided in the script. An element says by its attributes what it reports: ``data-click``, ``data-input``,
``data-change`` and ``data-enter`` name the action of `Page.act`, and ``data-value`` its value. An element with
``data-part`` shows the part of that name, and one with ``data-chart`` a figure.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import anywidget

from ngbkit import files
from ngbkit.errors import translate_commands
from ngbkit.figures.converter import convert
from ngbkit.figures.pictures import get_title

_FOLDER = Path(__file__).parent
# A message of a live run is shorter than this, in characters.
MOST_CHARACTERS = 48_000
Action = Callable[[Any], None]


class Page(anywidget.AnyWidget):  # type: ignore[misc, unused-ignore]
    """A widget that shows named parts of HTML, of which ``"page"`` is the outermost, and figures, and calls actions."""

    _esm = _FOLDER / "page.js"
    _css = _FOLDER / "page.css"

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[str, str] = {}
        self.actions: dict[str, Action] = {"open": self._on_open, "library": self._on_library}
        self._charts: dict[str, dict[str, Any] | None] = {}
        # The parts that views lack; callbacks and threads change them.
        self._changed: dict[str, None] = {}
        self._lock = threading.RLock()
        self.on_msg(lambda _widget, content, _buffers: self.act(str(content.get("action")), content.get("value")))

    def __repr__(self) -> str:
        # ipywidgets shows it, up to 110 characters, where a front end has no widgets.
        return "A panel needs a notebook with widgets, such as JupyterLab. Here, `%ngbench?` lists what a line can do."

    def act(self, action: str, value: Any = "") -> None:
        """Call an action with a value, as the script does; what it raises is shown, and so is all that it changed."""
        if action in self.actions:
            self.guard(self.actions[action], value)
        self.flush()

    def guard(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function, and show the error that it raises in the part ``message``."""
        try:
            function(*arguments)
        except Exception as error:  # noqa: BLE001  nobody sees an error of a callback or of a thread elsewhere
            self.show("message", render_error(error))

    def start_thread(self, name: str, function: Callable[..., object], *arguments: object) -> None:
        """Call a function on a thread of its own, and then send what it changed."""

        def call() -> None:
            self.guard(function, *arguments)
            self.flush()

        threading.Thread(target=call, name=f"ngbkit-panel-{name}", daemon=True).start()

    def show(self, part: str, content: object) -> None:
        """Set the HTML of a part; `flush` sends it, if it changed."""
        html = str(content)
        with self._lock:
            if self.parts.get(part) != html:
                self.parts[part] = html
                self._changed[part] = None

    def report(self, text: str) -> None:
        """Show a sentence to the user."""
        self.show("message", render_status(text) if text else "")

    def draw(self, chart: str, spec: dict[str, Any] | None) -> None:
        """Draw a Vega-Lite chart in the element of that name; None removes it."""
        with self._lock:
            self._charts[chart] = spec
        title = "" if spec is None else get_title(spec)
        self.send({"kind": "chart", "name": chart, "spec": spec, "title": title})

    def download(self, name: str, mime: str, content: bytes) -> None:
        """Let the browser save a file."""
        self.send({"kind": "file", "name": name, "mime": mime}, [content])

    def flush(self, *, most: int | None = None) -> None:
        """Send the parts that changed, in messages of at most `MOST_CHARACTERS`, and at most so many messages."""
        with self._lock:
            for count, parts in enumerate(_split(self._changed, self.parts)):
                if most is not None and count >= most:
                    return
                self.send({"kind": "html", "parts": parts})
                for name in parts:
                    del self._changed[name]

    def _on_open(self, _: Any) -> None:
        """Send a new view all that others have."""
        with self._lock:
            # A part is shown inside those that were shown before it.
            self._changed = dict.fromkeys(self.parts)
            self.flush()
            for chart, spec in self._charts.items():
                if spec is not None:
                    self.draw(chart, spec)

    def _on_library(self, _: Any) -> None:
        self.start_thread("library", lambda: self.send({"kind": "library"}, [_bundle_vega()]))


def render_error(error: Exception) -> str:
    """Render an error as its sentence; below one that ngbkit does not know, folded, its traceback for a report."""
    explained = files.explain(error)
    if explained is not None:
        return render_status(str(explained))
    lines = escape("".join(traceback.format_exception(error)))
    return (
        f"{render_status(f'unexpected error: {type(error).__name__}: {error}')}"
        f"<details><summary><small>traceback, for a report</small></summary><pre>{lines}</pre></details>"
    )


def render_status(text: str) -> str:
    """Render a sentence that screen readers read out."""
    return f'<p role="status">{escape(translate_commands(text, "magic"))}</p>'


def _split(names: Mapping[str, None], parts: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Split parts into messages; one that is longer than a message is alone in its own."""
    message: dict[str, str] = {}
    length = 0
    for name in list(names):
        if message and length + len(parts[name]) > MOST_CHARACTERS:
            yield message
            message, length = {}, 0
        message[name] = parts[name]
        length += len(parts[name])
    if message:
        yield message


@cache
def _bundle_vega() -> bytes:
    """Bundle vega's script, which vl-convert has, so that no page requests it from elsewhere."""
    return str(convert("javascript_bundle", "export { vegaEmbed };")).encode()
