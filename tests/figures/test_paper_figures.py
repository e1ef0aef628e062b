"""Figures for a paper: a width in millimetres, and a caption in LaTeX."""

import re

import pypdf
import pytest
from drawn import draw_example, measured, network

from ngbkit import figures
from ngbkit.errors import UsageError
from ngbkit.figures import latex, pictures


def test_a_figure_whose_text_is_too_small_is_refused(tmp_path):
    """The error has the height of the text, and a width at which the same figure is saved."""
    chart = figures.throughput(measured(*map(network, "abcde")))

    with pytest.raises(
        UsageError, match=r"its text would be \d\.\d points high; expected text of at least 5 points"
    ) as caught:
        figures.save(chart, tmp_path / "figure.pdf", width=40)
    width = int(re.search(r"use width=(\d+)", str(caught.value))[1])
    page = pypdf.PdfReader(figures.save(chart, tmp_path / "figure.pdf", width=width)).pages[0]
    assert width == pytest.approx(float(page.mediabox.width) / 72 * 25.4, abs=0.1)
    assert "Throughput" not in page.extract_text().split("\n")


def test_a_figure_that_fits_no_column_spans_both(tmp_path):
    """LaTeX without a width is for one column, or for both where text would be too small."""
    few, many = (figures.throughput(measured(*map(network, names))) for names in ("ab", "abc"))
    texts = [figures.save(chart, tmp_path / "figure.tex").read_text() for chart in (few, many)]

    assert [True, False] == ["width=88mm" in text for text in texts]
    assert [False, True] == ["width=180mm" in text for text in texts]


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
