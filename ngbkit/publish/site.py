"""Builds the site: pages by Sphinx and myst-nb, with interactive charts that request nothing from other servers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module, metadata
from pathlib import Path

from ngbkit.errors import NgbkitError
from ngbkit.figures.files import bundle_scripts
from ngbkit.publish import front
from ngbkit.publish.citation import Citation, SiteConfig
from ngbkit.publish.downloads import write_dataset
from ngbkit.publish.instructions import render_replay
from ngbkit.publish.manifest import DATASETS, SiteFigure
from ngbkit.publish.sanitise import clean_markdown
from ngbkit.workloads.subprocesses import build_arguments

_THEME = Path(__file__).parent / "theme"
"""The style, the script, the icon and the template of every page."""

_CONF = """\
# Written by `ngbkit publish`.
import json
from html import escape
from pathlib import Path

settings = json.loads((Path(__file__).parent / "site.json").read_text())
project = settings["title"]
extensions = ["myst_nb", "ngbkit.publish.rendering"]
extensions += ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.autosummary"]
nb_execution_mode = "off"
nb_render_markdown_format = "gfm"  # an output may have labels of others: no directive, and no role
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
html_math_renderer = "mathml"
smartquotes = False  # what a reader copies runs, such as an option and its dashes
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autosummary_generate = False
napoleon_google_docstring = False
html_theme = "furo"
templates_path = [settings["templates"]]
html_context = settings["context"]
html_static_path = ["_static"]
html_css_files = ["ngbkit.css"]
html_js_files = [("vega.js", {"defer": "defer"}), ("ngbkit.js", {"defer": "defer"})]
html_show_sphinx = False
html_show_copyright = False
html_favicon = "_static/favicon.svg"
html_copy_source = False
html_title = escape(settings["title"])
suppress_warnings = ["mystnb.unknown_mime_type", "myst.header", "myst.xref_missing", "ref.python", "toc.no_title"]
suppress_warnings += ["misc.highlighting_failure"]
"""


def list_names(config: SiteConfig) -> list[str]:
    """List the files that `write_sources` writes beside the pages."""
    return ["conf.py", "index.md", "site.json", *(["api.md"] if config.api else [])]


def write_sources(
    folder: Path,
    config: SiteConfig,
    citation: Citation,
    pages: Sequence[Path],
    texts: Sequence[Path],
    figures: Sequence[SiteFigure],
    datasets: Mapping[str, Path],
) -> None:
    """Write the sources of Sphinx (configuration, index, scripts, datasets) into a folder with pages of notebooks.

    `pages` are in order; `texts` are Markdown files, copied as they are; `datasets` are files by their name in the
    site.
    """
    static = folder / "_static"
    static.mkdir(parents=True, exist_ok=True)
    for name in ("ngbkit.js", "ngbkit.css", "favicon.svg"):
        _write(static / name, (_THEME / name).read_text())
    if not (static / "vega.js").is_file():
        bundle = bundle_scripts()
        # In a scope of its own: the bundle and Sphinx's scripts share some names.
        (static / "vega.js").write_text(f"(() => {{\n{bundle}\n}})();\n")
    context = {
        "notebooks": [page.stem for page in pages],
        "licenses": list(map(asdict, citation.licenses)),
        "replay": render_replay(metadata.version("ngbkit"), config.repository),
    }
    _write(folder / "site.json", json.dumps({"title": config.title, "templates": str(_THEME), "context": context}))
    _write(folder / "conf.py", _CONF)
    for text in texts:
        _write(folder / text.name, text.read_text())
    names = [path.stem for path in (*pages, *texts) if path.stem != "index"]
    if config.api:
        _write(folder / "api.md", _render_reference(config.api))
        names.append("api")
    if not any(text.stem == "index" for text in texts):
        cards = [front.read_card(file, figures) for file in (*pages, *texts)]
        _write(folder / "index.md", clean_markdown(front.write_front(config, citation, cards, names))[0])
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
