"""A site as built agrees with its data, and each alteration of it is found and named."""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ngbkit import cli
from ngbkit.dataset import storage
from ngbkit.errors import UsageError
from ngbkit.publish import verify
from ngbkit.publish.archive import ARCHIVE
from ngbkit.publish.checking import CHECKS
from ngbkit.publish.checks.check import VerifiedSite
from ngbkit.publish.manifest import DATASETS, FIGURES, FILE, Manifest
from ngbkit.publish.target import hash_sha256, list_names
from ngbkit.workloads.base import hash_json

PAGE, NOTEBOOK = "01-first.html", "notebooks/01-first.ipynb"


@pytest.fixture
def copy(site: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(site, tmp_path / "site"))


def find(site: Path, name: str) -> list[str]:
    """The files that a check finds to differ, each with its sentence."""
    (check,) = (check for check in CHECKS if check.name == name)
    contents = VerifiedSite(folder=site, manifest=Manifest.read(site), archive=site / ARCHIVE)
    return [f"{item.file}: {item.difference}" for item in check.run(contents) if item.difference]


@pytest.mark.guard
def test_a_site_as_built_agrees(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report of a site as built lists each kind with its number of items, and what it cannot check."""
    assert 0 == cli.main(["verify", str(site), "--json"])
    report = json.loads(capsys.readouterr().out)
    counts = {check["name"]: check["checked"] for check in report["checks"]}

    assert [] == report["findings"]
    assert [2, 2, 2, 6, 4, 1] == [
        counts[name]
        for name in ("specifications", "figures", "figures in pages", "pictures", "tables and sentences", "CSV files")
    ]
    assert counts["files"] == len([path for path in site.rglob("*") if path.is_file()]) - 2
    assert any("no dataset binds" in reason for check in report["checks"] for reason in check["obstacles"])
    assert report["signature"].startswith("not signed")


def _add_link(site: Path) -> None:
    (site / "linked").symlink_to(site.parent)


def _forge_version(site: Path) -> None:
    manifest = (site / FILE).read_text()
    (site / FILE).write_text(re.sub(r'"version": "[^"]+"', '"version": "9.9"', manifest, count=1))


def _insert_bytes(site: Path) -> None:
    content = (site / ARCHIVE).read_bytes()
    (site / ARCHIVE).write_bytes(b"#!/bin/sh\n" + content)


def _append_bytes(site: Path) -> None:
    with (site / ARCHIVE).open("ab") as file:
        file.write(b"more")


@pytest.mark.parametrize(
    ("alter", "check", "difference"),
    [
        (_add_link, "files", "linked: it is a link"),
        (lambda site: os.mkfifo(site / "pipe"), "files", "pipe: it is no plain file"),
        (lambda site: (site / "empty").mkdir(), "files", "empty: it is an empty folder"),
        (lambda site: (site / "notes.md").touch(), "files", "notes.md: the manifest does not list it"),
        (_forge_version, "versions", f"{PAGE}: it installs ngbkit"),
        (_forge_version, "versions", "README.md: it installs ngbkit"),
        (_insert_bytes, "archive", "archive.zip: it has bytes before its files"),
        (_append_bytes, "archive", "archive.zip: it has bytes after its files"),
    ],
)
def test_what_no_build_made_is_found(
    alter: Callable[[Path], None], check: str, difference: str, copy: Path, tmp_path: Path
) -> None:
    """It is found although the files that the manifest lists are as they were."""
    alter(copy)

    assert any(line.startswith(difference) for line in find(copy, check))
    if check == "archive":
        assert any(finding.check == check for finding in verify(copy / ARCHIVE).findings)


@pytest.mark.parametrize("version", ["", "1; rm -rf ~", "1\x1b[2J", "latest", "1.0\n"])
def test_a_version_is_a_version(version: str, copy: Path) -> None:
    """It stands in a line that installs ngbkit, which a reader copies."""
    manifest = json.loads((copy / FILE).read_text())
    (copy / FILE).write_text(json.dumps({**manifest, "version": version}))

    with pytest.raises(UsageError, match="a version"):
        verify(copy)


def test_an_archive_is_verified(site: Path, tmp_path: Path) -> None:
    """The archive is verified without its site: all but its pages."""
    shutil.copyfile(site / ARCHIVE, tmp_path / "some.zip")
    (files, *others) = verify(tmp_path / "some.zip").checks

    assert [] == [finding for check in (files, *others) for finding in check.findings]
    assert files.checked > 15
    assert ["an archive has no pages: verify the folder of the site too"] == list(files.obstacles)


def replace_text(file: str, pattern: str, text: str) -> Callable[[Path], None]:
    """An alteration of the first text in a file that matches a pattern."""

    def alter(site: Path) -> None:
        (path,) = site.glob(file)
        content, count = re.subn(pattern, text, path.read_text(), count=1, flags=re.DOTALL)
        assert count
        path.write_text(content)

    return alter


def append_byte(file: str) -> Callable[[Path], None]:
    """An alteration of the last byte of a file."""

    def alter(site: Path) -> None:
        (path,) = site.glob(file)
        path.write_bytes(path.read_bytes() + b" ")

    return alter


def alter_dataset(site: Path) -> None:
    (file,) = (site / DATASETS).glob("*.nc")
    data = storage.load(file)
    data["latency"].values[0, 0, 0, 0, 0] *= 1.001
    storage.save(data, file, overwrite=True)


def alter_archive(site: Path) -> None:
    with zipfile.ZipFile(site / ARCHIVE) as archive:
        contents = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    with zipfile.ZipFile(site / ARCHIVE, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content.replace(b"throughput", b"latencies!"))


def alter_specification(site: Path) -> None:
    """An alteration of a figure's title, by an author of forgeries who also writes the manifest anew."""
    manifest = Manifest.read(site)
    file = site / FIGURES / f"{manifest.figures[0].id}.json"
    file.write_text(file.read_text().replace("Throughput", "Latency"))
    changed = replace(manifest.figures[0], spec=hash_json(json.loads(file.read_text())))
    replace(manifest, figures=(changed, *manifest.figures[1:])).write(site)


def drop(field: str) -> Callable[[Path], None]:
    """An alteration of the manifest, which loses an entry."""

    def alter(site: Path) -> None:
        manifest = Manifest.read(site)
        replace(manifest, **{field: getattr(manifest, field)[1:]}).write(site)

    return alter


def alter_date(site: Path) -> None:
    replace(Manifest.read(site), date="2020-01-01T00:00:00+00:00").write(site)


def add_file(site: Path) -> None:
    (site / "secrets.json").write_text("{}")


ALTERATIONS: dict[str, tuple[str, str, Callable[[Path], None]]] = {
    "CSV": ("CSV files", ".csv", replace_text(f"{DATASETS}/*.csv", r",([1-9])", r",9\1")),
    "no CSV": ("CSV files", ".csv", replace_text(f"{DATASETS}/*.csv", r",([1-9])", r",9\r\1")),
    "environments": ("sweeps and environments", ".json", replace_text(f"{DATASETS}/*.json", '"cpu"', '"gpu"')),
    "dataset": ("datasets", ".nc", alter_dataset),
    "SVG": ("pictures", ".svg", replace_text(f"{FIGURES}/*-throughput-1.svg", "Throughput", "Latency")),
    "PNG": ("pictures", ".png", append_byte(f"{FIGURES}/*-throughput-1.png")),
    "PDF": ("pictures", ".pdf", append_byte(f"{FIGURES}/*-throughput-1.pdf")),
    "specification": ("specifications", ".json", replace_text(f"{FIGURES}/*-speedup-1.json", "Speed", "Slow")),
    "title of a figure": ("figures", ".json", alter_specification),
    "caption": ("figures in pages", PAGE, replace_text(PAGE, r"<td>throughput</td>", "<td>latency</td>")),
    "drawing in a page": ("figures in pages", PAGE, replace_text(PAGE, r'"text": "Throughput', '"text": "Latency')),
    "number of a table": (
        "tables and sentences",
        PAGE,
        replace_text(PAGE, r"(&quot;: &quot;report&quot;.*?<tbody>.*?>[^<>]*?)(\d)([^<>]*<)", r"\g<1>\g<2>7\g<3>"),
    ),
    "sentence": (
        "tables and sentences",
        PAGE,
        replace_text(PAGE, r"(&quot;: &quot;report&quot;[^>]*>\s*<p>)", r"\g<1>Surely "),
    ),
    "code": ("notebooks", NOTEBOOK, replace_text(NOTEBOOK, "plot.throughput", "plot.latency")),
    "archive": ("archive", ARCHIVE, alter_archive),
    "date": ("date", "ro-crate-metadata.json", alter_date),
    "figure of the manifest": ("figures in pages", PAGE, drop("figures")),
    "table of the manifest": ("tables and sentences", PAGE, drop("statements")),
    "file of a stranger": ("files", "secrets.json", add_file),
    "data of a notebook": ("files", "notebooks/data/mlp.onnx", append_byte("notebooks/data/mlp.onnx")),
    "author's text": ("files", PAGE, replace_text(PAGE, "What was measured", "What was not")),
    "style": ("files", "ngbkit.css", append_byte("_static/ngbkit.css")),
    "script": ("files", "ngbkit.js", append_byte("_static/ngbkit.js")),
}
# The manifest has no hash of itself, of the archive and of what was added.
WITHOUT_HASH = ("archive", "date", "figure of the manifest", "table of the manifest", "file of a stranger")


@pytest.mark.parametrize("name", ALTERATIONS)
def test_each_alteration_is_found(name: str, copy: Path) -> None:
    """An alteration differs from the hash of its file, and from its data also where that hash is forged."""
    check, file, alter = ALTERATIONS[name]
    alter(copy)
    if name not in WITHOUT_HASH:
        assert any(file in line for line in find(copy, "files"))
    if check != "files" and name != "archive":
        names = {*list_names(copy)} - {FILE, ARCHIVE}
        replace(Manifest.read(copy), files={name: hash_sha256(copy / name) for name in names}).write(copy)
        assert [] == find(copy, "files")

    assert any(file in line for line in find(copy, check))


def test_an_alteration_fails_the_command(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command names the file that differs, and exits with 1."""
    ALTERATIONS["CSV"][2](copy)

    assert 1 == cli.main(["verify", str(copy), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert {".csv"} == {Path(row["file"]).suffix for row in report["findings"] if row["check"] == "files"}


def test_every_dataset_of_a_composition_is_checked(copy: Path) -> None:
    """A missing one is reported."""
    manifest = Manifest.read(copy)
    figure, lost = manifest.figures[0], "0" * 32
    parts = {"parts": [figure.provenance, {**figure.provenance, "dataset": lost}]}
    both = replace(figure, provenance=parts, datasets={**figure.datasets, lost: "lost"})
    replace(manifest, figures=(both,)).write(copy)

    assert [f"{DATASETS}/lost.nc: it is missing or unreadable"] == find(copy, "datasets")


FIGURE: dict[str, Any] = {"id": "a", "notebook": "n", "cell": 0, "code": "0" * 32, "spec": "0" * 32, "title": ""}
FIGURE |= {"provenance": {}, "datasets": {}}
WHOLE: dict[str, Any] = {"format": 1, "title": "", "version": "1", "date": "2026-01-01T00:00:00+00:00"}
WHOLE |= {"notebooks": ["n"], "figures": [FIGURE], "files": {"a": "0" * 64}}
DAMAGED: dict[str, Any] = {
    "empty": "",
    "no JSON": "{",
    "no text": b"\xff\xfe",
    "deep": "[" * 100_000,
    "null": None,
    "a list": [],
    "another format": {**WHOLE, "format": 2},
    "no format": {name: value for name, value in WHOLE.items() if name != "format"},
    "no date": {**WHOLE, "date": "yesterday"},
    "no title": {**WHOLE, "title": 3},
    "an unknown field": {**WHOLE, "more": 1},
    "figures as a text": {**WHOLE, "figures": "a"},
    "a figure twice": {**WHOLE, "figures": [FIGURE, FIGURE]},
    "a figure of no notebook": {**WHOLE, "notebooks": []},
    "an id that is a path": {**WHOLE, "figures": [{**FIGURE, "id": "../a"}]},
    "a notebook that is a path": {**WHOLE, "notebooks": ["n", "/etc/passwd"]},
    "a cell below 0": {**WHOLE, "figures": [{**FIGURE, "cell": -1}]},
    "parts that are numbers": {**WHOLE, "figures": [{**FIGURE, "provenance": {"parts": [1]}}]},
    "parts that are none": {**WHOLE, "figures": [{**FIGURE, "provenance": {"parts": 1}}]},
    "a dataset that is a path": {**WHOLE, "figures": [{**FIGURE, "provenance": {"dataset": "../../etc"}}]},
    "a dataset without files": {**WHOLE, "figures": [{**FIGURE, "provenance": {"dataset": "0" * 32}}]},
    "a file outside": {**WHOLE, "files": {"../secret": "0" * 64}},
    "a hash that is none": {**WHOLE, "files": {"a": "abc"}},
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_manifest_is_refused(damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command says in a sentence why it cannot read the manifest."""
    content = DAMAGED[damage]
    text = content if isinstance(content, (str, bytes)) else json.dumps(content)
    (tmp_path / FILE).write_bytes(text if isinstance(text, bytes) else text.encode())

    assert 2 == cli.main(["verify", str(tmp_path)])
    assert "contains no site that this ngbkit can read" in capsys.readouterr().err


def test_a_manifest_is_read(tmp_path: Path) -> None:
    """A manifest without damage is read, and one that is missing is refused."""
    (tmp_path / FILE).write_text(json.dumps(WHOLE))

    assert ("n",) == Manifest.read(tmp_path).notebooks
    with pytest.raises(UsageError, match="contains no site"):
        Manifest.read(tmp_path / "missing")
