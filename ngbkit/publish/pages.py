"""Converts executed notebooks to pages, whose figures are pictures, interactive where scripts run, with provenance."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from html import escape, unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from ngbkit.errors import UsageError
from ngbkit.figures import pictures, renderer
from ngbkit.figures.files import render_paper
from ngbkit.figures.provenance import KEY, list_parts
from ngbkit.figures.statements import ATTRIBUTE
from ngbkit.publish.manifest import DATASETS, FIGURES, SiteFigure, SiteStatement
from ngbkit.workloads.base import hash_json

FOLDED = "hide-input"
"""The tag by which myst-nb folds the source of a cell; a reader without scripts can unfold it."""

_ROWS = {
    "figure": "drawn by",
    "arguments": "with",
    "dataset": "dataset",
    "run_id": "run",
    "sweep": "sweep",
    "environments": "environments",
    "machines": "machines",
    "measured_with": "measured with ngbkit",
    "commit": "at commit",
    "drawn_with": "drawn with ngbkit",
    "drawn_at": "at commit (drawing)",
}
_WIDTHS_MM = (88, 180)
_PAPER = {
    f"-{width}mm{suffix}": f"{label} {width} mm"
    for width in _WIDTHS_MM
    for suffix, label in ((".pdf", "PDF"), (".tex", "LaTeX"))
}
_LABELS = {
    FIGURES: {"json": "Vega-Lite"},
    DATASETS: {"nc": "data (netCDF)", "csv": "data (CSV)", "json": "sweep and environments (JSON)"},
}
_HTML = "text/html"
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_ID = re.compile(rf"""\bid=["'][^"']*?({_UUID})""")
_MARK = re.compile(rf'<div {ATTRIBUTE}="([^"]*)">')
_FIGURE = '<figure class="ngb-figure"'
TAG = "findings"
"""The tag of a cell with findings; a text below a heading "Findings" needs none."""

_HEADING = re.compile(r"\s*#+\s*(?:the\s+|our\s+)?findings\b[^\n]*\n?", re.IGNORECASE)
_OPENING = '<section class="ngb-findings" aria-label="Findings"><p class="ngb-title">Findings</p>'
# The variable that a cell draws.
_PLOT = re.compile(r"\b(\w+)\.ngb\.plot\b")
_ANY_HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)


class NotebookNames:
    """The names of a notebook's figures and datasets, each once, in the order of its cells."""

    def __init__(self, stem: str) -> None:
        slug = re.sub(r"[^\w.-]+", "-", stem).strip("-.")
        # Two notebooks may differ in such characters alone.
        self._prefix = slug if slug == stem else f"{slug}-{hash_json(stem)[:4]}".lstrip("-")
        self._counts: Counter[str] = Counter()
        self._datasets: dict[str, str] = {}

    def name_figure(self, provenance: Mapping[str, Any]) -> str:
        """Name a figure by its notebook, its kind and its number: ``03-paper-speedup-2``."""
        kinds = {part.get("figure", "chart") for part in list_parts(provenance)}
        # Without a hyphen in the kind, the names of two notebooks differ.
        kind = re.sub(r"\W+", "_", kinds.pop()) if len(kinds) == 1 else "composition"
        self._counts[kind] += 1
        return f"{self._prefix}-{kind}-{self._counts[kind]}"

    def name_datasets(self, provenance: Mapping[str, Any], code: str) -> dict[str, str]:
        """Name each dataset of a figure by the variable that its cell draws, or else by its run, and by its hash."""
        parts = list_parts(provenance)
        variables = _PLOT.findall(code)
        if len(set(variables)) == 1:
            variables = variables[:1] * len(parts)
        elif len(variables) != len(parts):
            variables = [_name_runs(part.get("run_id", "")) for part in parts]
        digests = [part.get("dataset") for part in parts]
        for variable, digest in zip(variables, digests, strict=True):
            if digest and digest not in self._datasets:
                name = re.sub(r"[^\w.-]+", "-", f"{self._prefix}-{variable}-{digest[:8]}")
                self._datasets[digest] = name if name not in self._datasets.values() else f"{name}{digest[8:]}"
        return {digest: self._datasets[digest] for digest in digests if digest}


def write_page(executed: Path, target: Path, static: Path) -> list[SiteFigure]:
    """Write an executed notebook to `target`, and its figures to `static`, if it has changed; return the figures."""
    text = executed.read_text()
    # An executed notebook contains its time of execution, so no two have the same hash.
    digest, record = hash_json(text), target.with_suffix(".figures.json")
    previous = json.loads(record.read_text()) if record.is_file() and target.is_file() else {}
    if previous.get("executed") == digest:
        return [SiteFigure(**fields) for fields in previous["figures"]]
    notebook = json.loads(text)
    figures, names = [], NotebookNames(executed.stem)
    for number, cell in enumerate(notebook["cells"]):
        metadata = cell.setdefault("metadata", {})
        metadata.pop("papermill", None)
        if metadata.get("jupyter", {}).get("source_hidden"):  # folded in JupyterLab, and so in the page
            metadata["tags"] = [*metadata.get("tags", []), FOLDED]
        code = "".join(cell["source"])
        for index, output in enumerate(cell.get("outputs", [])):
            _stabilise(output, f"{executed.stem}/{number}/{index}")
        for output, spec in find_charts(cell.get("outputs", [])):
            provenance = dict(spec.get("usermeta", {}).get(KEY, {}))
            figure = SiteFigure(
                id=names.name_figure(provenance),
                notebook=executed.stem,
                cell=number,
                code=hash_json(code),
                spec=hash_json(spec),
                provenance=provenance,
                datasets=names.name_datasets(provenance, code),
                title=pictures.get_title(spec),
            )
            figure = replace(figure, paper=write_pictures(spec, static, figure.id))
            figures.append(figure)
            output["data"] = {"text/html": render_figure(figure, spec, code), "text/plain": figure.title}
    insert_summary(notebook["cells"])
    metadata = notebook["metadata"]  # a notebook that no front end has saved lacks some
    notebook["metadata"] = {name: metadata[name] for name in ("kernelspec", "language_info") if name in metadata}
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(notebook))
    record.write_text(json.dumps({"executed": digest, "figures": [asdict(figure) for figure in figures]}))
    return figures


def write_pictures(spec: dict[str, Any], folder: Path, name: str) -> tuple[str, ...]:
    """Write a figure in all formats, unless up to date; return the ends of the names of its files for a paper."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    text = json.dumps(spec, sort_keys=True)
    complete = all((folder / f"{name}{kind}").is_file() for kind in pictures.KINDS)
    if not (complete and file.is_file() and file.read_text() == text):
        for kind, content in (pictures.render(spec) | _render_paper(spec, folder, name)).items():
            (folder / f"{name}{kind}").write_bytes(content)
        file.write_text(text)
    return tuple(end for end in _PAPER if (folder / f"{name}{end}").is_file())


def _render_paper(spec: dict[str, Any], folder: Path, name: str) -> dict[str, bytes]:
    """Render a figure for each width of a column that it fits, and delete its older files."""
    files: dict[str, bytes] = {}
    for width in _WIDTHS_MM:
        end = f"-{width}mm"
        with suppress(UsageError):
            rendered = render_paper(spec, f"{name}{end}", width)
            files |= {f"{end}{suffix}": content for suffix, content in rendered.items()}
    for end in _PAPER:
        (folder / f"{name}{end}").unlink(missing_ok=True)
    return files


def render_figure(figure: SiteFigure, spec: dict[str, Any], code: str) -> str:
    """Render a figure as HTML: a picture, the specification for scripts, and its provenance."""
    inline = json.dumps(spec).replace("<", "\\u003c")
    return (
        f'<figure class="ngb-figure" id="{figure.id}"><div class="ngb-picture">{renderer.to_html(spec)}</div>'
        f'<script type="application/json" class="ngb-spec">{inline}</script>'
        f"<figcaption>{_render_provenance(figure, code)}</figcaption></figure>"
    )


def _render_provenance(figure: SiteFigure, code: str) -> str:
    """Render the details below a figure: its provenance, the code of its cell, and links to its files."""
    from ngbkit.publish.rendering import highlight_code

    rows = "".join(
        f"<tr><th>{escape(label)}</th><td>{escape(value if isinstance(value, str) else json.dumps(value))}</td></tr>"
        for part in list_parts(figure.provenance)
        for name, label in _ROWS.items()
        if (value := part.get(name))
    )
    links = []
    for file in figure.list_files():
        folder, kind = file.rpartition("/")[0], file.rpartition(".")[2]
        paper = _PAPER.get(file.removeprefix(f"{FIGURES}/{figure.id}"))
        label = paper or _LABELS[folder].get(kind, kind.upper())
        links.append(f'<a href="{quote(file)}" download>{label}</a>')
    anchors = " · ".join(links)
    cell = highlight_code(code)
    summary = "<summary>Provenance and data</summary>"
    return f"<details>{summary}<table>{rows}</table>{cell}<p>{anchors}</p></details>"


def find_charts(outputs: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each output of a cell that is a chart, with its specification."""
    for output in outputs:
        spec = output.get("data", {}).get(renderer.MIME)
        if spec is not None:
            yield output, spec


def _stabilise(output: dict[str, Any], page: str) -> None:
    """Replace the random ids of an output's elements, such as those of xarray, by ids that follow from its page."""
    text = _get_html(output)
    if not text:
        return
    for number, identifier in enumerate(dict.fromkeys(_ID.findall(text))):
        text = text.replace(identifier, str(uuid5(NAMESPACE_URL, f"{page}#{number}")))
    output["data"][_HTML] = text


def collect_statements(
    pages: Iterable[Path], figures: Iterable[SiteFigure]
) -> tuple[list[SiteStatement], dict[str, int]]:
    """Collect the statements of pages, in order, and the number of each notebook's outputs without a provenance."""
    stems = {digest: stem for figure in figures for digest, stem in figure.datasets.items()}
    statements: list[SiteStatement] = []
    others: dict[str, int] = {}
    for page in pages:
        names = NotebookNames(page.stem)
        for cell in json.loads(page.read_text())["cells"]:
            for output in cell.get("outputs", []):
                html = _get_html(output)
                provenances = [json.loads(unescape(text)) for text in _MARK.findall(html)]
                for provenance in provenances:
                    new = names.name_datasets(provenance, "".join(cell["source"]))
                    datasets = {digest: stems.setdefault(digest, stem) for digest, stem in new.items()}
                    statements.append(SiteStatement(notebook=page.stem, provenance=provenance, datasets=datasets))
                if not provenances and _FIGURE not in html and _has_content(output):
                    others[page.stem] = others.get(page.stem, 0) + 1
    return statements, others


def insert_summary(cells: list[dict[str, Any]]) -> None:
    """Insert the findings of later cells, a text or the tables of an output, after the first cell."""
    first = next((number for number, cell in enumerate(cells) if cell.get("outputs")), len(cells))
    summary, anchored = [], cells[:1]
    for number, cell in enumerate(cells[1:], start=1):
        if number > first and _has_findings(cell):
            anchor = f"findings-{number}"
            summary += _summarise(cell, anchor)
            anchored.append(_build_text(f'<a id="{anchor}" class="ngb-anchor"></a>', anchor))
        anchored.append(cell)
    if summary:
        summary.insert(0, _build_text(_OPENING, "findings-opening"))
        summary.append(_build_text("</section>", "findings-end"))
    cells[:] = [*anchored[:1], *summary, *anchored[1:]]


def _has_findings(cell: dict[str, Any]) -> bool:
    heads = cell["cell_type"] == "markdown" and _HEADING.match("".join(cell["source"]))
    return TAG in cell["metadata"].get("tags", []) or bool(heads)


def _summarise(cell: dict[str, Any], anchor: str) -> list[dict[str, Any]]:
    """Copy the text of a cell, or the outputs of code without its figures, for the top of the page."""
    link = _build_text(f'<p class="ngb-more"><a href="#{anchor}">Where this comes from</a></p>', f"{anchor}-link")
    if cell["cell_type"] == "markdown":
        # A heading would begin a section of the page.
        text = _ANY_HEADING.sub(r"**\1**", _HEADING.sub("", "".join(cell["source"]), count=1)).strip()
        return [_build_text(text, f"{anchor}-text"), link]
    outputs = [output for output in cell["outputs"] if "ngb-figure" not in _get_html(output)]
    metadata = {**cell["metadata"], "tags": ["remove-input"]}
    return [{**cell, "id": f"{anchor}-output", "metadata": metadata, "outputs": outputs}, link]


def _get_html(output: dict[str, Any]) -> str:
    return "".join(output.get("data", {}).get(_HTML, ""))


def _build_text(source: str, identifier: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": identifier, "metadata": {}, "source": source}


def _has_content(output: dict[str, Any]) -> bool:
    """Return whether an output displays anything; that of a progress is empty in the end."""
    texts = [*output.get("data", {}).values(), output.get("text", "")]
    return any("".join(text).strip() if isinstance(text, (str, list)) else text for text in texts)


def _name_runs(run_ids: str) -> str:
    """Name the run of a dataset, or the number of those that it merges: the name of a file has 255 bytes."""
    runs = run_ids.split(", ")
    return (runs[0] or "data") if len(runs) == 1 else f"{len(runs)}-runs"
