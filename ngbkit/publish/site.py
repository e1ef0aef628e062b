"""Builds the site: pages by Sphinx and myst-nb, with interactive charts that request nothing from other servers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from ngbkit.errors import NgbkitError
from ngbkit.figures.pictures import load_converter
from ngbkit.publish.config import SiteConfig
from ngbkit.publish.downloads import write_dataset
from ngbkit.publish.manifest import DATASETS
from ngbkit.workloads.subprocesses import build_arguments

_SCRIPT = """\
// Draws the charts from their specifications in the colours of the page; without scripts the page shows pictures.
const system = window.matchMedia("(prefers-color-scheme: dark)");
const figures = Array.from(document.querySelectorAll("figure.ngb-figure"), (figure) => {
  const alive = document.createElement("div");
  const picture = figure.querySelector(".ngb-picture");
  picture.before(alive);
  const spec = JSON.parse(figure.querySelector(".ngb-spec").textContent);
  return { figure, alive, picture, spec };
});

function draw({ figure, alive, picture, spec }) {
  const chosen = document.body.dataset.theme;
  const dark = chosen === "dark" || (chosen !== "light" && system.matches);
  const config = { background: getComputedStyle(document.body).backgroundColor };
  const darkness = { theme: "dark", tooltip: { theme: "dark" } };
  const options = { actions: false, renderer: "svg", config, ...(dark && darkness) };
  window.vegaEmbed(alive, spec, options).then(
    () => {
      picture.hidden = true;
      figure.classList.add("ngb-alive");
      // One that is little wider than the page shrinks; one that is much wider scrolls, to stay readable.
      const svg = alive.querySelector("svg");
      if (svg.width.baseVal.value < 1.25 * figure.clientWidth) svg.style.maxWidth = "100%";
    },
    (error) => { alive.remove(); console.error(figure.id, error); },
  );
}

const drawAll = () => figures.forEach(draw);
drawAll();
system.addEventListener("change", drawAll);
new MutationObserver(drawAll).observe(document.body, { attributeFilter: ["data-theme"] });
"""

_STYLE = """\
/* A figure of many panels is as wide as the page, and not as a column of text. */
.main, .content, .article-container, #furo-main-content { min-width: 0; }
.content { flex: 1 1 0; max-width: 72rem; width: auto; padding: 0 2rem; }
.toc-drawer { display: none; }
figure.ngb-figure { margin: 1rem 0; overflow-x: auto; }
figure.ngb-figure svg, figure.ngb-figure img { max-width: 100%; height: auto; }
.ngb-picture :is(svg, img) { background: white; }
figure.ngb-figure.ngb-alive svg { max-width: none; }
figure.ngb-figure figcaption { font-size: 85%; color: var(--color-foreground-muted); text-align: left; }
figure.ngb-figure figcaption table { border-collapse: collapse; margin: 0.5rem 0; }
figure.ngb-figure figcaption th { padding-right: 1rem; font-weight: normal; text-align: left; vertical-align: top; }
figure.ngb-figure figcaption td { font-family: monospace; overflow-wrap: anywhere; }
figure.ngb-figure figcaption pre { padding: 0.6rem; background: var(--color-code-background); overflow-x: auto; }
div.cell_output { overflow-x: auto; }
details.admonition.hide { padding: 0; border: none; box-shadow: none; background: none; }
details.admonition.hide summary p.admonition-title { padding: 0 0 0 1.2rem; background: none; font-weight: normal; }
details.admonition.hide summary p.admonition-title { color: var(--color-foreground-muted); }
details.admonition.hide summary p.admonition-title::before { display: none; }
div.cell_output table { font-size: 85%; font-variant-numeric: tabular-nums; border: none; border-collapse: collapse; }
div.cell_output :is(th, td) { padding: 0.15rem 0.6rem; border: none; text-align: right; vertical-align: top; }
div.cell_output tr { border-bottom: 1px solid var(--color-background-border); }
"""

_ICON = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64"><rect width="64" height="64" rx="12" fill="#1B1B1B"/>
<path d="M16 50V34M32 50V22M48 50V12" stroke="#56B4E9" stroke-width="9"/></svg>
"""

_CONF = """\
# Written by `ngbkit publish`.
import json
from pathlib import Path

settings = json.loads((Path(__file__).parent / "site.json").read_text())
project = settings["title"]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.autosummary"]
nb_execution_mode = "off"
nb_render_markdown_format = "myst"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autosummary_generate = False
napoleon_google_docstring = False
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["ngbkit.css"]
html_js_files = [("vega.js", {"defer": "defer"}), ("ngbkit.js", {"defer": "defer"})]
html_show_sphinx = False
html_show_copyright = False
html_favicon = "_static/favicon.svg"
html_copy_source = False
html_title = settings["title"]
suppress_warnings = ["mystnb.unknown_mime_type", "myst.header", "myst.xref_missing", "ref.python", "toc.no_title"]
"""


def list_names(config: SiteConfig) -> list[str]:
    """List the files that `write_sources` writes beside the pages."""
    return ["conf.py", "index.md", "site.json", *(["api.md"] if config.api else [])]


def write_sources(
    folder: Path, config: SiteConfig, pages: Sequence[Path], texts: Sequence[Path], datasets: Mapping[str, Path]
) -> None:
    """Write the sources of Sphinx (configuration, index, scripts, datasets) into a folder with pages of notebooks.

    `pages` are in order; `texts` are Markdown files, copied as they are; `datasets` are files by their name in the
    site.
    """
    static = folder / "_static"
    static.mkdir(parents=True, exist_ok=True)
    _write(static / "ngbkit.js", _SCRIPT)
    _write(static / "ngbkit.css", _STYLE)
    _write(static / "favicon.svg", _ICON)
    if not (static / "vega.js").is_file():
        bundle = load_converter().javascript_bundle("window.vegaEmbed = vegaEmbed;")
        # In a scope of its own: the bundle and Sphinx's scripts share some names.
        (static / "vega.js").write_text(f"(() => {{\n{bundle}\n}})();\n")
    _write(folder / "site.json", json.dumps({"title": config.title, "description": config.description}))
    _write(folder / "conf.py", _CONF)
    for text in texts:
        _write(folder / text.name, text.read_text())
    names = [path.stem for path in (*pages, *texts) if path.stem != "index"]
    if config.api:
        _write(folder / "api.md", _render_reference(config.api))
        names.append("api")
    if not any(text.stem == "index" for text in texts):
        contents = "\n".join(names)
        _write(
            folder / "index.md",
            f"# {config.title}\n\n{config.description}\n\n```{{toctree}}\n:maxdepth: 1\n\n{contents}\n```\n",
        )
    for stem, dataset in datasets.items():
        write_dataset(dataset, folder / DATASETS / f"{stem}.nc")


def build(folder: Path, site: Path) -> None:
    """Run Sphinx to read changed sources and to write all pages; its warnings, such as a broken link, are errors."""
    # A page written beside those of an earlier build has other links to styles.
    shutil.rmtree(site, ignore_errors=True)
    # In a process of its own: docutils and Sphinx keep global state, and change that of Python.
    command = [sys.executable, *build_arguments("sphinx", "-b", "html", "-d", str(folder.parent / "doctrees"), "-q")]
    command += ["-W", "--keep-going", str(folder), str(site)]
    process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if process.returncode:
        raise NgbkitError(f"building the site failed:\n{process.stderr.strip()[-3000:]}")


def _write(target: Path, content: str) -> None:
    """Write a file only if its content changes, since Sphinx builds modified files again."""
    if not target.is_file() or target.read_text() != content:
        target.write_text(content)


def _render_reference(modules: Sequence[str]) -> str:
    """Render the reference page: the docstrings of each module and of its members."""
    parts = []
    for name in modules:
        # The public members of a package are imported from its modules; the imports of a module are its own affair.
        option = "   :imported-members:\n" if hasattr(import_module(name), "__all__") else ""
        parts.append(f"## {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :members:\n{option}```\n")
    return "\n".join(["# Reference\n", *parts])
