"""What a device keeps: prepared workloads with what was compiled of them, and what tuning found.

Below the state folder, of which only its owner can see anything::

    cache/<device>/<key>/                  a preparation, see `ngbkit.device.preparation`
        prepared.json, batch-4.onnx, reference.npz
        compiled/<hash>/                   what one compiler keeps
    tuning/<device>/<compiler>/<key>/      a result of tuning: meta.json, records and libraries
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ngbkit import options
from ngbkit.cluster import devices, keys
from ngbkit.device import preparation, tuning
from ngbkit.device.lock import occupied
from ngbkit.device.plan import lock_path
from ngbkit.errors import DeviceError, UsageError

Kind = Literal["preparation", "tuning"]
#: What tells, in the folder of a result of tuning, what it is a result of.
META = "meta.json"
_MOST_META_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a device of this machine keeps what it keeps.

    Parameters
    ----------
    device
        Its label.
    state_dir
        The folder that its engine is told.
    accelerator
        The kind of chip that it measures on, ``"cpu"`` or ``"cuda"``; ``""`` where no devices file tells.
    """

    device: str
    state_dir: Path
    accelerator: str = "cpu"

    @property
    def cache(self) -> Path:
        """The folder of its preparations."""
        return preparation.cache(self.state_dir, self.device)

    @property
    def tuning(self) -> Path:
        """The folder of its results of tuning."""
        return tuning.folder(self.state_dir, self.device)

    @contextmanager
    def alone(self, verb: str) -> Iterator[None]:
        """Hold the device as a plan does while it measures, so that nothing changes under anybody's hands.

        Raises
        ------
        DeviceError
            A plan runs on it.
        """

        def refuse(holder: str) -> None:
            raise DeviceError(
                f"device {self.device} is taken by {holder}, which uses what is kept: wait until it has ended, "
                "or stop it, and try again."
            )

        # It would wait, until this descriptor can be read; `refuse` lets it come to neither.
        with occupied(lock_path(self.state_dir, self.device), f"of `ngbkit cache {verb}`", -1, refuse):
            yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One thing that a device keeps.

    Parameters
    ----------
    kind
        ``"preparation"``: a workload's ONNX files, its reference, and what was compiled of them; ``"tuning"``: what one
        search for fast code found.
    key
        The name of its folder: a hash of all that it depends on.
    folder
        The folder.
    bytes
        Of all files in it.
    used
        When it was used last, in seconds since the epoch.
    compiler
        Whose result of tuning it is; ``""`` for a preparation, which is for all.
    about
        Of a preparation: ``network``, ``factors`` and ``parameters`` where they are known, and how many ``onnx`` files,
        ``compiled`` folders and ``reference`` there are; of a result of tuning: what its meta.json says.
    """

    kind: Kind
    key: str
    folder: Path
    bytes: int
    used: float
    compiler: str = ""
    about: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """It as plain JSON."""
        return {
            "kind": self.kind,
            "key": self.key,
            "compiler": self.compiler,
            "bytes": self.bytes,
            "used": self.used,
            "folder": str(self.folder),
            "about": dict(self.about),
        }

    def answers_to(self, name: str) -> bool:
        """Whether a user may mean it by that: how its key begins, its compiler, or a part of its network's name."""
        network = str(self.about.get("network", ""))
        return self.key.startswith(name) or name == self.compiler or name.lower() in network.lower()


def locate(label: str) -> Place:
    """Where the device of that label keeps what it keeps.

    A label that no devices file knows will do where something is kept under it: so it is on a device that is reached
    from another machine, which knows the label.

    Raises
    ------
    UnknownNameError, UsageError
        There is no such device; or it is on another machine.
    """
    state_dir = options.state_dir()
    known = devices.load()
    if label not in known and keys.is_label(label):
        stray = Place(device=label, state_dir=state_dir, accelerator="")
        if stray.cache.is_dir() or stray.tuning.is_dir():
            return stray
    device = known.get(label) or devices.get(label)
    if device.launch != "local":
        raise UsageError(
            f"device {label} ({device.what}) keeps its caches itself, and only those of this machine can be seen to "
            f"from here: run `ngbkit cache -d {label}` over there"
            + (f" with NGBKIT_STATE_DIR={device.state_dir}." if device.state_dir else ".")
        )
    own = Path(device.state_dir).expanduser() if device.state_dir else state_dir
    return Place(device=label, state_dir=own, accelerator=device.accelerator.partition(":")[0])


def look(place: Place) -> list[Kept]:
    """All that a device keeps, preparations first, what was used last on top."""
    found = [*_preparations(place), *_results(place)]
    return sorted(found, key=lambda kept: (kept.kind == "tuning", -kept.used, kept.key))


def leftovers(place: Place) -> list[Path]:
    """Folders that were on their way in or out when whoever moved them was killed."""
    folders = [place.cache, place.tuning, *_folders(place.tuning)]
    return [path for folder in folders for path in _entries(folder) if is_leftover(path)]


def is_leftover(path: Path) -> bool:
    """Whether a folder is none that is kept, but one on its way in or out."""
    return path.name.startswith(".") and path.name.endswith((".in", ".out"))


def read_meta(folder: Path) -> dict[str, Any]:
    """What the meta.json of a result of tuning says; empty where it says nothing that can be read."""
    with suppress(OSError, ValueError, RecursionError), open(folder / META, "rb") as read:
        meta = json.loads(read.read(_MOST_META_BYTES))
        if isinstance(meta, dict):
            return meta
    return {}


def is_whole(meta: Mapping[str, Any]) -> bool:
    """Whether a meta.json tells what must be known of a result that is carried elsewhere."""
    candidates = meta.get("candidates")
    return type(candidates) is int and candidates >= 0 and isinstance(meta.get("versions"), dict)


def files(folder: Path) -> Iterator[Path]:
    """Every file below a folder that is one itself, and no link to another."""
    for root, _, names in os.walk(folder):
        for name in names:
            path = Path(root, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _preparations(place: Place) -> Iterator[Kept]:
    for folder in _folders(place.cache):
        with suppress(FileNotFoundError):  # a plan made room meanwhile
            yield Kept(
                kind="preparation",
                key=folder.name,
                folder=folder,
                bytes=_size(folder),
                # What `preparation.ready` touches, and what eviction goes by.
                used=folder.stat().st_mtime,
                about=_about(folder),
            )


def _about(folder: Path) -> dict[str, Any]:
    try:
        prepared = json.loads((folder / "prepared.json").read_text())
    except (OSError, ValueError):
        prepared = {}
    return {
        "network": prepared.get("network", ""),
        "factors": prepared.get("factors", {}),
        "parameters": prepared.get("facts", {}).get("parameters"),
        "onnx": sum(1 for _ in folder.glob("batch-*.onnx")),
        "reference": (folder / "reference.npz").is_file(),
        "compiled": len(_folders(folder / "compiled")),
    }


def _results(place: Place) -> Iterator[Kept]:
    for compiler in _folders(place.tuning):
        for folder in _folders(compiler):
            with suppress(FileNotFoundError):
                times = [folder.stat().st_mtime, *(path.stat().st_mtime for path in files(folder))]
                yield Kept(
                    kind="tuning",
                    key=folder.name,
                    folder=folder,
                    bytes=_size(folder),
                    used=max(times),
                    compiler=compiler.name,
                    about=read_meta(folder),
                )


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in files(folder))


def _folders(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if not path.name.startswith(".")]


def _entries(folder: Path) -> list[Path]:
    """The folders in a folder, but not links to others."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
