"""An executed notebook as a page: each figure drawn without scripts, alive where scripts run, with its origin."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from ngbkit.figures import pictures, renderer
from ngbkit.figures.provenance import KEY
from ngbkit.publish.manifest import Figure
from ngbkit.workloads.base import content_hash

_ROWS = {
    "figure": "drawn by",
    "arguments": "with",
    "dataset": "dataset",
    "run_id": "run",
    "sweep": "sweep",
    "environments": "environments",
    "measured_with": "measured with ngbkit",
    "commit": "at commit",
    "drawn_with": "drawn with ngbkit",
    "drawn_at": "at commit (drawing)",
}


def page(executed: Path, target: Path, static: Path) -> list[Figure]:
    """Write a notebook as it becomes a page, and the files of its figures, unless that was done of the same before.

    Parameters
    ----------
    executed
        The executed notebook.
    target
        The notebook that the site is built from: its charts are HTML.
    static
        The folder of the site's figures.

    Returns
    -------
    list of Figure
        Its figures, in order.
    """
    text = executed.read_text()
    # An executed notebook names the time at which it was executed: no two are the same.
    digest, kept = content_hash(text), target.with_suffix(".figures.json")
    known = json.loads(kept.read_text()) if kept.is_file() and target.is_file() else {}
    if known.get("executed") == digest:
        return [Figure(**one) for one in known["figures"]]
    notebook = json.loads(text)
    found = []
    for number, cell in enumerate(notebook["cells"]):
        cell.setdefault("metadata", {}).pop("papermill", None)
        outputs = cell.get("outputs", [])
        for place, (output, spec) in enumerate(_charts(outputs)):
            one = figure(executed.stem, number, place, "".join(cell["source"]), spec)
            found.append(one)
            write_pictures(spec, static, one.id)
            output["data"] = {"text/html": element(one, spec, "".join(cell["source"])), "text/plain": one.title}
    notebook["metadata"] = {name: notebook["metadata"][name] for name in ("kernelspec", "language_info")}
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(notebook))
    kept.write_text(json.dumps({"executed": digest, "figures": [asdict(one) for one in found]}))
    return found


def figure(notebook: str, cell: int, place: int, code: str, spec: Mapping[str, Any]) -> Figure:
    """What there is to say of a figure."""
    return Figure(
        id=f"figure-{notebook}-{cell}-{place}",
        notebook=notebook,
        cell=cell,
        code=content_hash(code),
        spec=content_hash(spec),
        told=dict(spec.get("usermeta", {}).get(KEY, {})),
        title=pictures.title(spec),
    )


def write_pictures(spec: dict[str, Any], folder: Path, name: str) -> None:
    """Write a figure's specification, and the figure as SVG, PNG and PDF, unless they are there already."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"{name}.json"
    written = json.dumps(spec, sort_keys=True)
    there = all((folder / f"{name}{one}").is_file() for one in pictures.KINDS)
    if there and kept.is_file() and kept.read_text() == written:
        return
    for kind, content in pictures.pictures(spec).items():
        (folder / f"{name}{kind}").write_bytes(content)
    kept.write_text(written)


def element(one: Figure, spec: dict[str, Any], code: str) -> str:
    """A figure as an element of a page: a picture, the specification for scripts, and where it comes from."""
    inline = json.dumps(spec).replace("<", "\\u003c")
    return (
        f'<figure class="ngb-figure" id="{one.id}"><div class="ngb-picture">{renderer.to_html(spec)}</div>'
        f'<script type="application/json" class="ngb-spec">{inline}</script>'
        f"<figcaption>{_origin(one, code)}</figcaption></figure>"
    )


def _origin(one: Figure, code: str) -> str:
    """The fold-out below a figure."""
    rows = "".join(
        f"<tr><th>{escape(said)}</th><td>{escape(_written(one.told[name]))}</td></tr>"
        for name, said in _ROWS.items()
        if one.told.get(name)
    )
    links = [(f"figures/{one.id}{kind}", kind[1:].upper()) for kind in pictures.KINDS]
    links.append((f"figures/{one.id}.json", "Vega-Lite"))
    if one.told.get("dataset"):
        digest = one.told["dataset"]
        links += [(f"datasets/{digest}.{kind}", said) for kind, said in _DATA.items()]
    written = " · ".join(f'<a href="_static/{path}" download>{said}</a>' for path, said in links)
    cell = f"<pre>{escape(code)}</pre>"
    summary = "<summary>Where this comes from, and its data</summary>"
    return f"<details>{summary}<table>{rows}</table>{cell}<p>{written}</p></details>"


_DATA = {"nc": "data (netCDF)", "csv": "data (CSV)", "json": "what was asked for, and on what"}


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _charts(outputs: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for output in outputs:
        spec = output.get("data", {}).get(renderer.MIME)
        if spec is not None:
            yield output, spec
