"""Colours and dashes of compilers."""

import altair as alt
import pytest
import synthetic
import vl_convert
from contrast import LEAST, PAGES, measure_contrasts
from drawn import draw_example, list_charts, measured, sweep

from ngbkit import figures, registry
from ngbkit.dataset.assembly import assemble
from ngbkit.figures import captions, marks, rows, theme


def test_every_compiler_of_ours_has_a_colour_of_its_own():
    """No two compilers that ship with ngbkit look alike, and each has a fixed colour."""
    assert set(registry.list_names(registry.COMPILERS)) - {"faulty"} >= set(theme.COLOURS)
    assert len(theme.COLOURS) == len(set(theme.COLOURS.values()))


def test_a_colour_does_not_depend_on_company():
    """A compiler has the same colour in every figure, also an unknown one."""
    alone = {name: theme.assign_colours([name])[name] for name in ("openvino", "mine")}

    assert alone == theme.assign_colours(["openvino", "mine"])
    assert alone == {name: theme.assign_colours(["mine", "identity", "openvino"])[name] for name in alone}


def test_unknown_compilers_do_not_look_alike():
    """Unknown compilers have distinct colours, none of which is that of a known compiler."""
    names = [f"compiler{number}" for number in range(len(theme.OTHERS))]

    colours = set(theme.assign_colours([*names, *theme.COLOURS]).values())

    assert len(theme.OTHERS) + len(theme.COLOURS) == len(colours)


def test_more_unknown_compilers_than_colours_still_get_one():
    """Colours are reused when they run out."""
    names = [f"compiler{number}" for number in range(40)]

    assert set(theme.OTHERS) == set(theme.assign_colours(names).values())


def test_options_change_the_dash_and_not_the_colour():
    """Variants of one compiler share its colour and differ by their dash."""
    labels = ["openvino", 'openvino{"hint":"latency"}', 'openvino{"hint":"throughput"}']

    assert 1 == len(set(theme.assign_colours(labels).values()))
    assert 3 == len({tuple(dash) for dash in theme.assign_dashes(labels).values()})


def test_a_figure_is_dark_in_a_dark_notebook():
    """A figure takes the background of the page, and its lines contrast with it."""
    spec = draw_example("throughput").to_dict()
    light, dark = (vl_convert.vegalite_to_svg(spec, theme=page) for page in (None, "dark"))

    assert 'fill="white"' in light
    assert theme.COLOURS["identity"] in light
    assert 'fill="#333"' in dark
    assert theme.COLOURS["identity"] not in dark
    assert "white" not in dark


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("name", list_charts())
def test_every_text_is_readable(name, page):
    """Each has the contrast of WCAG 2 with what is behind it, on the pages of both themes."""
    texts = measure_contrasts(draw_example(name).to_dict(), page)

    assert len(texts) > 5
    assert [] == [text for text in texts if text.contrast < LEAST]


def test_a_text_that_is_not_readable_is_found():
    """A black title on a dark page, and on either page a text on a cell of about its own colour."""
    cell = alt.Chart(alt.InlineData(values=[{"word": "grey"}]), width=60, height=60)
    chart = cell.mark_rect(color="#777777") + cell.mark_text(color="#888888").encode(text="word:N")
    title = alt.TitleParams("title", color="black")
    spec = chart.properties(title=title).configure(background="transparent").to_dict()

    unreadable = {
        page: {text.text for text in measure_contrasts(spec, page) if text.contrast < LEAST} for page in PAGES
    }
    assert {"light": {"grey"}, "dark": {"grey", "title"}} == unreadable


def test_a_long_title_has_several_lines() -> None:
    """The lines of a title and of a subtitle end at the width of a page."""
    data = measured(batch_sizes=[1])
    frame = rows.build_rows(data, rows.wrap_variable("throughput"), {})
    title = captions.build_title("speed and again " * 10, data, frame, ["a remark on it " * 20])

    assert [2, True] == [len(title.text), max(map(len, title.text)) < 90]
    assert max(map(len, title.subtitle)) <= 130


def test_a_pending_trial_is_not_drawn_as_a_failed_one() -> None:
    """The word of a pending trial is grey in a picture, and the status of a failed one red."""
    pending = assemble(sweep(batch_sizes=[1]), [])
    failed = synthetic.make_dataset(sweep(batch_sizes=[1]), failures=1.0)
    words, reasons = (vl_convert.vegalite_to_svg(figures.overview(data).to_dict()) for data in (pending, failed))

    assert "pending" in words
    assert "#B3261E" not in words
    assert "#B3261E" in reasons


def test_a_single_trial_is_singular() -> None:
    """Remarks on a single trial have a verb in the singular."""
    frame = rows.build_rows(measured(batch_sizes=[1]), rows.wrap_variable("throughput"), {})

    assert ["1 trial is pending", "2 trials are pending"] == [
        captions.describe_open(frame.head(count).assign(status="pending"))[0] for count in (1, 2)
    ]


def test_names_have_space_in_a_wider_font() -> None:
    """A stored picture is displayed in another font than the one it was measured in; the beginnings of names stay."""
    axis, bounded = (marks.build_name_axis(names, 200).to_dict() for names in (["x" * 29, "y"], ["x" * 90]))

    assert axis["minExtent"] > 175  # 29 letters of DejaVu Sans, the widest of usual fonts
    assert 200 < bounded["minExtent"] < 250


def test_titles_of_neighbours_do_not_touch() -> None:
    """Long ones are smaller, so that they end before the next panel in any font, and very long ones are cut off."""
    marks_of_titles = [
        marks.draw_titles("network", names, 144).to_dict()["mark"]
        for names in (["resnet18"], ["resnet18", "deit3_small_patch16_224"], ["x" * 90])
    ]

    assert [12, True, 9] == [
        marks_of_titles[0]["fontSize"],
        9 < marks_of_titles[1]["fontSize"] < 144 / (0.611 * 23),  # the width of its letters over the size of the font
        marks_of_titles[2]["fontSize"],
    ]
    assert marks_of_titles[2]["limit"] < 144 == marks_of_titles[1]["limit"]
