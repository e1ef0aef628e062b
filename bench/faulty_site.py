"""The site of a campaign of `faults`: a state folder, a device here or behind an sshd of its own, and their processes.

Nothing outside a temporary folder is touched; its processes are found by their ``NGBKIT_STATE_DIR``.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from ngbkit.device import peaks
from ngbkit.device.plan import locate_journal

TESTS = Path(__file__).resolve().parents[1] / "tests"
# The slow compiler is a plugin of the tests.
PYTHON_PATH = os.pathsep.join(filter(None, [str(TESTS / "plugins"), os.environ.get("PYTHONPATH")]))
sys.path.insert(0, str(TESTS))
from watching import find_processes  # noqa: E402  beside conftest.py, on the path of pytest only

FAR, NEAR = "far", "cpu"
EXIT_TIMEOUT_S = 10.0
# A size that a run of quick trials does not fill.
DISK_BYTES = 64 << 20

Records = dict[str, tuple[str, int]]
"""The status and the checksum of every record of a journal, by the id of its trial."""


class Client:
    """A client in a process of its own, with its messages."""

    def __init__(self, site: Site, *arguments: str) -> None:
        self.run, self.text, self.done = "", "", 0
        self.trials: list[str] = []
        self.texts: list[str] = []
        self.outcome: dict[str, str] = {}
        self.reported_at = time.monotonic()
        with open(site.folder / "client.log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("faulty_client.py")), *arguments],
                cwd=site.folder,
                env=site.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None and not self._listener.is_alive()

    def wait(self, seconds: float) -> bool:
        """Wait for its end for at most `seconds`, and return whether it has ended."""
        return wait_until(lambda: self.ended, seconds)

    @property
    def measuring(self) -> bool:
        """True if it has started to measure."""
        return any(text.startswith("measuring") for text in self.texts)

    @property
    def loaded(self) -> bool:
        """True if the device has compiled networks at this moment."""
        return self.measuring and self.text.startswith(("measuring", "compiling"))

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                message = json.loads(line)
                self.reported_at = time.monotonic()
                self.run, self.trials = message.get("run", self.run), message.get("trials", self.trials)
                self.done, self.text = message.get("done", self.done), message.get("text", self.text)
                if self.text not in self.texts[-1:]:
                    self.texts.append(self.text)
                if "state" in message:
                    self.outcome = message


@dataclass
class Site:
    """The folder of a client, its state, its device and the state of the device."""

    folder: Path
    network: Path
    label: str
    state: Path
    device_state: Path
    environment: Mapping[str, str]
    clients: list[Client] = field(default_factory=list)

    @classmethod
    def create(cls, folder: Path, network: Path, peaks_file: Path, ssh: Path | None) -> Site:
        """Create a site in `folder`; with `ssh`, a folder of files of an sshd, its device is behind that sshd."""
        state = folder / "state"
        device_state = folder / "far" if ssh else state
        for path in (state, device_state, folder / "tmp"):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in {state, device_state}:
            shutil.copy(peaks_file, path / "peaks.json")
        environment = {
            **os.environ,
            "NGBKIT_STATE_DIR": str(state),
            "PYTHONPATH": PYTHON_PATH,
            "TMPDIR": str(folder / "tmp"),
        }
        table = f'[{NEAR}]\nlaunch = "local"\n'
        if ssh:
            environment["PATH"] = f"{ssh}{os.pathsep}{environment['PATH']}"
            table = (
                f'[{FAR}]\nlaunch = "ssh"\nhost = "far"\npython = "{sys.executable}"\nstate_dir = "{device_state}"\n'
            )
        (folder / "devices.toml").write_text(table)
        (folder / "devices.toml").chmod(0o600)
        return cls(folder, network, FAR if ssh else NEAR, state, device_state, environment)

    def start_client(self, *arguments: str) -> Client:
        self.clients.append(Client(self, *arguments))
        return self.clients[-1]

    def list_processes(self, *words: str) -> list[psutil.Process]:
        """List the processes of the client and of its device that have all words in their command line."""
        folders = {self.state, self.device_state}
        return [process for state_folder in folders for process in find_processes(state_folder, *words)]

    def list_children(self) -> list[psutil.Process]:
        """List the processes of trials."""
        processes = []
        for server in self.list_processes("ngbkit.device.isolation.forkserver"):
            with suppress(psutil.Error):
                processes += server.children()
        return processes

    def find_journals(self, run: str) -> dict[str, Path]:
        return {
            "client": self.state / "runs" / run / "journal.sqlite",
            "device": locate_journal(self.device_state, self.label, run),
        }

    def kill_remaining(self) -> list[str]:
        """Kill the processes that remain after some seconds, and return their command lines."""
        wait_until(lambda: not self.list_processes(), EXIT_TIMEOUT_S)
        processes = self.list_processes()
        texts = [" ".join(_read_command_line(process)) for process in processes]
        for process in processes:
            kill(process)
        return [text for text in texts if text]

    def list_remaining_files(self) -> list[Path]:
        """List the files in folders that only running processes use."""
        folders = [state_folder / name for state_folder in {self.state, self.device_state} for name in _FLEETING]
        return [path for folder in [*folders, self.folder / "tmp"] if folder.is_dir() for path in folder.iterdir()]


_FLEETING = ("scratch", "clusters", "engines", "incoming")


def _read_command_line(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return list(process.cmdline())
    return []


def wait_until(condition: Callable[[], Any], seconds: float) -> bool:
    """Wait for a condition for at most `seconds`, and return whether it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def kill(process: psutil.Process | subprocess.Popen[str]) -> bool:
    """Send SIGKILL, and return whether there was a process to kill."""
    try:
        if isinstance(process, psutil.Process) and process.status() == psutil.STATUS_ZOMBIE:
            return False
        process.send_signal(signal.SIGKILL)
    except (psutil.Error, ProcessLookupError):
        return False
    return True


@contextmanager
def suspend(processes: Sequence[psutil.Process]) -> Iterator[None]:
    """Suspend processes for the duration of the block."""
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            with suppress(psutil.Error):
                process.resume()


def read_records(path: Path) -> Records:
    """Read the records of a journal without changing it; raises `sqlite3.DatabaseError` if it is damaged."""
    if not path.exists():
        return {}
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'results'").fetchone():
            return {}
        rows = connection.execute("SELECT trial_id, status, record, latency, rounds FROM results").fetchall()
    return {
        trial_id: (status, zlib.crc32(b"\0".join([_format_canonical(record), latency, rounds])))
        for trial_id, status, record, latency, rounds in rows
    }


def _format_canonical(record: str) -> bytes:
    return json.dumps(json.loads(record), sort_keys=True).encode()


def make_network(path: Path) -> None:
    """Write a small ONNX network with a dynamic batch."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    generator = np.random.default_rng(0)
    weights = [generator.standard_normal(shape).astype(np.float32) for shape in ((16, 32), (32, 4))]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w1"], ["y"]),
    ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size]) for name, size in (("x", 16), ("y", 4))
    ]
    stored = [numpy_helper.from_array(weight, f"w{index}") for index, weight in enumerate(weights)]
    graph = helper.make_graph(nodes, "mlp", values[:1], values[1:], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def make_peaks(folder: Path) -> Path:
    """Measure this machine's peaks once, for all campaigns."""
    peaks.load_or_measure(folder, 1)
    return folder / "peaks.json"


@contextmanager
def start_sshd(folder: Path) -> Iterator[psutil.Process]:
    """Run an sshd on loopback, and write an ``ssh`` to `folder` that knows it as ``far``."""
    program = shutil.which("sshd", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
    if program is None:
        raise SystemExit("no sshd found: install OpenSSH's server, or exclude the kinds that need it (--only).")
    home = folder / "home"
    home.mkdir(parents=True)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    # The device does not use the user's home folder and state.
    _write_program(
        folder / "session",
        f"export HOME={home} PYTHONPATH={shlex.quote(PYTHON_PATH)}; unset NGBKIT_STATE_DIR XDG_STATE_HOME; cd {home}",
        'exec sh -c "$SSH_ORIGINAL_COMMAND"',
    )
    _write_program(folder / "ssh", f'exec {shutil.which("ssh")} -F {folder}/config "$@"')
    _write(
        folder / "config",
        *("Host far", "HostName 127.0.0.1", f"Port {port}", f"IdentityFile {folder}/user", "IdentitiesOnly yes"),
        *("StrictHostKeyChecking accept-new", f"UserKnownHostsFile {folder}/known"),
    )
    _write(
        folder / "sshd_config",
        *(f"Port {port}", "ListenAddress 127.0.0.1", f"HostKey {folder}/host", f"PidFile {folder}/pid"),
        *(f"AuthorizedKeysFile {folder}/user.pub", "UsePAM no", "StrictModes no", f"ForceCommand {folder}/session"),
        *("AllowTcpForwarding yes", "MaxStartups 100", "PermitRootLogin yes"),
    )
    server = subprocess.Popen([program, "-D", "-f", folder / "sshd_config", "-E", folder / "sshd.log"])
    try:
        if not wait_until(lambda: (folder / "pid").exists(), EXIT_TIMEOUT_S):
            raise SystemExit(f"sshd did not start: {(folder / 'sshd.log').read_text()}")
        yield psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait()


def _write(path: Path, *lines: str) -> None:
    path.write_text("\n".join([*lines, ""]))


def _write_program(path: Path, *lines: str) -> None:
    _write(path, "#!/bin/sh", *lines)
    path.chmod(0o755)


@contextmanager
def mount_small_disk(folder: Path) -> Iterator[None]:
    """Mount a small disk at `folder` for the duration of the block."""
    folder.mkdir(parents=True, mode=0o700)
    options = f"size={DISK_BYTES},mode=700,uid={os.getuid()}"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "ngbkit", folder], check=False)
    if mounted.returncode:
        raise SystemExit("cannot mount a small disk: run as root, or exclude the kind full-disk (--only).")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
