"""The authors and the licenses of a site, in the terms of the Citation File Format (CITATION.cff)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ngbkit.errors import UsageError

FILE = "CITATION.cff"

_MAX_BYTES = 1_000_000
_NAMES = ("given-names", "name-particle", "family-names", "name-suffix")
_AUTHOR = (
    "a team's name, or a table with name (of a team) or given-names and family-names, and orcid, website, affiliation"
)
_LICENSE = "an SPDX id such as CC-BY-4.0, or the URL of a license"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """Whom to cite for a site, and on which terms others may use it; empty where nobody says so."""

    authors: tuple[Author, ...] = ()
    licenses: tuple[License, ...] = ()

    def overridden_by(self, other: Citation) -> Citation:
        """The citation with what another states in the place of its own."""
        return Citation(
            **{field.name: getattr(other, field.name) or getattr(self, field.name) for field in fields(self)}
        )

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Citation:
        """Parse the keys ``authors``, ``license`` and ``license-url``; the others are not looked at.

        Raises
        ------
        ValueError
            A value is invalid; the message says which, and what is valid.
        """
        licenses = _parse_list(data, "license", _parse_license)
        if url := data.get("license-url"):
            # The page of a license that the id names, or of a license without an id.
            page = _parse_url("license-url", url)
            licenses = [License(name=licenses[0].name, url=page)] if len(licenses) == 1 else licenses
            licenses = licenses or [License(name=page, url=page)]
        return cls(authors=tuple(_parse_list(data, "authors", _parse_author)), licenses=tuple(licenses))

    @classmethod
    def read(cls, file: Path) -> Citation:
        """Read a CITATION.cff.

        Raises
        ------
        UsageError
            The file is too large, or contains no YAML, or an invalid author or license.
        """
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
            raise UsageError(f"invalid {file}: {reason}. Correct it, or remove it.") from error


def _parse_list(data: Mapping[str, Any], key: str, parse: Callable[[str, Any], Any]) -> list[Any]:
    """Parse a value, or each value of a list."""
    values = data.get(key)
    if values is None:
        return []
    return [parse(key, value) for value in (values if isinstance(values, list) else [values])]


def _parse_author(key: str, value: Any) -> Author:
    if isinstance(value, str) and value.strip():
        return Author(name=value.strip(), is_person=False)
    if not isinstance(value, dict):
        raise ValueError(f"{key} has {value!r}; expected {_AUTHOR}")
    texts = {
        name: _parse_text(name, value[name]) for name in (*_NAMES, "name", "alias", "affiliation") if name in value
    }
    person = " ".join(texts[name] for name in _NAMES if name in texts) or texts.get("alias", "")
    if not (name := texts.get("name", "") or person):
        raise ValueError(f"{key} has an entry without a name, {value!r}; expected {_AUTHOR}")
    urls = {name: _parse_url(name, value[name]) for name in ("orcid", "website") if value.get(name)}
    return Author(name=name, is_person="name" not in texts, affiliation=texts.get("affiliation", ""), **urls)


def _parse_license(key: str, value: Any) -> License:
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    text = _parse_text(key, value)
    if "://" in text:
        return License(name=_parse_url(key, text), url=text)
    try:
        name = str(canonicalize_license_expression(text))
    except InvalidLicenseExpression:
        name = " "
    if " " in name:
        raise ValueError(f"{key} is {text!r}; expected {_LICENSE}; of several, a list")
    return License(name=name, url=f"https://spdx.org/licenses/{name}")


def _parse_text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError(f"{key} is {value!r}; expected a text")
    return value.strip()


def _parse_url(key: str, value: Any) -> str:
    text = _parse_text(key, value)
    if not re.fullmatch(r"https?://[^\s<>\"]+", text):
        raise ValueError(f"{key} is {text!r}; expected a URL, https://…")
    return text
