"""The site: pages by Sphinx and myst-nb, charts that come alive without asking any other server for anything."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import xarray as xr

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from ngbkit.dataset import storage
from ngbkit.errors import MissingDependencyError, NgbkitError, UsageError
from ngbkit.figures.pictures import converter
from ngbkit.metrics import profiles
from ngbkit.sweep.to_json import plain

_SCRIPT = """\
// The charts: each page holds their specifications; without scripts it shows pictures of them.
for (const figure of document.querySelectorAll("figure.ngb-figure")) {
  const alive = document.createElement("div");
  const picture = figure.querySelector(".ngb-picture");
  picture.before(alive);
  const spec = JSON.parse(figure.querySelector(".ngb-spec").textContent);
  window.vegaEmbed(alive, spec, { actions: false, renderer: "svg" }).then(
    () => { picture.hidden = true; figure.classList.add("ngb-alive"); },
    (error) => { alive.remove(); console.error(figure.id, error); },
  );
}
"""

_STYLE = """\
/* A figure of many panels is as wide as the page, and not as a column of text. */
.main, .content, .article-container, #furo-main-content { min-width: 0; }
.content { flex: 1 1 0; max-width: 72rem; width: auto; padding: 0 2rem; }
.toc-drawer { display: none; }
figure.ngb-figure { margin: 1rem 0; overflow-x: auto; }
figure.ngb-figure svg, figure.ngb-figure img { max-width: 100%; height: auto; background: white; }
figure.ngb-figure.ngb-alive svg { max-width: none; }
figure.ngb-figure figcaption { font-size: 85%; color: var(--color-foreground-muted); text-align: left; }
figure.ngb-figure figcaption table { border-collapse: collapse; margin: 0.5rem 0; }
figure.ngb-figure figcaption th { padding-right: 1rem; font-weight: normal; text-align: left; vertical-align: top; }
figure.ngb-figure figcaption td { font-family: monospace; overflow-wrap: anywhere; }
figure.ngb-figure figcaption pre { padding: 0.6rem; background: var(--color-code-background); overflow-x: auto; }
div.cell_output { overflow-x: auto; }
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

told = json.loads((Path(__file__).parent / "site.json").read_text())
project = told["title"]
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
html_title = told["title"]
suppress_warnings = ["mystnb.unknown_mime_type", "myst.header", "myst.xref_missing", "ref.python"]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a site is called, and what it has beside its notebooks.

    Parameters
    ----------
    title, description
        Of the site.
    api
        Modules whose docstrings make the API reference.
    """

    title: str = "Notebooks"
    description: str = ""
    api: tuple[str, ...] = ()

    @classmethod
    def read(cls, file: Path) -> About:
        """What ``site.toml`` beside the notebooks says; the defaults where there is none.

        Raises
        ------
        UsageError
            It does not read, or asks for something that there is not.
        """
        if not file.is_file():
            return cls()
        try:
            told = tomllib.loads(file.read_text())
            return cls(**{**told, "api": tuple(told.get("api", ()))})
        except (ValueError, TypeError) as error:
            raise UsageError(f"{file} does not read: {error}. It may have title, description and api.") from error


def write_sources(
    place: Path, about: About, pages: Sequence[Path], texts: Sequence[Path], datasets: Path, drawn: Collection[str]
) -> None:
    """Write what Sphinx builds from: configuration, index, scripts, datasets.

    Parameters
    ----------
    place
        The folder of the sources; the pages of notebooks and the files of their figures are in it.
    about
        The site.
    pages
        The pages of notebooks, in order.
    texts
        Markdown files that are pages as they are.
    datasets
        The folder of datasets.
    drawn
        The hashes of those that figures draw.
    """
    static = place / "_static"
    static.mkdir(parents=True, exist_ok=True)
    _write(static / "ngbkit.js", _SCRIPT)
    _write(static / "ngbkit.css", _STYLE)
    _write(static / "favicon.svg", _ICON)
    if not (static / "vega.js").is_file():
        bundle = converter().javascript_bundle("window.vegaEmbed = vegaEmbed;")
        # In a scope of its own: Sphinx's scripts have names that the bundle has too.
        (static / "vega.js").write_text(f"(() => {{\n{bundle}\n}})();\n")
    _write(place / "site.json", json.dumps({"title": about.title, "description": about.description}))
    _write(place / "conf.py", _CONF)
    for text in texts:
        _write(place / text.name, text.read_text())
    names = [one.stem for one in (*pages, *texts) if one.stem != "index"]
    if about.api:
        _write(place / "api.md", _api(about.api))
        names.append("api")
    if not any(text.stem == "index" for text in texts):
        listed = "\n".join(names)
        _write(
            place / "index.md",
            f"# {about.title}\n\n{about.description}\n\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n",
        )
    for digest in sorted(drawn):
        _write_dataset(datasets / f"{digest}.nc", static / "datasets")


def build(place: Path, site: Path) -> None:
    """Have Sphinx build the pages that have changed.

    Raises
    ------
    MissingDependencyError
        Sphinx, myst-nb or furo is not installed.
    NgbkitError
        It fails, or warns: a link that leads nowhere is an error.
    """
    for package in ("sphinx", "myst_nb", "furo"):
        if find_spec(package) is None:
            raise MissingDependencyError(package.replace("_", "-"), "publish")
    # A process of its own: docutils and Sphinx keep state, and change that of Python.
    words = [sys.executable, "-m", "sphinx", "-b", "html", "-d", str(place.parent / "doctrees"), "-q", "-W"]
    words += ["--keep-going", str(place), str(site)]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NgbkitError(f"the site does not build:\n{done.stderr.strip()[-3000:]}")


def _write(target: Path, content: str) -> None:
    """Only where it is another: what has not changed is not built again."""
    if not target.is_file() or target.read_text() != content:
        target.write_text(content)


def _write_dataset(file: Path, folder: Path) -> None:
    """A dataset as netCDF, its profiles as CSV, and what was asked for, on what, as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / file.name
    if target.is_file():
        return
    data = storage.load(file)
    attrs = data.attrs
    told = {name: json.loads(attrs.get(name) or "null") for name in ("sweep", "environments")}
    told |= {name: attrs[name] for name in ("run_id", "ngbkit_version", "created") if name in attrs}
    target.with_suffix(".json").write_text(json.dumps(plain(told), indent=1))
    target.with_suffix(".csv").write_text(_csv(data))
    shutil.copyfile(file, target)


def _csv(data: xr.Dataset | xr.DataTree) -> str:
    """Profiles of a dataset with samples; else every number of it."""
    from ngbkit.dataset.assembly import nodes

    if all("latency" in node and "contract" in node for node in nodes(data).values()):
        try:
            return str(profiles.profiles(data).to_csv(index=False))
        except UsageError:
            pass
    frames = [node.to_dataframe().reset_index() for node in nodes(data).values()]
    return "\n".join(str(frame.to_csv(index=False)) for frame in frames)


def _api(modules: Sequence[str]) -> str:
    """The reference page: what each module says of itself, and what it offers."""
    parts = []
    for name in modules:
        # A package offers what it has taken from its rooms; a module has imported what it needs itself.
        offered = "   :imported-members:\n" if hasattr(import_module(name), "__all__") else ""
        parts.append(f"## {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :members:\n{offered}```\n")
    return "\n".join(["# Reference\n", *parts])
