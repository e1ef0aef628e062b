"""Values of inputs that a user gives: files of NumPy, folders of an ONNX test, and arrays, as one artifact.

The artifact is an ``.npz`` file of arrays by input name, or by their place, ``"0"``, where they have none.
"""

from __future__ import annotations

import io
import math
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import psutil

from ngbkit import options
from ngbkit.errors import UnknownNameError, UsageError, WorkloadError
from ngbkit.files import Store
from ngbkit.user_text import format_size, parse_path
from ngbkit.workloads import dimensions, feeds
from ngbkit.workloads.base import BATCH, Number, TensorSpec, Workload

Arrays = Mapping[str, np.ndarray]

# The files of a data set of an ONNX test, in the order of the graph's inputs.
_TENSOR = re.compile(r"input_(\d+)\.pb")
# After the name of a dtype that files of NumPy lack. Without it, numpy.savez would interpret an input named `file` as
# its own argument.
_MARK = "="
# How files of NumPy begin: one array, and an archive of several.
_ARRAY, _ARCHIVE = b"\x93NUMPY", b"PK"
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
# An archive unpacks to so many bytes, or to so many times its own size: numbers that were measured compress less.
_MOST_UNPACKED, _MOST_RATIO = 10**9, 20
_KINDS = "an .npz file of arrays by input name, an .npy file for the only input, or a folder of input_0.pb, …"


def load(source: Any) -> dict[str, np.ndarray]:
    """Load values from a file, a folder, an array, several, or a mapping by input name; UsageError for others."""
    if isinstance(source, (str, Path)):
        return _load_path(parse_path(source))
    if isinstance(source, Mapping):
        return {str(name): _to_array(str(name), value) for name, value in source.items()}
    if isinstance(source, (tuple, list)):
        return {str(place): _to_array(str(place), value) for place, value in enumerate(source)}
    return {"0": _to_array("0", source)}


def read(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of an artifact."""
    with np.load(path, allow_pickle=False) as arrays:
        return dict(_from_plain(key, arrays[key]) for key in arrays.files)


def to_text(text: str) -> np.ndarray:
    """Return an array of one text."""
    return np.array(text, dtype=object)


def store(arrays: Arrays) -> Path:
    """Store arrays as an artifact of this machine, and return its path."""
    artifacts = Store(options.get_state_dir() / options.LAYOUT.artifacts)
    with tempfile.TemporaryDirectory(dir=options.make_state_dir()) as folder:
        path = Path(folder, "values.npz")
        write(path, arrays)
        return artifacts.locate(artifacts.move(path))


def write(path: Path, arrays: Arrays) -> None:
    """Write arrays as an artifact: the same bytes for the same arrays."""
    # numpy.savez leaves sizes to be known later, which versions of Python write in different ways.
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            key, plain = _to_plain(name, array)
            content = io.BytesIO()
            np.lib.format.write_array(content, np.asanyarray(plain), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{key}.npy"), content.getbuffer())


def attach(workload: Workload, path: Path) -> Workload:
    """Return the workload with an artifact's values, whose dimensions it takes; WorkloadError if they do not fit."""
    described = {spec.name: spec for spec in workload.inputs}
    factors: dict[str, tuple[Number, ...]] = {}
    if described and workload.source == "onnx":
        matched = match(list(described), read(path), workload.name)
        for name, array in matched.items():
            check_value(described[name], array, workload.name)
        sizes = _find_factors([(described[name], array.shape) for name, array in matched.items()])
        factors = {name: (size,) for name, size in sizes.items() if name in workload.takes}
    return replace(
        workload,
        values=path.name,
        artifacts={**workload.artifacts, path.name: path},
        factors={**workload.factors, **factors},
    )


def check_given(workload: Workload) -> None:
    """Check that inputs whose values cannot be drawn have values; `UsageError` names the first that has none."""
    missing = [spec for spec in workload.inputs if spec.role]
    if missing and workload.values:
        path = workload.artifacts[workload.values]
        if not path.exists():  # the description of another machine's run, which checked them
            return
        arrays = read_given(workload, workload.inputs)
        missing = [spec for spec in missing if spec.name not in arrays]
    if missing:
        raise UsageError(f"{workload.name}: {feeds.describe_missing(missing[0])}")


def read_given(workload: Workload, inputs: Sequence[TensorSpec]) -> dict[str, np.ndarray]:
    """Read the values that a user gives to inputs of a network, by input name; none where all are drawn."""
    if not workload.values:
        return {}
    return match([spec.name for spec in inputs], read(workload.artifacts[workload.values]), workload.name)


def match(names: list[str], arrays: Mapping[str, np.ndarray], network: str) -> dict[str, np.ndarray]:
    """Match arrays with inputs by name, or else by order; UnknownNameError if no input has any of the names."""
    if all(name.isdigit() for name in arrays):
        if len(arrays) > len(names):
            raise WorkloadError(
                f"invalid values for {network}: got {len(arrays)} arrays; expected at most {len(names)}, for "
                f"{', '.join(names)}."
            )
        return {names[int(place)]: array for place, array in arrays.items()}
    matched = {name: array for name, array in arrays.items() if name in names}
    if not matched and len(arrays) == len(names) == 1:
        return {names[0]: next(iter(arrays.values()))}
    if not matched:
        raise UnknownNameError(f"input of {network}", next(iter(arrays)), names)
    return matched


def check_value(spec: TensorSpec, array: np.ndarray, network: str) -> np.ndarray:
    """Return a given array in the dtype of its input; `WorkloadError` if values or dimensions do not fit."""
    if not spec.accepts(array.shape):
        raise WorkloadError(
            f"invalid values of input {spec.name} of {network}: got shape {array.shape}; expected "
            f"{spec.format_shape()}."
        )
    dtype = feeds.find_dtype(spec.dtype)
    if array.dtype == dtype or (array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize):
        return array
    is_number = array.dtype.kind in "iubf"
    if not is_number or dtype.kind == "O" or (array.dtype.kind == "f" and not feeds.is_floating(dtype)):
        raise WorkloadError(
            f"invalid values of input {spec.name} of {network}: got {array.dtype}; expected {spec.dtype}."
        )
    return array.astype(dtype)


def _find_factors(inputs: Iterable[tuple[TensorSpec, tuple[int, ...]]]) -> dict[str, int]:
    """Find the factors that the shapes of values decide."""
    return {
        dimension: size
        for spec, shape in inputs
        for dimension, size in zip(spec.shape, shape, strict=True)
        if isinstance(dimension, str) and dimension != BATCH and dimensions.list_names(dimension) == (dimension,)
    }


def check_size(source: Path, size: int, room: float = math.inf) -> None:
    """Check that arrays of so many bytes fit in a room, and twice in the free memory, as storing them takes."""
    room = min(room, psutil.virtual_memory().available // 2)
    if size > room:
        raise UsageError(
            f"invalid values of inputs: got {source}, whose arrays take {format_size(size)}; expected at most "
            f"{format_size(int(room))} here. Give fewer samples, or save them without compression."
        )


def _load_path(path: Path) -> dict[str, np.ndarray]:
    if path.is_dir():
        return _load_tensors(path)
    _check_plain(path)
    try:
        with path.open("rb") as stream:
            head = stream.read(len(_ARRAY))
            if not head.startswith((_ARRAY, _ARCHIVE)):
                raise UsageError(f"invalid values of inputs: got {path}, another kind of file; expected {_KINDS}.")
            stream.seek(0)
            if head.startswith(_ARRAY):
                size = path.stat().st_size
                check_size(path, size)
                return {"0": _to_array("0", _read_array(stream, size))}
            return {name: _to_array(name, array) for name, array in _read_archive(path, stream)}
    except UsageError:
        raise
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise UsageError(f"invalid values of inputs: {path} cannot be read ({error}); expected {_KINDS}.") from None


def _check_plain(path: Path) -> None:
    """Check that a file is a plain one: a pipe would block, and a device may have no end."""
    if not path.is_file():
        got = "no plain file" if path.exists() else "no such file"
        raise UsageError(f"invalid values of inputs: got {path}, {got}; expected {_KINDS}.")


def _read_archive(path: Path, stream: IO[bytes]) -> Iterator[tuple[str, np.ndarray]]:
    with zipfile.ZipFile(stream) as archive:
        members = archive.infolist()
        room = max(_MOST_UNPACKED, _MOST_RATIO * path.stat().st_size)
        check_size(path, sum(member.file_size for member in members), room)
        for member in members:
            with archive.open(member) as content:
                yield _from_plain(member.filename.removesuffix(".npy"), _read_array(content, member.file_size))


def _read_array(stream: IO[bytes], size: int) -> np.ndarray:
    """Read an array from a stream of so many bytes; ValueError if its header claims more."""
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"a header of version {version[0]}.{version[1]}, of records")
    try:
        shape, _, dtype = _HEADERS[version](stream)
    except Exception as error:  # NumPy parses it as Python, and raises anything
        raise ValueError(f"a damaged header ({' '.join(str(error).split())[:100]})") from error
    if math.prod(map(abs, shape)) * max(dtype.itemsize, 1) > size:
        raise ValueError(f"its header claims {dtype} of shape {shape}, more than the {format_size(size)} that it has")
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)


def _load_tensors(folder: Path) -> dict[str, np.ndarray]:
    """Load the data set of an ONNX test: a serialised tensor per input, by its name, or by its place if it has none."""
    files = {int(match[1]): file for file in folder.iterdir() if (match := _TENSOR.fullmatch(file.name))}
    if not files:
        raise UsageError(f"invalid values of inputs: got the folder {folder} without input_0.pb; expected {_KINDS}.")
    for file in files.values():
        _check_plain(file)
    check_size(folder, sum(file.stat().st_size for file in files.values()))
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # ships no types

    arrays: dict[str, np.ndarray] = {}
    for place, file in sorted(files.items()):
        tensor = onnx.TensorProto()
        try:
            tensor.ParseFromString(file.read_bytes())
            if tensor.data_location:
                raise ValueError("its values are in another file")
            array = onnx.numpy_helper.to_array(tensor)
        except (DecodeError, OSError, ValueError, TypeError, KeyError) as error:
            raise UsageError(
                f"invalid values of inputs: {file} is no tensor ({error}); sequences and optionals cannot be fed."
            ) from None
        arrays[tensor.name or str(place)] = array
    return arrays


def _to_array(name: str, value: Any) -> np.ndarray:
    if hasattr(value, "detach"):  # a tensor of torch
        value = feeds.from_tensor(value)
    array = np.asarray(value)
    if array.dtype.kind in "US":
        array = array.astype(object)
    is_text = array.dtype.kind == "O" and all(isinstance(element, (str, bytes)) for element in array.flat)
    if array.dtype.kind not in "iubfV" and not is_text:
        raise UsageError(f"invalid values of input {name}: got {array.dtype}; expected numbers, booleans or text.")
    return array


def _to_plain(name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
    """Return the key and the array that a file of NumPy holds: text as characters of fixed width, others as bits."""
    if array.dtype.name in feeds.NARROW_DTYPES:
        return f"{array.dtype.name}{_MARK}{name}", array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)
    if array.dtype.kind != "O":
        return _MARK + name, array
    texts = [element.decode() if isinstance(element, bytes) else element for element in array.flat]
    return _MARK + name, np.array(texts, dtype=str).reshape(array.shape)


def _from_plain(key: str, array: np.ndarray) -> tuple[str, np.ndarray]:
    """Return the name and the array of `_to_plain`; a user's own file has names without a mark."""
    dtype, mark, name = key.partition(_MARK)
    if not mark or dtype not in ("", *feeds.NARROW_DTYPES):
        return key, array
    array = array.view(feeds.find_dtype(dtype)) if dtype else array
    return name, array.astype(object) if array.dtype.kind == "U" else array
