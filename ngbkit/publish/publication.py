"""Publishes a folder of notebooks as a site."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from ngbkit.errors import MissingDependencyError, UsageError
from ngbkit.files import list_files
from ngbkit.publish import archive, citation, pages, sanitise, signing, site
from ngbkit.publish.adoption import Adoption
from ngbkit.publish.citation import Citation, SiteConfig
from ngbkit.publish.execute import Executor
from ngbkit.publish.instructions import README, write_readme
from ngbkit.publish.manifest import DATASETS, FIGURES, Manifest, SiteFigure, SiteStatement, find_date
from ngbkit.publish.sources import copy_images, copy_sources, describe_data, describe_outside, list_images
from ngbkit.publish.target import check_target, hash_sha256, list_names, prune_sources, replace_site, stage
from ngbkit.registry import find_version
from ngbkit.requirements import read_bounds
from ngbkit.runs.recordings import Measure
from ngbkit.user_text import join_names, parse_path

VERSIONS = ("altair", "ngbkit", "numpy", "pandas", "pillow", "pypdf", "vl-convert-python", "xarray")
"""The packages that draw figures and tables."""

_UNLICENSED = (
    f"no license: the archive does not say who may use it. Set license in {citation.SETTINGS} or {citation.FILE}, "
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
    sign: str | Path | None = None,
    report: Callable[[str], None] | None = None,
) -> Published:
    """Execute notebooks and build a site from them.

    Parameters
    ----------
    notebooks
        A folder, in which every notebook and every Markdown file is a page; or notebooks of one folder.
    out
        Folder of the site, new, empty or of an earlier site; files that speed up the next build are beside it: for
        ``site`` in ``.site-ngbkit``.
    measure
        ``"never"``: sweeps replay the recordings in ``data/recorded`` beside the notebooks, or else the runs of this
        machine that the cells of the notebooks made, which become recordings; and cells tagged ``measures`` are
        displayed but not executed. ``"missing"``: sweeps with neither are measured.
        ``"always"``: every sweep is measured again and recorded.
    sign
        File of the author's private SSH key, which signs the manifest and thus all files: `ngbkit.publish.signing`.
    report
        Called with lines of text on the progress.

    Raises
    ------
    UsageError
        There is no notebook; a cell has no complete measurement; the folder of the site has other files, or is one of
        the notebooks; a picture is missing; `sign` is no key; ``site.toml`` or ``CITATION.cff`` is invalid.
    ExecutionError
        A cell failed.
    MissingDependencyError
        A package of the extra ``publish`` is not installed.
    """
    for package in read_bounds("publish"):  # before notebooks are executed, not after hours of measuring
        if find_version(package) is None:
            raise MissingDependencyError(package, "publish")
    report = report or (lambda _line: None)
    sources, texts = _find_sources(notebooks)
    folder = sources[0].parent
    settings = SiteConfig.read(folder / citation.SETTINGS)
    metadata_files = _find_metadata_files(folder)
    credits = _read_citation(metadata_files, settings)
    settings = replace(settings, title=settings.title or credits.title or "Notebooks")
    if not credits.licenses:
        report(_UNLICENSED)
    if texts:
        listed = ", ".join(text.name for text in texts)  # all of them: one may be private
        report(f"public pages too, since they are Markdown beside the notebooks: {listed}")
    place = parse_path(out)
    check_target(place, folder)
    for source in (*sources, *texts):
        list_images(source)
    if sign is not None:
        signing.check_key(parse_path(sign))
    build = place.absolute().parent / f".{place.absolute().name}-ngbkit"
    # The new site, until it is complete.
    target = build / "site"
    adoption = Adoption.collect(folder / "data" / "recorded")
    if measure == "never" and (gaps := [gap for source in sources for gap in adoption.list_gaps(source)]):
        names = [notebooks] if isinstance(notebooks, (str, Path)) else sources
        raise UsageError(_explain(gaps, names, out))
    executor = Executor(
        folder=build / ("measured" if measure != "never" else "executed"),
        adoption=adoption,
        datasets=build / "datasets",
        state=build / "state",
        measure=measure,
    )
    executed, figures = _write_pages(sources, executor, build, report)
    report("building the site")
    page_files = [build / "sources" / source.name for source in sources]
    page_statements, others = pages.collect_statements(page_files, figures)
    content: list[SiteFigure | SiteStatement] = [*figures, *page_statements]
    datasets = {stem: build / "datasets" / f"{digest}.nc" for item in content for digest, stem in item.datasets.items()}
    _build_html(sources, texts, settings, credits, content, datasets, build, report)
    stage(build / "html", target)
    sanitise.check_pages(target)
    copied = {
        file for source in sources for file in copy_sources(source, executor.list_reads(source), target / "notebooks")
    }
    for line in (*describe_data(folder, copied), *describe_outside(sources)):
        report(line)
    for path in metadata_files:
        shutil.copyfile(path, target / path.name)
    descriptions = [json.loads((target / DATASETS / f"{stem}.json").read_text()) for stem in datasets]
    manifest = Manifest(
        title=settings.title,
        version=metadata.version("ngbkit"),
        date=find_date(description.get("created", "") for description in descriptions).isoformat(),
        notebooks=tuple(source.stem for source in sources),
        figures=tuple(figures),
        statements=tuple(page_statements),
        others=others,
        versions={package: metadata.version(package) for package in VERSIONS},
    )
    _complete(target, manifest, credits, settings, sign)
    size = sum(path.stat().st_size for path in list_files(target))
    if foreign := replace_site(target, place):
        report(f"left in {place}, and not in the archive: {join_names(foreign)}")
    return Published(site=place, executed=tuple(executed), figures=len(figures), bytes=size)


def _write_pages(
    sources: Sequence[Path], executor: Executor, build: Path, report: Callable[[str], None]
) -> tuple[list[str], list[SiteFigure]]:
    """Execute notebooks and write their pages; return the stems of those that had changed, and all figures."""
    executed, figures, adoption = [], [], executor.adoption
    for source in sources:
        report(f"executing {source.name}")
        before = adoption.list_recorded()
        for line in adoption.adopt(source) if executor.measure != "always" else ():
            report(line)
        notebook, is_new = executor.execute(source)
        for line in adoption.describe(adoption.list_recorded().keys() - before.keys()):
            report(f"{source.name}: {line}")
        if is_new:
            executed.append(source.stem)
        clean = build / "clean" / source.name
        for line in sanitise.clean_notebook(notebook, clean):
            report(line)
        figures += pages.write_page(clean, build / "sources" / source.name, build / "sources" / FIGURES)
    return executed, figures


def _build_html(
    sources: Sequence[Path],
    texts: Sequence[Path],
    settings: SiteConfig,
    credits: Citation,
    content: Sequence[SiteFigure | SiteStatement],
    datasets: Mapping[str, Path],
    build: Path,
    report: Callable[[str], None],
) -> None:
    """Write the sources of the site beside its pages, remove those of earlier builds, and build the HTML."""
    folder = build / "sources"
    page_files = [folder / source.name for source in sources]
    clean_texts = []
    for text in texts:
        clean_texts.append(build / "clean" / text.name)
        for line in sanitise.clean_text(text, clean_texts[-1]):
            report(line)
    figures = [item for item in content if isinstance(item, SiteFigure)]
    site.write_sources(folder, settings, credits, page_files, clean_texts, figures, datasets)
    copies = [copy for source in (*sources, *texts) for copy in copy_images(source, folder)]
    build_files = [
        *(*page_files, *copies, *(file.with_suffix(".figures.json") for file in page_files)),
        *(folder / name for name in (*site.list_names(settings), *(text.name for text in texts))),
        *(folder / name for item in content for name in item.list_files()),
    ]
    if prune_sources(folder, build_files):  # Sphinx would keep their pages
        for name in ("html", "doctrees"):
            shutil.rmtree(build / name, ignore_errors=True)
    # myst-nb writes copies of the notebooks beside the html folder.
    site.build(folder, build / "html")


def _complete(
    target: Path, manifest: Manifest, credits: Citation, settings: SiteConfig, sign: str | Path | None
) -> None:
    """Add what describes a site: README, metadata, the manifest with the hashes of all files, signature, archive."""
    (target / README).write_text(write_readme(manifest, credits, settings.repository), encoding="utf-8")
    archive.write_metadata(target, manifest, credits)
    replace(manifest, files={name: hash_sha256(target / name) for name in list_names(target)}).write(target)
    if sign is not None:
        signing.sign(target, parse_path(sign))
    archive.write_archive(target, manifest, target / archive.ARCHIVE)


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


def _explain(gaps: Sequence[str], names: Sequence[str | Path], out: str | Path) -> str:
    """Explain which cells have no measurement, with the command that measures them."""
    command = shlex.join(["ngbkit", "publish", *map(str, names), "-o", str(out), "--measure", "missing"])
    subject = "1 cell has" if len(gaps) == 1 else f"{len(gaps)} cells have"
    return (
        f"{subject} no complete measurement, so that nothing was executed:\n  "
        + "\n  ".join(gaps)
        + f"\n`{command}` measures what is missing, and takes the rest from recordings and runs."
    )


def _find_metadata_files(folder: Path) -> list[Path]:
    """Find the license and the citation in the folder of the notebooks, or else in its parent."""
    candidates = [(folder / name, folder.parent / name) for name in archive.METADATA_FILES]
    return [file for paths in candidates if (file := next((path for path in paths if path.is_file()), None))]


def _read_citation(metadata_files: Sequence[Path], settings: SiteConfig) -> Citation:
    """Read the authors and the licenses of a site from site.toml, or else from CITATION.cff."""
    file = next((path for path in metadata_files if path.name == citation.FILE), None)
    return (Citation.read(file) if file else Citation()).overridden_by(settings.citation)
