"""Archives a site as one zip: notebooks, data and figures, described by RO-Crate metadata."""

from __future__ import annotations

import json
import zipfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ngbkit.figures.provenance import list_datasets
from ngbkit.publish.manifest import Manifest

_CONTEXT = "https://w3id.org/ro/crate/1.1/context"
_PROFILE = "https://w3id.org/ro/crate/1.1"
_METADATA = "ro-crate-metadata.json"
_KINDS = {
    ".nc": "application/x-netcdf",
    ".csv": "text/csv",
    ".json": "application/json",
    ".ipynb": "application/x-ipynb+json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".pdf": "application/pdf",
}


def write_archive(site: Path, manifest: Manifest, target: Path) -> Path:
    """Write the zip of a site: notebooks, datasets, figures and the manifest, described by RO-Crate 1.1 metadata."""
    folders = ("notebooks", "_static/figures", "_static/datasets")
    files = [file for folder in folders for file in _list_files(site / folder)]
    files += [file for file in _list_files(site) if file.parent == site and file.suffix in (".json", ".cff", ".md")]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_METADATA, json.dumps(build_crate(site, manifest, files), indent=1))
        for file in files:
            archive.write(file, file.relative_to(site).as_posix())
    return target


def build_crate(site: Path, manifest: Manifest, files: list[Path]) -> dict[str, Any]:
    """Build the RO-Crate metadata of a site: the format of each file, and the notebook and dataset of each figure."""
    figures = {
        f"_static/figures/{figure.id}.{kind}": figure
        for figure in manifest.figures
        for kind in ("svg", "png", "pdf", "json")
    }
    entities = []
    for file in files:
        name = file.relative_to(site).as_posix()
        entity: dict[str, Any] = {"@id": name, "@type": "File", "contentSize": str(file.stat().st_size)}
        if file.suffix in _KINDS:
            entity["encodingFormat"] = _KINDS[file.suffix]
        if name in figures:
            figure = figures[name]
            entity["name"] = figure.title
            entity["isBasedOn"] = [{"@id": f"notebooks/{figure.notebook}.ipynb"}]
            for digest in list_datasets(figure.provenance):
                entity["isBasedOn"].append({"@id": f"_static/datasets/{digest}.nc"})
        entities.append(entity)
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": manifest.title,
        "description": f"Notebooks, measurements and figures, published with ngbkit {manifest.version}.",
        "datePublished": datetime.now(timezone.utc).date().isoformat(),
        "hasPart": [{"@id": entity["@id"]} for entity in entities],
    }
    metadata = {"@id": _METADATA, "@type": "CreativeWork", "conformsTo": {"@id": _PROFILE}, "about": {"@id": "./"}}
    return {"@context": _CONTEXT, "@graph": [metadata, root, *entities]}


def _list_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
