"""Replays a site from its archive: executes its notebooks from their recordings, and compares their figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ngbkit.errors import MissingDependencyError, UnknownNameError, UsageError
from ngbkit.figures.provenance import KEY, list_datasets
from ngbkit.files import hash_file, write_atomically
from ngbkit.publish.adoption import Adoption
from ngbkit.publish.checking import verify
from ngbkit.publish.execute import ExecutionError, Executor
from ngbkit.publish.instructions import format_install
from ngbkit.publish.manifest import FILE, Manifest, SiteFigure
from ngbkit.publish.pages import find_charts
from ngbkit.publish.unpacking import unpack
from ngbkit.runs.recordings import BESIDE
from ngbkit.user_text import format_count, join_names, parse_json, parse_path
from ngbkit.workloads.base import hash_json

PUBLISHED, EXECUTED = "published", "executed"
"""The folders of a replay: the unpacked site, and the notebooks that were executed here."""
_MARK = ".ngbkit-replay.json"
_LISTED = 5  # files of an error


@dataclass(frozen=True, slots=True)
class ReplayFolder:
    """A folder with an unpacked site, in which its notebooks are replayed."""

    root: Path
    manifest: Manifest
    origin: Path

    @classmethod
    def open(cls, source: str | Path, out: str | Path) -> ReplayFolder:
        """Unpack a site, or find what an earlier call unpacked; UsageError for another folder or another file."""
        origin, root = parse_path(source), parse_path(out).absolute()
        if root.exists() and not root.is_dir():
            raise UsageError(f"invalid folder: got {root}, which is a file; expected a new folder. Name another by -o.")
        content = origin / FILE if origin.is_dir() else origin
        key = {"source": str(origin.absolute()), "content": hash_file(content) if content.is_file() else ""}
        mark, published = root / _MARK, root / PUBLISHED
        if mark.is_file() and _read_mark(mark) == key:
            return cls(root, Manifest.read(published), origin)
        if origin.is_dir():
            Manifest.read(origin)  # before a folder of other files is copied
        if root.is_dir() and any(root.iterdir()):
            raise UsageError(
                f"invalid folder: got {root}, which has other files; expected a new one, or that of an earlier replay "
                "of the same site. Name another by -o."
            )
        root.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=root, prefix=".") as draft:
            unpack(origin, Path(draft) / PUBLISHED)
            manifest = Manifest.read(Path(draft) / PUBLISHED)
            if outside := [name for name in manifest.notebooks if Path(name).name != name]:
                raise UsageError(f"invalid site {origin}: got the notebook {outside[0]!r}; expected a plain name.")
            (Path(draft) / PUBLISHED).rename(published)
        with write_atomically(mark) as temporary:
            temporary.write_text(json.dumps(key))
        return cls(root, manifest, origin)

    @property
    def notebooks(self) -> Path:
        """The folder of the notebooks, with their data and modules."""
        return self.root / PUBLISHED / "notebooks"

    @property
    def recordings(self) -> Path:
        """The folder of the recordings of the notebooks."""
        return self.notebooks / BESIDE

    def select(self, names: Sequence[str]) -> list[str]:
        """Select notebooks by their names, all of them by default."""
        stems = [name.removesuffix(".ipynb") for name in names]
        for stem in stems:
            if stem not in self.manifest.notebooks:
                raise UnknownNameError("notebook", stem, self.manifest.notebooks)
        return [name for name in self.manifest.notebooks if name in stems or not stems]

    def check(self, signer: str | Path | None = None) -> list[str]:
        """Return what a reader must know before the site's code runs; UsageError if it is altered."""
        # What was unpacked has byte code of this machine since its first replay.
        result = verify(self.origin, signer=signer)
        altered = [f"{finding.file}: {finding.difference}" for finding in result.findings]
        if altered:
            raise UsageError(
                f"invalid site: got {join_names(altered, '; ', most=_LISTED)}; expected the files that its author "
                "published, since code of it would run with your rights. Get it from its author; or read its notebooks "
                f"in {self.notebooks}, and run them in JupyterLab, where they replay their recordings."
            )
        return [
            *self._describe_version(),
            f"code of the site runs now, with your rights, in {self.notebooks}; the site is {result.signature}",
        ]

    def _describe_version(self) -> Iterator[str]:
        version = metadata.version("ngbkit")
        if version != self.manifest.version:
            yield (
                f"published with ngbkit {self.manifest.version}, replayed with {version}: figures and numbers may "
                f"differ. The same version: {format_install(self.manifest.version)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedFigure:
    """A figure of a site, and the answer of its replay."""

    notebook: str  # the stem
    figure: str  # its id
    title: str
    verdict: str  # "same"; "differs"; or "not drawn", where the notebook failed or drew fewer figures
    reason: str = ""  # the difference in a sentence


def replay(
    source: str | Path,
    out: str | Path = "replayed",
    *,
    only: Sequence[str] = (),
    signer: str | Path | None = None,
    report: Callable[[str], None] | None = None,
) -> tuple[ReplayFolder, list[ReplayedFigure]]:
    """Execute notebooks of a site from their recordings, all by default, and compare their figures.

    UsageError if the source is no site, is altered, or is not signed by the signer, or if `out` has other files.
    """
    report = report or (lambda _line: None)
    folder = ReplayFolder.open(source, out)
    names = folder.select(only)
    for note in folder.check(signer):
        report(note)
    if find_spec("papermill") is None:
        raise MissingDependencyError("papermill", "publish")
    executor = Executor(
        folder=folder.root / EXECUTED,
        adoption=Adoption(folder.recordings, ()),
        datasets=folder.root / EXECUTED / "datasets",
        state=folder.root / "state",
    )
    figures: list[ReplayedFigure] = []
    for name in names:
        published = [figure for figure in folder.manifest.figures if figure.notebook == name]
        report(f"replaying {name}.ipynb")
        specs: list[Mapping[str, Any]] = []
        failure = ""
        try:
            executed, _ = executor.execute(folder.notebooks / f"{name}.ipynb")
            cells = json.loads(executed.read_text())["cells"]
            specs = [spec for cell in cells for _, spec in find_charts(cell.get("outputs", []))]
        except (ExecutionError, UsageError) as error:
            failure = str(error)
            report(f"{name}.ipynb: {failure}")
        figures += [_judge(figure, specs, index, failure) for index, figure in enumerate(published)]
    return folder, figures


def summarize(figures: Sequence[ReplayedFigure]) -> str:
    """Describe in a sentence how many figures are the same."""
    differing = sum(figure.verdict != "same" for figure in figures)
    if not differing:
        return f"All {len(figures)} figures are the same. Nothing was measured."
    count = format_count(differing, "figure is", "figures are")
    return f"{count} not the same, of {len(figures)}. Nothing was measured."


def _read_mark(file: Path) -> Any:
    try:
        return parse_json(file.read_text())
    except (OSError, ValueError):
        return None


def _judge(figure: SiteFigure, specs: Sequence[Mapping[str, Any]], index: int, failure: str) -> ReplayedFigure:
    """Compare a published figure with the chart of its place in the executed notebook."""
    verdict, reason = "same", ""
    if index >= len(specs):
        verdict, reason = "not drawn", failure.splitlines()[0] if failure else "its notebook drew fewer figures"
    else:
        spec = specs[index]
        usermeta = spec.get("usermeta", {})
        # The version and the commit that drew it are not part of the figure.
        redrawn = {**spec, "usermeta": {**usermeta, KEY: figure.provenance}} if figure.provenance else spec
        if hash_json(redrawn) != figure.spec:
            verdict, reason = "differs", "other numbers or marks"
            digests = [list_datasets(provenance) for provenance in (figure.provenance, usermeta.get(KEY, {}))]
            if digests[0] == digests[1]:
                reason = "the same data, drawn in another way"
    return ReplayedFigure(
        notebook=figure.notebook, figure=figure.id, title=figure.title, verdict=verdict, reason=reason
    )
