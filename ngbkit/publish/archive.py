"""Archives a site as one zip: notebooks, data and figures, described by RO-Crate metadata."""

from __future__ import annotations

import json
import mimetypes
import zipfile
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ngbkit.publish.citation import Author, Citation
from ngbkit.publish.manifest import DATASETS, FIGURES, FILE, SIGNATURE, Manifest

if TYPE_CHECKING:
    from rocrate.rocrate import ROCrate

METADATA_FILES = ("CITATION.cff", "LICENSE")
"""Of the author's repository; a site and its archive contain them."""

# The newest version of the specification that the validators of archives know.
_VERSION = "1.2"
METADATA = "ro-crate-metadata.json"
"""The description of a site and of its archive."""

ARCHIVE = "archive.zip"
"""The zip of a site, in its folder."""

# Of every file in the zip, whoever builds it and where.
_UNIX, _MODE = 3, 0o100644
_FOLDERS = ("notebooks", FIGURES, DATASETS)
# The system's own table of media types may lack these.
_KINDS = {
    ".cff": "application/yaml",
    ".csv": "text/csv",
    ".ipynb": "application/x-ipynb+json",
    ".md": "text/markdown",
    ".nc": "application/x-netcdf",
    ".tex": "text/x-tex",
    "": "text/plain",  # LICENSE
}


def is_archived(path: str) -> bool:
    """Return whether the archive has a file of the site: all but the pages and what they look like."""
    is_top = "/" not in path and (path.endswith((".json", ".md", ".sig")) or path in METADATA_FILES)
    return is_top or path.startswith(tuple(f"{folder}/" for folder in _FOLDERS))


def write_metadata(site: Path, manifest: Manifest, citation: Citation) -> None:
    """Write the RO-Crate metadata of a site whose files are complete, before those that depend on them."""
    files = [path for path in _list_archived(site) if path.name not in (METADATA, FILE, SIGNATURE)]
    crate = build_crate(site, manifest, citation, [*files, site / FILE])
    metadata = json.dumps(crate.metadata.generate(), indent=1, ensure_ascii=False)
    (site / METADATA).write_text(metadata, encoding="utf-8")


def write_archive(site: Path, manifest: Manifest, target: Path) -> Path:
    """Write the zip of a site: notebooks, datasets, figures, the manifest and the RO-Crate metadata."""
    # The library's own writer adds a folder of the working directory that is called None, and the time of the build.
    date = datetime.fromisoformat(manifest.date).timetuple()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in _list_archived(site):
            entry = zipfile.ZipInfo(file.relative_to(site).as_posix(), date[:6])
            entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, _UNIX, _MODE << 16
            archive.writestr(entry, file.read_bytes())
    return target


def build_crate(site: Path, manifest: Manifest, citation: Citation, files: list[Path]) -> ROCrate:
    """Build the RO-Crate of a site: its authors and licenses, each file, and the origin of each figure."""
    from rocrate.rocrate import ROCrate

    crate = ROCrate(version=_VERSION)
    crate.name = manifest.title
    crate.description = f"Notebooks, measurements and figures, published with ngbkit {manifest.version}."
    crate.datePublished = datetime.fromisoformat(manifest.date).date()
    _add_citation(crate, citation)
    figures = {
        file: figure for figure in manifest.figures for file in figure.list_files() if file.startswith(f"{FIGURES}/")
    }
    for file in files:
        path = file.relative_to(site)
        kind = _KINDS.get(file.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        properties: dict[str, Any] = {
            "name": path.name,
            "encodingFormat": kind,
            # The manifest has the hash of this description.
            **({"contentSize": str(file.stat().st_size)} if path.name != FILE else {}),
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


def _list_archived(site: Path) -> list[Path]:
    paths = (path for path in site.rglob("*") if path.is_file())
    return sorted(path for path in paths if is_archived(path.relative_to(site).as_posix()))
