"""Fuzzes netCDF files: a damaged or foreign one is read and shown, or is refused with an error of ngbkit.

    python tests/fuzz/run.py netcdf --cases 10000

The reader runs in a fork of this process, not in a new one: its limits and its answers are the same, in a tenth of the
time.
"""

from __future__ import annotations

import functools
import io
import os
import subprocess
import tempfile
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import damage
import h5py
import numpy as np
import synthetic
from cases import run_on_files
from hypothesis import strategies as st

from ngbkit.api import Sweep
from ngbkit.dataset import netcdf_child, schema, storage
from ngbkit.errors import NgbkitError, NgbkitWarning
from ngbkit.metrics import tables
from ngbkit.metrics.rendering import to_texts
from ngbkit.workloads.base import Workload

_CPU_S = 2
_PIECES = ("status", "latency", "batch_size", "DIMENSION_LIST", "FRHP", "TREE", "HEAP", "SNOD", "OHDR", "GCOL", "BTHD")


@functools.cache
def build_files() -> dict[str, bytes]:
    """A dataset of a run, a tree, and a compressed file in chunks."""
    workload = Workload(name="a", source="timm", spec={})
    varied = Workload(name="b", source="timm", spec={}, takes=("depth",), factors={"depth": (1, 2)})
    data = synthetic.make_dataset(Sweep([workload], ["identity", "openvino"], [1, 2], repeats=3))
    tree = synthetic.make_dataset(Sweep([workload, varied], ["identity"], [1], repeats=2))
    with tempfile.TemporaryDirectory(prefix="ngbkit-fuzz-") as name:
        folder = Path(name)
        storage.save(data, folder / "run")
        storage.save(tree, folder / "tree")
        data.to_netcdf(folder / "zip", engine="h5netcdf", encoding={"latency": {"zlib": True}})
        return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def check_netcdf(data: st.DataObject, folder: Path) -> str:
    """Damage a file, read and show it, and return what became of it."""
    files = build_files()
    content = files[data.draw(st.sampled_from(sorted(files)))]
    path = folder / "run.nc"
    way = data.draw(st.sampled_from(["bytes", "bytes", "structure", "content"]))
    if way == "bytes":
        content = damage.apply(content, data.draw(damage.DAMAGES))
        piece = data.draw(st.sampled_from(_PIECES)).encode()
        place = content.find(piece, int(data.draw(st.floats(0, 1, exclude_max=True)) * len(content)))
        if place >= 0 and data.draw(st.booleans()):  # beside a mark of HDF5 every byte counts
            place += len(piece) + data.draw(st.integers(0, 40))
            content = content[:place] + data.draw(st.binary(min_size=1, max_size=4)) + content[place + 4 :]
        path.write_bytes(content)
    else:
        path.write_bytes(content)
        with h5py.File(path, "r+") as file:
            (_restructure if way == "structure" else _replace)(data, file)
    with mock.patch.object(storage, "_start_child", _fork), mock.patch.object(netcdf_child, "_CPU_S", _CPU_S):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NgbkitWarning)  # it was altered
                loaded = storage.load(path)
        except NgbkitError as error:
            return f"refused: {_summarise(str(error))}"
    try:
        schema.require_run(loaded, str(path))
    except NgbkitError:
        return "refused: another dataset"
    try:
        to_texts(tables.compact(loaded, "throughput")).to_text()
    except NgbkitError:
        return "shown with an error"
    return "shown"


def run(cases: int, seed: int) -> None:
    """Check that many files; see `cases.run_on_files`."""
    run_on_files("netcdf", check_netcdf, cases, seed)


def _summarise(message: str) -> str:
    reasons = ("no end", "crashes", "more memory", "GiB", "link", "nested", "another file", "JSON")
    return next((reason for reason in reasons if reason in message), "damaged")


def _fork(source: Path, content: Path) -> subprocess.CompletedProcess[bytes]:
    """Run the reader in a fork of this process, as `subprocess.run` would in a new one."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 3.12 warns of threads, of which the reader uses none
            pid = os.fork()
        if not pid:
            code = 70
            try:
                os.dup2(errors.fileno(), 2)
                text = io.StringIO()
                with redirect_stdout(text):
                    netcdf_child.main(str(source), str(content))
                os.write(output.fileno(), text.getvalue().encode())
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        streams = []
        for stream in (output, errors):
            stream.seek(0)
            streams.append(stream.read())
    return subprocess.CompletedProcess([], os.waitstatus_to_exitcode(status), *streams)


def _restructure(data: st.DataObject, file: h5py.File) -> None:
    """Add what no file of ngbkit has: links, values elsewhere, strange types, absurd sizes."""
    kind = data.draw(st.sampled_from(["loop", "soft", "external", "nested", "big", "elsewhere", "type", "attribute"]))
    if kind == "loop":
        file.require_group("g")["h"] = file["/"]
    elif kind == "soft":
        file["s"] = h5py.SoftLink(data.draw(st.sampled_from(["/", "/s", "/latency", "/nothing"])))
    elif kind == "external":
        file["e"] = h5py.ExternalLink(data.draw(st.sampled_from(["/dev/zero", "run.nc", "/etc/passwd"])), "/")
    elif kind == "nested":
        file.require_group("/".join(["g"] * data.draw(st.integers(1, 400))))
    elif kind == "big":
        file.create_dataset("big", (data.draw(st.integers(1000, 2**40)),), "f8", chunks=(1000,))
    elif kind == "elsewhere":
        file.create_dataset("x", (10,), "u1", external=[("/etc/hostname", 0, 10)])
    elif kind == "type":
        file.create_dataset("x", data=data.draw(st.sampled_from(_ODDITIES)))
    else:
        file.attrs["x"] = data.draw(st.sampled_from(_ODDITIES))


_ODDITIES: tuple[Any, ...] = (
    np.zeros(3, dtype=[("a", "f8"), ("b", "S3")]),
    np.array([b"\xff\xfe"], dtype="S2"),
    np.zeros((0, 5)),
    np.array(3 + 1j),
    h5py.Empty("f8"),
    np.void(b"abc"),
    np.array([True]),
)


def _replace(data: st.DataObject, file: h5py.File) -> None:
    """Change the values, the type or an attribute of a variable, or remove or rename it."""
    names: list[str] = []
    file.visit(names.append)
    name = data.draw(st.sampled_from(sorted(names)))
    item = file[name]
    kind = data.draw(st.sampled_from(["value", "type", "attribute", "remove", "rename"]))
    if kind == "remove":
        del file[name]
    elif kind == "rename":
        file.move(name, data.draw(st.sampled_from(["other", "status", "latency", "g/x"])) + "_")
    elif kind == "attribute" or not isinstance(item, h5py.Dataset):
        key = data.draw(st.sampled_from(["units", "_FillValue", "scale_factor", "dtype", "calendar", "sweep", "facts"]))
        values = [3, "s", "days since 1900", "bool", np.zeros(3), b"\xff", "[" * 1000, float("nan")]
        item.attrs[key] = data.draw(st.sampled_from(values))
    elif kind == "value" and item.size:
        text = h5py.check_string_dtype(item.dtype) is not None
        values = ["", "ok", "{", "\ud7ff", "x" * 1000] if text else [0, -1, 127]
        place = tuple(data.draw(st.integers(0, size - 1)) for size in item.shape)
        item[place] = data.draw(st.sampled_from(values))
    else:
        shape = item.shape
        del file[name]
        file.create_dataset(name, data=np.zeros(shape, data.draw(st.sampled_from(["f4", "i8", "S3", "c16"]))))
