"""Publishing: a site from recordings, complete without scripts, interactive with them, verified figure by figure."""

from __future__ import annotations

import functools
import http.server
import json
import re
import shutil
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import numpy as np
import pytest
from accessible import find_violations
from authored import SWEEP, build_notebook
from lab import limit_ms
from nbformat.v4 import new_code_cell, new_markdown_cell
from playwright.sync_api import Browser
from selfchecks import make

from ngbkit import cli
from ngbkit.dataset import storage
from ngbkit.dataset.dataset_hash import hash_dataset
from ngbkit.errors import UsageError
from ngbkit.publish import publish, verify
from ngbkit.publish.archive import build_crate
from ngbkit.publish.cells import NOTE
from ngbkit.publish.citation import Citation
from ngbkit.publish.execute import ExecutionError
from ngbkit.publish.manifest import DATASETS, FIGURES, Manifest
from ngbkit.publish.pages import render_figure
from ngbkit.runs import recordings
from ngbkit.runs.selfcheck import store

_GROUND = "getComputedStyle(document.body).backgroundColor"
_FITS = "[...document.querySelectorAll('figure.ngb-alive svg.marks')].filter(figure => \
figure.getBoundingClientRect().width <= 390).length === 2"
_HAS_GROUND = f"[...document.querySelectorAll('figure.ngb-alive svg.marks')].filter(figure => \
figure.style.backgroundColor === {_GROUND}).length === 2"


class Page(HTMLParser):
    """The links and the elements of a page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.pictures = 0
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.links += [value for name in ("href", "src") if (value := values.get(name))]
        self.ids |= {value for value in [values.get("id")] if value}
        self.pictures += tag == "svg"


@pytest.mark.guard
def test_a_site_is_complete(site: Path) -> None:
    """A site has pages, figures in every format, their data, the notebooks and an archive."""
    manifest = Manifest.read(site)
    assert ("A small study", ("01-first", "02-again")) == (manifest.title, manifest.notebooks)
    figures = [(figure.provenance["figure"], figure.cell) for figure in manifest.figures]
    assert [("throughput", 3), ("speedup", 5)] == figures
    for figure in manifest.figures:
        assert all((site / file).stat().st_size > 500 for file in figure.list_files())
        digest = figure.provenance["dataset"]
        data = site / DATASETS / f"01-first-ds-{digest[:8]}"
        assert {digest: data.name} == figure.datasets
        assert digest == hash_dataset(storage.load(data.with_suffix(".nc")))
        assert data.with_suffix(".csv").read_text().startswith("workload,device,compiler,batch_size,samples,latency")
        workloads = json.loads(data.with_suffix(".json").read_text())["sweep"]["workloads"]
        assert ["mlp"] == [workload["name"] for workload in workloads]
    picture = (site / "_static/figures/01-first-throughput-1.svg").read_text()
    assert json.dumps(manifest.figures[0].provenance) in picture.replace("&quot;", '"')
    assert "What was measured" in (site / "01-first.html").read_text()
    assert "frames" in (site / "api.html").read_text()
    front = (site / "index.html").read_text()
    assert 'src="_static/figures/01-first-throughput-1.svg"' in front
    assert "A team (n.d.). A small study." in front
    with zipfile.ZipFile(site / "archive.zip") as archive:
        graph = json.loads(archive.read("ro-crate-metadata.json"))["@graph"]
        names = {entity["@id"] for entity in graph if entity.get("@type") == "File"}
        assert names == set(archive.namelist()) - {"ro-crate-metadata.json"}
    assert {
        "notebooks/01-first.ipynb",
        "notebooks/data/mlp.onnx",
        "notebooks/helper.py",
        "notebooks/parts/names.py",
    } <= names
    assert "notebooks/other.py" not in names
    names_by_id = {entity["@id"]: entity.get("name") for entity in graph}
    root = next(entity for entity in graph if entity["@id"] == "./")
    assert [["CC-BY-4.0"], ["A team"]] == [
        [names_by_id[part["@id"]] for part in root[key]] for key in ("license", "author")
    ]
    pdf = next(entity for entity in graph if entity["@id"] == "_static/figures/01-first-throughput-1.pdf")
    assert {"@id": "notebooks/01-first.ipynb"} in pdf["isBasedOn"]


def test_nothing_is_left_beside_a_site(folder: Path, site: Path) -> None:
    """Publishing leaves only the site and the cache of its build."""
    assert {"notebooks", "site", ".site-ngbkit"} == {path.name for path in folder.parent.iterdir()}


def test_pages_load_nothing_from_other_servers(site: Path) -> None:
    """Every link that a page loads is valid and within the site; without scripts the page has pictures."""
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
    """The address of the site, below a path of a server on loopback."""
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
    """Figures are interactive with scripts and pictures without, and request nothing from other servers."""
    requested: list[str] = []
    problems: list[str] = []
    context = browser.new_context(java_script_enabled=scripts)
    page = context.new_page()
    page.set_default_timeout(limit_ms())
    page.on("request", lambda request: requested.append(request.url))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on(
        "response",
        lambda answer: problems.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None,
    )
    page.goto(f"{served}01-first.html")
    if scripts:
        page.wait_for_selector("[id='01-first-throughput-1'].ngb-alive svg")
        page.wait_for_function("document.querySelectorAll('figure.ngb-alive').length === 2")
        assert 0 == page.locator(".ngb-picture:visible").count()
        assert [] == find_violations(page, "body")
        # A phone shows one panel a row.
        page.set_viewport_size({"width": 390, "height": 640})
        page.wait_for_function(_FITS)
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        page.goto(f"{served}index.html")
        page.get_by_role("link", name=re.compile(r"archive\.zip, [\d.]+ MB")).wait_for()
        assert [] == find_violations(page, "body")
    else:
        assert 2 == page.locator(".ngb-picture svg:visible, .ngb-picture img:visible").count()
    context.close()

    assert [] == [url for url in requested if not url.startswith(served)]
    assert [] == problems


def test_figures_have_the_ground_of_the_page(browser: Browser, served: str) -> None:
    """The figures of a page follow the colour scheme of the system, and the switch of the page."""
    page = browser.new_page(color_scheme="dark")
    page.set_default_timeout(limit_ms())
    grounds = []
    try:
        page.goto(f"{served}01-first.html")
        for scheme in ("dark", "light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.wait_for_function(_HAS_GROUND)
            grounds.append(page.evaluate(_GROUND))
        page.evaluate("document.body.dataset.theme = 'light'")
        page.wait_for_function(_HAS_GROUND)
        grounds.append(page.evaluate(_GROUND))
    finally:
        page.close()

    assert "rgb(255, 255, 255)" == grounds[1] == grounds[3]
    assert grounds[0] == grounds[2] != grounds[1]


def test_a_measuring_cell_is_displayed_and_not_executed(site: Path) -> None:
    """A measuring cell is displayed with a note on how to execute it."""
    text = (site / "02-again.html").read_text()

    assert "it was executed" in text
    assert "RuntimeError" in text
    assert NOTE.partition(". ")[0].strip("*") in text


def test_only_changed_notebooks_are_executed_again(
    folder: Path, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pages of others are not written again; a module beside a notebook changes its notebook."""
    page = site / "01-first.html"
    modified_ns = page.stat().st_mtime_ns

    assert () == publish(folder, site).executed
    assert modified_ns == page.stat().st_mtime_ns
    module = folder / "parts" / "names.py"
    original = module.read_text()
    module.write_text(original.replace("a", "b"))
    try:
        assert ("02-again",) == publish(folder, site).executed
        assert 0 == cli.main(["publish", str(folder), "-o", str(site), "--quiet"])
        printed = capsys.readouterr().out
        assert "2 figures" in printed
        assert "executed no notebook: none changed" in printed
        assert [] == verify(site).findings
    finally:
        module.write_text(original)
        publish(folder, site)


def test_a_cell_that_is_folded_in_jupyterlab_is_folded_in_the_page(site: Path) -> None:
    """The page folds a folded cell and keeps its output visible."""
    text = (site / "01-first.html").read_text()
    sources = re.findall(r'<details class="[^"]*\bhide above-input\b.*?</details>', text, re.DOTALL)

    assert 1 == len(sources)
    assert "parameter" in sources[0]
    assert "parameter 1" not in sources[0]
    assert "parameter 1" in text.partition(sources[0])[2]


def test_a_composition_is_based_on_the_data_of_its_parts(site: Path) -> None:
    """The page and the metadata of the archive link both datasets."""
    manifest = Manifest.read(site)
    figure = manifest.figures[0]
    lost = {**figure.provenance, "dataset": "lost"}
    stems = {**figure.datasets, "lost": "01-first-lost"}
    both = replace(figure, provenance={"parts": [figure.provenance, lost]}, datasets=stems)
    changed = replace(manifest, figures=(both,))
    files = [site / FIGURES / f"{figure.id}.svg"]
    graph = build_crate(site, changed, Citation(), files).metadata.generate()["@graph"]
    (entity,) = (entity for entity in graph if "isBasedOn" in entity)
    page = render_figure(both, json.loads(files[0].with_suffix(".json").read_text()), "code")

    for stem in stems.values():
        assert {"@id": f"{DATASETS}/{stem}.nc"} in entity["isBasedOn"]
        assert f'"{DATASETS}/{stem}.nc"' in page


def test_errors_of_publishing(folder: Path, tmp_path: Path) -> None:
    """No notebook, notebooks of two folders, a cell that fails, a wrong setting, no recording, no site."""
    (tmp_path / "bare").mkdir()
    with pytest.raises(UsageError, match="contains no notebook"):
        publish(tmp_path / "bare", tmp_path / "site")
    nbformat.write(build_notebook(new_code_cell("1 / 0")), tmp_path / "bare" / "wrong.ipynb")
    (tmp_path / "bare" / "notes.md").write_text("# Mine\n")
    lines: list[str] = []
    with pytest.raises(ExecutionError, match="ZeroDivisionError"):
        publish(tmp_path / "bare", tmp_path / "site", report=lines.append)
    assert lines[0].startswith("no license: the archive does not say who may use it. Set license in site.toml")
    assert lines[1].endswith("beside the notebooks: notes.md")
    (tmp_path / "bare" / "site.toml").write_text('license = "free"')
    with pytest.raises(UsageError, match="invalid license: got 'free'"):  # before a cell is executed
        publish(tmp_path / "bare", tmp_path / "site")
    (tmp_path / "bare" / "site.toml").unlink()
    with pytest.raises(UsageError, match="in several folders"):
        publish([tmp_path / "bare" / "wrong.ipynb", folder / "01-first.ipynb"], tmp_path / "site")
    shutil.copyfile(folder / "data" / "mlp.onnx", tmp_path / "bare" / "mlp.onnx")
    nbformat.write(
        build_notebook(new_code_cell(f"%load_ext ngbkit\n%ngbench mlp.onnx {SWEEP}")), tmp_path / "bare" / "wrong.ipynb"
    )
    with pytest.raises(UsageError, match=r"1 cell has no complete measurement.*\n.*no run measured it"):
        publish(tmp_path / "bare", tmp_path / "site")
    with pytest.raises(UsageError, match="a folder above the notebooks"):
        publish(folder, folder.parent)
    assert (folder / "01-first.ipynb").is_file()
    with pytest.raises(UsageError, match="contains no site"):
        verify(tmp_path / "bare")


def read_state(state_dir: Path) -> dict[str, bytes]:
    """Read the files of the runs, self-checks and predictors in a state folder, without the indices of runs."""
    paths = [path for name in ("runs", "selfcheck", "predictors") for path in (state_dir / name).rglob("*")]
    files = [path for path in paths if path.is_file() and path.parent.name != "runs"]
    return {str(path.relative_to(state_dir)): path.read_bytes() for path in files}


@pytest.mark.parametrize("measure", ["never", "missing"])
def test_the_state_of_the_reader_neither_appears_nor_changes(
    measure: recordings.Measure, folder: Path, tmp_path: Path, state_dir: Path
) -> None:
    """A page lists the runs of its own notebooks alone; the reader's runs and self-checks remain as they are."""
    (recording,) = (folder / "data" / "recorded").iterdir()
    shutil.copytree(recording, state_dir / "runs" / "20250101-000000-beef")
    store.save(make())
    before = read_state(state_dir)
    shutil.copytree(folder / "data", tmp_path / "notebooks" / "data")
    sweeps = [f"%ngbench data/mlp.onnx {SWEEP}"]
    if measure == "missing":
        sweeps.append("%ngbench data/mlp.onnx -c identity -r 3 --threads 1 -o ds")
    cells = ["%load_ext ngbkit", *sweeps, "%ngruns", "from ngbkit.runs.selfcheck import latest, store"]
    cells += ["print('check:', latest() and 'this one')", "store.save_history('cpu', {})"]
    content = build_notebook(new_markdown_cell("# Runs"), *map(new_code_cell, cells))
    nbformat.write(content, tmp_path / "notebooks" / "page.ipynb")
    publish(tmp_path / "notebooks", tmp_path / "site", measure=measure)
    text = (tmp_path / "site" / "page.html").read_text()

    assert json.loads((recording / "run.json").read_text())["id"] in text
    assert "beef" not in text
    assert before == read_state(state_dir)
    # A notebook that measures shares the locks of devices, and knows the noise of this machine.
    assert ("check: this one" in text) == (measure == "missing")
    journals = [path.stem for path in (state_dir / "devices").glob("cpu/*.sqlite")]
    assert [True] * (len(sweeps) - 1) == [name in text for name in journals]


def test_figures_show_the_recording(folder: Path, site: Path) -> None:
    """A figure of the site has every sample of the recorded run."""
    (recording,) = (folder / "data" / "recorded").iterdir()
    figure = Manifest.read(site).figures[0]
    (stem,) = figure.datasets.values()
    dataset = storage.load(site / DATASETS / f"{stem}.nc")

    assert json.loads((recording / "run.json").read_text())["id"] == figure.provenance["run_id"]
    assert np.isfinite(dataset["latency"]).all()
