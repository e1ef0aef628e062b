"""The caches of a device: prepared workloads with their compiled engines, artifacts, tuning results; and evictions.

In the state folder, which only its owner can read::

    cache/<device>/<key>/                  a preparation, see `ngbkit.device.preparation`
        prepared.json, batch-4.onnx, reference.npz
        compiled/<hash>/                   the cache of one compiler
    environments/<hash>/                   a release of a compiler, for all devices: `ngbkit.device.releases`
    artifacts/<hash>/                      the files of networks, for all devices: `ngbkit.files.Store`
    tuning/<device>/<compiler>/<key>/      a tuning result: meta.json and records

The key of a tuning result is a hash of the network, the chip and the versions, so that a copy is used where it fits.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from ngbkit import options, registry
from ngbkit.cluster import devices, keys
from ngbkit.device import preparation, releases
from ngbkit.device.groups import tuning
from ngbkit.device.lock import acquire_lock
from ngbkit.device.plan import locate_lock
from ngbkit.errors import DeviceError, NgbkitWarning, UsageError
from ngbkit.files import Store, is_usable, locate_usable
from ngbkit.user_text import parse_json, parse_path

Kind = Literal["preparation", "environment", "artifact", "tuning"]
_KINDS = get_args(Kind)
#: The file in the folder of a tuning result that describes it.
META = "meta.json"
NO_RUNS: Mapping[str, Mapping[str, str]] = MappingProxyType({})
_MAX_META_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCaches:
    """The caches of one device of this machine."""

    device: str
    state_dir: Path

    @property
    def cache(self) -> Path:
        """The folder of its preparations."""
        return preparation.locate_cache(self.state_dir, self.device)

    @property
    def environments(self) -> Path:
        """The folder of the releases, which the devices of a state folder share."""
        return self.state_dir / options.LAYOUT.environments

    @property
    def tuning(self) -> Path:
        """The folder of its tuning results."""
        return tuning.locate_folder(self.state_dir, self.device)

    @contextmanager
    def lock(self, verb: str) -> Iterator[None]:
        """Lock the device against plans; raise DeviceError if one runs."""

        def refuse(holder: str) -> None:
            raise DeviceError(
                f"device {self.device} is in use by {holder}, which reads its caches: wait until it ends or stop it, "
                "and try again."
            )

        # It never waits: `refuse` raises first, so no interrupt descriptor is needed.
        with acquire_lock(locate_lock(self.state_dir, self.device), f"of `ngbkit cache {verb}`", -1, refuse):
            yield


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheItem:
    """One entry of a device's caches: the ``"preparation"`` of a workload, the ``"environment"`` of a release, the
    ``"artifact"`` of a network, or the ``"tuning"`` result of one search."""

    kind: Kind
    # The name of its folder: a hash of all that it depends on.
    key: str
    # The folder, or the first of the files that an artifact consists of.
    folder: Path
    files: tuple[Path, ...] = ()
    bytes: int
    # When it was last used, in seconds since the epoch.
    used_at: float
    # The compiler of a tuning result; "" for a preparation, which all compilers share.
    compiler: str = ""
    # Of a preparation: network, factors and parameters if known, the numbers of onnx files and compiled folders, and
    # whether it has a reference. Of an environment: its description. Of an artifact: network, and the ids of
    # its runs. Of a tuning result: its meta.json.
    metadata: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "kind": self.kind,
            "key": self.key,
            "compiler": self.compiler,
            "bytes": self.bytes,
            "used": self.used_at,
            "folder": str(self.folder),
            "about": dict(self.metadata),
        }

    def matches(self, name: str) -> bool:
        """Return whether `name` is a prefix of its key, its compiler, or a part of its network's name."""
        network = str(self.metadata.get("network") or " ".join(self.metadata.get("requirements", ())[:1]))
        return self.key.startswith(name) or name == self.compiler or name.lower() in network.lower()


def locate(label: str) -> DeviceCaches:
    """Locate the caches of a device of this machine; of an unknown label too, which a client elsewhere has chosen."""
    state_dir = options.get_state_dir()
    configured = devices.load()
    if label not in configured and keys.is_label(label):
        remote = DeviceCaches(device=label, state_dir=state_dir)
        if remote.cache.is_dir() or remote.tuning.is_dir():
            return remote
    device = configured.get(label) or devices.get(label)
    if device.launch != "local":
        raise UsageError(
            f"device {label} ({device.description}) has its caches on another machine: run `ngbkit cache -d {label}` "
            "there" + (f" with NGBKIT_STATE_DIR={device.state_dir}." if device.state_dir else ".")
        )
    folder = parse_path(device.state_dir) if device.state_dir else state_dir
    return DeviceCaches(device=label, state_dir=folder)


def list_items(caches: DeviceCaches, networks: Mapping[str, Mapping[str, str]] = NO_RUNS) -> list[CacheItem]:
    """List all entries, preparations and latest uses first; `networks` has names of artifacts' networks by run."""
    items = [*_find_preparations(caches), *_find_environments(caches), *_find_results(caches)]
    items += _find_artifacts(caches, networks)
    return sorted(items, key=lambda item: (_KINDS.index(item.kind), -item.used_at, item.key))


def choose_evictions(items: Iterable[CacheItem], keep_bytes: int) -> list[CacheItem]:
    """Choose the least recently used items, in order, so that at most `keep_bytes` stay.

    Tuning results took long, so they are evicted after all preparations.
    """
    candidates = sorted(items, key=lambda item: (item.kind == "tuning", item.used_at, item.key))
    evicted = []
    size = sum(item.bytes for item in candidates)
    for item in candidates:
        if size <= keep_bytes:
            break
        size -= item.bytes
        evicted.append(item)
    return evicted


def remove(caches: DeviceCaches, items: Sequence[CacheItem]) -> list[CacheItem]:
    """Remove items of a locked device and the remains of killed removals, and return those that are removed."""
    removed = []
    for item in items:
        if locate_usable(item.folder) != item.folder:
            warnings.warn(f"{item.folder} has files of another user, who can remove it.", NgbkitWarning, stacklevel=2)
            continue
        try:
            for path in item.files:
                path.unlink()
            if not item.files:
                # Hidden in one step, because a partly removed folder would pass for a complete one.
                aside = item.folder.with_name(f".{item.folder.name}.out")
                shutil.rmtree(aside, ignore_errors=True)
                shutil.rmtree(item.folder.replace(aside))
        except OSError as error:
            raise UsageError(f"cannot remove {item.folder}: {error.strerror}. Check its owner.") from error
        removed.append(item)
    for parent in (caches.cache, caches.environments, caches.tuning, *_list_folders(caches.tuning)):
        for path in _list_all_folders(parent):
            if path.name.startswith(".") and path.name.endswith(".out"):
                shutil.rmtree(path, ignore_errors=True)
    return removed


def read_meta(folder: Path) -> dict[str, Any]:
    """Read the meta.json of a tuning result; return an empty mapping if it is unreadable."""
    with suppress(OSError, ValueError), open(folder / META, "rb") as file:
        meta = parse_json(file.read(_MAX_META_BYTES))
        if isinstance(meta, dict):
            return meta
    return {}


def find_differences(item: CacheItem) -> list[str]:
    """List why no compiler of this machine finds a tuning result: a compiler that it lacks, or other versions."""
    if item.compiler not in registry.list_names(registry.COMPILERS):
        return [f"this machine has no compiler {item.compiler}"]
    versions = _get(item.metadata, "versions", dict)
    local = {package: registry.find_version(package) if package else None for package in versions}
    return [
        f"it was tuned with {package} {version}, this machine has {local[package] or 'none'}"
        for package, version in versions.items()
        if version != local[package]
    ]


def walk_files(folder: Path) -> Iterator[Path]:
    """Yield every regular file below a folder, without following links."""
    for root, _, names in os.walk(folder):
        for name in names:
            path = Path(root, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _find_preparations(caches: DeviceCaches) -> Iterator[CacheItem]:
    for folder in _list_folders(caches.cache):
        with suppress(FileNotFoundError):  # a plan has just evicted it
            yield CacheItem(
                kind="preparation",
                key=folder.name,
                folder=folder,
                bytes=_measure(folder),
                # `preparation.load` touches the folder; eviction uses the same time.
                used_at=folder.stat().st_mtime,
                metadata=_describe_preparation(folder),
            )


def _find_environments(caches: DeviceCaches) -> Iterator[CacheItem]:
    for folder in releases.list_environments(caches.state_dir):
        environment = releases.read_environment(folder)
        if environment is not None:
            yield CacheItem(
                kind="environment",
                key=folder.name,
                folder=folder,
                bytes=environment.size_bytes,
                used_at=folder.stat().st_mtime,
                metadata=asdict(environment),
            )


def _find_artifacts(caches: DeviceCaches, networks: Mapping[str, Mapping[str, str]]) -> Iterator[CacheItem]:
    store = Store(caches.state_dir / options.LAYOUT.artifacts)
    leftovers = [(folder.name, [folder]) for folder in store.list_leftovers()]
    for key, files in [*store.list_files().items(), *leftovers]:
        with suppress(FileNotFoundError):
            runs = networks.get(key, {})
            statuses = [path.stat() for path in files]
            is_leftover = files[0].is_dir()
            yield CacheItem(
                kind="artifact",
                key=key,
                folder=files[0],
                files=() if is_leftover else tuple(files),
                bytes=_measure(files[0]) if is_leftover else sum(status.st_size for status in statuses),
                # Listing a folder is no use of it.
                used_at=max(
                    status.st_mtime if is_leftover else max(status.st_mtime, status.st_atime) for status in statuses
                ),
                metadata={"network": ", ".join(dict.fromkeys(runs.values())), "runs": list(runs)},
            )


def _describe_preparation(folder: Path) -> dict[str, Any]:
    if locate_usable(folder) != folder:
        return {**dict.fromkeys(("onnx", "reference", "compiled", "parameters"), 0), "network": _OTHER, "factors": {}}
    prepared: Any = None
    with suppress(OSError, ValueError):
        prepared = parse_json((folder / "prepared.json").read_text())
    network, factors, facts = (_get(prepared, name, kind) for name, kind in _PREPARED.items())
    return {
        "network": network,
        "factors": factors,
        "parameters": _get(facts, "parameters", int) or None,
        "onnx": sum(1 for _ in folder.glob("batch-*.onnx")),
        "reference": (folder / "reference.npz").is_file(),
        "compiled": len(_list_folders(folder / "compiled")),
    }


# The network of a preparation that only another user can read.
_OTHER = "of another user"
_PREPARED = {"network": str, "factors": dict, "facts": dict}


def _get(mapping: Any, name: str, kind: type) -> Any:
    """Get a value of that type; its empty one if a damaged file has another."""
    value = mapping.get(name) if isinstance(mapping, dict) else None
    return value if isinstance(value, kind) else kind()


def _find_results(caches: DeviceCaches) -> Iterator[CacheItem]:
    for compiler in _list_folders(caches.tuning):
        for folder in _list_folders(compiler):
            with suppress(FileNotFoundError):
                yield CacheItem(
                    kind="tuning",
                    key=folder.name,
                    folder=folder,
                    bytes=_measure(folder),
                    used_at=max(path.stat().st_mtime for path in (folder, *walk_files(folder))),
                    compiler=compiler.name,
                    metadata=read_meta(folder),
                )


def _measure(folder: Path) -> int:
    """Return the size of all files in a folder, in bytes."""
    return sum(path.stat().st_size for path in walk_files(folder))


def _list_folders(folder: Path) -> list[Path]:
    return [path for path in _list_all_folders(folder) if not path.name.startswith(".")]


def _list_all_folders(folder: Path) -> list[Path]:
    """List the folders in a folder, hidden ones too, but no links."""
    if not (is_usable(folder) and folder.is_dir()):
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
