"""The statements of a site's author: its settings (site.toml), authors and licenses (also in CITATION.cff)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import date
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from ngbkit import validation
from ngbkit.errors import UsageError
from ngbkit.user_text import parse_toml
from ngbkit.validation import Check, Line, text

FILE, SETTINGS = "CITATION.cff", "site.toml"
"""The files of an author, in the folder of the notebooks; the first may be in its parent."""

_MAX_BYTES = 1_000_000
_NAMES = ("given-names", "name-particle", "family-names", "name-suffix")
_PRINTABLE = Annotated[str, text(r"\s*[^\s\x00-\x1f][^\x00-\x1f]*", "a text of one line")]
_URL = Annotated[str, text(r"https?://[^\s<>\"]+", "a URL, https://…")]
_AUTHOR: Mapping[str, Any] = {
    **dict.fromkeys((*_NAMES, "name", "alias", "affiliation"), _PRINTABLE),
    **dict.fromkeys(("orcid", "website"), _URL),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """A person, or a team or organisation."""

    name: str
    is_person: bool
    orcid: str = ""
    website: str = ""
    affiliation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class License:
    """A license by its name and its URL."""

    name: str
    url: str


def _parse_each(parse: Callable[[Any], Any], value: Any) -> tuple[Any, ...]:
    """Parse a value, or each value of a list."""
    return tuple(map(parse, value if isinstance(value, list) else [value]))


def _parse_text(value: Any) -> str:
    """Parse a text, also one that YAML reads as a number or a date; each of its paragraphs is a line."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float, date)):
        raise ValueError
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", str(value)))


def _parse_author(value: Any) -> Author:
    if isinstance(value, str) and value.strip():
        return Author(name=value.strip(), is_person=False)
    if not isinstance(value, Mapping):
        raise ValueError
    table = validation.parse_fields(_AUTHOR, value)
    person = " ".join(table[name].strip() for name in _NAMES if name in table) or table.get("alias", "")
    if not (name := table.get("name", "") or person):
        raise ValueError(f"an entry without a name, {value!r}")
    details = {key: table[key].strip() for key in ("orcid", "website", "affiliation") if key in table}
    return Author(name=name.strip(), is_person="name" not in table, **details)


def _parse_license(value: Any) -> License:
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    if validation.is_valid(_URL, value):
        return License(name=value, url=value)
    try:
        name = str(canonicalize_license_expression(value)) if isinstance(value, str) else ""
    except InvalidLicenseExpression:
        name = ""
    if not name or " " in name:
        raise ValueError
    return License(name=name, url=f"https://spdx.org/licenses/{name}")


Authors = Annotated[
    tuple[Author, ...],
    Check(
        partial(_parse_each, _parse_author),
        "a team's name, or a table with name (of a team) or given-names and family-names, and orcid, website, "
        "affiliation",
    ),
]
Text = Annotated[str, Check(_parse_text, "a text")]
_DETAILS: Mapping[str, Any] = {
    **dict.fromkeys(("title", "abstract", "version", "date-released"), Text),
    "doi": Annotated[str, text(r"10\.\d+/[^\s<>\"]+", "a DOI, 10.…/…")],
    "url": _URL,
}
Licenses = Annotated[
    tuple[License, ...],
    Check(
        partial(_parse_each, _parse_license),
        "an SPDX id such as CC-BY-4.0, or the URL of a license; of several, a list",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """Whom and what to cite for a site, and on which terms others may use it; empty where nobody says so."""

    authors: tuple[Author, ...] = ()
    licenses: tuple[License, ...] = ()
    title: str = ""
    abstract: str = ""
    version: str = ""
    date: str = ""  # of the release: 2026-11-20
    doi: str = ""
    url: str = ""

    @property
    def address(self) -> str:
        """The address of what is cited; empty without one."""
        return f"https://doi.org/{self.doi}" if self.doi else self.url

    def overridden_by(self, other: Citation) -> Citation:
        """The citation with what another states in the place of its own."""
        return Citation(
            **{field.name: getattr(other, field.name) or getattr(self, field.name) for field in fields(self)}
        )

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Citation:
        """Parse authors, licenses and texts of a reference, and no other key; UsageError names an invalid value."""
        authors = validation.check("authors", Authors | None, data.get("authors")) or ()
        licenses: tuple[License, ...] = validation.check("license", Licenses | None, data.get("license")) or ()
        if url := validation.check("license-url", _URL | None, data.get("license-url")):
            # The page of a license that the id names, or of a license without an id.
            licenses = (License(name=licenses[0].name, url=url),) if len(licenses) == 1 else licenses
            licenses = licenses or (License(name=url, url=url),)
        details = {
            name.removesuffix("-released"): validation.check(name, annotation, data[name])
            for name, annotation in _DETAILS.items()
            if data.get(name) is not None
        }
        return cls(authors=authors, licenses=licenses, **details)

    @classmethod
    def read(cls, file: Path) -> Citation:
        """Read a CITATION.cff; UsageError if it is too large, or has no YAML, or an invalid author or license."""
        import yaml

        try:
            with file.open("rb") as stream:
                content = stream.read(_MAX_BYTES + 1)
            if len(content) > _MAX_BYTES:
                raise ValueError(f"it is larger than {_MAX_BYTES:,} bytes")
            data = yaml.safe_load(content.decode())
            if not isinstance(data, dict):
                raise ValueError("it is no mapping of keys to values")
            return cls.parse(data)
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UsageError(f"{file}: {reason.rstrip('.')}. Correct it, or remove it.") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteConfig:
    """The title, the texts and the repository of a site, the modules of its API reference, its authors and licenses."""

    title: Line = ""  # default: that of CITATION.cff
    description: Line = ""
    repository: Annotated[str, text(r"(?:https://[^\s<>\"]+)?", "the address of a public repository, https://…")] = ""
    abstract: Text = ""  # Markdown
    api: tuple[Line, ...] = ()
    authors: Authors = ()
    license: Licenses = ()

    @property
    def citation(self) -> Citation:
        """The authors, the licenses and the abstract that it states."""
        return Citation(authors=self.authors, licenses=self.license, abstract=self.abstract)

    @classmethod
    def read(cls, file: Path) -> SiteConfig:
        """Read ``site.toml``, or the defaults without one; UsageError if a key or a value is invalid."""
        if not file.is_file():
            return cls()
        table = parse_toml(file, file.read_bytes())
        values, faults = validation.parse_table(cls, table, [field.name for field in fields(cls)])
        if faults:
            raise validation.join_faults(file, [("", fault) for fault in faults])
        return cls(**values)
