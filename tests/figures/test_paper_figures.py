"""Figures for a paper: text of eight points, shared axes, and a caption in LaTeX."""

import re
from xml.etree import ElementTree

import altair as alt
import pypdf
import pytest
from drawn import draw_example, list_charts, measured, network

from ngbkit import figures
from ngbkit.errors import UsageError
from ngbkit.figures import latex, layout, pictures
from ngbkit.figures.composition import build_spec

_SVG = "{http://www.w3.org/2000/svg}"


def read_texts(chart, folder, width):
    """The texts of a figure that is saved for paper, and the sizes of their fonts in points."""
    root = ElementTree.fromstring(figures.save(chart, folder / "figure.svg", width=width).read_text())
    scale = width / 25.4 * 72 / float(root.get("viewBox").split()[2])
    parents = {child: parent for parent in root.iter() for child in parent}
    texts = [element for element in root.iter() if element.tag in (f"{_SVG}text", f"{_SVG}tspan") and element.text]
    sizes = []
    for element in texts:
        while element is not None and "font-size" not in element.attrib:
            element = parents.get(element)
        sizes.append(scale * float(element.get("font-size").removesuffix("px")))
    return [element.text for element in texts], sizes


@pytest.mark.parametrize("name", sorted({*list_charts()} - {"ase", "bsr", "rtr", "speedup", "depth"}))
def test_the_text_of_a_figure_has_eight_points(name, tmp_path):
    """Every text is 8 points high in a column, and none below 7."""
    _, sizes = read_texts(draw_example(name), tmp_path, 88)

    assert 6.9 < min(sizes)
    assert 8.0 == pytest.approx(max(sizes), abs=0.1)


def test_panels_share_the_titles_of_their_axes(tmp_path):
    """Nine panels have one title per axis, no title of their figure, and are lower than a page."""
    chart = figures.throughput(measured(*map(network, "abcdefghi"), batch_sizes=[1, 4]))
    texts, _ = read_texts(chart, tmp_path, 88)
    height = float(pypdf.PdfReader(figures.save(chart, tmp_path / "figure.pdf", width=88)).pages[0].mediabox.height)

    assert [1, 1, 0] == [texts.count(name) for name in ("batch size", "throughput (samples/s)", "Throughput")]
    assert set("abcdefghi") <= set(texts)
    assert height / 72 * 25.4 < 150


def test_a_composition_is_stacked_in_a_column(tmp_path):
    """Two figures side by side are below each other where a column has no room for both."""
    chart = alt.hconcat(draw_example("roofline"), draw_example("break_even"))

    texts, sizes = read_texts(chart, tmp_path, 88)
    assert {"operations per byte (FLOP/B)", "seconds to compile, cold cache"} <= set(texts)
    assert 8.0 == pytest.approx(max(sizes), abs=0.1)


def test_a_figure_that_fits_no_page_is_refused():
    """The error has the height of the figure."""
    chart = figures.latency(measured(*(network(f"net{number}") for number in range(30)), batch_sizes=[1]))

    with pytest.raises(UsageError, match=r"would be \d+ mm high with text of 8 points.*Select fewer trials"):
        layout.fit(build_spec(chart), 40)


def test_latex_includes_the_picture_with_a_caption(tmp_path):
    """The caption has the title, the intervals, the machine and the hash of the data, escaped, and the picture none."""
    chart = figures.speedup(measured(network("swin_s3_tiny")))
    file = figures.save(chart, tmp_path / "speed_up.tex", width=180)
    text, picture = file.read_text(), file.with_suffix(".pdf")

    assert {file, picture} == set(tmp_path.iterdir())
    assert r"\includegraphics[width=180mm]{speed_up.pdf}" in text
    assert r"\label{fig:speed-up}" in text
    assert r"\begin{figure*}" in text
    assert r"Bars: 95 \% intervals." in text
    assert chart.to_dict()["usermeta"]["ngbkit"]["dataset"] in text
    assert "Speed-up over identity by batch size." in text
    assert "intervals" not in pypdf.PdfReader(picture).pages[0].extract_text()


def test_special_letters_are_escaped():
    """No letter of a name is a command of LaTeX."""
    assert r"a\_\allowbreak{}b 5 \% \& \{x\} \ensuremath{\times}\textbackslash{}" == latex.escape("a_b 5 % & {x} ×\\")


def test_a_remark_that_is_wrapped_is_a_sentence(tmp_path):
    """The lines of a long remark are joined, and each remark ends with a full stop."""
    data = measured(network("net")).assign_attrs(source="a source " * 30)

    caption = latex.build_caption(figures.throughput(data).to_dict())
    assert "a source " * 30 in re.sub(r"\s+", " ", caption) + " "
    assert caption.endswith(".")


def test_a_pdf_has_the_same_bytes_each_time():
    """Two renderings of one specification are identical."""
    spec = draw_example("networks").to_dict()
    first, second = (pictures.render(spec, [".pdf"])[".pdf"] for _ in range(2))

    assert first == second
