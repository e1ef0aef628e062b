"""What the author of a site sets in ``site.toml``, beside the notebooks."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from ngbkit.errors import UsageError
from ngbkit.publish.citation import Citation

FILE = "site.toml"

_KEYS = ("title", "description", "api", "authors", "license")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteConfig:
    """The title and the description of a site, the modules of its API reference, its authors and licenses."""

    title: str = "Notebooks"
    description: str = ""
    api: tuple[str, ...] = ()
    citation: Citation = field(default_factory=Citation)

    @classmethod
    def read(cls, file: Path) -> SiteConfig:
        """Read ``site.toml``; the defaults where there is none.

        Raises
        ------
        UsageError
            It is no TOML, has an unknown key, or an invalid value.
        """
        if not file.is_file():
            return cls()
        try:
            data = tomllib.loads(file.read_text())
            if unknown := [key for key in data if key not in _KEYS]:
                raise ValueError(f"unknown key {unknown[0]!r}")
            citation = Citation.parse(data)
            texts = {key: data[key] for key in ("title", "description") if key in data}
            if invalid := [key for key, value in texts.items() if not isinstance(value, str)]:
                raise ValueError(f"{invalid[0]} is {texts[invalid[0]]!r}, which is no text")
            modules = data.get("api", [])
            if not isinstance(modules, list) or not all(isinstance(name, str) for name in modules):
                raise ValueError(f"api is {modules!r}, which is no list of modules")
            return cls(**texts, api=tuple(modules), citation=citation)
        except (OSError, ValueError) as error:
            raise UsageError(f"invalid {file}: {error}; expected the keys {', '.join(_KEYS)} in TOML.") from error
