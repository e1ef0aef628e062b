"""Reports a click on a mark of a figure to Python."""

from __future__ import annotations

import anywidget
import traitlets

# JupyterLab draws the figure with its own vega, which sends no events to a kernel. In an SVG each element of a mark
# carries its item of the scene graph, and that its row of data; vega's own handlers read it there too.
_SCRIPT = """
export default {
  render({ model, el }) {
    const listen = (event) => {
      const panel = el.closest(".ngbkit-picks");
      if (!panel || !panel.contains(event.target)) return;
      const item = event.target.__data__;
      const row = (Array.isArray(item) ? item[0] : item)?.datum;
      if (!row) return;
      const fields = Object.entries(row).filter(([, value]) => ["string", "number"].includes(typeof value));
      model.set("row", Object.fromEntries(fields));
      model.save_changes();
    };
    document.addEventListener("click", listen);
    return () => document.removeEventListener("click", listen);
  },
};
"""

PICKS = "ngbkit-picks"
"""The CSS class of the widget whose clicks a picker reports: the nearest one around it."""

# A canvas has one element for all marks.
EMBED = {"embed_options": {"renderer": "svg"}}
"""The metadata of a figure with marks that a picker can report."""


class Picker(anywidget.AnyWidget):  # type: ignore[misc, unused-ignore]
    """An invisible widget; `row` has the texts and numbers, by name, of the mark that the user clicked last."""

    _esm = _SCRIPT
    row = traitlets.Dict().tag(sync=True)
