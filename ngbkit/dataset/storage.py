"""The file that a dataset is kept in: netCDF, written whole or not at all, and read by a process of its own."""

from __future__ import annotations

import errno
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.dataset.dataset_hash import ALTERED, ATTRIBUTE, hash_dataset
from ngbkit.errors import NgbkitError, NgbkitWarning, UsageError, import_optional, strip_controls
from ngbkit.limits import describe_memory
from ngbkit.user_text import format_size, parse_path

Data = xr.Dataset | xr.DataTree

_CHILD = str(Path(__file__).with_name("netcdf_child.py"))
# The child limits its own time on the processor; this is for one that waits, as for a file of a lost network.
_LIMIT_S = 300.0


def save(data: Data, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Keep a dataset in a netCDF file, which appears whole or not at all.

    Parameters
    ----------
    data
        What `ngbkit.dataset.assembly.assemble` gave, or any dataset made of it.
    path
        The file; its folder is made where there is none.
    overwrite
        Whether a file of that name may be replaced.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    UsageError
        The file exists, or it cannot be written: no room, no permission, or labels of a type that netCDF lacks.
    """
    target = check_target(path, overwrite=overwrite)
    try:
        content = _encoded(data)
    except Exception as error:  # xarray and HDF5 raise anything about labels and attributes that no file has
        if isinstance(error, NgbkitError):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise UsageError(
            f"invalid dataset: netCDF does not hold it ({reason}). Make its labels and attributes texts or numbers."
        ) from error
    write_whole(target, content)
    return target


def load(path: str | os.PathLike[str]) -> Data:
    """The dataset or tree that `save` kept, wholly in memory.

    A file whose content is not that of its hash was changed since: a warning says so, and the attribute ``altered``
    marks the dataset, so that its tables and figures say so too.

    Raises
    ------
    UsageError
        There is no such file, it is not a netCDF file, or limits of this machine keep it from being read.
    """
    source = parse_path(path)
    try:
        exists, is_file = source.exists(), source.is_file()
        if is_file:
            source.open("rb").close()
    except OSError as error:
        raise UsageError(f"{source} cannot be read: {error.strerror}. Check the name and its permissions.") from error
    if exists and not is_file:
        raise UsageError(f"{source} is a folder, a device or a pipe. Name a netCDF file.")
    if not is_file:
        raise UsageError(f"there is no file {source}. Check the name, or save a dataset there first.")
    _require_h5py()
    try:
        datasets = {path: _plain(dataset) for path, dataset in _read(source).items()}
    except OSError as error:
        raise UsageError(f"{source} cannot be read: {error}.") from error
    except MemoryError as error:
        raise UsageError(f"{source} cannot be read: {describe_memory()}. Raise the limit.") from error
    except ValueError as error:
        raise UsageError(f"{source} does not read as a netCDF file: {error}. Save the dataset again.") from error
    data = _join(datasets)
    digest = data.attrs.pop(ATTRIBUTE, None)
    if digest is not None and digest != hash_dataset(data):
        data.attrs[ALTERED] = 1
        warnings.warn(
            f"{source} was altered: its content is not what ngbkit saved. Use the file as it was saved, or measure "
            "again; if the change was meant, say so beside its numbers.",
            NgbkitWarning,
            stacklevel=2,
        )
    # Only now, since the hash is of what is there.
    cleaned = _join({path: _strip_controls(dataset) for path, dataset in datasets.items()})
    cleaned.attrs = {name: _strip(value) for name, value in data.attrs.items()}
    return cleaned


def check_target(path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Return the path of a file to be written; UsageError for a folder, and for a file that is not to be replaced."""
    target = parse_path(path)
    if target.is_dir():
        raise UsageError(f"{target} is a folder. Name a file in it, such as {target / 'out'}.")
    if target.exists() and not target.is_file():  # it would be replaced by a file
        raise UsageError(f"{target} is a device or a pipe. Name a file.")
    if target.exists() and not overwrite:
        raise UsageError(f"{target} exists. Choose another name, or replace it with overwrite=True.")
    return target


def write_whole(target: Path, content: bytes | memoryview) -> None:
    """Write a file that appears whole or not at all, and its folder; UsageError if that is not possible."""
    check_target(target, overwrite=True)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(_unwritten(target, len(content), error)) from error


def _require_h5py() -> None:
    """Newer releases of h5netcdf do not bring h5py, and ask for it only when a file is opened."""
    for name in ("h5netcdf", "h5py"):
        import_optional(name, name, "notebook")


def _encoded(data: Data) -> memoryview:
    """The bytes of the file. HDF5 must not meet a full disk itself: the handle it leaves crashes Python at exit."""
    _require_h5py()
    import h5netcdf

    nodes = {"/": data} if isinstance(data, xr.Dataset) else {node.path: node.to_dataset() for node in data.subtree}
    # Without the encoding of another file, which may round values.
    nodes = {path: dataset.drop_encoding() for path, dataset in nodes.items()}
    nodes["/"] = nodes["/"].assign_attrs({ATTRIBUTE: hash_dataset(data)})
    buffer = io.BytesIO()
    with h5netcdf.File(buffer, "w") as file:
        for path, dataset in nodes.items():
            group = None if path == "/" else path
            dataset.dump_to_store(xr.backends.H5NetCDFStore(file, group=group, mode="a"))
    return buffer.getbuffer()


def _unwritten(target: Path, size: int, error: OSError) -> str:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    why = f"there is no room for its {format_size(size)}" if full else error.strerror or str(error)
    remedy = "Free some space, or save to another disk" if full else "Save to another folder"
    return f"{target} cannot be written: {why}. {remedy}; what is in memory is unharmed."


def _join(datasets: Mapping[str, xr.Dataset]) -> Data:
    return datasets["/"] if len(datasets) == 1 else xr.DataTree.from_dict(datasets)


def _strip_controls(dataset: xr.Dataset) -> xr.Dataset:
    """Return a dataset whose labels and texts have no control characters, which no picture has."""
    return dataset.assign(
        {
            name: variable.copy(data=np.vectorize(_strip, otypes=[object])(variable.values))
            for name, variable in dataset.variables.items()
            if variable.dtype.kind == "O" and any(_strip(value) != value for value in variable.values.flat)
        }
    )


def _strip(value: Any) -> Any:
    return strip_controls(value) if isinstance(value, str) else value


def _plain(dataset: xr.Dataset) -> xr.Dataset:
    """As it was before it was saved: texts as Python strings, and no memory of the file."""
    texts = {name: values.astype(object) for name, values in dataset.variables.items() if values.dtype.kind in "UT"}
    return dataset.assign(texts).drop_encoding()


def _read(source: Path) -> dict[str, xr.Dataset]:
    """Read the groups of a file by path, in a child; ValueError if it is damaged, OSError if nothing reads it."""
    with tempfile.TemporaryDirectory(prefix="ngbkit-netcdf-") as folder:
        content = Path(folder, "content")
        groups = _run_child(source, content)
        with content.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            arrays: list[np.ndarray[Any, Any]] = []
            while file.tell() < size:
                arrays.append(np.lib.format.read_array(file, allow_pickle=False))
    try:
        decoded = {path: _decode_group(group, arrays) for path, group in groups.items()}
        return {node.path: node.to_dataset() for node in xr.DataTree.from_dict(decoded).subtree}
    except MemoryError:
        raise
    except Exception as error:  # xarray raises anything about variables and attributes that contradict each other
        raise ValueError(" ".join(f"{type(error).__name__}: {error}".split())[:300]) from error


def _run_child(source: Path, content: Path) -> dict[str, Any]:
    """Run the child on a file; return its groups as JSON."""
    try:
        child = _start_child(source, content)
        answer = json.loads(child.stdout)
    except subprocess.TimeoutExpired:
        raise OSError(f"it did not read within {_LIMIT_S:g} s. Copy it to a disk of this machine") from None
    except OSError as error:
        raise OSError(f"no process could be started to read it ({error}). End other processes") from error
    except (ValueError, RecursionError):
        if child.returncode != -signal.SIGXCPU and resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
            raise OSError(f"{describe_memory()} ({_explain_end(child)}). Raise the limit") from None
        raise ValueError(_explain_end(child)) from None
    if "limit" in answer:
        reason = answer["limit"].replace("memory", describe_memory())
        raise OSError(f"{reason}. Raise the limit, or free some space of {tempfile.gettempdir()}")
    if "error" in answer:
        raise ValueError(answer["error"])
    groups: dict[str, Any] = answer["groups"]
    return groups


def _start_child(source: Path, content: Path) -> subprocess.CompletedProcess[bytes]:
    # One thread: each thread of BLAS reserves memory. And no plugin of HDF5, which is code that a file may ask for.
    settings = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "HDF5_PLUGIN_PRELOAD": "::"}
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.run(
        [sys.executable, _CHILD, str(source.absolute()), str(content)],
        env={**os.environ, **settings, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_LIMIT_S,
        check=False,
    )


def _explain_end(child: subprocess.CompletedProcess[bytes]) -> str:
    if child.returncode == -signal.SIGXCPU:
        return "HDF5 finds no end of it"
    if child.returncode < 0:
        return f"HDF5 crashes on it (signal {-child.returncode})"
    lines = child.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"its reader ended with {child.returncode}"


def _decode_group(group: Mapping[str, Any], arrays: Sequence[np.ndarray[Any, Any]]) -> xr.Dataset:
    variables = {
        name: xr.Variable(
            tuple(variable["dims"]),
            _build_value(variable["values"], arrays),
            _build_values(variable["attributes"], arrays),
        )
        for name, variable in group["variables"].items()
    }
    attributes = _build_values(group["attributes"], arrays)
    store = xr.backends.InMemoryDataStore(variables, attributes)  # type: ignore[no-untyped-call]
    return xr.decode_cf(store).load()


def _build_values(values: Mapping[str, Any], arrays: Sequence[np.ndarray[Any, Any]]) -> dict[str, Any]:
    return {name: _build_value(value, arrays) for name, value in values.items()}


def _build_value(value: Mapping[str, Any], arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
    """Build a value from what stands for it in the child's answer."""
    if "text" in value:
        return value["text"]
    if "texts" in value:
        return np.array(value["texts"], dtype=object).reshape(value["shape"])
    array = arrays[value["array"]]
    return array if array.ndim else array[()]
