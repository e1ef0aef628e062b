"""The file of a dataset: unchanged when read, whole or not there, and clear about what is wrong."""

import os
import re
import subprocess
import sys
from pathlib import Path

import h5py
import pytest
import synthetic
import xarray as xr

from ngbkit.api import Sweep
from ngbkit.dataset import assembly as datasets
from ngbkit.dataset import storage
from ngbkit.errors import MissingDependencyError, UsageError
from ngbkit.workloads.base import Workload

LABELS = ("identity", 'openvino{"hint":"throughput"}')


def network(name: str, **factors: tuple[int, ...]) -> Workload:
    return Workload(name=name, source="timm", spec={"name": name}, takes=tuple(factors), factors=factors)


def made(*workloads: Workload) -> datasets.Data:
    """With failures, facts that are missing for one network, and names beyond ASCII."""
    sweep = Sweep(list(workloads), LABELS, [1, 2], repeats=5)
    facts = {datasets.facts_key("réseau", {}): {"parameters": 11, "baseline": "torch eager"}}
    records = synthetic.make_records(sweep, seed=2, failures=0.4)
    return datasets.assemble(sweep, records, environments={"cpu": {"cores": 2}}, run_id="r1", facts=facts)


@pytest.fixture(params=["dataset", "tree", "pending"])
def data(request) -> datasets.Data:
    if request.param == "pending":
        return datasets.assemble(Sweep([network("a")], LABELS, [1]), [])
    more = [network("c", depth=(1, 2))] if request.param == "tree" else []
    return made(network("réseau"), network("b"), *more)


def kinds(data: datasets.Data) -> list[dict[str, str]]:
    return [{str(name): v.dtype.kind for name, v in node.variables.items()} for node in datasets.nodes(data).values()]


def test_a_saved_dataset_is_loaded_unchanged(data, tmp_path):
    """Values, labels, attributes and kinds of dtype are the same after save and load; empty texts stay empty."""
    loaded = datasets.load(datasets.save(data, tmp_path / "deep" / "run.nc"))

    xr.testing.assert_identical(data, loaded)
    assert kinds(data) == kinds(loaded)


def test_to_netcdf_keeps_it(data, tmp_path):
    """xarray's own to_netcdf and open give the identical dataset."""
    data.to_netcdf(tmp_path / "run.nc", engine="h5netcdf")

    opened = xr.open_datatree if isinstance(data, xr.DataTree) else xr.open_dataset
    with opened(tmp_path / "run.nc", engine="h5netcdf") as loaded:
        xr.testing.assert_identical(data, loaded.load())


def test_to_zarr_keeps_it(data, tmp_path):
    """xarray's own to_zarr and open give the identical dataset."""
    data.to_zarr(tmp_path / "run.zarr", consolidated=False)

    opened = xr.open_datatree if isinstance(data, xr.DataTree) else xr.open_dataset
    with opened(tmp_path / "run.zarr", engine="zarr", consolidated=False) as loaded:
        xr.testing.assert_identical(data, loaded.load())


def test_a_loaded_dataset_can_be_saved_again(data, tmp_path):
    """Nothing that a file leaves on a dataset keeps it from being saved once more."""
    once = datasets.load(datasets.save(data, tmp_path / "1.nc"))

    twice = datasets.load(datasets.save(once, tmp_path / "2.nc"))

    xr.testing.assert_identical(data, twice)


def test_a_file_is_replaced_only_when_asked(tmp_path):
    """An existing file is left alone, unless overwrite is asked for."""
    path = tmp_path / "run.nc"
    path.write_text("mine")

    with pytest.raises(UsageError, match=r"run\.nc exists.*overwrite=True"):
        datasets.save(made(network("a")), path)

    assert "mine" == path.read_text()
    assert path == datasets.save(made(network("a")), path, overwrite=True)
    assert [path] == list(tmp_path.iterdir())


FULL_DISK = """
import resource, sys
sys.path.append(sys.argv[2])
import synthetic
from ngbkit import dataset
from ngbkit.errors import UsageError
from ngbkit.api import Sweep
from ngbkit.workloads.base import Workload

asked = Sweep([Workload(name="a", source="timm", spec={})], ["identity"], [1, 2], repeats=5000)
data = synthetic.make_dataset(asked)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
try:
    dataset.save(data, sys.argv[1], overwrite=True)
except UsageError as error:
    sys.stdout.write(str(error))
"""


def test_a_full_disk_is_a_clear_error(tmp_path):
    """Saving to a full disk is an error, and the older file stays."""
    path = tmp_path / "run.nc"
    path.write_text("older")

    done = subprocess.run(  # in a process of its own: a limit on files cannot be taken back by everyone
        [sys.executable, "-c", FULL_DISK, str(path), str(Path(synthetic.__file__).parent)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert "run.nc cannot be written: there is no room for its" in done.stdout
    assert "older" == path.read_text()
    assert [path] == list(tmp_path.iterdir())


LIMITED = """
import resource, sys
import h5netcdf, h5py, ngbkit, xarray
from ngbkit.errors import UsageError

kind, least = getattr(resource, sys.argv[2]), int(sys.argv[3])
resource.setrlimit(kind, (least, least))
try:
    sys.stdout.write(str(ngbkit.load(sys.argv[1]).attrs["run_id"]))
except UsageError as error:
    sys.stdout.write(str(error))
"""


@pytest.mark.parametrize(
    ("kind", "least", "answer"),
    [
        ("RLIMIT_AS", 6 << 30, "r1"),
        ("RLIMIT_CPU", 300, "r1"),
        ("RLIMIT_AS", 1 << 27, r"run.nc cannot be read: each process has 134 MB of memory \(ulimit -v\)"),
    ],
)
def test_a_limit_of_the_user_is_not_the_fault_of_the_file(kind, least, answer, tmp_path):
    """A file is read within limits that suffice, and others are named."""
    path = datasets.save(made(network("a")), tmp_path / "run.nc")
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path), kind, str(least)], capture_output=True, text=True, check=False
    )

    assert re.search(answer, done.stdout), done.stderr


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Path.touch, "does not read as a netCDF file"),
        (Path.mkdir, "is a folder, a device or a pipe"),
        (make_pipe, "is a folder, a device or a pipe"),
        (lambda path: path.symlink_to("/dev/zero"), "is a folder, a device or a pipe"),
        (lambda path: path.symlink_to(path), "there is no file"),
        (lambda path: path.write_bytes(b"") or os.truncate(path, 5 << 30), "does not read as a netCDF file"),
    ],
    ids=["empty", "folder", "pipe", "device", "loop", "sparse"],
)
@pytest.mark.parametrize("name", ["run.nc", "-with a space é.nc"])
def test_what_is_no_file_of_a_dataset_says_what_it_is(make, message, name, tmp_path):
    """The error of a path without a dataset has the kind of the path, and no pipe is read."""
    make(tmp_path / name)

    with pytest.raises(UsageError, match=message):
        datasets.load(tmp_path / name)


def test_no_pipe_is_replaced_by_a_file(tmp_path):
    """Neither is a device: root had replaced /dev/zero."""
    make_pipe(tmp_path / "pipe")

    with pytest.raises(UsageError, match="is a device or a pipe"):
        datasets.save(made(network("a")), tmp_path / "pipe", overwrite=True)
    assert (tmp_path / "pipe").is_fifo()


def test_what_is_not_a_dataset_is_refused(tmp_path):
    """A file that is no netCDF, a truncated one and a missing one each say so."""
    text, cut = tmp_path / "text.nc", tmp_path / "cut.nc"
    text.write_text("no netCDF")
    cut.write_bytes(datasets.save(made(network("a")), tmp_path / "whole.nc").read_bytes()[:5000])

    for path in (text, cut):
        with pytest.raises(UsageError, match="does not read as a netCDF file"):
            datasets.load(path)
    with pytest.raises(UsageError, match="there is no file"):
        datasets.load(tmp_path / "missing.nc")


def link_to_itself(file: h5py.File) -> None:
    file["a/loop"] = file["/"]


def link_softly(file: h5py.File) -> None:
    file["b"] = h5py.SoftLink("/a")


def link_to_a_file(file: h5py.File) -> None:
    file["b"] = h5py.ExternalLink("/etc/passwd", "/")


def nest(file: h5py.File) -> None:
    file.create_group("/".join(["g"] * 200))


def ask_for_much(file: h5py.File) -> None:
    file.create_dataset("x", (5_000_000_000,), "f8", chunks=(1000,))


def store_elsewhere(file: h5py.File) -> None:
    file.create_dataset("x", (10,), "u1", external=[("/etc/hostname", 0, 10)])


def view_another_file(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((5,), "f8")
    layout[:] = h5py.VirtualSource("other.h5", "x", (5,))
    file.create_virtual_dataset("x", layout)


def refer(file: h5py.File) -> None:
    file.attrs.create("x", file["a"].ref, dtype=h5py.ref_dtype)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (link_to_itself, "is a link to another part of the file"),
        (link_softly, "b is a link to another file or another part"),
        (link_to_a_file, "b is a link to another file"),
        (nest, "its groups are nested more than 16 deep"),
        (ask_for_much, r"it asks for 37\.3 GiB; the most is 8 GiB"),
        (store_elsewhere, "the values of /x are in another file"),
        (view_another_file, "the values of /x are in another file"),
        (refer, "h5r.Reference"),
    ],
)
def test_a_file_reads_nothing_but_itself(tmp_path, spoil, reason):
    """A link, values in another file, endless groups and absurd sizes are refused before anything is read."""
    path = tmp_path / "run.nc"
    with h5py.File(path, "w") as file:
        file.create_group("a")
        spoil(file)

    with pytest.raises(UsageError, match=f"does not read as a netCDF file: .*{reason}"):
        datasets.load(path)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("while True: pass", "HDF5 finds no end of it"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", r"HDF5 crashes on it \(signal 11\)"),
        ("bytearray(4 << 30)", "it asks for more memory than its content needs"),
        ("raise SystemExit(3)", "its reader ended with 3"),
    ],
)
def test_a_reader_that_hangs_or_crashes_is_an_error(tmp_path, monkeypatch, program, reason):
    """A reader that hangs or crashes is an error, and only its child process ends."""
    path = datasets.save(made(network("a")), tmp_path / "run.nc")
    child = tmp_path / "netcdf_child.py"
    text = Path(storage._CHILD).read_text().replace("_CPU_BYTES_PER_S = 10,", "_CPU_BYTES_PER_S = 1,")
    child.write_text(text.replace("        size = _measure(source)\n", f"        {program}\n        size = 0\n"))
    monkeypatch.setattr(storage, "_CHILD", str(child))

    with pytest.raises(UsageError, match=f"does not read as a netCDF file: {reason}"):
        datasets.load(path)


def test_without_h5py_the_error_names_the_extra(tmp_path, monkeypatch):
    """The error of a missing h5py has the extra that installs it."""
    monkeypatch.setitem(sys.modules, "h5py", None)

    with pytest.raises(MissingDependencyError, match=r"h5py is not installed.*ngbkit\[notebook\]"):
        datasets.save(made(network("a")), tmp_path / "run.nc")
