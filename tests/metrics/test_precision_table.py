"""A row per column has its gains, its size and its costs, as far as the dataset knows them."""

from __future__ import annotations

import numpy as np
from drawn import LOW, add_costs, measured, network

from ngbkit.metrics.precisions import precisions


def test_a_row_has_gains_and_costs() -> None:
    """Labels replace the agreement, and f32 has no gain over itself."""
    data = measured(network("net"), compilers=("identity", "openvino", LOW), batch_sizes=[1])
    table = precisions(add_costs(data)).reset_index().set_index("compiler")

    assert ["f32", "f32", "bf16 (f32)"] == table["precision"].tolist()
    assert "" == table.loc["openvino", "speed-up over f32"]
    assert 0.9 == float(table.loc[LOW, "accuracy"])
    assert 0.0 == float(table.loc[LOW, "change from f32"])
    assert "agreement" not in table
    assert "file (MB)" not in table


def test_what_is_unknown_is_no_column() -> None:
    """A dataset without samples that judge has no costs, and files have their sizes where these are known."""
    data = measured(network("net"), batch_sizes=[1])
    sized = data.assign(file_bytes=data["throughput"].copy(data=np.full(data["throughput"].shape, 2e6)))
    table = precisions(sized)

    assert {"over identity", "file (MB)", "status"} <= set(table.columns)
    assert not {"accuracy", "agreement", "speed-up over f32"} & set(table.columns)
    assert {2.0} == set(table["file (MB)"])
