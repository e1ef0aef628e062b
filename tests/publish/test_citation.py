"""Authors and licenses: from CITATION.cff, or from site.toml, which comes first; each mistake is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ngbkit.errors import UsageError
from ngbkit.publish.citation import Author, Citation, License, SiteConfig

REPOSITORY = Path(__file__).parents[2]
MIT = License(name="MIT", url="https://spdx.org/licenses/MIT")


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_a_citation_file(tmp_path: Path) -> None:
    """Persons have their whole name and their ORCID; teams are none; keys that are not needed are not looked at."""
    text = """
cff-version: 1.2.0
date-released: 2026-01-01
authors:
  - given-names: Ada
    name-particle: of
    family-names: Example
    orcid: https://orcid.org/0000-0000-0000-0000
    website: https://example.org
    affiliation: A lab
  - name: A team
    website: https://example.org/team
  - alias: someone
license: [mit, Apache-2.0]
"""
    citation = Citation.read(write(tmp_path, "CITATION.cff", text))

    person = Author(
        name="Ada of Example",
        is_person=True,
        orcid="https://orcid.org/0000-0000-0000-0000",
        website="https://example.org",
        affiliation="A lab",
    )
    team = Author(name="A team", is_person=False, website="https://example.org/team")
    assert (person, team, Author(name="someone", is_person=True)) == citation.authors
    assert (MIT, License(name="Apache-2.0", url="https://spdx.org/licenses/Apache-2.0")) == citation.licenses


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"license": "MIT", "license-url": "https://example.org/l"}, ("MIT", "https://example.org/l")),
        ({"license-url": "https://example.org/l"}, ("https://example.org/l", "https://example.org/l")),
        ({"license": "https://example.org/l"}, ("https://example.org/l", "https://example.org/l")),
    ],
)
def test_a_license_has_a_page(data: dict[str, Any], expected: tuple[str, str]) -> None:
    """The page of a license is that of SPDX, unless the author names one."""
    (license_,) = Citation.parse(data).licenses

    assert expected == (license_.name, license_.url)


def test_what_a_site_sets_comes_first(tmp_path: Path) -> None:
    """The rest is that of the citation file."""
    config = SiteConfig.read(write(tmp_path, "site.toml", 'title = "A study"\nlicense = "CC-BY-4.0"\n'))
    stated = Citation.parse({"authors": ["A team"], "license": "MIT"})
    citation = stated.overridden_by(config.citation)

    assert ["CC-BY-4.0"] == [license_.name for license_ in citation.licenses]
    assert ["A team"] == [author.name for author in citation.authors]
    assert ("A study", SiteConfig()) == (config.title, SiteConfig.read(tmp_path / "missing.toml"))


def test_the_citation_of_ngbkit() -> None:
    """The citation of ngbkit is valid and has a license."""
    assert (MIT,) == Citation.read(REPOSITORY / "CITATION.cff").licenses
    assert SiteConfig.read(REPOSITORY / "notebooks" / "site.toml").title == "ngbkit"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            'license = "free"',
            "invalid license: got 'free'; expected an SPDX id such as CC-BY-4.0, or the URL",
        ),
        ('license = "MIT OR Apache-2.0"', "of several, a list"),
        ("license = 3", "invalid license: got 3; expected an SPDX id"),
        ('license = "file://x"', "got 'file://x'; expected an SPDX id"),
        ("authors = [{orcid = 'https://orcid.org/0'}]", "without a name"),
        ("authors = [7]", "invalid authors: got [7]; expected a team's name, or a table"),
        ('authors = [{name = "A", website = "x"}]', "invalid authors: website: got 'x'; expected a URL"),
        ("title = 3", "invalid title: got 3; expected a text"),
        ('api = "ngbkit"', "invalid api: got 'ngbkit'; expected a list"),
        ('licence = "MIT"', "unknown key 'licence'. Did you mean license? It is in"),
        ("title = ", "is not valid TOML"),
    ],
)
def test_mistakes_in_the_settings_of_a_site(text: str, reason: str, tmp_path: Path) -> None:
    """The message has the file, the value and what is valid."""
    file = write(tmp_path, "site.toml", text)

    with pytest.raises(UsageError) as raised:
        SiteConfig.read(file)
    assert str(file) in str(raised.value)
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"- a list", "it is no mapping of keys to values"),
        (b"license: [", "while parsing"),
        (b"license: nothing", "invalid license: got 'nothing'; expected an SPDX id"),
        (b"authors: \xff", "can't decode"),
        (b"!!python/object/apply:os.getcwd []", "could not determine a constructor"),
        (b"[" * 10_000, "maximum recursion depth"),
        (b"#" * 1_000_001, "larger than 1,000,000 bytes"),
    ],
)
def test_mistakes_in_a_citation_file(content: bytes, reason: str, tmp_path: Path) -> None:
    """The message has the file and the reason, in one line."""
    file = tmp_path / "CITATION.cff"
    file.write_bytes(content)

    with pytest.raises(UsageError) as raised:
        Citation.read(file)
    assert str(file) in str(raised.value)
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)
