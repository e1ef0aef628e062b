"""The sources of a site: what pages show comes along."""

from __future__ import annotations

from html import unescape
from pathlib import Path
from urllib.parse import quote

import nbformat
import pytest
from authored import build_notebook
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from ngbkit.errors import NgbkitError, UsageError
from ngbkit.publish import pages, sanitise, site
from ngbkit.publish.citation import Citation, SiteConfig
from ngbkit.publish.sources import copy_images


@pytest.mark.parametrize("name", ["page.md", "page.ipynb"])
def test_pictures_of_a_page_are_copied(tmp_path: Path, name: str) -> None:
    """Pictures of the folder are copied, whatever their names; a page of another server or an attachment has none."""
    source, target = tmp_path / "notebooks", tmp_path / "sources"
    names = ["a.png", "a (1).png", "b c.png"]
    (source / "screens").mkdir(parents=True)
    for picture in names:
        (source / "screens" / picture).write_text(picture)
    elsewhere = ("https://example.org/b.png", "attachment:d.png")
    write_page(source / name, "screens/a.png", "<screens/a (1).png>", "screens/b%20c.png", *elsewhere)

    quoted = [target / "screens" / quote(picture, safe="()") for picture in names]
    assert quoted == copy_images(source / name, target)
    assert names == [picture.read_text() for picture in quoted]


def write_page(file: Path, *links: str) -> None:
    text = "\n".join(f"![a picture]({link})" for link in links)
    if file.suffix == ".md":
        file.write_text(text)
    else:
        nbformat.write(build_notebook(new_markdown_cell(text)), file)


@pytest.mark.parametrize(
    "link", ["../private.png", "linked.png", "missing.png", "a/../../notebooks/x.png", "/etc/hostname"]
)
def test_a_picture_from_elsewhere_is_an_error(tmp_path: Path, link: str) -> None:
    """A picture above the folder, a link out of it and a missing one are refused, and nothing is written."""
    source = tmp_path / "notebooks"
    (source / "a").mkdir(parents=True)
    (tmp_path / "private.png").write_bytes(b"private")
    (source / "x.png").write_bytes(b"picture")
    (source / "linked.png").symlink_to(tmp_path / "private.png")
    write_page(source / "page.md", link)

    with pytest.raises(UsageError, match=r"invalid picture in page.md: got .*; expected a file in .* Copy it there"):
        copy_images(source / "page.md", tmp_path / "build" / "sources")
    assert not (tmp_path / "build").exists()


def test_the_pages_and_the_reference_of_ngbkit_build(tmp_path: Path) -> None:
    """Sphinx builds the pages and the reference without a warning."""
    notebooks = Path(__file__).parents[2] / "notebooks"
    sources, texts = sorted(notebooks.glob("*.ipynb")), sorted(notebooks.glob("*.md"))
    folder = tmp_path / "sources"
    names = [folder / notebook.name for notebook in sources]
    for notebook, page in zip(sources, names, strict=True):
        pages.write_page(notebook, page, folder / "_static" / "figures")
    site.write_sources(folder, SiteConfig.read(notebooks / "site.toml"), Citation(), names, texts, (), {})
    for source in (*sources, *texts):
        copy_images(source, folder)
    site.build(folder, tmp_path / "html")
    sanitise.check_pages(tmp_path / "html")

    assert "Predictor.seconds" in (tmp_path / "html" / "api.html").read_text()
    assert "<mfrac>" in (tmp_path / "html" / "metrics.html").read_text()
    assert "Run it yourself" in (tmp_path / "html" / "03-paper.html").read_text()
    assert 'resnet18{"img_size":160}' in unescape((tmp_path / "html" / "options.html").read_text())


def test_an_output_has_no_directive(tmp_path: Path) -> None:
    """Markdown of an output, which may have labels of others, publishes no other file; nor is a title code."""
    sources, private, html = tmp_path / "build" / "sources", tmp_path / "private.txt", tmp_path / "build" / "html"
    private.write_text("private")
    text = f"- ```{{include}} {private}\n- {{download}}`x <../../private.txt>` [x](../../private.txt)\n- \x1b[2J"
    output = new_output("display_data", {"text/markdown": text, "text/plain": "\x1b[2J"})
    cells = [new_markdown_cell("# A page"), new_code_cell("1", outputs=[output])]
    sources.mkdir(parents=True)
    nbformat.write(build_notebook(*cells), sources / "a.ipynb")
    settings = SiteConfig(title="<script>x</script>")
    site.write_sources(sources, settings, Citation(), [sources / "a.ipynb"], [], [], {})
    site.build(sources, html)

    assert "<script>x" not in (html / "index.html").read_text()
    assert "{include}" in (html / "a.html").read_text()
    assert not [path for path in html.rglob("*") if path.is_file() and b"private" == path.read_bytes()]

    nbformat.write(build_notebook(new_markdown_cell("# A page\n\n[x](../../private.txt)")), sources / "a.ipynb")
    with pytest.raises(NgbkitError, match=r"invalid link or picture: got ../../private.txt"):
        site.build(sources, html)
