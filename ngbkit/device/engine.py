"""The engine process: ipyparallel's, on the cores of its device; it ends with its client.

`ngbkit.device.launch` starts it as ``python -m ngbkit.device.engine`` and passes its `Settings` on the standard input,
so that its key is never on a command line, in an environment or in a file.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ngbkit import files
from ngbkit.device.keepalive import Keepalive
from ngbkit.device.process_lifetime import announce_end, end_group, end_marked, end_with
from ngbkit.options import LAYOUT

# An engine abandons a controller after this many missed heartbeats, 0.75 s apart: after minutes if it has no other sign
# of its client, and late if something else ends it.
_MOST_MISSES, _MOST_MISSES_WITH_WATCH = 480, 2880
READY = b"ready\n"
# The variable that marks every process which an engine starts, and which these start, with the engine's folder.
MARK = "NGBKIT_ENGINE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of an engine."""

    # The device's label, and the engine's name at its controller, which refuses a name that was used before.
    label: str
    identity: str
    # The file that ipyparallel's controller wrote for engines.
    connection: dict[str, Any]
    # The device's folder for files. None: its own default.
    state_dir: str | None = None
    # The cores that it may use. None: all that its parent may use.
    cores: tuple[int, ...] | None = None
    # Variables for it and its children.
    environment: dict[str, str]
    # The process on this machine that it ends with.
    watch: int | None = None
    # For a client on another machine.
    lifeline: Keepalive | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Settings:
        data = json.loads(text)
        if data.get("lifeline"):
            data["lifeline"] = Keepalive(**data["lifeline"])
        if data.get("cores"):
            data["cores"] = tuple(data["cores"])
        return cls(**data)


def main(arguments: list[str]) -> None:
    """Run the engine of the settings on the standard input; the arguments are its folder and the ready descriptor."""
    settings = Settings.from_json(sys.stdin.buffer.read())
    run_engine(settings, Path(arguments[0]), int(arguments[1]))


def run_engine(settings: Settings, folder: Path, ready: int | None = None) -> None:
    """Apply the device's settings to this process, then run an ipyparallel engine until the client is gone."""
    os.umask(0o077)
    if settings.cores:
        os.sched_setaffinity(0, settings.cores)
    if settings.watch is not None:
        end_with(settings.watch, cleanup=lambda: _end(folder))
    if settings.lifeline is not None:
        settings.lifeline.follow(lambda: _end(folder))
    _end_on_sigterm(folder)
    import_module("ngbkit.device.plan")  # where it cannot be imported, the launch says why
    _start_engine(settings, folder, ready)


def remove_remains(folder: Path, pid: int) -> None:
    """End what the engine `pid` with that folder has started, in any session; remove all its files but measurements."""
    end_marked(MARK, str(folder))
    shutil.rmtree(folder, ignore_errors=True)
    files.clean_scratch(folder.parent.parent / LAYOUT.scratch, ending=pid)


def _start_engine(settings: Settings, folder: Path, ready: int | None) -> None:
    from ipyparallel.engine.app import IPEngine

    class DeviceEngine(IPEngine):  # type: ignore[misc, unused-ignore]
        """An engine that reports its registration, and ends at once where it is told to."""

        async def complete_registration(self, *parts: Any) -> None:
            await super().complete_registration(*parts)
            if self.id is not None and ready is not None:
                os.write(ready, READY)
                os.close(ready)

        def to_work_dir(self) -> None:
            """Leave the working folder, which ipyparallel puts first, out of the path."""

        def init_engine(self) -> None:
            super().init_engine()
            sys.path[:] = filter(None, sys.path)

        def start_nanny(self, control_url: str) -> Any:
            """Start the process that passes signals on in a folder without files of the user, where it imports from."""
            working = os.open(".", os.O_RDONLY)
            os.chdir(folder)
            try:
                return super().start_nanny(control_url)
            finally:
                os.fchdir(working)
                os.close(working)

        def init_signal(self) -> None:
            """Replace ipyparallel's handler, which waits until the call that runs has ended."""
            super().init_signal()
            _end_on_sigterm(folder)

    has_watch = settings.watch is not None or settings.lifeline is not None
    most_misses = _MOST_MISSES_WITH_WATCH if has_watch else _MOST_MISSES
    engine = DeviceEngine.instance(connection_info_env=json.dumps(settings.connection))
    engine.initialize(
        [
            f"--profile-dir={folder}",
            f"--Session.session={settings.identity}",
            f"--IPEngine.max_heartbeat_misses={most_misses}",
        ]
    )
    engine.start()


def _end_on_sigterm(folder: Path) -> None:
    """End at once: a batch system ends a job with SIGTERM, and with SIGKILL a little later, which leaves files."""
    signal.signal(signal.SIGTERM, lambda *_: _end(folder))


def _end(folder: Path) -> None:
    announce_end()
    remove_remains(folder, os.getpid())
    end_group()


if __name__ == "__main__":
    main(sys.argv[1:])
