"""Arranges the panels of a figure for paper: few side by side, with axes, titles and legends that panels share."""

from __future__ import annotations

import copy
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

PX = 8 * 96 / 72
"""The size of the text of a figure for paper, 8 points, in pixels."""

SMALL_PX = 7 * 96 / 72
"""The size of the smallest text, 7 points, in pixels."""

LETTER = 0.53
"""The mean width of a letter over the size of its font."""

AXIS = 45.0
"""The width of the axis of a panel with its title, in pixels."""

GAP = 14.0
"""The least space between two panels, in pixels."""

_BOLD, _SPACING = 0.6, 8
# In pixels: the heights of panels, and the steps of names, also of those on two lines.
_LEAST_HEIGHT, _COMPACT_HEIGHT, _MOST_HEIGHT = 54.0, 42.0, 220.0
_MOST_STEP, _COMPACT_STEP, _WRAPPED_STEP = 18.0, 13.0, 27.0
# A figure of few panels is about so high, and a panel so high for its width.
_USUAL_HEIGHT, _RATIO = 400.0, 0.62

_GRIDS = ("hconcat", "vconcat", "concat")
_SPACED = {"bounds": "full", "align": "each", "spacing": _SPACING}
_TOP = ("$schema", "config", "usermeta", "datasets", "background", "padding", "autosize", "description", "params")
# A part of a name, with the separator after it.
_TOKEN = re.compile(r"[^ _/,·-]*[ _/,·-]+|[^ _/,·-]+$")


def count_columns(spec: dict[str, Any]) -> int:
    """Count the panels that a specification has side by side."""
    if "facet" in spec:
        panels = _list_panels(spec)
        columns = int(spec.get("columns", 0)) or (len(panels) if panels else 1)
        return min(columns, len(panels)) if panels else columns
    for kind in _GRIDS:
        if kind in spec:
            counts = [count_columns(part) for part in spec[kind]]
            columns = _read_columns(spec, kind)
            return max(sum(counts[start : start + columns]) for start in range(0, len(counts), columns))
    return 1


def count_rows(spec: dict[str, Any]) -> int:
    """Count the panels of an arranged specification that are below each other."""
    for kind in _GRIDS:
        if kind in spec:
            counts = [count_rows(part) for part in spec[kind]]
            columns = _read_columns(spec, kind)
            return sum(max(counts[start : start + columns]) for start in range(0, len(counts), columns))
    return 1


def _read_columns(spec: dict[str, Any], kind: str) -> int:
    """Read the number of parts side by side of a grid."""
    count = len(spec[kind])
    return {"hconcat": count, "vconcat": 1}.get(kind) or int(spec.get("columns", count))


def arrange(spec: dict[str, Any], columns: int, width: float, *, spread: bool = False) -> dict[str, Any]:
    """Arrange panels with so many side by side in a width in pixels; wrapped rows become longer if they `spread`."""
    arranged = _arrange(copy.deepcopy(spec), columns, width, spread)
    top = {name: spec[name] for name in _TOP if name in spec}
    return {**top, **{name: value for name, value in arranged.items() if name not in top}}


def walk_views(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The parts of a specification that have a width and a height: panels, with all of their layers."""
    children = [part for kind in _GRIDS for part in spec.get(kind, [])]
    children += [spec["spec"]] if "spec" in spec else []
    if not children:
        yield spec
    for part in children:
        yield from walk_views(part)


def walk(value: Any) -> Iterator[dict[str, Any]]:
    """The mappings in a specification, with all that they contain."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from walk(part)


def is_titled(spec: dict[str, Any]) -> bool:
    """Return whether a specification, or a part of one, has the title of a figure, which is for its caption."""
    title = spec.get("title")
    return isinstance(title, dict) and "subtitle" in title


def walk_layers(view: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The layers of a panel, whichever contains others, and the panel itself."""
    yield view
    for part in view.get("layer", []):
        yield from walk_layers(part)


def _arrange(spec: dict[str, Any], columns: int, width: float, spread: bool) -> dict[str, Any]:
    if "facet" in spec:
        return _expand(spec, columns, width, spread)
    for kind in _GRIDS:
        if kind in spec:
            most = _read_columns(spec, kind)
            parts = [_arrange(part, columns, width, spread) for part in spec.pop(kind)]
            most = max(1, min(most, columns // max(map(count_columns, parts))))
            _share_titles(parts, most)
            return {**spec, "concat": parts, "columns": most, **_SPACED}
    return spec


def _share_titles(parts: Sequence[dict[str, Any]], columns: int) -> None:
    """Leave the title of the x axis to the lowest of the parts of each column, if all have the same."""
    views = [view for part in parts for view in walk_views(part)]
    titles = {str(encoding.get("title")) for view in views for encoding in _walk_encodings(view, "x")}
    for part in parts[:-columns] if len(titles) == 1 else ():
        for view in walk_views(part):
            _remove_title(view, "x")


def _list_panels(spec: dict[str, Any]) -> list[Any]:
    """List the panels of a faceted specification; none if only the data have them, or if they are a table."""
    facet = spec["facet"]
    definition = facet if "field" in facet else facet.get("column", {}) if "row" not in facet else {}
    panels = definition.get("sort")
    return panels if isinstance(panels, list) else []


def _expand(spec: dict[str, Any], columns: int, width: float, spread: bool) -> dict[str, Any]:
    """Expand a faceted specification to one with a part per panel, so that only outer panels have axes."""
    panels = _list_panels(spec)
    if not panels or "layer" not in spec["spec"]:
        return {**spec, "columns": min(columns, int(spec.get("columns", columns)))} if "columns" in spec else spec
    facet, body = spec["facet"], spec["spec"]
    field = facet.get("field") or facet["column"]["field"]
    columns = min(len(panels) if spread else count_columns(spec), columns)
    columns = math.ceil(len(panels) / math.ceil(len(panels) / columns))
    body["layer"] = [layer for layer in body["layer"] if not _is_title(layer, field)]
    shares = {axis: spec.get("resolve", {}).get("scale", {}).get(axis, "shared") == "shared" for axis in "xy"}
    titles = {axis: _remove_title(body, axis) for axis in "xy"}
    parts = []
    for number, panel in enumerate(panels):
        part = copy.deepcopy(body)
        part["transform"] = [{"filter": {"field": field, "equal": panel}}, *part.get("transform", [])]
        for axis, is_outer in (("x", number + columns >= len(panels)), ("y", number % columns == 0)):
            if shares[axis] and not is_outer:
                _hide_labels(part, axis)
        part["layer"].append(_draw_title(str(panel), width / columns - AXIS))
        parts.append(part)
    scales = {axis: "shared" if shares[axis] and not _fix_domain(parts, axis) else "independent" for axis in "xy"}
    grid: dict[str, Any] = {"concat": parts, "columns": columns, **_SPACED, "resolve": {"scale": scales}}
    rows = math.ceil(len(panels) / columns)
    if titles["y"]:
        grid["title"] = _build_title(titles["y"], "left", rows * _LEAST_HEIGHT * 1.5)
    if titles["x"]:
        # Legends are outermost, and therefore below the title of the axis.
        titled = {"concat": [grid], "columns": 1, "title": _build_title(titles["x"], "bottom", width)}
        grid = {"concat": [titled], "columns": 1}
    if "title" in spec and spec["title"] != titles["y"]:
        grid = {"concat": [grid], "columns": 1, "title": spec["title"]}
    return {**grid, **{name: spec[name] for name in ("data", "transform", "name") if name in spec}}


def _fix_domain(parts: Sequence[dict[str, Any]], axis: str) -> bool:
    """Give names in order to the scale of every panel, which needs no scale in common with others then."""
    for part in parts:
        for encoding in _walk_encodings(part, axis):
            if isinstance(encoding.get("sort"), list):
                encoding["scale"] = {**encoding.get("scale", {}), "domain": encoding["sort"]}
    size = parts[0].get({"x": "width", "y": "height"}[axis])
    return isinstance(size, dict)


def _is_title(layer: dict[str, Any], field: str) -> bool:
    """Return whether a layer draws the title above its panel, as `ngbkit.figures.marks.draw_titles` does."""
    encoding = layer.get("encoding", {})
    above = encoding.get("y", {}).get("value", 0)
    return bool(encoding.get("text", {}).get("field") == field and isinstance(above, (int, float)) and above < 0)


def _draw_title(text: str, width: float) -> dict[str, Any]:
    letters = max(8, int(width / (_BOLD * PX)))
    lines = [part for line in text.split("\n") for part in wrap_name(line, letters)]
    mark = {"type": "text", "text": lines, "align": "left", "baseline": "line-bottom", "lineHeight": PX + 1}
    mark |= {"fontSize": PX, "fontWeight": "bold"}
    place = {"x": {"value": 0}, "y": {"value": -5 - (len(lines) - 1) * (PX + 1)}}
    return {"data": {"values": [{}]}, "mark": mark, "encoding": place}


def wrap_name(text: str, letters: int) -> list[str]:
    """Wrap a name, which may have underscores in place of spaces, at so many letters."""
    lines = [""]
    for token in _TOKEN.findall(text):
        if lines[-1] and len((lines[-1] + token).rstrip()) > letters:
            lines.append("")
        lines[-1] += token
    return [line.rstrip() for line in lines]


def _build_title(text: str | list[str], orient: str, length: float) -> dict[str, Any]:
    style = {"fontSize": PX, "fontWeight": "normal", "anchor": "middle", "offset": 5}
    return {"text": wrap_title(text, length), "orient": orient, "frame": "bounds", **style}


def wrap_title(text: str | list[str], length: float) -> list[str]:
    """Wrap the title of an axis to a length in pixels."""
    return textwrap.wrap(text if isinstance(text, str) else " ".join(text), max(8, int(length / (LETTER * PX))))


def _walk_encodings(view: dict[str, Any], axis: str) -> Iterator[dict[str, Any]]:
    """The encodings of an axis that have a field, of all layers."""
    for layer in walk_layers(view):
        encoding = layer.get("encoding", {}).get(axis, {})
        if "field" in encoding:
            yield encoding


def _remove_title(view: dict[str, Any], axis: str) -> str | list[str] | None:
    """Remove the title of an axis from all layers, and return it."""
    title = None
    for encoding in _walk_encodings(view, axis):
        title = title or encoding.get("title", None)
        encoding["title"] = None
    return title


def _hide_labels(view: dict[str, Any], axis: str) -> None:
    for encoding in _walk_encodings(view, axis):
        if encoding.get("axis", {}) is not None:
            encoding["axis"] = {**encoding.get("axis", {}), "labels": False, "ticks": False, "minExtent": 0}


def set_sizes(spec: dict[str, Any], scale: float, *, compact: bool = False) -> dict[str, Any]:
    """Set the width of every panel, `scale` in hundreds of pixels or of their steps, and heights for that width."""
    sized = copy.deepcopy(spec)
    rows = count_rows(sized)
    least, step = (_COMPACT_HEIGHT, _COMPACT_STEP) if compact else (_LEAST_HEIGHT, _MOST_STEP)
    usual = max(least, min(_MOST_HEIGHT, _RATIO * 100 * scale, _USUAL_HEIGHT / rows - 22))
    for view in walk_views(sized):
        width, height = _read_step(view, "width"), _read_step(view, "height")
        view["width"] = {"step": width * scale} if width else 100 * scale
        if height:
            wrapped = any((encoding.get("axis") or {}).get("labelExpr") for encoding in _walk_encodings(view, "y"))
            view["height"] = {"step": _WRAPPED_STEP if wrapped else min(step, height)}
            continue
        for encoding in _walk_encodings(view, "y"):
            if title := encoding.get("title"):
                encoding["title"] = wrap_title(title, usual + 16)
        if isinstance(view.get("height"), (int, float)):
            _move_foot(view, view["height"], usual - view["height"])
        view["height"] = usual
    return sized


def _read_step(view: dict[str, Any], side: str) -> float:
    """Read the step of a side of a panel in pixels; 0 for a side whose size is a number."""
    size = view.get(side)
    return float(size.get("step", 0.0)) if isinstance(size, dict) else 0.0


def _move_foot(view: dict[str, Any], height: float, change: float) -> None:
    """Keep the distance from the bottom of a panel for marks and scales with a place in pixels."""
    for layer in walk_layers(view):
        y = layer.get("encoding", {}).get("y", {})
        if isinstance(y.get("value"), (int, float)) and y["value"] > height / 2:
            y["value"] += change
        bounds = (y.get("scale") or {}).get("range")
        if isinstance(bounds, list) and isinstance(bounds[0], (int, float)):
            y["scale"] = {**y["scale"], "range": [bounds[0] + change, *bounds[1:]]}
