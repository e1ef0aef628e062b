"""Figures in files: each format, without a network."""

import json
from html.parser import HTMLParser
from xml.etree import ElementTree

import pypdf
import pytest
import synthetic
from drawn import measured, network
from PIL import Image

from ngbkit import figures
from ngbkit.api import Sweep
from ngbkit.errors import UsageError
from ngbkit.figures import pictures
from ngbkit.workloads.base import Workload


@pytest.fixture(scope="module")
def chart():
    network = Workload(name="net</script><b>", source="timm", spec={})
    return figures.overview(synthetic.make_dataset(Sweep([network], ["identity", "openvino"], [1, 4], repeats=5)))


class Page(HTMLParser):
    """The content of a page: its tags with their attributes, and its texts by tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append((self.tags[-1][0] if self.tags else "", data))


@pytest.fixture(scope="module")
def page(chart, tmp_path_factory) -> Page:
    return Page(figures.save(chart, tmp_path_factory.mktemp("pages") / "deep" / "figure.html").read_text())


def test_a_page_needs_no_network(page):
    """The page embeds its scripts, and none of its tags loads anything."""
    attributes = {(tag, name) for tag, attrs in page.tags for name in attrs}

    assert not {name for _, name in attributes} & {"src", "href", "srcset", "data", "action"}
    assert not any("@import" in text or "url(" in text for tag, text in page.texts if tag == "style")
    bundle, call = (text for tag, text in page.texts if tag == "script" and text.strip())
    assert "window.vegaEmbed=" in bundle
    assert 'window.vegaEmbed("#figure", spec, ' in call


def test_a_page_holds_the_figure(chart, page):
    """The specification in the page is the chart's, and the title is the figure's."""
    call = next(text for tag, text in page.texts if text.startswith("const spec = "))

    spec, _ = json.JSONDecoder().raw_decode(call[call.index("{") :])
    assert chart.to_dict() == spec
    assert ("title", "Throughput and speed-up") in page.texts


def test_a_label_cannot_end_the_script(page):
    """A network named like a tag stays text: the page has two scripts, as always."""
    assert 2 == sum(tag == "script" for tag, _ in page.tags)
    assert "b" not in {tag for tag, _ in page.tags}


def test_an_svg_is_a_picture_with_its_titles(chart, tmp_path):
    """The SVG is well-formed and contains the texts of the figure."""
    root = ElementTree.fromstring(figures.save(chart, tmp_path / "figure.svg").read_text())

    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"net</script><b>", "batch size", "openvino", "throughput (samples/s)"} <= texts


def test_a_png_is_a_png(chart, tmp_path):
    """The PNG has its signature and a width of more than a thumbnail."""
    content = figures.save(chart, tmp_path / "figure.png").read_bytes()

    assert b"\x89PNG\r\n\x1a\n" == content[:8]
    assert int.from_bytes(content[16:20], "big") > 600


def test_a_picture_holds_where_it_comes_from(chart, tmp_path):
    """Each format has the same provenance, readable by common libraries."""
    provenance = chart.to_dict()["usermeta"]["ngbkit"]
    svg, png, pdf = (figures.save(chart, tmp_path / f"figure{kind}") for kind in (".svg", ".png", ".pdf"))
    in_svg = ElementTree.fromstring(svg.read_text()).find("{http://www.w3.org/2000/svg}metadata").text
    with Image.open(png) as image:
        in_png = image.text["ngbkit"]
    metadata = pypdf.PdfReader(pdf).metadata

    assert [provenance] * 3 == [json.loads(text) for text in (in_svg, in_png, metadata["/ngbkit"])]
    assert "Throughput and speed-up" == metadata.title
    assert provenance["dataset"]


def test_a_figure_is_replaced_and_nothing_is_left_beside_it(chart, tmp_path):
    """Saving again overwrites the older figure."""
    path = tmp_path / "figure.svg"
    path.write_text("older")

    assert path == figures.save(chart, path)
    assert "older" != path.read_text()
    assert [path] == list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def wide():
    return figures.throughput(measured(*map(network, ("resnet18", "resnet50", "vit", "swin", "mobile"))))


@pytest.mark.parametrize("width", [180, 240])
def test_a_picture_is_as_wide_as_the_column_of_a_paper(wide, tmp_path, width):
    """A picture of each format has the requested width."""
    svg, png, pdf = (figures.save(wide, tmp_path / f"figure{kind}", width=width) for kind in (".svg", ".png", ".pdf"))
    root = ElementTree.fromstring(svg.read_text())
    with Image.open(png) as image:
        pixels, density = image.width, image.info["dpi"][0]

    assert width == pytest.approx(float(root.get("width").removesuffix("mm")), rel=1e-3)
    assert width == pytest.approx(pixels / density * 25.4, rel=0.01)
    assert width == pytest.approx(float(pypdf.PdfReader(pdf).pages[0].mediabox.width) / 72 * 25.4, rel=0.01)


@pytest.mark.parametrize(("arguments", "pixels"), [({"dpi": 96}, 1), ({}, 2), ({"dpi": 600}, 6.25)])
def test_a_png_has_its_density(chart, tmp_path, arguments, pixels):
    """A PNG has its density in pixels per inch."""
    width = pictures.measure(figures.save(chart, tmp_path / "figure.svg").read_text())[0]
    with Image.open(figures.save(chart, tmp_path / "figure.png", **arguments)) as image:
        assert pixels * width == pytest.approx(image.width, abs=2)
        assert 96 * pixels == pytest.approx(image.info["dpi"][0], rel=0.01)


@pytest.mark.parametrize(
    ("suffix", "arguments", "message"),
    [
        (".svg", {"width": 0}, r"invalid width: got 0; expected millimetres from 10 to 2000, such as 88"),
        (".svg", {"width": "88mm"}, "invalid width: got '88mm'"),
        (".svg", {"width": float("nan")}, "invalid width: got nan"),
        (".png", {"dpi": 1e9}, "invalid dpi: got 1000000000.0; expected pixels an inch from 36 to 2400"),
        (".svg", {"dpi": 300}, "takes no dpi. Save a .png"),
        (".html", {"width": 88}, "takes no width. Save a .svg, .png, .pdf, .tex"),
        (".svg", {"width": 12}, r"invalid width=12: its text would be 0\.\d points high"),
    ],
)
def test_sizes_that_do_not_work_are_refused(wide, tmp_path, suffix, arguments, message):
    """The error says what is valid, and nothing is written."""
    with pytest.raises(UsageError, match=message):
        figures.save(wide, tmp_path / f"figure{suffix}", **arguments)

    assert [] == list(tmp_path.iterdir())


def test_an_unknown_suffix_is_refused(chart, tmp_path):
    """The error lists the formats."""
    with pytest.raises(UsageError, match=r"'figure\.gif'; expected \.html, \.svg, \.png, \.pdf"):
        figures.save(chart, tmp_path / "figure.gif")


def test_a_place_that_cannot_be_written_is_refused(chart, tmp_path):
    """A file instead of a folder is reported as such."""
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match="cannot be written"):
        figures.save(chart, tmp_path / "file" / "figure.svg")
