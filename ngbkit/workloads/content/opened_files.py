"""The files that this process opens, by whatever code: Python, a library in C or Rust, a program that it starts.

Python's audit hooks see Python's own calls alone, and `safetensors`, `torch.jit.load` or OpenCV open files themselves.
So the kernel is asked: a seccomp filter has it pause each call that opens a file, starts a program or connects a socket
until a process beside this one has noted its arguments (`man 2 seccomp_unotify`). Nothing is refused. The filter stays
until this process ends, at some 30 µs a call, so that no process has one in which calls are timed.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import platform
import re
import select
import signal
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

# The numbers of the watched calls and of seccomp itself, with the kernel's name of the architecture:
# linux/audit.h, asm/unistd.h.
_WATCHED = {
    "x86_64": (
        0xC000003E,
        317,
        {2: "open", 85: "creat", 257: "openat", 437: "openat2", 59: "execve", 322: "execve", 42: "connect"},
    ),
    "aarch64": (0xC00000B7, 277, {56: "openat", 437: "openat2", 221: "execve", 281: "execve", 203: "connect"}),
}
# linux/seccomp.h, linux/prctl.h
_SET_MODE_FILTER, _NEW_LISTENER, _CONTINUE = 1, 1 << 3, 1
_NOTIFY, _ALLOW = 0x7FC00000, 0x7FFF0000
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CALL, _REPLY = struct.Struct("=QIIiIQ6Q"), struct.Struct("=Qqii")
_NO_NEW_PRIVILEGES, _PARENT_DEATH, _TRACER = 38, 1, 0x59616D61
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_MOST_PATH, _PAGE = 4096, 4096
# The first Linux that lets a paused call go on.
_FIRST_KERNEL = (5, 5)
_CURRENT_FOLDER = -100


@dataclass(frozen=True, slots=True)
class OpenedFiles:
    """The paths that were opened to be read, in order, and what leads outside of all files."""

    paths: tuple[str, ...] = ()
    # Programs that were started, and connections: a sentence each.
    others: tuple[str, ...] = ()


@dataclass(slots=True)
class Watch:
    """A live observation of this process."""

    connection: socket.socket

    def stop(self) -> OpenedFiles:
        """Return what was opened since the start; later calls pass unnoted."""
        self.connection.sendall(b"\n")
        _, (reply, *_), _, _ = socket.recv_fds(self.connection, 1, 1)
        self.connection.close()
        with open(reply, "rb") as notes:
            notes.seek(0)
            return OpenedFiles(*map(tuple, json.load(notes)))


def start() -> Watch | None:
    """Start to observe this process, which has one thread; None where the kernel or a sandbox refuses it."""
    version = re.findall(r"\d+", platform.release())[:2]
    if platform.machine() not in _WATCHED or tuple(map(int, version)) < _FIRST_KERNEL:
        return None
    local, remote = socket.socketpair()
    observer = os.fork()
    if not observer:
        _observe(remote.detach())
    remote.close()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_TRACER, observer, 0, 0, 0)  # Yama lets only an ancestor read the arguments otherwise
    listener = _install_filter(libc)
    if listener is None:
        local.close()
        return None
    socket.send_fds(local, [b"\n"], [listener])
    os.close(listener)
    return Watch(local)


def _install_filter(libc: ctypes.CDLL) -> int | None:
    """Install the filter in this thread and those that it starts; return the descriptor of its calls."""
    architecture, seccomp, calls = _WATCHED[platform.machine()]
    numbers = sorted(calls)
    # Two loads of seccomp_data: the architecture, then the number of the call.
    program = [(_LOAD, 0, 0, 4), (_JUMP_IF_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, 0)]
    program += [(_JUMP_IF_EQUAL, len(numbers) - index, 0, number) for index, number in enumerate(numbers)]
    program += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _NOTIFY)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    header = struct.pack("@HP", len(program), ctypes.addressof(code))
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return None
    listener = libc.syscall(seccomp, _SET_MODE_FILTER, _NEW_LISTENER, ctypes.c_char_p(header))
    return None if listener < 0 else int(listener)


def _observe(connection: int) -> None:
    """Answer the calls of the parent until it ends; this process then ends without a return."""
    try:
        ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        channel = socket.socket(fileno=os.dup2(connection, 3, inheritable=False))
        os.closerange(4, min(os.sysconf("SC_OPEN_MAX"), 1 << 20))  # the parent's channel ends with the parent
        _, (listener, *_), _, _ = socket.recv_fds(channel, 1, 1)
        _answer(listener, channel)
    finally:
        os._exit(0)


def _answer(listener: int, channel: socket.socket) -> None:
    names = _WATCHED[platform.machine()][2]
    notes = _Notes()
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(channel, select.POLLIN)
    while True:
        for descriptor, event in poll.poll():
            if descriptor == channel.fileno():
                poll.unregister(channel)
                with suppress(OSError), channel:  # it may have ended
                    channel.recv(1)
                    _send(channel, notes.to_json())
                notes.is_open = False
            elif not event & select.POLLIN:
                return  # all processes with the filter have ended
            else:
                _answer_call(listener, names, notes)


def _send(channel: socket.socket, data: bytes) -> None:
    """Send data in a file of memory: a socket that is full would wait for a process that waits for this one."""
    file = os.memfd_create("notes")
    os.write(file, data)
    socket.send_fds(channel, [b"\n"], [file])
    os.close(file)


def _answer_call(listener: int, names: dict[int, str], notes: _Notes) -> None:
    call = bytearray(_CALL.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, call, True)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINTR):  # its process was killed meanwhile
            return
        raise
    number, thread, _, system_call, _, _, *arguments = _CALL.unpack(call)
    if notes.is_open:
        notes.add(thread, names[system_call], arguments)
    with suppress(OSError):
        fcntl.ioctl(listener, _SEND, bytearray(_REPLY.pack(number, 0, 0, _CONTINUE)), True)


@dataclass(slots=True)
class _Notes:
    """The calls so far."""

    is_open: bool = True
    # Whether the first call on each path was one that replaces the file.
    opened: dict[str, bool] = field(default_factory=dict)
    others: dict[str, None] = field(default_factory=dict)

    def add(self, thread: int, name: str, arguments: list[int]) -> None:
        try:
            with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:
                self._add(thread, name, arguments, lambda address, size: os.pread(memory.fileno(), size, address))
        except OSError as error:  # of a program that it started
            self.others[f"it makes a call of {name} that cannot be read ({error.strerror})"] = None

    def _add(self, thread: int, name: str, arguments: list[int], read: Callable[[int, int], bytes]) -> None:
        if name == "connect":
            (family,) = struct.unpack("=H", read(arguments[1], 2))
            if family in (socket.AF_INET, socket.AF_INET6):
                self.others["it connects to another machine or program"] = None
            return
        first = 0 if name in ("open", "creat") or (name == "execve" and arguments[0] > _PAGE) else 1
        text = _read_text(arguments[first], read)
        if name == "execve":
            self.others[f"it runs {text}"] = None
            return
        is_current = first == 0 or ctypes.c_int(arguments[0] & 0xFFFFFFFF).value == _CURRENT_FOLDER
        base = Path(f"/proc/{thread}", "cwd" if is_current else f"fd/{arguments[0]}")
        path = os.path.normpath(text if text.startswith("/") else base.readlink() / text)
        if name == "openat2":
            (flags,) = struct.unpack("=Q", read(arguments[2], 8))
        else:
            flags = os.O_WRONLY if name == "creat" else arguments[first + 1]
        self.opened.setdefault(path, _replaces(flags))

    def to_json(self) -> bytes:
        paths = [path for path, is_replaced in self.opened.items() if not is_replaced]
        return json.dumps([paths, list(self.others)]).encode()


def _replaces(flags: int) -> bool:
    """Return whether a call with these flags reads nothing that was there before."""
    return flags & os.O_ACCMODE == os.O_WRONLY or bool(flags & os.O_TRUNC) or bool(flags & os.O_EXCL)


def _read_text(address: int, read: Callable[[int, int], bytes]) -> str:
    """Read a text that ends with a zero byte, page by page: the next page may not exist."""
    data = b""
    while b"\0" not in data and len(data) < _MOST_PATH:
        start = address + len(data)
        data += read(start, _PAGE - start % _PAGE)
    return os.fsdecode(data.partition(b"\0")[0])
