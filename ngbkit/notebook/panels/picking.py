"""What a click on a mark of a figure says."""

from __future__ import annotations

import anywidget
import traitlets

# JupyterLab draws the figure by its own vega, which says nothing to a kernel. In an SVG each element of a mark carries
# the item of the scene that it shows, with the row that it is of; vega's own handlers read it there too.
_SCRIPT = """
export default {
  render({ model, el }) {
    const listen = (event) => {
      const panel = el.closest(".ngbkit-picks");
      if (!panel || !panel.contains(event.target)) return;
      const shown = event.target.__data__;
      const row = (Array.isArray(shown) ? shown[0] : shown)?.datum;
      if (!row) return;
      const plain = Object.entries(row).filter(([, value]) => ["string", "number"].includes(typeof value));
      model.set("row", Object.fromEntries(plain));
      model.save_changes();
    };
    document.addEventListener("click", listen);
    return () => document.removeEventListener("click", listen);
  },
};
"""

PICKS = "ngbkit-picks"
"""The class of what a picker listens to: the nearest widget around it that has it."""

# With canvas there would be one element for all marks.
EMBED = {"embed_options": {"renderer": "svg"}}
"""The metadata of a figure whose marks can be picked."""


class Picker(anywidget.AnyWidget):  # type: ignore[misc, unused-ignore]
    """Shows nothing; `row` is what the mark that was clicked last is drawn from: its texts and numbers by name."""

    _esm = _SCRIPT
    row = traitlets.Dict().tag(sync=True)
