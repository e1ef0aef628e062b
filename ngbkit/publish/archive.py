"""A publication as one zip that an archive takes: notebooks, data and figures, and what they are, as an RO-Crate."""

from __future__ import annotations

import json
import zipfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

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


def write(site: Path, manifest: Manifest, target: Path) -> Path:
    """Write the zip of a site: notebooks, datasets, figures and the manifest, described by RO-Crate 1.1 metadata."""
    files = [one for folder in ("notebooks", "_static/figures", "_static/datasets") for one in _files(site / folder)]
    files += [one for one in _files(site) if one.parent == site and one.suffix in (".json", ".cff", ".md")]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_METADATA, json.dumps(crate(site, manifest, files), indent=1))
        for file in files:
            archive.write(file, file.relative_to(site).as_posix())
    return target


def crate(site: Path, manifest: Manifest, files: list[Path]) -> dict[str, Any]:
    """The RO-Crate metadata of a site: what each file is, and which notebook and dataset each figure comes from."""
    origin = {
        f"_static/figures/{one.id}.{kind}": one for one in manifest.figures for kind in ("svg", "png", "pdf", "json")
    }
    described = []
    for file in files:
        name = file.relative_to(site).as_posix()
        entity: dict[str, Any] = {"@id": name, "@type": "File", "contentSize": str(file.stat().st_size)}
        if file.suffix in _KINDS:
            entity["encodingFormat"] = _KINDS[file.suffix]
        if name in origin:
            one = origin[name]
            entity["name"] = one.title
            entity["isBasedOn"] = [{"@id": f"notebooks/{one.notebook}.ipynb"}]
            if one.told.get("dataset"):
                entity["isBasedOn"].append({"@id": f"_static/datasets/{one.told['dataset']}.nc"})
        described.append(entity)
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": manifest.title,
        "description": f"Notebooks, measurements and figures, published with ngbkit {manifest.version}.",
        "datePublished": datetime.now(timezone.utc).date().isoformat(),
        "hasPart": [{"@id": one["@id"]} for one in described],
    }
    own = {"@id": _METADATA, "@type": "CreativeWork", "conformsTo": {"@id": _PROFILE}, "about": {"@id": "./"}}
    return {"@context": _CONTEXT, "@graph": [own, root, *described]}


def _files(folder: Path) -> list[Path]:
    return sorted(one for one in folder.rglob("*") if one.is_file()) if folder.is_dir() else []
