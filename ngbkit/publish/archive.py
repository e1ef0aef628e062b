"""Archives a site as one zip: notebooks, data and figures, described by RO-Crate metadata."""

from __future__ import annotations

import json
import mimetypes
import zipfile
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ngbkit.publish.citation import Author, Citation
from ngbkit.publish.manifest import DATASETS, FIGURES, Manifest

if TYPE_CHECKING:
    from rocrate.rocrate import ROCrate

METADATA_FILES = ("CITATION.cff", "LICENSE")
"""Of the author's repository; a site and its archive contain them."""

# The newest version of the specification that the validators of archives know.
_VERSION = "1.2"
_METADATA = "ro-crate-metadata.json"
_FOLDERS = ("notebooks", FIGURES, DATASETS)
# The system's own table of media types may lack these.
_KINDS = {
    ".cff": "application/yaml",
    ".csv": "text/csv",
    ".ipynb": "application/x-ipynb+json",
    ".md": "text/markdown",
    ".nc": "application/x-netcdf",
    "": "text/plain",  # LICENSE
}


def write_archive(site: Path, manifest: Manifest, citation: Citation, target: Path) -> Path:
    """Write the zip of a site: notebooks, datasets, figures and the manifest, described by RO-Crate metadata."""
    files = [file for folder in _FOLDERS for file in _list_files(site / folder)]
    files += [
        file
        for file in _list_files(site)
        if file.parent == site and (file.suffix in (".json", ".md") or file.name in METADATA_FILES)
    ]
    crate = build_crate(site, manifest, citation, files)
    # The library's own writer adds a folder of the working directory that is called None.
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_METADATA, json.dumps(crate.metadata.generate(), indent=1, ensure_ascii=False))
        for file in files:
            archive.write(file, file.relative_to(site).as_posix())
    return target


def build_crate(site: Path, manifest: Manifest, citation: Citation, files: list[Path]) -> ROCrate:
    """Build the RO-Crate of a site: its authors and licenses, each file, and the origin of each figure."""
    from rocrate.rocrate import ROCrate

    crate = ROCrate(version=_VERSION)
    crate.name = manifest.title
    crate.description = f"Notebooks, measurements and figures, published with ngbkit {manifest.version}."
    crate.datePublished = datetime.now(timezone.utc).date()
    _add_citation(crate, citation)
    figures = {
        file: figure for figure in manifest.figures for file in figure.list_files() if file.startswith(f"{FIGURES}/")
    }
    for file in files:
        path = file.relative_to(site)
        kind = _KINDS.get(file.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        properties: dict[str, Any] = {
            "name": path.name,
            "contentSize": str(file.stat().st_size),
            "encodingFormat": kind,
        }
        if figure := figures.get(path.as_posix()):
            sources = [f"notebooks/{figure.notebook}.ipynb"]
            sources += [f"{DATASETS}/{stem}.nc" for stem in figure.datasets.values()]
            properties |= {"name": figure.title, "isBasedOn": [{"@id": quote(source)} for source in sources]}
        crate.add_file(file, path, properties=properties)
    return crate


def _add_citation(crate: ROCrate, citation: Citation) -> None:
    """State the authors and the licenses at the root of a crate, each as an entity."""
    from rocrate.model.contextentity import ContextEntity

    def add(identifier: str, kind: str, **properties: Any) -> Any:
        return crate.add(ContextEntity(crate, identifier, properties={"@type": kind, **properties}))

    def add_author(number: int, author: Author) -> Any:
        properties: dict[str, Any] = {"name": author.name}
        if author.website:
            properties["url"] = author.website
        if author.affiliation:
            properties["affiliation"] = add(f"#affiliation-{number}", "Organization", name=author.affiliation)
        kind = "Person" if author.is_person else "Organization"
        return add(author.orcid or f"#author-{number}", kind, **properties)

    if citation.licenses:
        crate.license = [add(license.url, "CreativeWork", name=license.name) for license in citation.licenses]
    if citation.authors:
        crate.root_dataset["author"] = [
            add_author(number, author) for number, author in enumerate(citation.authors, start=1)
        ]


def _list_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
