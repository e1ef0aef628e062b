"""A check of a published site, as a record, and the site as checks read it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from ngbkit.dataset import storage
from ngbkit.dataset.dataset_hash import hash_dataset
from ngbkit.dataset.storage import Data
from ngbkit.errors import NgbkitError
from ngbkit.publish.checks.page_parser import PageElement, parse_page
from ngbkit.publish.manifest import DATASETS, Manifest


@dataclass(frozen=True, slots=True)
class CheckedItem:
    """An item of a site that agrees with its origin, differs from it, or cannot be checked."""

    file: str
    difference: str = ""
    obstacle: str = ""  # why it cannot be checked


@dataclass(frozen=True)
class VerifiedSite:
    """The folder of a site, or of its unpacked archive, of which nobody knows who wrote it."""

    folder: Path
    manifest: Manifest
    archive: Path  # the file that was unpacked, or that of the site
    _pages: dict[str, list[PageElement]] = field(default_factory=dict)

    @cached_property
    def is_archive(self) -> bool:
        """True if it has no page, as an unpacked archive."""
        return not any((self.folder / f"{name}.html").is_file() for name in self.manifest.notebooks)

    @cached_property
    def datasets(self) -> dict[str, Data]:
        """The datasets that can be read, by the stems of their files."""
        return {stem: data for stem in self.manifest.datasets if (data := self._load(stem)) is not None}

    @cached_property
    def digests(self) -> dict[str, str]:
        """The hashes of the datasets that can be read, by the stems of their files."""
        return {stem: hash_dataset(data) for stem, data in self.datasets.items()}

    def read(self, path: str) -> bytes | None:
        """Read a file of the site; None if there is no such file."""
        try:
            return (self.folder / path).read_bytes()
        except OSError:
            return None

    def read_json(self, path: str) -> Any:
        """Read a file of the site as JSON; None if there is no such file, or none of JSON."""
        return parse_json(self.read(path))

    def parse_page(self, notebook: str) -> list[PageElement] | None:
        """Parse the page of a notebook; None if there is no such page."""
        if notebook not in self._pages:
            content = self.read(f"{notebook}.html")
            if content is None:
                return None
            self._pages[notebook] = parse_page(content.decode(errors="replace"))
        return self._pages[notebook]

    def find_other_version(self, *packages: str) -> str:
        """Find a package that has another version here than where the site was built, in words; empty if none has."""
        for package in packages:
            version = self.manifest.versions.get(package)
            try:
                installed = metadata.version(package)
            except metadata.PackageNotFoundError:
                installed = ""
            if installed != version:
                return f"made with {package} {version or 'of an unknown version'}, and here is {installed or 'none'}"
        return ""

    def _load(self, stem: str) -> Data | None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a finding says that the file was altered
            try:
                return storage.load(self.folder / DATASETS / f"{stem}.nc")
            except NgbkitError:
                return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteCheck:
    """A check of all items of one kind."""

    name: str  # of the items, in the plural
    binds: str  # what their content is compared with
    run: Callable[[VerifiedSite], Iterator[CheckedItem]]


def parse_json(content: bytes | None) -> Any:
    """Parse the content of a file as JSON; None if it is none."""
    try:
        return None if content is None else json.loads(content)
    except (ValueError, RecursionError):
        return None
