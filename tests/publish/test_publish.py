"""A publication: built from recordings, whole without scripts, alive with them, and checked figure by figure."""

from __future__ import annotations

import functools
import http.server
import json
import re
import shutil
import threading
import zipfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nbformat
import numpy as np
import pytest
from lab import limit_ms
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from playwright.sync_api import Browser
from state import make_state_dir

import ngbkit
from ngbkit import cli
from ngbkit.dataset import storage
from ngbkit.dataset.dataset_hash import fingerprint
from ngbkit.errors import UsageError
from ngbkit.publish import ExecutionError, publish, verify
from ngbkit.publish.execute import NOTE
from ngbkit.publish.manifest import Manifest
from ngbkit.runs import recordings
from ngbkit.workloads import onnx

SWEEP = "-c identity,onnxruntime -b 1,2 -r 10 --threads 1 -o ds"


def notebook(*cells: Any) -> Any:
    found = new_notebook(cells=list(cells))
    found.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for number, cell in enumerate(found.cells):
        cell["id"] = f"cell-{number}"
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, mlp_file: Path, peaks_file: Path) -> Path:
    """Two notebooks of an author, one of which measures, with a recording of that."""
    place = tmp_path_factory.mktemp("author") / "notebooks"
    (place / "data").mkdir(parents=True)
    shutil.copyfile(mlp_file, place / "data" / "mlp.onnx")
    about = 'title = "A small study"\ndescription = "Of one network."\napi = ["ngbkit.metrics.profiles"]\n'
    (place / "site.toml").write_text(about)
    first = notebook(
        new_markdown_cell("# What was measured\n\nSee [the other](02-again.ipynb)."),
        new_code_cell("rows = 1", metadata={"tags": ["parameters"]}),
        new_code_cell(f"%load_ext ngbkit\n%ngbench data/mlp.onnx {SWEEP}"),
        new_code_cell("ds.ngb.plot.throughput()"),
        new_code_cell("print('parameter', rows)"),
        new_code_cell("ds.ngb.plot.speedup()"),
    )
    second = notebook(
        new_markdown_cell("# Once more"),
        new_code_cell("raise RuntimeError('it was executed')", metadata={"tags": ["measures"]}),
        new_code_cell("import pandas as pd\npd.DataFrame({'a': [1]})"),
    )
    for name, content in (("01-first", first), ("02-again", second)):
        nbformat.write(content, place / f"{name}.ipynb")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(recordings.FOLDER, str(place / "data" / "recorded"))
        patch.setenv("NGBKIT_STATE_DIR", str(make_state_dir(tmp_path_factory, peaks_file)))
        workload = onnx.file(place / "data" / "mlp.onnx")
        ngbkit.Sweep(workload, ["identity", "onnxruntime"], [1, 2], repeats=10, threads=1).run()
        from ngbkit.cluster import engines

        engines.close()
    return place


@pytest.fixture(scope="module")
def site(folder: Path) -> Path:
    publish(folder, folder.parent / "site")
    return folder.parent / "site"


class Page(HTMLParser):
    """The links and the elements of a page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.pictures = 0
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.links += [value for name in ("href", "src") if (value := told.get(name))]
        self.ids |= {value for value in [told.get("id")] if value}
        self.pictures += tag == "svg"


def test_a_site_is_whole(site: Path) -> None:
    """Its pages, its figures in every form, the data of each with what it is of, the notebooks, and an archive."""
    manifest = Manifest.read(site)
    assert ("A small study", ("01-first", "02-again")) == (manifest.title, manifest.notebooks)
    assert [("throughput", 3), ("speedup", 5)] == [(one.told["figure"], one.cell) for one in manifest.figures]
    for one in manifest.figures:
        for kind in ("svg", "png", "pdf", "json"):
            assert (site / "_static" / "figures" / f"{one.id}.{kind}").stat().st_size > 500
        data = site / "_static" / "datasets" / one.told["dataset"]
        assert one.told["dataset"] == fingerprint(storage.load(data.with_suffix(".nc")))
        assert data.with_suffix(".csv").read_text().startswith("workload,device,compiler,batch_size,latency_s")
        assert ["mlp"] == [
            each["name"] for each in json.loads(data.with_suffix(".json").read_text())["sweep"]["workloads"]
        ]
    picture = (site / "_static/figures/figure-01-first-3-0.svg").read_text()
    assert json.dumps(manifest.figures[0].told) in picture.replace("&quot;", '"')
    assert "What was measured" in (site / "01-first.html").read_text()
    assert "profiles" in (site / "api.html").read_text()
    with zipfile.ZipFile(site / "archive.zip") as archive:
        graph = json.loads(archive.read("ro-crate-metadata.json"))["@graph"]
        named = {entity["@id"] for entity in graph if entity.get("@type") == "File"}
        assert named == set(archive.namelist()) - {"ro-crate-metadata.json"}
    assert {"notebooks/01-first.ipynb", "notebooks/data/mlp.onnx"} <= named
    drawn = next(entity for entity in graph if entity["@id"] == "_static/figures/figure-01-first-3-0.pdf")
    assert {"@id": "notebooks/01-first.ipynb"} in drawn["isBasedOn"]


def test_nothing_is_left_beside_a_site(folder: Path, site: Path) -> None:
    """But what it takes to build it again."""
    assert {"notebooks", "site", ".site-ngbkit"} == {one.name for one in folder.parent.iterdir()}


def test_nothing_is_asked_of_another_server(site: Path) -> None:
    """Every link that a page loads is one of the site's own and leads somewhere; without scripts there are pictures."""
    for file in site.glob("*.html"):
        page = Page(file)
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https"):
                assert re.search(rf'<a [^>]*href="{re.escape(link)}"', file.read_text()), f"{file.name} loads {link}"
                continue
            target = (file.parent / parts.path).resolve() if parts.path else file
            assert target.is_file(), f"{file.name} links to {link}"
            if parts.fragment and target.suffix == ".html":
                assert parts.fragment in Page(target).ids, f"{file.name} links to {link}"
    assert 2 <= Page(site / "01-first.html").pictures


@pytest.fixture
def served(site: Path, tmp_path: Path) -> Iterator[str]:
    """The site below a path of a server on loopback."""
    shutil.copytree(site, tmp_path / "some" / "where")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/some/where/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("scripts", [True, False])
def test_figures_in_a_browser(browser: Browser, served: str, scripts: bool) -> None:
    """Alive where scripts run, pictures where they do not; below a path, and with no request to anywhere else."""
    asked: list[str] = []
    problems: list[str] = []
    context = browser.new_context(java_script_enabled=scripts)
    page = context.new_page()
    page.set_default_timeout(limit_ms())
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on(
        "response",
        lambda answer: problems.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None,
    )
    page.goto(f"{served}01-first.html")
    if scripts:
        page.wait_for_selector("#figure-01-first-3-0.ngb-alive svg")
        page.wait_for_function("document.querySelectorAll('figure.ngb-alive').length === 2")
        assert 0 == page.locator(".ngb-picture:visible").count()
        # A figure that is wider than the page scrolls by itself, and the page does not.
        page.set_viewport_size({"width": 360, "height": 640})
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    else:
        assert 2 == page.locator(".ngb-picture svg:visible, .ngb-picture img:visible").count()
    context.close()

    assert [] == [url for url in asked if not url.startswith(served)]
    assert [] == problems


def test_a_cell_that_measures_is_shown_and_not_executed(site: Path) -> None:
    """With what would execute it."""
    text = (site / "02-again.html").read_text()

    assert "it was executed" in text
    assert "RuntimeError" in text
    assert NOTE.partition(". ")[0].strip("*") in text


def test_what_has_not_changed_is_not_executed_again(folder: Path, site: Path) -> None:
    """Nor is its page written again; and what has changed, is: here one of the two."""
    page = site / "01-first.html"
    written = page.stat().st_mtime_ns

    assert () == publish(folder, site).executed
    assert written == page.stat().st_mtime_ns
    changed = folder / "02-again.ipynb"
    before = changed.read_text()
    changed.write_text(before.replace("[1]", "[2]"))
    try:
        assert ("02-again",) == publish(folder, site).executed
    finally:
        changed.write_text(before)
        publish(folder, site)


def test_parameters_are_values_for_names(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the command line too; a figure still is of its cell."""
    words = ["publish", str(folder), "-o", str(tmp_path / "site"), "--parameter", "01-first.rows=7", "--quiet"]

    assert 0 == cli.main(words)
    assert "2 figures" in capsys.readouterr().out
    assert "parameter 7" in (tmp_path / "site" / "01-first.html").read_text()
    assert (2, []) == verify(tmp_path / "site", folder)


def test_what_agrees_is_said_to(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of it, as it was built."""
    assert (2, []) == verify(site)
    assert 0 == cli.main(["verify", str(site)])
    assert "All 2 figures agree" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["dataset", "spec", "sweep", "code"])
def test_what_does_not_agree_is_found(
    what: str, site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed sample, a changed mark, a changed sweep, a changed cell: each is told of the figures it concerns."""
    copy = tmp_path / "site"
    shutil.copytree(site, copy)
    one = Manifest.read(copy).figures[0]
    data = copy / "_static" / "datasets" / f"{one.told['dataset']}.nc"
    if what == "dataset":
        changed = storage.load(data)
        changed["latency"].values[0, 0, 0, 0, 0] *= 1.001
        storage.save(changed, data, overwrite=True)
    elif what == "spec":
        file = copy / "_static" / "figures" / f"{one.id}.json"
        file.write_text(file.read_text().replace('"width": ', '"width": 1', 1))
    elif what == "sweep":
        file = data.with_suffix(".json")
        file.write_text(file.read_text().replace('"repeats": 10', '"repeats": 100'))
    else:
        file = copy / "notebooks" / "01-first.ipynb"
        file.write_text(file.read_text().replace("plot.throughput()", "plot.throughput(ci=0.5)"))
    _, findings = verify(copy)

    assert {what} == {finding.what for finding in findings}
    assert one.id in {finding.figure for finding in findings}
    assert (2 if what in ("dataset", "sweep") else 1) == len(findings)
    assert 1 == cli.main(["verify", str(copy)])
    assert one.id in capsys.readouterr().out


def test_what_cannot_be_published_is_an_error(folder: Path, tmp_path: Path) -> None:
    """No notebook, notebooks of two folders, a cell that fails, a sweep without a recording, no site."""
    (tmp_path / "bare").mkdir()
    with pytest.raises(UsageError, match="holds no notebook"):
        publish(tmp_path / "bare", tmp_path / "site")
    nbformat.write(notebook(new_code_cell("1 / 0")), tmp_path / "bare" / "wrong.ipynb")
    with pytest.raises(ExecutionError, match="ZeroDivisionError"):
        publish(tmp_path / "bare", tmp_path / "site")
    with pytest.raises(UsageError, match="several folders"):
        publish([tmp_path / "bare" / "wrong.ipynb", folder / "01-first.ipynb"], tmp_path / "site")
    shutil.copyfile(folder / "data" / "mlp.onnx", tmp_path / "bare" / "mlp.onnx")
    nbformat.write(
        notebook(new_code_cell(f"%load_ext ngbkit\n%ngbench mlp.onnx {SWEEP}")), tmp_path / "bare" / "wrong.ipynb"
    )
    with pytest.raises(ExecutionError, match="has no recording"):
        publish(tmp_path / "bare", tmp_path / "site")
    with pytest.raises(UsageError, match="over its own notebooks"):
        publish(folder, folder.parent)
    assert (folder / "01-first.ipynb").is_file()
    with pytest.raises(UsageError, match="holds no site"):
        verify(tmp_path / "bare")


def test_the_recording_is_what_figures_show(folder: Path, site: Path) -> None:
    """To the last sample."""
    (recorded,) = (folder / "data" / "recorded").iterdir()
    told = Manifest.read(site).figures[0].told
    shown = storage.load(site / "_static" / "datasets" / f"{told['dataset']}.nc")

    assert json.loads((recorded / "run.json").read_text())["id"] == told["run_id"]
    assert np.isfinite(shown["latency"]).all()
