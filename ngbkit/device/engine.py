"""The process that an engine is: ipyparallel's, on the cores of its device, ending with the client that it is for.

Started by `ngbkit.device.launch` as ``python -m ngbkit.device.engine``, which hands it its `Settings` on the standard
input: so the key that opens it is never on a command line, in an environment or in a file.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ngbkit import files
from ngbkit.device.keepalive import Lifeline
from ngbkit.device.process_lifetime import end_group, end_with

# An engine gives up a controller that has been silent at so many looks, 0.75 s apart: after minutes where that is
# all by which it knows of its client, and late where something else ends it.
_MOST_SILENT, _MOST_SILENT_WATCHED = 480, 2880
READY = b"ready\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an engine is told.

    Parameters
    ----------
    label, identity
        The device's label, and what the engine is to be called by its controller; one that was used before does not
        register.
    connection
        What ipyparallel's controller wrote for engines.
    state_dir
        Where the device keeps its files. None: its own default.
    cores
        The cores that it may use. None: all that its parent may use.
    environment
        Variables set for it and its children.
    watch
        The process on this machine that it ends with.
    lifeline
        For a client on another machine.
    """

    label: str
    identity: str
    connection: dict[str, Any]
    state_dir: str | None = None
    cores: tuple[int, ...] | None = None
    environment: dict[str, str]
    watch: int | None = None
    lifeline: Lifeline | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Settings:
        data = json.loads(text)
        if data.get("lifeline"):
            data["lifeline"] = Lifeline(**data["lifeline"])
        if data.get("cores"):
            data["cores"] = tuple(data["cores"])
        return cls(**data)


def main(arguments: list[str]) -> None:
    """Be the engine that the settings on the standard input describe.

    Parameters
    ----------
    arguments
        The folder that it keeps its files in, and the file descriptor on which to say that it is ready.
    """
    settings = Settings.from_json(sys.stdin.buffer.read())
    be(settings, Path(arguments[0]), int(arguments[1]))


def be(settings: Settings, folder: Path, ready: int | None = None) -> None:
    """Apply the device's settings to this process, then be an ipyparallel engine until the client is gone."""
    os.umask(0o077)
    if settings.cores:
        os.sched_setaffinity(0, settings.cores)
    if settings.watch is not None:
        end_with(settings.watch, before=lambda: tidy(folder, os.getpid()))
    if settings.lifeline is not None:
        settings.lifeline.follow(lambda: _leave(folder))
    # How a batch system ends a job; with SIGKILL a little later.
    signal.signal(signal.SIGTERM, lambda *_: _leave(folder))
    _be_engine(settings, folder, ready)


def tidy(folder: Path, pid: int) -> None:
    """Remove what the engine `pid` with that folder keeps while it runs; what it has measured stays."""
    shutil.rmtree(folder, ignore_errors=True)
    files.clean_scratch(folder.parent.parent / "scratch", ending=pid)


def _be_engine(settings: Settings, folder: Path, ready: int | None) -> None:
    from ipyparallel.engine.app import IPEngine

    class Engine(IPEngine):  # type: ignore[misc, unused-ignore]
        """Says when it has registered."""

        async def complete_registration(self, *parts: Any) -> None:
            await super().complete_registration(*parts)
            if self.id is not None and ready is not None:
                os.write(ready, READY)
                os.close(ready)

    watched = settings.watch is not None or settings.lifeline is not None
    most_silent = _MOST_SILENT_WATCHED if watched else _MOST_SILENT
    engine = Engine.instance(connection_info_env=json.dumps(settings.connection))
    engine.initialize(
        [
            f"--profile-dir={folder}",
            f"--Session.session={settings.identity}",
            f"--IPEngine.max_heartbeat_misses={most_silent}",
        ]
    )
    engine.start()


def _leave(folder: Path) -> None:
    tidy(folder, os.getpid())
    end_group()


if __name__ == "__main__":
    main(sys.argv[1:])
