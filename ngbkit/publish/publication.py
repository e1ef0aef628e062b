"""From a folder of notebooks to a site, and from a site to what of it does not agree."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from ngbkit.errors import UsageError
from ngbkit.publish import archive, pages, site
from ngbkit.publish.execute import Executor
from ngbkit.publish.manifest import Manifest
from ngbkit.runs.recordings import Measure

Tell = Callable[[str], None]

ARCHIVE = "archive.zip"
"""The zip of a site, in its folder."""

# What an author's folder may hold beside notebooks that a site shows or keeps.
_KEPT = ("CITATION.cff", "LICENSE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What `publish` built.

    Parameters
    ----------
    site
        Its folder.
    executed
        The notebooks that were executed now; the others had not changed.
    figures
        How many figures it has.
    bytes
        Of all of its files.
    """

    site: Path
    executed: tuple[str, ...]
    figures: int
    bytes: int


def publish(
    notebooks: str | Path | Iterable[str | Path],
    out: str | Path = "site",
    *,
    measure: Measure = "never",
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    tell: Tell | None = None,
) -> Published:
    """Execute notebooks and build a site of them.

    Parameters
    ----------
    notebooks
        A folder, of which every notebook and every Markdown file is a page; or notebooks of one folder.
    out
        The folder of the site; what it needs to build again is kept beside it: for ``site`` in ``.site-ngbkit``.
    measure
        ``"never"``: sweeps come from the recordings in ``data/recorded`` beside the notebooks, and cells tagged
        ``measures`` are shown and not executed. ``"missing"``: what has no recording is measured. ``"always"``:
        everything is measured again, and recorded.
    parameters
        By notebook's stem the values of names in its cell tagged ``parameters``.
    tell
        Called with a line on what is being done.

    Raises
    ------
    UsageError
        There is no notebook, or the site would be written over them.
    ExecutionError
        A cell failed.
    MissingDependencyError
        Sphinx, myst-nb or papermill is not installed.
    """
    say = tell or _nobody
    sources, texts = _sources(notebooks)
    folder = sources[0].parent
    target = Path(out)
    if (target / "notebooks").resolve() == folder.resolve():
        raise UsageError(f"a site in {target} would be written over its own notebooks. Name another folder: -o site.")
    kept = target.absolute().parent / f".{target.name}-ngbkit"
    executor = Executor(
        folder=kept / ("measured" if measure != "never" else "executed"),
        recorded=folder / "data" / "recorded",
        datasets=kept / "datasets",
        measure=measure,
        parameters=parameters or {},
    )
    place = kept / "sources"
    executed, figures, built = [], [], []
    for source in sources:
        say(f"executing {source.name}")
        done, now = executor.execute(source)
        if now:
            executed.append(source.stem)
        page = place / source.name
        figures += pages.page(done, page, place / "_static" / "figures")
        built.append(page)
    about = site.About.read(folder / "site.toml")
    manifest = Manifest(
        title=about.title,
        version=metadata.version("ngbkit"),
        notebooks=tuple(one.stem for one in sources),
        figures=tuple(figures),
    )
    say("building the site")
    drawn = {one.told["dataset"] for one in figures if one.told.get("dataset")}
    site.write_sources(place, about, built, texts, kept / "datasets", drawn)
    # myst-nb leaves copies of the notebooks beside what is built.
    site.build(place, kept / "html")
    shutil.copytree(kept / "html", target, dirs_exist_ok=True)
    _copy_sources(sources, target / "notebooks")
    for name in _KEPT:
        for beside in (folder / name, folder.parent / name):
            if beside.is_file():
                shutil.copyfile(beside, target / name)
                break
    manifest.write(target)
    archive.write(target, manifest, target / ARCHIVE)
    size = sum(one.stat().st_size for one in target.rglob("*") if one.is_file())
    return Published(site=target, executed=tuple(executed), figures=len(figures), bytes=size)


def _sources(notebooks: str | Path | Iterable[str | Path]) -> tuple[list[Path], list[Path]]:
    """The notebooks, and the texts beside them where a folder was given."""
    if isinstance(notebooks, (str, Path)) and Path(notebooks).is_dir():
        folder = Path(notebooks)
        found, texts = sorted(folder.glob("*.ipynb")), sorted(folder.glob("*.md"))
        if not found:
            raise UsageError(f"{folder} holds no notebook. Name a folder of notebooks, or notebooks.")
        return found, texts
    found = [Path(notebooks)] if isinstance(notebooks, (str, Path)) else [Path(one) for one in notebooks]
    missing = [one for one in found if not one.is_file() or one.suffix != ".ipynb"]
    if missing or not found:
        raise UsageError(f"{', '.join(map(str, missing)) or 'nothing'} is no notebook, nor a folder of notebooks.")
    if len({one.absolute().parent for one in found}) > 1:
        raise UsageError("these notebooks are of several folders; those of one site stand in one, beside their data.")
    return found, []


def _copy_sources(sources: Sequence[Path], folder: Path) -> None:
    """The notebooks as they came with the data that they read, so that others can execute them again."""
    folder.mkdir(exist_ok=True)
    for source in sources:
        shutil.copyfile(source, folder / source.name)
    data = sources[0].parent / "data"
    if data.is_dir():
        shutil.copytree(data, folder / "data", dirs_exist_ok=True)


def _nobody(text: str) -> None:
    del text
