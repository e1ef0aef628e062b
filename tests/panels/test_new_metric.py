"""A metric of another package is one record, and stands wherever those of ngbkit do."""

from __future__ import annotations

import importlib
import inspect
from importlib.metadata import EntryPoint
from pathlib import Path

import pages
import pytest
import xarray as xr
from drawn import Spec, measured, network
from reading import build_reader

import ngbkit
from ngbkit import cli, figures, metrics, registry
from ngbkit.commands.completion import LISTERS, Cursor
from ngbkit.metrics import ratios
from ngbkit.metrics.draws import Sampler
from ngbkit.metrics.metric import Chart, Metric, load_metrics


def compute(data: xr.Dataset, sampler: Sampler | None, *, factor: float = 1000.0) -> xr.DataArray:
    return factor / ratios.throughput(data, sampler)


MILLISECONDS = Metric(
    name="milliseconds",
    units="ms",
    long_name="time of one sample",
    meaning="a thousand over the throughput",
    compute=compute,
    options={"factor": "Units per second."},
    chart=Chart(),
)


@pytest.fixture(autouse=True)
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another package has an entry point for the metric, and one that is broken."""
    names = {"milliseconds": f"{__name__}:MILLISECONDS", "broken": "no_such_module:METRIC"}
    list_entry_points = registry.list_entry_points

    def list_with_plugin(group: str) -> dict[str, EntryPoint]:
        plugins = {name: EntryPoint(name=name, value=value, group=group) for name, value in names.items()}
        return {**list_entry_points(group), **(plugins if group == registry.METRICS else {})}

    monkeypatch.setattr(registry, "list_entry_points", list_with_plugin)


pytestmark = pytest.mark.filterwarnings("ignore:the ngbkit.metrics plugin 'broken'")


@pytest.fixture
def data() -> xr.Dataset:
    dataset = measured(network("resnet18"), network("resnet50"))
    assert isinstance(dataset, xr.Dataset)
    return dataset


def test_a_broken_plugin_is_left_out_with_a_warning() -> None:
    """The other metrics are loaded, those of ngbkit first."""
    with pytest.warns(UserWarning, match=r"'broken' \(no_such_module:METRIC\) failed to load"):
        loaded = list(load_metrics())

    assert ["throughput", "speedup", "milliseconds"] == [*loaded[:2], loaded[-1]]


def test_it_is_a_method_with_its_docstring(data: xr.Dataset) -> None:
    """The method has the arguments of `compute`, an interval and a sentence on each."""
    method = data.ngb.milliseconds
    text = inspect.getdoc(method)

    assert "milliseconds" in dir(data.ngb)
    assert {"factor": 1000.0, "ci": None} == {
        name: parameter.default for name, parameter in inspect.signature(method).parameters.items()
    }
    assert text
    assert "Time of one sample (ms).\n\nA thousand over the throughput." in text
    assert "factor\n    Units per second." in text
    xr.testing.assert_allclose(1000 / data.ngb.throughput(), method())
    xr.testing.assert_identical(metrics.milliseconds(data, factor=1.0, ci=0.9), method(factor=1.0, ci=0.9))


def test_it_has_a_chart(data: xr.Dataset) -> None:
    """The title and the axis have its name and its unit."""
    spec = Spec(data.ngb.plot.milliseconds())

    assert "milliseconds" in dir(data.ngb.plot)
    assert {"Time of one sample (ms) by batch size", "time of one sample (ms)"} <= spec.texts()
    assert "milliseconds" == spec.spec["usermeta"]["ngbkit"]["figure"]
    assert spec.rows == Spec(figures.milliseconds(data)).rows


def test_it_is_in_tables_comparisons_means_and_frames(data: xr.Dataset) -> None:
    """A new metric is in tables, comparisons, means and frames, with its unit."""
    frame = data.ngb.to_dataframe()

    assert "time of one sample (ms)" == data.ngb.table("milliseconds").frame.attrs["title"]
    assert "ms" == frame.attrs["units"]["milliseconds"]
    assert {"milliseconds", "milliseconds_low", "milliseconds_conclusive"} <= set(frame)
    assert {"same"} == set(data.ngb.compare(data, "milliseconds").trials["is"])
    assert "geometric mean of the time of one sample" == data.ngb.mean("milliseconds").attrs["long_name"]


def test_the_panel_shows_it(data: xr.Dataset) -> None:
    """The table of the panel has a column of it, and its figure draws it."""
    page = build_reader(data, "ds")
    page.act("metric", "milliseconds")

    assert "milliseconds (ms)" in page.parts["table"]
    assert "" == page.parts["figure-error"]
    assert "ds.ngb.plot.milliseconds()" in page.parts["figure-code"]


def test_the_shell_shows_and_compares_it(data: xr.Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The name of a new metric is a choice of `show` and `compare`, and Tab offers it."""
    file = str(ngbkit.save(data, tmp_path / "run.nc"))

    assert 0 == cli.main(["show", file, "--figure", "milliseconds"])
    assert "time of one sample (ms)" in capsys.readouterr().out
    assert 0 == cli.main(["compare", file, file, "--metric", "milliseconds"])
    assert "no trial was measured again" in capsys.readouterr().out
    cursor = Cursor(typed="mil", words=[])
    for kind in ("metric", "figure"):
        assert "milliseconds" in list(LISTERS[kind](cursor))


def test_the_help_of_show_names_it() -> None:
    """The help of the flag lists the entry points."""
    command = importlib.reload(importlib.import_module("ngbkit.commands.show")).COMMAND
    (declared,) = [declared for declared in command.arguments if "--figure" in declared.flags]

    assert ", milliseconds" in declared.help


def test_its_page_has_a_line_on_it() -> None:
    """The page of metrics is written from the records."""
    line = "| `ds.ngb.milliseconds()` | time of one sample | a thousand over the throughput |  |  | ms | `ds.ngb.plot.m"

    assert line in pages.render_metrics()
