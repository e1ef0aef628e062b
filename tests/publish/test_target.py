"""The folder of a site: nothing in it that no build wrote is overwritten, deleted or packed."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from authored import build_notebook
from nbformat.v4 import new_code_cell, new_markdown_cell

from ngbkit.errors import UsageError
from ngbkit.publish import publish
from ngbkit.publish.sanitise import list_requests
from ngbkit.publish.sources import describe_outside
from ngbkit.publish.target import check_target, replace_site


@pytest.fixture
def notebooks(tmp_path: Path) -> Path:
    folder = tmp_path / "study" / "notebooks"
    folder.mkdir(parents=True)
    return folder


def write_files(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda folder: folder, "the folder of the notebooks"),
        (lambda folder: folder.parent, "a folder above the notebooks"),
        (lambda folder: write_files(folder.parent, "notes.txt") / "notes.txt", "a file; expected a folder"),
        (lambda folder: write_files(folder.parent / "web", "index.html", "LICENSE"), "contains LICENSE, index.html"),
    ],
)
def test_a_folder_of_something_else_is_no_target(prepare: Callable[[Path], Path], reason: str, notebooks: Path) -> None:
    """The sentence says what is there, and proposes another folder."""
    target = prepare(notebooks)
    with pytest.raises(UsageError, match=reason) as raised:
        check_target(target, notebooks)

    assert str(raised.value).startswith(f"invalid target: got {target}, ")
    assert str(raised.value).endswith("-o site.")


def test_a_link_is_no_target(notebooks: Path, tmp_path: Path) -> None:
    """A link may lead to a folder that other programs read, even where that is empty."""
    (tmp_path / "web").mkdir()
    (tmp_path / "site").symlink_to(tmp_path / "web")
    with pytest.raises(UsageError, match="a link to"):
        check_target(tmp_path / "site", notebooks)
    check_target(write_files(tmp_path / "web", ".git/HEAD"), notebooks)


def test_files_of_others_remain(tmp_path: Path) -> None:
    """A new site replaces the files of the earlier one, keeps others, and overwrites none of them."""
    target = write_files(tmp_path / "site", "index.html", "old/page.html", "CNAME", ".nojekyll")
    (target / "ngbkit-site.json").write_text(json.dumps({"files": {"index.html": "", "old/page.html": "", "../x": ""}}))
    site = write_files(tmp_path / "new", "index.html", "page.html", "ngbkit-site.json")
    (site / "index.html").write_text("new")

    assert ["CNAME"] == replace_site(site, target)
    assert {".nojekyll", "CNAME", "index.html", "page.html", "ngbkit-site.json"} == {
        path.name for path in target.iterdir()
    }
    assert "new" == (target / "index.html").read_text()
    write_files(site, "CNAME")
    (site / "CNAME").write_text("of a page")
    with pytest.raises(UsageError, match=r"would overwrite CNAME .* Move these files elsewhere"):
        replace_site(site, target)
    assert "CNAME" == (target / "CNAME").read_text()


def test_a_site_has_only_the_files_of_its_build(notebooks: Path, tmp_path: Path) -> None:
    """A removed notebook, data that no notebook reads and files of others are not in the archive; HTML is clean."""
    write_files(notebooks.parent, "outside.csv")
    write_files(notebooks, "secrets.json", "pictures/a (1).png")
    write_files(notebooks / "data", "used.csv", "secrets.json", ".hidden.csv")
    (notebooks / "data" / "outside.csv").symlink_to(notebooks.parent / "outside.csv")
    frame = "<iframe src='https://example.org/a'></iframe>"
    code = (
        "from IPython.display import HTML, display\n\n"
        f'display(HTML("{frame}"))\n'
        + "for name in ('data/used.csv', 'data/outside.csv', 'secrets.json'):\n    print(open(name).read())"
    )
    picture = "![a picture](<pictures/a (1).png>)"
    for name in ("first", "second"):
        cells = [new_markdown_cell(f"# The {name}\n\n{picture if name == 'second' else frame}"), new_code_cell(code)]
        nbformat.write(build_notebook(*cells), notebooks / f"{name}.ipynb")
    lines: list[str] = []
    site, link = tmp_path / "site", tmp_path / "link"
    link.symlink_to(notebooks)
    publish(link, site)
    assert (site / "second.html").is_file()
    assert 1 == len([*site.glob("_images/*.png")])
    (notebooks / "second.ipynb").unlink()
    write_files(site, "notebooks/private.ipynb", "secrets.json")
    publish(link, site, report=lines.append)
    names = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    packed = set(zipfile.ZipFile(site / "archive.zip").namelist())

    assert [] == list_requests((site / "first.html").read_text())
    assert [
        f"first.ipynb, cell {cell}: removed iframe, src of iframe, since pages request nothing" for cell in (0, 1)
    ] == [line for line in lines if "removed" in line]
    assert not [name for name in names | packed if "second" in name or "_images" in name]
    assert {"notebooks/first.ipynb", "notebooks/data/used.csv"} == {name for name in packed if "notebooks/" in name}
    assert {"notebooks/private.ipynb", "secrets.json"} <= names - packed
    assert f"left in {site}, and not in the archive: notebooks/private.ipynb, secrets.json" in lines
    assert "in the archive: data/used.csv" in lines
    assert "not in the archive, since no notebook reads them: data/outside.csv, data/secrets.json" in lines


def test_networks_outside_of_the_folder_are_listed(notebooks: Path) -> None:
    """A file that a cell names above its notebook does not travel, and the sentence says so; one beside it does."""
    write_files(notebooks.parent, "net.onnx", "net.py")
    write_files(notebooks, "models/net.onnx")
    cells = (
        "%ngbench ../net.onnx models/net.onnx missing/net.onnx -c identity",
        f'Sweep(["{notebooks.parent}/net.py"])',
    )
    path = notebooks / "study.ipynb"
    nbformat.write(build_notebook(*map(new_code_cell, cells)), path)
    (sentence,) = describe_outside([path])

    assert f"outside of the folder of the notebooks: ../net.onnx, {notebooks.parent}/net.py. Copy them" in sentence
