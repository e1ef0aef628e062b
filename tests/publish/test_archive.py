"""The archive of a site: an RO-Crate that says whose it is, on which terms, and what each file is."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from rocrate import vocabs
from rocrate.rocrate import ROCrate

from ngbkit.publish.archive import write_archive, write_metadata
from ngbkit.publish.citation import Citation
from ngbkit.publish.manifest import Manifest, SiteFigure

METADATA = "ro-crate-metadata.json"
FIGURE = SiteFigure(
    id="first-speedup-1",
    notebook="01 first",
    cell=0,
    code="",
    spec="",
    provenance={"dataset": "abc"},
    datasets={"abc": "first-ds-abc"},
    title="Speed-up",
)
DATE = "2026-01-02T03:04:06+00:00"
MANIFEST = Manifest(title="A study", version="1", date=DATE, notebooks=("01 first",), figures=(FIGURE,))
AUTHORS = [
    {
        "given-names": "Ada",
        "family-names": "Example",
        "affiliation": "A lab",
        "orcid": "https://orcid.org/0000-0000-0000-0000",
    },
    {"name": "A team", "website": "https://example.org"},
    {"given-names": "Bob", "website": "https://example.org"},
]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    names = [
        "notebooks/01 first.ipynb",
        "_static/figures/first-speedup-1.svg",
        "_static/datasets/first-ds-abc.nc",
        "LICENSE",
    ]
    for name in [*names, "CITATION.cff", "ngbkit-site.json", "index.html"]:
        (tmp_path / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / name).write_text(name)
    return tmp_path / "site"


def write(site: Path, data: dict[str, Any]) -> Path:
    write_metadata(site, MANIFEST, Citation.parse(data))
    return write_archive(site, MANIFEST, site.parent / "archive.zip")


def read_graph(archive: Path) -> dict[str, dict[str, Any]]:
    with zipfile.ZipFile(archive) as file:
        entities = json.loads(file.read(METADATA))["@graph"]
    assert len(entities) == len({entity["@id"] for entity in entities})
    return {entity["@id"]: entity for entity in entities}


def test_the_root_has_license_and_authors(site: Path) -> None:
    """Each is an entity: a person by their ORCID, with their affiliation; a team; the page of the license."""
    graph = read_graph(write(site, {"authors": AUTHORS, "license": "mit"}))
    root = graph["./"]
    person, team, second = (graph[reference["@id"]] for reference in root["author"])
    (license_,) = (graph[reference["@id"]] for reference in root["license"])

    assert ("https://spdx.org/licenses/MIT", "MIT") == (license_["@id"], license_["name"])
    assert ("https://orcid.org/0000-0000-0000-0000", "Person", "Ada Example") == (
        person["@id"],
        person["@type"],
        person["name"],
    )
    assert "A lab" == graph[person["affiliation"]["@id"]]["name"]
    assert ("Organization", "A team", "https://example.org") == (team["@type"], team["name"], team["url"])
    assert ("Person", "Bob", "https://example.org") == (second["@type"], second["name"], second["url"])


def test_nothing_is_stated_that_nobody_said(site: Path) -> None:
    """The root of the archive has no license and no author if none is given."""
    assert not {"license", "author"} & set(read_graph(write(site, {}))["./"])


def test_the_metadata_is_json_ld(site: Path) -> None:
    """Every type and property is a term of the context, and every reference is an entity or an address."""
    graph = read_graph(write(site, {"authors": AUTHORS, "license": ["MIT", "https://example.org/terms"]}))
    terms = {*vocabs.RO_CRATE["@context"], "@id", "@type"}
    references = [
        reference["@id"]
        for entity in graph.values()
        for value in entity.values()
        for reference in (value if isinstance(value, list) else [value])
        if isinstance(reference, dict)
    ]

    assert {key for entity in graph.values() for key in (*entity, entity["@type"])} <= terms
    assert "https://w3id.org/ro/crate/1.2" in references
    assert {"https://w3id.org/ro/crate/1.2"} == {name for name in references if name not in graph}


def test_every_file_is_described(site: Path) -> None:
    """The archive describes every file, including the license of the repository."""
    archive = write(site, {"license": "MIT"})
    graph = read_graph(archive)
    files = {name for name, entity in graph.items() if entity["@type"] == "File"}

    assert {unquote(name) for name in files} == set(zipfile.ZipFile(archive).namelist()) - {METADATA}
    assert {"LICENSE", "CITATION.cff", "ngbkit-site.json", "notebooks/01%20first.ipynb"} <= files
    assert "index.html" not in files
    kinds = {
        name: graph[name]["encodingFormat"] for name in ("LICENSE", "CITATION.cff", "_static/datasets/first-ds-abc.nc")
    }
    assert ["text/plain", "application/yaml", "application/x-netcdf"] == list(kinds.values())
    assert "image/svg+xml" == graph["_static/figures/first-speedup-1.svg"]["encodingFormat"]
    based_on = graph["_static/figures/first-speedup-1.svg"]["isBasedOn"]
    assert [{"@id": "notebooks/01%20first.ipynb"}, {"@id": "_static/datasets/first-ds-abc.nc"}] == based_on


def test_others_read_the_crate(site: Path) -> None:
    """The public library for crates reads the archive."""
    crate = ROCrate(write(site, {"authors": AUTHORS, "license": "CC-BY-4.0"}))

    assert "A study" == crate.name
    assert ["CC-BY-4.0"] == [license_["name"] for license_ in crate.license]
    assert ["Ada Example", "A team", "Bob"] == [author["name"] for author in crate.root_dataset["author"]]
