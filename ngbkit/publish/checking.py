"""Verifies a site: each kind of its files by a check, and its signature."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ngbkit.publish import signing
from ngbkit.publish.archive import ARCHIVE
from ngbkit.publish.checks import drawings, files, measurements, page_content
from ngbkit.publish.checks.check import CheckedItem, SiteCheck, VerifiedSite
from ngbkit.publish.manifest import SIGNATURE, Manifest
from ngbkit.publish.unpacking import unpack
from ngbkit.user_text import parse_path

CHECKS: tuple[SiteCheck, ...] = (*files.CHECKS, *measurements.CHECKS, *drawings.CHECKS, *page_content.CHECKS)
"""The checks of a site, in the order of the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A part of a site that does not agree with its origin.

    Parameters
    ----------
    check
        The name of the check: the kind of the part.
    file
        The path of the file within the site; for a part of a page with its anchor.
    difference
        A sentence on the difference.
    """

    check: str
    file: str
    difference: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of a check.

    Parameters
    ----------
    name
        The kind of the items.
    binds
        What their content was compared with.
    checked
        The number of items that were compared.
    findings
        The items that differ.
    obstacles
        The number of items that could not be compared, by the reason.
    """

    name: str
    binds: str
    checked: int
    findings: Sequence[Finding]
    obstacles: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of `verify`.

    Parameters
    ----------
    checks
        The result of each check.
    signature
        A sentence on the signature, of the manifest and thus of all files.
    is_signed
        True if a signature by the given signer was verified.
    """

    checks: Sequence[CheckResult]
    signature: str
    is_signed: bool

    @property
    def findings(self) -> list[Finding]:
        """The parts that differ, of all checks."""
        return [finding for check in self.checks for finding in check.findings]


def verify(site: str | Path, *, signer: str | Path | None = None) -> Verification:
    """Verify that a site follows from its data.

    Every file is compared with the manifest, and what can be made again with what it is made of: tables, sentences,
    figures and pictures. Whoever alters data and makes all of the site again is found by a signature alone.

    Parameters
    ----------
    site
        Folder that `ngbkit publish` built, or its ``archive.zip``.
    signer
        File of the author's public SSH keys, one a line. Default: a signature is described, not verified.

    Raises
    ------
    UsageError
        There is no site, its manifest is damaged, or the signer's file has no key.
    """
    source = parse_path(site)
    with _open(source) as folder:
        manifest = Manifest.read(folder)
        signature = signing.verify(folder, None if signer is None else parse_path(signer))
        archive = source if source.is_file() else folder / ARCHIVE
        contents = VerifiedSite(folder=folder, manifest=manifest, archive=archive)
        results = [_summarise(check, list(check.run(contents))) for check in CHECKS]
    if signature.difference:
        finding = Finding(check="signature", file=SIGNATURE, difference=signature.difference)
        binds = "the manifest is what the signer signed"
        results.append(CheckResult(name="signature", binds=binds, checked=1, findings=[finding], obstacles={}))
    return Verification(checks=results, signature=signature.description, is_signed=signature.is_verified)


@contextmanager
def _open(source: Path) -> Iterator[Path]:
    """Open the folder of a site, or of its archive, which is unpacked for as long as it is read."""
    if source.is_dir() or not source.exists():
        yield source
        return
    with TemporaryDirectory(prefix="ngbkit-verify-") as folder:
        unpack(source, Path(folder))
        yield Path(folder)


def _summarise(check: SiteCheck, items: Sequence[CheckedItem]) -> CheckResult:
    return CheckResult(
        name=check.name,
        binds=check.binds,
        checked=sum(not item.obstacle for item in items),
        findings=[
            Finding(check=check.name, file=item.file, difference=item.difference) for item in items if item.difference
        ],
        obstacles=Counter(item.obstacle for item in items if item.obstacle),
    )
