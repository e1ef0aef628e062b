"""Pages request nothing from other servers: what would is removed and said, and all else remains as it was."""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
import pytest
import synthetic
from authored import build_notebook
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output, new_raw_cell

from ngbkit.api import Sweep
from ngbkit.figures import overview
from ngbkit.figures.renderer import to_html
from ngbkit.publish.sanitise import clean_html, clean_markdown, clean_notebook, list_requests
from ngbkit.workloads import cell

SERVER = "https://example.org"


@pytest.mark.parametrize(
    "html",
    [
        f'<iframe src="{SERVER}/a"></iframe>',
        f'<script src="{SERVER}/a.js"></script>',
        "<script>fetch('//example.org')</script>",
        f'<img src="{SERVER}/a.png">',
        '<img src="\\\\example.org/a.png">',
        '<img src=" /\t/example.org/a.png">',
        f'<img srcset="a.png 1x, {SERVER}/a.png 2x">',
        '<img src="a.png" onerror="fetch(1)">',
        f'<video poster="{SERVER}/a.png"><source src="{SERVER}/a.mp4"></video>',
        f'<link rel="stylesheet" href="{SERVER}/a.css">',
        f'<div style="background: url({SERVER}/a.png)">x</div>',
        f'<div style="background: u\\72 l({SERVER}/a.png)">x</div>',
        f"<style>@import '{SERVER}/a.css';</style>",
        f"<style>p {{ background: url(  '{SERVER}/a.png') }}</style>",
        f'<svg><use href="{SERVER}/a.svg#b"></use></svg>',
        f'<svg><image xlink:href="{SERVER}/a.png"/></svg>',
        f'<svg><rect fill="url({SERVER}/a.svg#b)"/></svg>',
        f'<meta http-equiv="refresh" content="0; url={SERVER}">',
        f'<object data="{SERVER}/a"></object><embed src="{SERVER}/a">',
        f'<form action="{SERVER}"><button formaction="{SERVER}">x</button></form>',
        f'<base href="{SERVER}/">',
        f'<a href="page.html" ping="{SERVER}">x</a>',
    ],
)
def test_a_request_is_removed(html: str) -> None:
    """The element or the attribute that requests something is removed, and its name is returned."""
    cleaned, removed = clean_html(f"<p>before</p>{html}<p>after</p>")

    assert removed
    assert [] == list_requests(cleaned)
    assert not re.search("example.org|fetch|ping", cleaned)
    assert cleaned.startswith("<p>before</p>")
    assert cleaned.endswith("<p>after</p>")


@pytest.mark.parametrize(
    "html",
    [
        "<!--><script>fetch(1)</script><!---->",
        "<!-- --!><img src=x onerror=fetch(1)>-->",
        "<svg><style><img src=x onerror=fetch(1)></style></svg>",
        "<style>a</style/><img src=x onerror=fetch(1)>",
        '<a href=" java&#10;script:fetch(1)">x</a>',
        '<svg><a xlink:href="JavaScript:fetch(1)">x</a></svg>',
    ],
)
def test_a_script_cannot_hide(html: str) -> None:
    """Browsers run nothing of HTML that they read otherwise than Python does, and no link is a script."""
    for clean in (clean_html, clean_markdown):
        cleaned, _ = clean(f"<div>\n{html}\n</div>")

        assert "fetch" not in cleaned


def test_an_element_that_only_browsers_see_is_clean() -> None:
    """A browser reads an element within a style sheet of a picture, where other parsers read text."""
    assert ("<svg><style></style></svg><img>", []) == clean_html(f'<svg><style><img src="{SERVER}/a"></style></svg>')


def test_tables_figures_and_links_remain() -> None:
    """The HTML of datasets, tables and figures of ngbkit, links and pictures are byte for byte the same."""
    networks = cell.from_source("import torch\nmodel = torch.nn.Linear(8, 2)\ninput_shape = (8,)")
    data = synthetic.make_dataset(Sweep(networks, ["identity", "openvino"], [1, 4], repeats=10))
    for html in (
        data._repr_html_(),
        data.ngb.speedup().to_dataframe("speedup")._repr_html_(),
        to_html(overview(data).to_dict()),
        f'<a href="{SERVER}" target="_blank" rel="noopener">a link</a><img src="data:image/png;base64,AA==" alt="dot">',
        '<details open><summary>s</summary><svg viewBox="0 0 1 1"><use href="#icon"></use></svg></details>',
    ):
        assert (html, []) == clean_html(html)
        assert [] == list_requests(html)


def test_markdown_is_clean() -> None:
    """A picture of another server becomes a link, its HTML is cleaned in lists too, and code remains as it is."""
    assert ("[x](//example.org/x.png)", ["iframe", "the picture //example.org/x.png"]) == clean_markdown(
        "<iframe></iframe> ![x](//example.org/x.png)"
    )
    table = "<table class='a'>\n<tr>\n\n<td>*x*</td>\n\n</tr>\n</table>\n"
    assert (table, []) == clean_markdown(table)
    text = (
        f"![a]({SERVER}/a.png) ![b](b.png) [c]({SERVER}) <img src='{SERVER}/d.png'> `<iframe src='{SERVER}'>`\n\n"
        f"- x\n\n  <iframe\n  src='{SERVER}/e'></iframe>\n\n```html\n<script src='{SERVER}/f.js'></script>\n```\n"
    )
    cleaned, removed = clean_markdown(text)

    assert f"[a]({SERVER}/a.png) ![b](b.png) [c]({SERVER}) <img> `<iframe src='{SERVER}'>`" == cleaned.splitlines()[0]
    assert f"{SERVER}/e" not in cleaned
    assert cleaned.endswith(f"```html\n<script src='{SERVER}/f.js'></script>\n```\n")
    assert [f"the picture {SERVER}/a.png", "src of img", "iframe", "src of iframe"] == removed


def test_the_cells_of_a_notebook_are_named(tmp_path: Path) -> None:
    """A sentence says which cell contained which element; widgets, for which there is no kernel, are left out."""
    frame = f"<iframe src='{SERVER}'></iframe>"
    html = new_output("display_data", {"text/html": f"<b>x</b>{frame}"})
    widget = new_output("display_data", {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "Panel()"})
    script = new_output("display_data", {"application/javascript": "fetch(1)"})
    active = (" onload='fetch(1)'>", "><script>fetch(1)</script>", "><foreignObject><p>x</p></foreignObject>")
    pictures = [new_output("display_data", {"image/svg+xml": f"<svg{content}</svg>"}) for content in active]
    code = new_code_cell("1", outputs=[html, widget, script, *pictures])
    cells = new_markdown_cell(f"<img src='{SERVER}/a.png'>"), code, new_raw_cell(frame)
    nbformat.write(build_notebook(*cells), tmp_path / "a.ipynb")
    sentences = clean_notebook(tmp_path / "a.ipynb", tmp_path / "clean" / "a.ipynb")
    cells = json.loads((tmp_path / "clean" / "a.ipynb").read_text())["cells"]

    names = "iframe, src of iframe, a script, a picture with a script or a request"
    assert [
        "a.ipynb, cell 0: removed src of img, since pages request nothing",
        f"a.ipynb, cell 1: removed {names}, since pages request nothing",
        "a.ipynb, cell 2: removed iframe, src of iframe, since pages request nothing",
    ] == sentences
    assert ["<b>x</b>"] == [output["data"]["text/html"] for output in cells[1]["outputs"] if output["data"]]
