"""The lines by which a reader replays a site, in a page and in the README of an archive."""

from __future__ import annotations

from ngbkit.publish.citation import Citation
from ngbkit.publish.instructions import locate_binder, render_replay, write_readme
from ngbkit.publish.manifest import Manifest

REPOSITORY = "https://github.com/team/study.git"


def test_a_page_has_the_lines_of_its_version() -> None:
    """A page replays and measures again by a line each; Binder opens a repository of a host that it has."""
    line = "pip install &quot;ngbkit[all]==1.2&quot; &amp;&amp; ngbkit replay archive.zip"
    html = render_replay("1.2", REPOSITORY)

    assert f"<pre>{line}</pre>" in html
    assert f"<pre>{line} --again</pre>" in html
    address = "https://mybinder.org/v2/gh/team/study/HEAD?urlpath=lab%2Ftree%2F"
    assert f'href="{address}"' in html
    assert "binder" not in render_replay("1.2", "")
    assert "" == locate_binder("https://example.org/team/study")


def test_a_readme_says_how_to_verify_replay_and_cite() -> None:
    """The authors, the license and the notebooks of the site are in it."""
    citation = Citation.parse({"authors": ["A team"], "license": "MIT"})
    date = "2026-01-02T03:04:06+00:00"
    manifest = Manifest(title="A study", version="1.2", date=date, notebooks=("01-a",), figures=())
    text = write_readme(manifest, citation, REPOSITORY)

    assert text.startswith("# A study\n")
    assert "(https://mybinder.org/v2/gh/team/study/HEAD?urlpath=lab%2Ftree%2F)" in text
    for part in ("notebooks/01-a.ipynb", "ngbkit verify .", "ngbkit replay archive.zip --again", "A team: *A study*."):
        assert part in text
    assert "License: MIT (https://spdx.org/licenses/MIT)." in text
