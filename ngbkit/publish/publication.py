"""Publishes a folder of notebooks as a site."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ngbkit.errors import MissingDependencyError, UsageError
from ngbkit.publish import archive, citation, config, pages, site
from ngbkit.publish.citation import Citation
from ngbkit.publish.execute import Executor, find_modules
from ngbkit.publish.manifest import FIGURES, Manifest
from ngbkit.runs.recordings import Measure
from ngbkit.user_text import parse_path

ARCHIVE = "archive.zip"
"""The zip of a site, in its folder."""

# Of the extra `publish`. A site is refused before its notebooks are executed, not after hours of measuring.
_PACKAGES = {
    "furo": "furo",
    "myst_nb": "myst-nb",
    "packaging": "packaging",
    "papermill": "papermill",
    "rocrate": "rocrate",
    "sphinx": "sphinx",
    "yaml": "pyyaml",
}
_UNLICENSED = (
    f"no license: the archive does not say who may use it. Set license in {config.FILE} or {citation.FILE}, "
    'for example license = "CC-BY-4.0".'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The result of `publish`.

    Parameters
    ----------
    site
        Folder of the site.
    executed
        Stems of the notebooks that were executed; the others had not changed.
    figures
        Number of figures.
    bytes
        Size of all files.
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
    report: Callable[[str], None] | None = None,
) -> Published:
    """Execute notebooks and build a site from them.

    Parameters
    ----------
    notebooks
        A folder, in which every notebook and every Markdown file is a page; or notebooks of one folder.
    out
        Folder of the site; files that speed up the next build are beside it: for ``site`` in ``.site-ngbkit``.
    measure
        ``"never"``: sweeps replay the recordings in ``data/recorded`` beside the notebooks, and cells tagged
        ``measures`` are displayed but not executed. ``"missing"``: sweeps without a recording are measured.
        ``"always"``: every sweep is measured again and recorded.
    parameters
        Values for the names in the cell tagged ``parameters``, by stem of the notebook.
    report
        Called with lines of text on the progress.

    Raises
    ------
    UsageError
        There is no notebook, the site would overwrite its notebooks, or ``site.toml`` or ``CITATION.cff`` is invalid.
    ExecutionError
        A cell failed.
    MissingDependencyError
        A package of the extra ``publish`` is not installed.
    """
    for module, package in _PACKAGES.items():
        if find_spec(module) is None:
            raise MissingDependencyError(package, "publish")
    report = report or (lambda _line: None)
    sources, texts = _find_sources(notebooks)
    folder = sources[0].parent
    settings = config.SiteConfig.read(folder / config.FILE)
    metadata_files = _find_metadata_files(folder)
    credits = _read_citation(metadata_files, settings)
    if not credits.licenses:
        report(_UNLICENSED)
    target = parse_path(out)
    if (target / "notebooks").resolve() == folder.resolve():
        raise UsageError(f"a site in {target} would overwrite its own notebooks. Choose another folder: -o site.")
    build = target.absolute().parent / f".{target.name}-ngbkit"
    executor = Executor(
        folder=build / ("measured" if measure != "never" else "executed"),
        recordings=folder / "data" / "recorded",
        datasets=build / "datasets",
        state=build / "state",
        measure=measure,
        parameters=parameters or {},
    )
    pages_folder = build / "sources"
    executed, figures, page_files = [], [], []
    for source in sources:
        report(f"executing {source.name}")
        notebook, is_new = executor.execute(source)
        if is_new:
            executed.append(source.stem)
        page_files.append(pages_folder / source.name)
        figures += pages.write_page(notebook, page_files[-1], pages_folder / FIGURES)
    manifest = Manifest(
        title=settings.title,
        version=metadata.version("ngbkit"),
        notebooks=tuple(source.stem for source in sources),
        figures=tuple(figures),
    )
    report("building the site")
    datasets = {
        stem: build / "datasets" / f"{digest}.nc" for figure in figures for digest, stem in figure.datasets.items()
    }
    site.write_sources(pages_folder, settings, page_files, texts, datasets)
    for source in (*sources, *texts):
        site.copy_pictures(source, pages_folder)
    # myst-nb writes copies of the notebooks beside the html folder.
    site.build(pages_folder, build / "html")
    shutil.copytree(build / "html", target, dirs_exist_ok=True)
    _copy_sources(sources, target / "notebooks")
    for path in metadata_files:
        shutil.copyfile(path, target / path.name)
    manifest.write(target)
    archive.write_archive(target, manifest, credits, target / ARCHIVE)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    return Published(site=target, executed=tuple(executed), figures=len(figures), bytes=size)


def _find_sources(notebooks: str | Path | Iterable[str | Path]) -> tuple[list[Path], list[Path]]:
    """Find the notebooks, and the Markdown files beside them where `notebooks` is a folder."""
    if isinstance(notebooks, (str, Path)) and (folder := parse_path(notebooks)).is_dir():
        paths, texts = sorted(folder.glob("*.ipynb")), sorted(folder.glob("*.md"))
        if not paths:
            raise UsageError(f"{folder} contains no notebook. Name a folder of notebooks, or notebooks of one folder.")
        return paths, texts
    paths = [parse_path(path) for path in ([notebooks] if isinstance(notebooks, (str, Path)) else notebooks)]
    invalid = [path for path in paths if not path.is_file() or path.suffix != ".ipynb"]
    if invalid or not paths:
        raise UsageError(
            f"invalid notebooks: got {', '.join(map(str, invalid)) or 'none'}; expected a folder of notebooks, or "
            "notebooks (.ipynb) of one folder."
        )
    if len({path.absolute().parent for path in paths}) > 1:
        raise UsageError("the notebooks are in several folders; expected one folder with all notebooks of a site.")
    return paths, []


def _find_metadata_files(folder: Path) -> list[Path]:
    """Find the license and the citation in the folder of the notebooks, or else in its parent."""
    candidates = [(folder / name, folder.parent / name) for name in archive.METADATA_FILES]
    return [file for paths in candidates if (file := next((path for path in paths if path.is_file()), None))]


def _read_citation(metadata_files: Sequence[Path], settings: config.SiteConfig) -> Citation:
    """Read the authors and the licenses of a site from site.toml, or else from CITATION.cff."""
    file = next((path for path in metadata_files if path.name == citation.FILE), None)
    return (Citation.read(file) if file else Citation()).overridden_by(settings.citation)


def _copy_sources(sources: Sequence[Path], folder: Path) -> None:
    """Copy the notebooks with the data that they read and the modules that they import, for others to execute again."""
    folder.mkdir(exist_ok=True)
    for source in sources:
        for file in (source, *find_modules(source)):
            copy = folder / file.relative_to(source.parent)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    data = sources[0].parent / "data"
    if data.is_dir():
        shutil.copytree(data, folder / "data", dirs_exist_ok=True)
