"""Writes a figure as LaTeX: the picture, and a caption with its uncertainty, disturbances, versions and data."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ngbkit.figures import captions, pictures
from ngbkit.figures.provenance import KEY, list_datasets, list_parts

COLUMN_MM = 100.0
"""A wider figure spans both columns of a page."""

_LEGEND = {"orient": "bottom", "columns": 3}
# pdfLaTeX has all other letters of Latin-1 and punctuation.
_ESCAPES = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"\ensuremath{\pm}",
    "×": r"\ensuremath{\times}",
    "·": r"\ensuremath{\cdot}",
    "≥": r"\ensuremath{\geq}",
    "≤": r"\ensuremath{\leq}",
    "≈": r"\ensuremath{\approx}",
    "→": r"\ensuremath{\rightarrow}",
    "−": r"\ensuremath{-}",
    "µ": r"\ensuremath{\mu}",
    "μ": r"\ensuremath{\mu}",
    "…": r"\dots{}",
    "–": "--",
    "—": "---",
}


def escape(text: str) -> str:
    """Escape a text for LaTeX; a long name may break after an underscore."""
    escaped = "".join(_ESCAPES.get(letter, letter) for letter in text)
    return escaped.replace(r"\textquotedbl{}", "''").replace(r"\_", r"\_\allowbreak{}")


def prepare(spec: dict[str, Any]) -> dict[str, Any]:
    """Copy a specification for paper: legends are below, and the titles of its figures are left to the caption."""
    prepared = {**copy.deepcopy(spec), "description": pictures.get_title(spec)}
    config = prepared.setdefault("config", {})
    config["legend"] = {**config.get("legend", {}), **_LEGEND}
    for part in list(_find_titled(prepared)):
        del part["title"]
    return prepared


def _find_titled(value: Any) -> Iterator[dict[str, Any]]:
    """Find the parts of a specification that have the title of a figure, with remarks below it."""
    if isinstance(value, dict):
        title = value.get("title")
        if isinstance(title, dict) and "subtitle" in title:
            yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _find_titled(part)


def build_caption(spec: dict[str, Any]) -> str:
    """Build a caption as plain text: title, remarks, machines, libraries, ngbkit's versions, and the data's hash."""
    titled = list(_find_titled(spec))
    remarks = [remark for part in titled for remark in captions.unwrap(part["title"]["subtitle"] or [])]
    provenance = spec.get("usermeta", {}).get(KEY, {})
    sentences = [*map(pictures.get_title, titled or [spec]), *remarks, *_describe_origin(provenance)]
    sentences = [text.replace(" · ", ", ") for text in dict.fromkeys(sentences) if text]
    return " ".join(f"{text[0].upper()}{text[1:]}".rstrip(".") + "." for text in sentences)


def _describe_origin(provenance: Mapping[str, Any]) -> list[str]:
    parts = list_parts(provenance)
    machines = {label: text for part in parts for label, text in part.get("machines", {}).items()}
    versions = dict.fromkeys(part["measured_with"] for part in parts if part.get("measured_with"))
    commits = dict.fromkeys(part["commit"] for part in parts if part.get("commit"))
    measured = [f"measured with ngbkit {', '.join(versions)}"] if versions else []
    if measured and commits:
        measured = [f"{measured[0]} at commit {', '.join(commits)}"]
    digests = list_datasets(provenance)
    return [
        *(f"device {label}: {text}" for label, text in machines.items()),
        *measured,
        *([f"data: {', '.join(digests)}"] if digests else []),
    ]


def build_figure(caption: str, picture: str, width: float) -> str:
    """Build the LaTeX, by ``graphicx``, of a picture of a width in millimetres, labelled ``fig:`` and its name."""
    stem = re.sub(r"[^A-Za-z0-9.:-]+", "-", picture.rpartition("/")[2].rpartition(".")[0])
    environment = "figure" if width <= COLUMN_MM else "figure*"
    return (
        "% Written by ngbkit. The preamble needs \\usepackage{graphicx}.\n"
        f"\\begin{{{environment}}}\n  \\centering\n"
        f"  \\includegraphics[width={width:g}mm]{{{picture}}}\n"
        f"  \\caption{{{escape(caption)}}}\n  \\label{{fig:{stem}}}\n"
        f"\\end{{{environment}}}\n"
    )
