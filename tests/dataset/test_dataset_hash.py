"""The hash of a dataset: what changes it, what does not, and that figures tell it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from drawn import measured, network

from ngbkit import figures
from ngbkit.dataset import storage
from ngbkit.dataset.dataset_hash import fingerprint
from ngbkit.figures.provenance import KEY


def test_a_file_keeps_it(tmp_path: Path) -> None:
    """Of a dataset, and of a tree; whatever the order of the variables."""
    for number, data in enumerate((measured(), measured(network("a"), network("b", width=(1, 2))))):
        kept = storage.load(storage.save(data, tmp_path / f"{number}.nc"))
        assert fingerprint(data) == fingerprint(kept)
    one = measured()
    assert fingerprint(one) == fingerprint(one[list(reversed(list(one.data_vars)))])


@pytest.mark.parametrize("change", ["a sample", "a label", "a text", "an attribute", "a dim"])
def test_any_change_changes_it(change: str) -> None:
    """However small."""
    data, before = measured(), fingerprint(measured())
    if change == "a sample":
        data["latency"].values[0, 0, 0, 0, 0] = np.nextafter(data["latency"].values[0, 0, 0, 0, 0], 1)
    elif change == "a label":
        data = data.assign_coords(workload=["other"])
    elif change == "a text":
        data["error"].values[0, 0, 0, 0] = "!"
    elif change == "an attribute":
        data.attrs["run_id"] = "another"
    else:
        data = data.transpose("workload", ...)

    assert before != fingerprint(data)


def test_texts_do_not_run_into_each_other() -> None:
    """The same letters, otherwise divided, are other texts."""
    first, second = measured(), measured()
    first["error"].values[0, 0, :2, 0] = ["ab", "c"]
    second["error"].values[0, 0, :2, 0] = ["a", "bc"]

    assert fingerprint(first) != fingerprint(second)


@pytest.mark.parametrize("name", sorted(set(figures.__all__) - {"save", "depth", "heatmap", "reversals", "roofline"}))
def test_every_figure_tells_where_it_comes_from(name: str) -> None:
    """What drew it, with which arguments, of which data; in the specification itself."""
    data = measured(batch_sizes=(1, 4))
    chart = getattr(figures, name)(data, **({} if name == "overview" else {"compiler": ["identity", "openvino"]}))
    told = chart.to_dict()["usermeta"][KEY]

    assert (name, fingerprint(data), "synthetic") == (told["figure"], told["dataset"], told["run_id"])
    assert told["arguments"] == ({} if name == "overview" else {"compiler": ["identity", "openvino"]})
    assert {"sweep", "environments", "measured_with", "commit", "drawn_with"} <= set(told)
