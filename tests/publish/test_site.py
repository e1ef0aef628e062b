"""The sources of a site: what pages show comes along."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngbkit.publish import pages, site
from ngbkit.publish.config import SiteConfig


@pytest.mark.parametrize("name", ["page.md", "page.ipynb"])
def test_pictures_of_a_page_are_copied(tmp_path: Path, name: str) -> None:
    """The site copies only pictures of the page's own folder."""
    source, target = tmp_path / "notebooks", tmp_path / "sources"
    (source / "screens").mkdir(parents=True)
    (source / "screens" / "a.png").write_bytes(b"picture")
    (tmp_path / "private.png").write_bytes(b"private")
    links = ("screens/a.png", "../private.png", "https://example.org/b.png", "none.png")
    (source / name).write_text("\n".join(f"![a picture]({link})" for link in links))
    site.copy_pictures(source / name, target)

    assert {target / "screens" / "a.png"} == {
        path for path in tmp_path.rglob("*.png") if source not in path.parents
    } - {tmp_path / "private.png"}
    assert b"picture" == (target / "screens" / "a.png").read_bytes()


def test_the_pages_and_the_reference_of_ngbkit_build(tmp_path: Path) -> None:
    """Sphinx builds the pages and the reference without a warning."""
    notebooks = Path(__file__).parents[2] / "notebooks"
    sources, texts = sorted(notebooks.glob("*.ipynb")), sorted(notebooks.glob("*.md"))
    folder = tmp_path / "sources"
    names = [folder / notebook.name for notebook in sources]
    for notebook, page in zip(sources, names, strict=True):
        pages.write_page(notebook, page, folder / "_static" / "figures")
    site.write_sources(folder, SiteConfig.read(notebooks / "site.toml"), names, texts, {})
    for source in (*sources, *texts):
        site.copy_pictures(source, folder)
    site.build(folder, tmp_path / "html")

    assert "Predictor.seconds" in (tmp_path / "html" / "api.html").read_text()
