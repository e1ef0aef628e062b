"""Figures as parts of other charts: composed with altair, with their look, colours and provenance."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import altair as alt
import pandas as pd
import pytest
from drawn import draw_example, list_charts, measured, network
from IPython.core.interactiveshell import InteractiveShell

from ngbkit import figures
from ngbkit.figures import composition, provenance, renderer, theme
from ngbkit.notebook import objects

COMPOSE: dict[str, Callable[..., Any]] = {"hconcat": alt.hconcat, "vconcat": alt.vconcat, "concat": alt.concat}
METADATA = "{http://www.w3.org/2000/svg}metadata"


def points() -> alt.Chart:
    """A chart of the user's own."""
    return alt.Chart(alt.InlineData(values=[{"x": 1, "kind": "mine"}])).mark_point().encode(x="x:Q", color="kind:N")


@pytest.mark.parametrize("name", list_charts())
def test_every_figure_is_a_part_of_a_chart(name: str) -> None:
    """The composition is valid, and has look and provenance once, at its top."""
    figure = draw_example(name)
    alone, spec = figure.to_dict(), composition.build_spec(alt.vconcat(figure, points()))

    assert alone["config"] == spec["config"]
    assert alone.get("usermeta") == spec.get("usermeta")
    assert not {"config", "usermeta", "$schema", "datasets"} & set(spec["vconcat"][0])
    assert alone["title"] == {**spec["vconcat"][0], **spec["vconcat"][0].get("concat", [{}])[0]}["title"]


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    """Speed-ups, which have no line of the baseline, and throughputs of the same data, which have."""
    data = measured(network("a"))
    return figures.speedup(data), figures.throughput(data)


@pytest.mark.parametrize("compose", COMPOSE)
def test_a_composition_embeds_the_provenance_of_its_parts(compose: str, pair: tuple[Any, Any], tmp_path: Path) -> None:
    """The file of a composition embeds the provenance of its parts in order."""
    path = figures.save(COMPOSE[compose](*pair), tmp_path / "both.svg")
    embedded = json.loads(ElementTree.fromstring(path.read_text()).find(METADATA).text)

    assert ["speedup", "throughput"] == [part["figure"] for part in provenance.list_parts(embedded)]
    assert [embedded["parts"][0]["dataset"]] == provenance.list_datasets(embedded)


def test_compositions_of_compositions(pair: tuple[Any, Any]) -> None:
    """Parts are found at any depth."""
    spec = composition.build_spec((pair[0] | points()) & pair[1])

    assert ["speedup", "throughput"] == [part["figure"] for part in spec["usermeta"][provenance.KEY]["parts"]]


def test_colours_are_those_of_each_part(pair: tuple[Any, Any]) -> None:
    """Vega-Lite would join the scales of both, and give identity the colour of another compiler."""
    svg = renderer.to_html(alt.hconcat(*pair).to_dict())
    lines = [
        element.get("stroke")
        for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}path")
        if element.get("stroke-width") == "2"
    ]

    assert [theme.COLOURS[name] for name in ("openvino", "identity", "openvino")] == lines


def test_the_configuration_of_a_user_is_above_the_look(pair: tuple[Any, Any]) -> None:
    """The user's configuration overrides the theme of a figure and of a composition."""
    for chart in (pair[0].configure_axis(labelFontSize=20), alt.hconcat(*pair).configure_axis(labelFontSize=20)):
        axis = composition.build_spec(chart)["config"]["axis"]
        assert {**theme.CONFIG["axis"], "labelFontSize": 20} == axis


def test_a_chart_of_ones_own_keeps_the_theme_of_the_user(pair: tuple[Any, Any], tmp_path: Path) -> None:
    """Drawing, showing and saving figures enables no theme."""
    active = alt.theme.active
    before = points().to_dict()
    figures.save(pair[0], tmp_path / "figure.svg")
    composition.build_spec(alt.hconcat(*pair))

    assert active == alt.theme.active
    assert before == points().to_dict() == composition.build_spec(points())
    with alt.theme.enable("dark"):
        assert before != points().to_dict() == composition.build_spec(points())


@pytest.mark.parametrize("transformer", ["vegafusion", "json", "csv", "failing"])
def test_data_is_inline_whatever_transformer_is_enabled(
    transformer: str, pair: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data of a figure is inline, whatever transformer the user has enabled."""
    monkeypatch.chdir(tmp_path)
    alt.data_transformers.register("failing", lambda data: 1 / 0)
    points = alt.Chart(pd.DataFrame({"x": range(6000)})).mark_point().encode(x="x:Q")
    inline = pair[0].to_dict()
    with alt.data_transformers.enable(transformer):
        spec = pair[0].to_dict()
        figures.save(pair[0], tmp_path / "figure.html")
        both = composition.build_spec(alt.hconcat(pair[0], points))
        alone = composition.build_spec(points)
        active = alt.data_transformers.active

    assert inline == spec
    assert [6000] == [len(rows) for rows in both["datasets"].values() if isinstance(rows, list)]
    assert [6000] == [len(rows) for rows in alone["datasets"].values()]
    assert transformer == active
    assert ["figure.html"] == [path.name for path in tmp_path.iterdir()]


def test_altair_displays_a_chart_of_ones_own_that_its_transformer_prepares(
    pair: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user enabled it for more rows than a notebook should embed; figures are displayed as always."""
    monkeypatch.chdir(tmp_path)
    points = alt.Chart(pd.DataFrame({"x": range(6000)})).mark_point().encode(x="x:Q")
    with alt.data_transformers.enable("json"):
        page, figure = objects.render_chart(points), objects.render_chart(pair[0])

    assert "text/html" in page
    assert renderer.MIME in figure


@pytest.mark.parametrize("enabled", ["dark", theme.NAME])
def test_figures_are_readable_below_any_theme(enabled: str, pair: tuple[Any, Any]) -> None:
    """The theme of a figure overrides that of the user."""
    with alt.theme.enable(enabled):
        config = pair[0].to_dict()["config"]

    for section, look in theme.CONFIG.items():
        assert look == ({name: config[section][name] for name in look} if isinstance(look, dict) else config[section])


def test_the_look_is_a_theme_for_other_charts(pair: tuple[Any, Any]) -> None:
    """altair knows it by name."""
    with alt.theme.enable("ngbkit"):
        assert theme.CONFIG["axis"] == points().to_dict()["config"]["axis"]


def test_a_notebook_shows_a_composition_with_its_look(pair: tuple[Any, Any]) -> None:
    """A notebook displays a composition with the theme of a single figure."""
    shell = InteractiveShell()
    objects.register(shell)
    try:
        bundle, _ = shell.display_formatter.format(alt.hconcat(*pair))
    finally:
        objects.unregister(shell)

    assert composition.build_spec(alt.hconcat(*pair)) == bundle[renderer.MIME]
    assert theme.CONFIG["font"] == bundle[renderer.MIME]["config"]["font"]


def test_a_comparison_can_be_layered() -> None:
    """A chart of a comparison can be layered, as it has no panels."""
    rule = alt.Chart(alt.InlineData(values=[{"y": 2}])).mark_rule().encode(y="y:Q")
    spec = composition.build_spec(alt.layer(draw_example("changes"), rule))

    assert 2 == len(spec["layer"])
    assert theme.CONFIG["font"] == spec["config"]["font"]
