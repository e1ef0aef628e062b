"""The settings of a site: the file ``site.toml`` in the folder of the notebooks."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from ngbkit import validation
from ngbkit.publish.citation import Authors, Citation, Licenses, Text
from ngbkit.user_text import parse_toml
from ngbkit.validation import Line, text

FILE = "site.toml"


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
