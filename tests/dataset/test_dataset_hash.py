"""The hash of a dataset: changes that affect it, changes that do not, and its use in figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from drawn import OF_COSTS, draw_figure, measured, network

from ngbkit import figures
from ngbkit.dataset import storage
from ngbkit.dataset.dataset_hash import hash_dataset
from ngbkit.errors import NgbkitWarning, UsageError
from ngbkit.figures.provenance import KEY


@pytest.mark.guard
def test_a_file_keeps_it(tmp_path: Path) -> None:
    """The hash of a dataset or a tree survives a file, and ignores the order of variables."""
    for number, data in enumerate((measured(), measured(network("a"), network("b", width=(1, 2))))):
        loaded = storage.load(storage.save(data, tmp_path / f"{number}.nc"))
        assert hash_dataset(data) == hash_dataset(loaded)
    dataset = measured()
    assert hash_dataset(dataset) == hash_dataset(dataset[list(reversed(list(dataset.data_vars)))])


@pytest.mark.parametrize("change", ["a sample", "a label", "a text", "an attribute", "a unit", "a dim"])
def test_any_change_changes_it(change: str) -> None:
    """The hash changes with the smallest change of a dataset."""
    data, digest = measured(), hash_dataset(measured())
    if change == "a sample":
        data["latency"].values[0, 0, 0, 0, 0] = np.nextafter(data["latency"].values[0, 0, 0, 0, 0], 1)
    elif change == "a label":
        data = data.assign_coords(workload=["other"])
    elif change == "a text":
        data["error"].values[0, 0, 0, 0] = "!"
    elif change == "an attribute":
        data.attrs["run_id"] = "another"
    elif change == "a unit":
        data["latency"].attrs["units"] = "ms"
    else:
        data = data.transpose("workload", ...)

    assert digest != hash_dataset(data)


def test_texts_do_not_run_into_each_other() -> None:
    """The same letters, divided differently, have another hash."""
    first, second = measured(), measured()
    first["error"].values[0, 0, :2, 0] = ["ab", "c"]
    second["error"].values[0, 0, :2, 0] = ["a", "bc"]

    assert hash_dataset(first) != hash_dataset(second)


def test_every_flipped_bit_of_a_latency_is_noticed(tmp_path: Path) -> None:
    """A file with one flipped bit opens and is reported as altered."""
    file = storage.save(measured(), tmp_path / "run.nc")
    content, generator = file.read_bytes(), np.random.default_rng(0)
    samples = storage.load(file)["latency"].values.ravel()
    start = content.index(samples.tobytes())

    for place, bit in zip(generator.integers(8 * samples.nbytes, size=40), range(40), strict=True):
        changed = bytearray(content)
        changed[start + place // 8] ^= 1 << bit % 8
        file.write_bytes(changed)
        with pytest.warns(NgbkitWarning, match=r"run\.nc was altered: its content is not what ngbkit saved"):
            assert 1 == storage.load(file).attrs["altered"]


@pytest.mark.parametrize("change", ["a selection", "a label", "an attribute", "a node's attribute"])
def test_a_file_that_was_changed_on_purpose_says_so(change: str, tmp_path: Path) -> None:
    """The text of an altered file opens with that word, as do its tables, figures and copies."""
    file = storage.save(
        measured(network("a"), network("b", width=(1, 2))) if "node" in change else measured(), tmp_path / "a.nc"
    )
    with xr.open_datatree(file, engine="h5netcdf") as opened:
        tree = opened.load()
    dataset = tree.to_dataset()
    if change == "a selection":
        dataset.isel(batch_size=[0]).to_netcdf(file, engine="h5netcdf")
    elif change == "a label":
        dataset.assign_coords(device=["orin"]).to_netcdf(file, engine="h5netcdf")
    elif change == "an attribute":
        dataset.assign_attrs(run_id="another").to_netcdf(file, engine="h5netcdf")
    else:
        tree["b"].attrs["run_id"] = "another"
        tree.to_netcdf(file, engine="h5netcdf")

    with pytest.warns(NgbkitWarning, match="was altered"):
        data = storage.load(file)
    note = "altered: the file is not what ngbkit saved"
    assert note in "\n".join(data.ngb.table("throughput").frame.attrs["notes"])
    assert note in str(data.ngb.plot.throughput().to_dict())
    unchanged = data.copy()
    del unchanged.attrs["altered"]
    assert "the file of the second run was altered" in unchanged.ngb.compare(data).unlike
    assert 1 == storage.load(storage.save(data, tmp_path / "copy.nc")).attrs["altered"]


@pytest.mark.guard
def test_a_change_that_ngbkit_saves_is_no_alteration(tmp_path: Path) -> None:
    """A selection of a loaded or an opened file has a hash of its own; a file without a hash opens in silence."""
    measurement = measured(network("a"), network("b"))
    file = storage.save(measurement, tmp_path / "a.nc")
    with xr.open_dataset(file, engine="h5netcdf") as opened:
        parts = [storage.load(file).sel(workload=["b"]), opened.load().sel(workload="b")]
    storage.load(file).to_netcdf(tmp_path / "plain.nc", engine="h5netcdf")

    for part in (*parts, parts[0].where(parts[0]["batch_size"] > 1), parts[0].assign_attrs(notes=["one"])):
        assert "altered" not in storage.load(storage.save(part, file, overwrite=True)).attrs
    xr.testing.assert_identical(measurement, storage.load(tmp_path / "plain.nc"))


#: The figures that draw no synthetic network.
SPECIAL = {"depth", "heatmap", "reversals", "roofline", "tcr", *OF_COSTS}


def test_labels_that_no_file_has_are_named(tmp_path: Path) -> None:
    """The error is a sentence, and no file is written."""
    stacked = measured().stack(trial=["workload", "batch_size"])

    with pytest.raises(UsageError, match=r"invalid dataset: netCDF does not hold it .*MultiIndex.* texts or numbers"):
        storage.save(stacked, tmp_path / "run.nc")
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("name", sorted({*figures.list_figures()} - SPECIAL))
def test_every_figure_tells_where_it_comes_from(name: str) -> None:
    """The specification of a figure embeds its name, its arguments and the hash of its data."""
    data = measured(network("net"), network("other"), batch_sizes=(1, 4))
    arguments = {} if name == "overview" else {"compiler": ["identity", "openvino"]}
    chart = draw_figure(name, data, **arguments)
    provenance = chart.to_dict()["usermeta"][KEY]

    assert (name, hash_dataset(data), "synthetic") == (
        provenance["figure"],
        provenance["dataset"],
        provenance["run_id"],
    )
    assert provenance["arguments"].items() >= arguments.items()
    assert {"sweep", "environments", "measured_with", "commit", "drawn_with"} <= set(provenance)
