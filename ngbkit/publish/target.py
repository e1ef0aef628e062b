"""The folder of a site: it is empty or an earlier site, and other files in it are left as they are."""

from __future__ import annotations

import filecmp
import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from ngbkit.errors import UsageError
from ngbkit.files import list_files
from ngbkit.publish.archive import ARCHIVE
from ngbkit.publish.manifest import DATASETS, FIGURES, FILE, SIGNATURE
from ngbkit.user_text import join_names, parse_json

# The files of a site that its manifest does not name.
_UNHASHED = (FILE, SIGNATURE, ARCHIVE)
_REMEDY = "Choose an empty folder or one of an earlier site: -o site."


def check_target(target: Path, notebooks: Path) -> None:
    """Refuse a target that is neither new, nor empty, nor the folder of an earlier site."""
    if target.is_symlink():
        raise UsageError(f"invalid target: got {target}, a link to {target.readlink()}; expected a folder. {_REMEDY}")
    if target.exists() and not target.is_dir():
        raise UsageError(f"invalid target: got {target}, a file; expected a folder. {_REMEDY}")
    place, folder = target.resolve(), notebooks.resolve()
    if folder.is_relative_to(place):
        relation = "the folder of the notebooks" if place == folder else f"a folder above the notebooks in {notebooks}"
        raise UsageError(f"invalid target: got {target}, {relation}; expected another folder. {_REMEDY}")
    names = _list_visible(path.name for path in target.iterdir()) if target.is_dir() else []
    if names and FILE not in names:
        raise UsageError(
            f"invalid target: got {target}, which contains {join_names(names)} and no site; expected an empty folder "
            f"or an earlier site. {_REMEDY}"
        )


def replace_site(site: Path, target: Path) -> list[str]:
    """Replace the earlier site in a folder by a new one, and return the names of other visible files, which remain."""
    before = _list_earlier(target)
    names = list_names(site)
    present = set(list_names(target))
    if overwritten := sorted(name for name in names if name in present - before and _differs(site, target, name)):
        raise UsageError(
            f"the site would overwrite {join_names(overwritten)} in {target}, which an earlier build did not write. "
            "Move these files elsewhere."
        )
    for name in names:
        if name not in present or _differs(site, target, name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(site / name, target / name)
    for name in sorted((before & present) - set(names)):
        (target / name).unlink()
        _remove_empty((target / name).parent, target)
    return _list_visible(present - before - set(names))


def prune_sources(folder: Path, files: Iterable[Path]) -> bool:
    """Remove pages, figures, data and pictures of earlier builds that are not of this one; return whether any was."""
    expected, static = set(files), folder / "_static"
    outdated = [
        path
        for path in (file for file in folder.rglob("*") if file.is_file() and file not in expected)
        if static not in path.parents or path.parent in (folder / FIGURES, folder / DATASETS)
    ]
    for path in outdated:
        path.unlink()
        _remove_empty(path.parent, folder)
    return bool(outdated)


def stage(html: Path, folder: Path) -> None:
    """Copy what Sphinx built into a new folder, without hidden files and the pictures of earlier pages."""
    shutil.rmtree(folder, ignore_errors=True)
    text = "".join(page.read_text(encoding="utf-8") for page in sorted(html.glob("*.html")))
    for file in list_files(html):
        name = file.relative_to(html)
        if name.parts[0] != "_images" or quote(name.name) in text:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / name)


def list_names(folder: Path) -> list[str]:
    """List the files of a folder and of its folders, as paths within it."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def hash_sha256(file: Path) -> str:
    """Hash a file: 64 hex digits of SHA-256, as other programs compute it."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _list_visible(names: Iterable[str]) -> list[str]:
    """List the names that are not hidden, such as the folder of a repository that holds the site."""
    return sorted(name for name in names if not name.startswith("."))


def _list_earlier(target: Path) -> set[str]:
    """List the files that the manifest of the earlier site names, and those that it does not name."""
    try:
        files = parse_json((target / FILE).read_text(encoding="utf-8"))["files"]
        return {*map(str, files), *_UNHASHED}
    except (OSError, ValueError, LookupError, TypeError):
        return {*_UNHASHED}


def _differs(site: Path, target: Path, name: str) -> bool:
    return not filecmp.cmp(site / name, target / name, shallow=False)


def _remove_empty(folder: Path, root: Path) -> None:
    """Remove a folder if it is empty, and then those above it, up to a root."""
    while folder != root and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
