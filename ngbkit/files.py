"""Files: artifacts named by content hash, atomic writes, and scratch folders that are removed with their process."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import platform
import re
import secrets
import shutil
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import psutil

from ngbkit import limits, options
from ngbkit.errors import DeviceError, DiskError, NgbkitError, UsageError, describe_hidden

_DIGEST = re.compile(r"[0-9a-f]{32}")
_CHUNK_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 16
_CLONE = 0x40049409  # Linux's FICLONE
# The errors of `pathlib` and `pwd` about a user who is a mere number.
_HOMELESS = re.compile("determine home directory|uid not found")
# Each with the folder that has not this fault.
_FAULTS = {
    errno.ENOSPC: ("there is no room on its disk", "on a disk with room"),
    errno.EFBIG: ("it is larger than a file may be on its disk", "on another disk"),
    errno.EDQUOT: ("the quota of its disk is used up", "on a disk with room"),
    errno.EROFS: ("its disk is read-only", "that you can write"),
    errno.EACCES: ("permission denied", "that you can write"),
    errno.EPERM: ("permission denied", "that you can write"),
    errno.ENOLCK: ("its file system has no locks", "on a local disk"),
    errno.ENOTSUP: ("its file system has no locks", "on a local disk"),
    errno.ENOSYS: ("its file system has no locks", "on a local disk"),
    errno.ESTALE: ("its file server has lost it", "on a local disk"),
    errno.EIO: ("its disk failed", "on a local disk"),
}
_DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of files named by their content hash; the first file added creates it."""

    root: Path

    def locate(self, digest: str) -> Path:
        """Return the path of the file with that hash, whether it exists or not."""
        if not _DIGEST.fullmatch(digest):  # a path in here could lead out of the store
            raise UsageError(f"invalid content hash {digest!r}; expected 32 lower-case hex digits.")
        path = self.root / digest[:2] / digest
        if os.access(path, os.R_OK) or (is_usable(path.parent) and not os.path.lexists(path)):
            return path
        return self.root / f"{digest[:2]}.{os.getuid()}" / digest

    def contains(self, digest: str) -> bool:
        return self.locate(digest).is_file()

    def add(self, source: Path) -> str:
        """Copy a file into the store, unless the store contains it, and return its content hash."""
        digest = hash_file(source)
        if not self.contains(digest):
            copy(source, self.locate(digest), digest)
        return digest

    def move(self, source: Path) -> str:
        """Move a file of the same file system into the store and return its content hash."""
        digest = hash_file(source)
        path = self.locate(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        source.chmod(0o600)  # as a copy has it
        source.replace(path)
        return digest

    def receive(self, digest: str, chunks: Iterator[bytes]) -> Path:
        """Write a file from chunks and return its path; raise `DeviceError` if its hash is not the announced one."""
        path = self.locate(digest)
        with write_atomically(path) as draft:
            hasher = hashlib.blake2b(digest_size=16)
            with open(draft, "wb") as file:
                for chunk in chunks:
                    hasher.update(chunk)
                    file.write(chunk)
            _check_hash(hasher.hexdigest(), digest)
        return path

    def list_files(self) -> dict[str, list[Path]]:
        """List the files by content hash: the content, drafts of killed writers, and graphs that read it there."""
        files: dict[str, list[Path]] = {}
        for path in sorted((*self.root.glob("*"), *self.root.glob("*/*"))):
            if (match := _DIGEST.match(path.name.lstrip("."))) and path.is_file() and is_usable(path):
                files.setdefault(match[0], []).append(path)
        return files

    def list_leftovers(self) -> list[Path]:
        """List the folders in which former versions laid out ONNX files beside their external data."""
        return sorted(path for path in self.root.glob("*/*") if path.is_dir())


def is_usable(path: Path) -> bool:
    """Return whether this user may read a file, or change a folder, if it exists: ``sudo -E`` leaves others there."""
    is_missing = not os.path.lexists(path)
    # A compiler writes files that are read-only for their owner too.
    return is_missing or os.access(path, os.R_OK | os.W_OK | os.X_OK if path.is_dir() else os.R_OK)


def locate_usable(path: Path) -> Path:
    """Return a path, or another one for this user alone if it or a file in it is not usable."""
    is_all_usable = all(map(is_usable, (path, *path.rglob("*"))))
    return path if is_all_usable else path.with_name(f"{path.name}.{os.getuid()}")


def copy(source: Path, target: Path, digest: str = "") -> None:
    """Copy a file's content, on a file system that can without a second copy of its blocks, and check its hash.

    onnx reads no external data from a symbolic link, or from a file with another hard link.
    """
    with write_atomically(target) as draft:
        try:
            with open(source, "rb") as content, open(draft, "wb") as file:
                fcntl.ioctl(file, _CLONE, content.fileno())
        except OSError:  # another file system, or one that shares no blocks
            shutil.copyfile(source, draft)
        if digest:
            _check_hash(hash_file(draft), digest)


def _check_hash(actual: str, digest: str) -> None:
    if actual != digest:
        raise DeviceError(f"corrupt artifact: got hash {actual}; expected {digest}. Send it again.")


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Yield a draft beside `path` that replaces it when the block succeeds and is removed when the block raises.

    An error of the system names the file, also that of a full disk, which has no name of its own.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        draft = Path(name)
        try:
            yield draft
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def describe_disk_fault(error: BaseException) -> str:
    """Describe the fault of the state folder's disk, full or read-only, that an error comes from; empty if none."""
    if isinstance(error, OSError):
        is_own = error.filename is None or Path(os.fsdecode(error.filename)).is_relative_to(options.get_state_dir())
        return _describe(error) if error.errno in _DISK_FAULTS and is_own else ""
    # Libraries in other languages raise errors of their own, with the system's text.
    text = str(error)
    number = next((number for number in _DISK_FAULTS if os.strerror(number) in text), None)
    return _describe(OSError(number, text)) if number and not isinstance(error, NgbkitError) else ""


def check_disk(folder: Path) -> None:
    """Raise `DiskError` if nothing can be written in a folder."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(bytes(_BLOCK_BYTES))
    except OSError as error:
        error.filename = str(folder)
        raise DiskError(_describe(error)) from error


@contextmanager
def explain_errors() -> Iterator[None]:
    """Raise the error of `explain` in place of one of the block that it can explain."""
    try:
        yield
    except Exception as error:
        explained = explain(error)
        if explained is None or explained is error:
            raise
        raise explained from error


def explain(error: Exception) -> NgbkitError | None:
    """Explain an error of the system, or of a user's file that hides a module, with the remedy; None for any other."""
    if isinstance(error, NgbkitError):
        return error
    if hidden := _describe_hidden(error):
        return UsageError(hidden)
    if isinstance(error, (RuntimeError, KeyError)) and _HOMELESS.search(str(error)):
        return UsageError("this user has no home folder or no name, which a library needs. Set HOME and USER.")
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
        return NgbkitError(_describe(error))
    if isinstance(error, (MemoryError, RuntimeError, ImportError)):
        limit = limits.describe(error)
        return NgbkitError(limit) if limit else None
    return None


def _describe_hidden(error: Exception) -> str:
    """Describe the file that hides a module, if the error is about that module or of that file."""
    module = error.name if isinstance(error, ImportError) else getattr(getattr(error, "obj", None), "__name__", None)
    if isinstance(module, str) and (hidden := describe_hidden(module.partition(".")[0])):
        return hidden
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    file = Path(frames[-1].filename)
    hidden = describe_hidden(file.parent.name if file.stem == "__init__" else file.stem)
    return hidden if str(file) in hidden else ""


def _describe(error: OSError) -> str:
    path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, (str, bytes)) else None
    if limit := limits.describe(os.strerror(error.errno) if error.errno else ""):
        return f"{path} cannot be used: {limit}" if path else limit
    fault, folder = _FAULTS.get(error.errno or 0, ("", "that you can write"))
    if path is None and not fault:
        return f"the system reports: {error.strerror or error}."
    try:
        state_dir = options.get_state_dir()
    except (UsageError, OSError):
        state_dir = Path(os.devnull)
    if error.errno == errno.ENOSPC and _lacks_inodes(path or state_dir):
        fault = "there is no room for another file on its disk"
    advice = f"Set {options.STATE_DIR} to a folder {folder}."
    if path is not None and not (path.is_relative_to(state_dir) or state_dir.is_relative_to(path)):
        advice = "Check the path, its permissions and its disk."
    return f"{path or 'a file'} cannot be used: {fault or error.strerror or error}. {advice}"


def _lacks_inodes(path: Path) -> bool:
    status = os.statvfs(next(parent for parent in (path, *path.parents) if parent.exists()))
    return bool(status.f_files) and not status.f_favail


def list_files(folder: Path) -> list[Path]:
    """List the files in a folder and its folders, hidden ones left out; none if there is no such folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(file for file in files if not any(part.startswith(".") for part in file.relative_to(folder).parts))


def is_locked(path: Path) -> bool:
    """Return whether a process holds a lock on a file now; one that is not this user's counts as free."""
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def hash_file(path: Path) -> str:
    """Hash a file's content: 32 hex digits of BLAKE2b, read in chunks, as it may be larger than memory."""
    hasher = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        for chunk in read_chunks(file):
            hasher.update(chunk)
    return hasher.hexdigest()


def make_scratch(home: Path) -> Path:
    """Create a private folder below `home` for this process, and remove the folders of processes that have ended.

    Several machines may share a state folder; a machine removes only the folders of its own processes.
    """
    clean_scratch(options.make_private(home))
    folder = home / f"{os.getpid()}-{secrets.token_hex(4)}-{platform.node()}"
    folder.mkdir(mode=0o700)
    return folder


def clean_scratch(home: Path, ending: int | None = None) -> None:
    """Remove the folders of processes that have ended, and of the process `ending`."""
    for folder in home.iterdir() if home.is_dir() else ():
        pid, _, rest = folder.name.partition("-")
        is_local = rest.partition("-")[2] == platform.node()
        if is_local and pid.isdigit() and (int(pid) == ending or not psutil.pid_exists(int(pid))):
            shutil.rmtree(folder, ignore_errors=True)


def read_chunks(file: BinaryIO) -> Iterator[bytes]:
    """Read a binary file in chunks of 1 MiB."""
    return iter(lambda: file.read(_CHUNK_BYTES), b"")
