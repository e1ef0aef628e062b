"""A button that puts a text on the clipboard."""

from __future__ import annotations

import anywidget
import traitlets

# Outside a secure context, as over plain http, a browser has no clipboard to write to: there a selection is copied.
_SCRIPT = """
function selected(text) {
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}
export default {
  render({ model, el }) {
    const button = document.createElement("button");
    button.className = "jupyter-widgets jupyter-button widget-button";
    const name = () => { button.textContent = model.get("description"); button.disabled = !model.get("text"); };
    button.addEventListener("click", async () => {
      const text = model.get("text");
      let done = true;
      try { await navigator.clipboard.writeText(text); } catch { done = selected(text); }
      button.textContent = done ? "Copied" : "Not copied: select it";
      setTimeout(name, 1500);
    });
    model.on("change:text", name);
    name();
    el.append(button);
  },
};
"""


class CopyButton(anywidget.AnyWidget):  # type: ignore[misc, unused-ignore]
    """A button that copies `text`; there is nothing to press while that is empty."""

    _esm = _SCRIPT
    description = traitlets.Unicode("Copy as cell").tag(sync=True)
    text = traitlets.Unicode("").tag(sync=True)
