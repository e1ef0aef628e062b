"""The hash of a dataset: changes that affect it, changes that do not, and its use in figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from drawn import ARGUMENTS, measured, network

from ngbkit import figures
from ngbkit.dataset import storage
from ngbkit.dataset.dataset_hash import hash_dataset
from ngbkit.figures.provenance import KEY


def test_a_file_keeps_it(tmp_path: Path) -> None:
    """The hash of a dataset or a tree survives a file, and ignores the order of variables."""
    for number, data in enumerate((measured(), measured(network("a"), network("b", width=(1, 2))))):
        loaded = storage.load(storage.save(data, tmp_path / f"{number}.nc"))
        assert hash_dataset(data) == hash_dataset(loaded)
    dataset = measured()
    assert hash_dataset(dataset) == hash_dataset(dataset[list(reversed(list(dataset.data_vars)))])


@pytest.mark.parametrize("change", ["a sample", "a label", "a text", "an attribute", "a dim"])
def test_any_change_changes_it(change: str) -> None:
    """Even the smallest change counts."""
    data, digest = measured(), hash_dataset(measured())
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

    assert digest != hash_dataset(data)


def test_texts_do_not_run_into_each_other() -> None:
    """The same letters, divided differently, have another hash."""
    first, second = measured(), measured()
    first["error"].values[0, 0, :2, 0] = ["ab", "c"]
    second["error"].values[0, 0, :2, 0] = ["a", "bc"]

    assert hash_dataset(first) != hash_dataset(second)


@pytest.mark.parametrize("name", sorted(set(figures.__all__) - {"save", "depth", "heatmap", "reversals", "roofline"}))
def test_every_figure_tells_where_it_comes_from(name: str) -> None:
    """Its specification embeds its name, its arguments and the hash of its data."""
    data = measured(network("net"), network("other"), batch_sizes=(1, 4))
    selection = {} if name == "overview" else {"compiler": ["identity", "openvino"]}
    arguments = {**selection, **ARGUMENTS.get(name, {})}
    chart = getattr(figures, name)(data, **arguments)
    provenance = chart.to_dict()["usermeta"][KEY]

    assert (name, hash_dataset(data), "synthetic") == (
        provenance["figure"],
        provenance["dataset"],
        provenance["run_id"],
    )
    assert provenance["arguments"].items() >= arguments.items()
    assert {"sweep", "environments", "measured_with", "commit", "drawn_with"} <= set(provenance)
