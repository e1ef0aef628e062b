"""Metrics over a factor: slopes that contradict retentions, and friction."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from ngbkit import metrics
from ngbkit.dataset import reference
from ngbkit.errors import MetricError
from ngbkit.metrics import arrays


@pytest.mark.parametrize(
    ("number", "count", "example"),
    [
        ("VII", 12, {"device": "xeon", "compiler": "openvino", "width": 64, "batch_size": 8}),
        ("VIII", 9, {"device": "xeon", "compiler": "onnxruntime", "width": 128, "batch_size": 16}),
    ],
)
def test_the_papers_tables_hold_rows_that_contradict_themselves(number, count, example):
    """Some rows of the paper's tables have a slope and a retention that contradict."""
    published = reference.table(number)
    flagged = xr.apply_ufunc(arrays.contradict, published["depth_slope"], published["retention"])

    assert 20 == int(published["depth_slope"].count())
    assert count == int(flagged.sum())
    assert flagged.sel(example).all()


def speedups(*gains: float) -> list[list[list[float]]]:
    """Latencies at each depth of identity and of a compiler with these speed-ups, at one batch size."""
    return [[[gain], [1.0]] for gain in gains]


@pytest.mark.parametrize(
    ("gains", "contradictory"),
    [((2, 3, 5), False), ((5, 3, 2), False), ((2.1, 1, 6, 2), True), ((1, 2, 3, 3, 3), False), ((2, 2, 2), False)],
)
def test_a_curve_that_is_not_monotone_is_flagged(measured, gains, contradictory):
    """Both slope and retention have the coordinate, with and without an interval."""
    labels = {"depth": [*range(1, len(gains) + 1)], "compiler": ["identity", "a"], "batch_size": [1]}
    latency = np.repeat(np.array(speedups(*gains))[..., None], 8, axis=-1)
    data = measured(labels, latency, np.broadcast_to(np.arange(8), latency.shape))

    for metric in (metrics.depth_slope, metrics.retention):
        for ci in (None, 0.95):
            flags = metric(data, ci=ci)["contradictory"]
            assert [[False], [contradictory]] == flags.values.tolist()
            assert "point estimates" in flags.attrs["long_name"]


@pytest.fixture
def widening(measured):
    """ASE of identity is b^-0.5 at any width; that of `a` falls with b^-0.25 at width 1, and 0.25 faster a doubling."""

    def fall(compiler: str, width: int) -> float:
        return 0.5 if compiler == "identity" else 0.25 * (1 + np.log2(width))

    labels = {"width": [1, 2, 4], "compiler": ["identity", "a"], "batch_size": [1, 4, 16]}
    latency = [
        [[[size ** fall(compiler, width)] for size in labels["batch_size"]] for compiler in labels["compiler"]]
        for width in labels["width"]
    ]
    return measured(labels, latency)


def test_friction(widening):
    """A doubling of the width adds 0.25 to the fall of `a`, and nothing to identity's."""
    friction = metrics.friction(widening)

    np.testing.assert_allclose([0, 0.25], friction, atol=1e-12)
    assert ("compiler",) == friction.dims
    assert ("friction", "1") == (friction.name, friction.attrs["units"])


def test_friction_over_another_factor(widening):
    """Any factor above 0 is valid."""
    deep = widening.rename(width="depth")

    np.testing.assert_allclose([0, 0.25], deep.ngb.friction(dim="depth"), atol=1e-12)
    with pytest.raises(MetricError, match="logarithm of depth: got 0; expected values above 0"):
        deep.assign_coords(depth=[0, 1, 2]).ngb.friction(dim="depth")


def test_friction_says_what_it_lacks(widening):
    """Each error names the batch size or the width to add."""
    with pytest.raises(MetricError, match=r"needs batch size 1 and another; the sweep has only 1\. .* -b 1,4,…"):
        metrics.friction(widening.sel(batch_size=[1]))
    with pytest.raises(MetricError, match="relative to batch size 1; the sweep has 4, 16"):
        metrics.friction(widening.sel(batch_size=[4, 16]))
    with pytest.raises(MetricError, match="at least two values of it; the sweep has only width 2"):
        metrics.friction(widening.sel(width=[2]))
    with pytest.raises(MetricError, match=r"needs at least two values of it; it varies width\."):
        metrics.friction(widening, dim="depth")


def test_friction_leaves_out_what_failed(widening):
    """A failed trial removes one point of its slope."""
    widening["latency"].loc[{"compiler": "a", "width": 4, "batch_size": 16}] = np.nan

    np.testing.assert_allclose([0, 0.25], metrics.friction(widening), atol=1e-12)


def test_friction_of_a_tree_is_of_the_nodes_with_widths(widening, scaling):
    """The friction of a tree omits nodes without widths."""
    tree = xr.DataTree.from_dict({"/networks": scaling, "/blocks": widening})

    assert ["blocks"] == list(tree.ngb.friction().children)


@pytest.mark.parametrize("metric", [metrics.depth_slope, metrics.retention, metrics.friction])
def test_texts_have_no_order(metric):
    """A slope over texts would be one over their order in the sweep, so the error asks for numbers."""
    labels = {"variant": ["plain", "residual"], "compiler": ["identity"]}
    ds = xr.Dataset({"throughput": (("variant", "compiler"), np.ones((2, 1)))}, labels)

    with pytest.raises(MetricError, match="needs a factor with numbers, and those of variant are"):
        metric(ds, "variant")
