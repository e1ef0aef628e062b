"""Metrics over a factor: slopes that contradict retentions, and friction."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from ngbkit import metrics
from ngbkit.errors import MetricError
from ngbkit.metrics import arrays

# The paper's tables VII and VIII: device, compiler, width, batch size, slope, retention.
TABLE_VII = """
gpu tensorrt 64 8 0.08924 3.821    gpu tensorrt 64 16 0.1032 1.187     gpu tensorrt 96 8 0.1024 0.2116
gpu tensorrt 96 16 0.1038 0.6593   gpu onnxruntime 64 8 0.06953 1.153  gpu onnxruntime 64 16 0.09141 0.426
gpu onnxruntime 96 8 0.07876 1.304 gpu onnxruntime 96 16 0.08367 0.7538 orin tensorrt 64 8 0.1695 0.7846
orin tensorrt 64 16 0.1349 0.7759  orin tensorrt 96 8 0.1285 1.126     orin tensorrt 96 16 0.212 6.553
xeon onnxruntime 64 8 0.04862 1.009 xeon onnxruntime 64 16 0.0006561 0.9756 xeon onnxruntime 96 8 0.0453 1.025
xeon onnxruntime 96 16 0.02658 0.9954 xeon openvino 64 8 0.4417 0.3379 xeon openvino 64 16 0.4775 0.7428
xeon openvino 96 8 0.3553 0.8669   xeon openvino 96 16 0.3378 0.4106
"""
TABLE_VIII = """
gpu tensorrt 128 8 0.8207 1.404    gpu tensorrt 128 16 1.028 0.556     gpu tensorrt 256 8 0.6369 0.6935
gpu tensorrt 256 16 0.8831 1.471   gpu onnxruntime 128 8 0.3594 2.187  gpu onnxruntime 128 16 0.3106 0.83
gpu onnxruntime 256 8 0.3406 1.724 gpu onnxruntime 256 16 0.2929 0.9108 orin tensorrt 128 8 0.05291 1.178
orin tensorrt 128 16 0.173 0.9055  orin tensorrt 256 8 0.08368 0.95    orin tensorrt 256 16 0.1488 1.629
xeon onnxruntime 128 8 0.04244 1.105 xeon onnxruntime 128 16 -0.01775 1.018 xeon onnxruntime 256 8 0.01867 1.031
xeon onnxruntime 256 16 0.0215 0.9735 xeon openvino 128 8 0.1113 1.115 xeon openvino 128 16 0.1355 0.9635
xeon openvino 256 8 0.1589 1.577   xeon openvino 256 16 0.1015 1.029
"""


@pytest.mark.parametrize(
    ("table", "count", "example"),
    [(TABLE_VII, 12, ("xeon", "openvino", "64", "8")), (TABLE_VIII, 9, ("xeon", "onnxruntime", "128", "16"))],
)
def test_the_papers_tables_hold_rows_that_contradict_themselves(table, count, example):
    """Some rows of the paper's tables have a slope and a retention that contradict."""
    rows = np.array(table.split()).reshape(-1, 6)

    flagged = rows[arrays.contradict(rows[:, 4].astype(float), rows[:, 5].astype(float))]

    assert 20 == len(rows)
    assert count == len(flagged)
    assert example in [tuple(row[:4]) for row in flagged.tolist()]


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
