"""A button that copies a text to the clipboard."""

from __future__ import annotations

import anywidget
import traitlets

# Over plain http a browser offers no clipboard API: there the script copies a selection.
_SCRIPT = """
function copySelection(text) {
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  return copied;
}
export default {
  render({ model, el }) {
    const button = document.createElement("button");
    button.className = "jupyter-widgets jupyter-button widget-button";
    const update = () => { button.textContent = model.get("description"); button.disabled = !model.get("text"); };
    button.addEventListener("click", async () => {
      const text = model.get("text");
      let copied = true;
      try { await navigator.clipboard.writeText(text); } catch { copied = copySelection(text); }
      button.textContent = copied ? "Copied" : "Copy failed: select the text";
      setTimeout(update, 1500);
    });
    model.on("change:text", update);
    update();
    el.append(button);
  },
};
"""


class CopyButton(anywidget.AnyWidget):  # type: ignore[misc, unused-ignore]
    """A button that copies `text`, disabled while that is empty."""

    _esm = _SCRIPT
    description = traitlets.Unicode("Copy as cell").tag(sync=True)
    text = traitlets.Unicode("").tag(sync=True)
