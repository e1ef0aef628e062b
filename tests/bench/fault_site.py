"""The site of a campaign of `faults`: a state folder, a device here or behind an sshd of its own, and their processes.

Nothing outside a temporary folder is touched; its processes are found by their ``NGBKIT_STATE_DIR``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ngbkit.device.plan import locate_journal

TESTS = Path(__file__).resolve().parents[1]
# The slow compiler is a plugin of the tests.
PYTHON_PATH = os.pathsep.join(filter(None, [str(TESTS / "plugins"), os.environ.get("PYTHONPATH")]))
sys.path.insert(0, str(TESTS))
from watching import find_processes  # noqa: E402  beside conftest.py, on the path of pytest only

EXIT_TIMEOUT_S = 10.0
FLEETING = ("scratch", "clusters", "engines", "incoming")

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
                [sys.executable, str(Path(__file__).with_name("faults.py")), "client", *arguments],
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

    @classmethod
    def create(cls, folder: Path, network: Path, peaks_file: Path, *, is_far: bool) -> Site:
        """Create a site in `folder`; its device is here, or behind the ssh host ``far``."""
        label, state = "far" if is_far else "cpu", folder / "state"
        device_state = folder / "far" if is_far else state
        for path in (state, device_state, folder / "tmp"):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in {state, device_state}:
            shutil.copy(peaks_file, path / "peaks.json")
        folders = {"NGBKIT_STATE_DIR": str(state), "TMPDIR": str(folder / "tmp")}
        launch = (
            f'"ssh"\nhost = "far"\npython = "{sys.executable}"\nstate_dir = "{device_state}"' if is_far else '"local"'
        )
        devices = folder / "devices.toml"
        devices.write_text(f"[{label}]\nlaunch = {launch}\n")
        devices.chmod(0o600)
        return cls(folder, network, label, state, device_state, {**os.environ, "PYTHONPATH": PYTHON_PATH, **folders})

    def list_processes(self, *words: str) -> list[psutil.Process]:
        """List the processes of the client and of its device that have all words in their command line."""
        folders = {self.state, self.device_state}
        return [process for state_folder in folders for process in find_processes(state_folder, *words)]

    def list_children(self) -> list[psutil.Process]:
        """List the processes of trials."""
        servers = self.list_processes("ngbkit.device.isolation.forkserver")
        return [child for server in servers if server.is_running() for child in server.children()]

    def find_journals(self, run: str) -> dict[str, Path]:
        return {
            "client": self.state / "runs" / run / "journal.sqlite",
            "device": locate_journal(self.device_state, self.label, run),
        }

    def kill_remaining(self) -> list[str]:
        """Kill the processes that remain after some seconds, and return their command lines."""
        wait_until(lambda: not self.list_processes(), EXIT_TIMEOUT_S)
        processes = self.list_processes()
        texts = []
        for process in processes:
            with suppress(psutil.Error):
                texts.append(" ".join(process.cmdline()))
            kill(process)
        return texts

    def list_remaining_files(self) -> list[Path]:
        """List the files in folders that only running processes use."""
        folders = [root / name for root in {self.state, self.device_state} for name in FLEETING]
        return [path for folder in [*folders, self.folder / "tmp"] if folder.is_dir() for path in folder.iterdir()]


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
        trial_id: (status, zlib.crc32(json.dumps(json.loads(record), sort_keys=True).encode() + latency + rounds))
        for trial_id, status, record, latency, rounds in rows
    }
