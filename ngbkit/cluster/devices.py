"""The devices file: which devices there are, how each is reached, and what an engine there is told.

    [orin]
    launch = "ssh"
    host = "orin"
    accelerator = "cuda:0"

It is the ``devices.toml`` of the current folder or of the nearest parent that has one, else that of the user's
configuration folder. Its `setup` lines are run, so a file that another user could have written is refused.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from ngbkit.cluster import keys
from ngbkit.cluster.shell import Shell
from ngbkit.errors import UnknownNameError, UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAME = "devices.toml"
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_EXAMPLE = "`ngbkit devices init`, in a folder that has none, writes one to begin with."

TEMPLATE = """\
# The devices that ngbkit measures on: a table each, whose name is the label that the results have.
#
#     ngbkit devices          lists them
#     ngbkit devices check    says of each whether it is reached and has ngbkit
#     ngbkit deploy LABEL     brings ngbkit there
#
# ngbkit takes the devices.toml of the current folder or of the nearest parent that has one, else that of the folder
# $NGBKIT_CONFIG_DIR, which is ~/.config/ngbkit where it is not set. Nobody but you may be able to write it, since the
# lines of `setup` are run. The tables below are examples; take the # away from those that you need.

# This machine. It is there without this table too; here it could be given cores of its own, for instance.
[cpu]
launch = "local"

# Some cores of this machine, as a device of their own.
#[socket0]
#launch = "local"
#cores = "0-7,16"                     # or [0, 1]; without it all of them
#threads = 8                          # of every runtime, where a sweep does not say; without it one a core
#env = { OMP_PROC_BIND = "true" }     # environment variables of its engine
#python = "~/other/bin/python"        # without it the one that ngbkit runs in

# A machine that ssh reaches, whose ports, users and keys stand in ~/.ssh/config. It must answer without a question:
# ssh -o BatchMode=yes orin true
#[orin]
#launch = "ssh"
#host = "orin"                        # an alias of ~/.ssh/config, or user@address
#accelerator = "cuda:0"               # which GPU it measures on; without it "cpu", and no GPU can be seen
#python = "~/venv/bin/python"         # without it the environment that `ngbkit deploy orin` makes
#state_dir = "~/ngbkit"               # where what it measures is kept there; without it in ~/.local/state/ngbkit
#setup = '''
#export LD_LIBRARY_PATH=/usr/local/cuda/lib64
#'''                                  # lines for sh, before each program there

# The same without a tunnel: its engine connects, encrypted, to an address of this machine.
#[orin-direct]
#launch = "ssh"
#host = "orin"
#network = "direct"                   # without it "tunnel", where nothing listens on any network
#address = "192.168.55.100"           # this machine's, as the device sees it

# Jobs of Slurm, one a device.
#[a100]
#launch = "slurm"
#host = "login"                       # a login node that ssh reaches; without it sbatch is run here
#address = "10.0.0.5"                 # this machine's, as the compute nodes see it
#sbatch = ["--partition=gpu", "--gres=gpu:a100:1", "--time=2:00:00"]
#setup = "module load cuda"
#accelerator = "cuda:0"

# An engine of an ipyparallel cluster that you have started; ngbkit must be installed there.
#[mine]
#launch = "attach"
#cluster = "my-cluster"               # its id or its connection file; without it the one that `ipcluster start` starts
#target = 0                           # which of its engines; without it the first
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device, as the devices file describes it.

    Parameters
    ----------
    label
        What results call it.
    launch
        How its engine is started: ``"local"``, ``"ssh"``, ``"slurm"``, ``"attach"``, or another entry point of the
        group ``ngbkit.launchers``.
    host
        What ssh calls the machine. None: this one.
    python
        Over there: a name, or a path (``~/…`` is in its home folder). None: that of the environment that deploy makes.
    setup
        Lines for ``sh`` before each program over there.
    network
        ``"tunnel"``: through ssh; ``"direct"``: to `address`, encrypted.
    address
        This machine's, as the device sees it.
    cores
        Those that its engine may use. None: all.
    threads
        Worker threads of every runtime, where the sweep does not say. None: one a core.
    env
        Environment variables of its engine.
    accelerator
        ``"cpu"``, or ``"cuda:0"``.
    state_dir
        Where it keeps what it measures, over there. None: where ngbkit keeps it there by default.
    sbatch
        Options of ``sbatch``.
    cluster, target
        The user's own ipyparallel cluster (its id or connection file), and the number of its engine.
    """

    label: str
    launch: str
    host: str | None = None
    python: str | None = None
    setup: str = ""
    network: str = "tunnel"
    address: str | None = None
    cores: tuple[int, ...] | None = None
    threads: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    accelerator: str = "cpu"
    state_dir: str | None = None
    sbatch: tuple[str, ...] = ()
    cluster: str | None = None
    target: int | None = None

    @property
    def shell(self) -> Shell:
        """Where its programs are run."""
        return Shell(host=self.host, setup=self.setup)

    def environment(self) -> dict[str, str]:
        """The environment variables of its engine; on a CPU no GPU can be seen."""
        number = self.accelerator.partition(":")[2]
        # Not an empty text, which is lost on its way over ssh. By the order of the bus, a number means the same GPU to
        # CUDA and to NVML.
        return {"CUDA_VISIBLE_DEVICES": number or "-1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", **self.env}

    @property
    def what(self) -> str:
        """What it is, in words: ``"ssh host orin, cuda:0"``."""
        if self.launch == "local":
            words = ["this machine's CPU" if self.accelerator == "cpu" else f"this machine's {self.accelerator}"]
        elif self.launch == "attach":
            number = "an engine" if self.target is None else f"engine {self.target}"
            words = [
                f"{number} of the {'' if self.cluster else 'default '}ipyparallel cluster {self.cluster or ''}".rstrip()
            ]
        else:
            name = {"slurm": "Slurm"}.get(self.launch, self.launch)
            words = [f"{name} host {self.host}" if self.host else name, *self.sbatch]
        if self.launch != "local" and self.accelerator != "cpu":
            words.append(self.accelerator)
        return ", ".join([*words, f"cores {write_cores(self.cores)}"] if self.cores else words)


def find() -> Path | None:
    """The devices file that holds here; None where there is none."""
    # A link that leads nowhere counts, and is then said to be unreadable: to pass over it would help nobody.
    return next((folder / NAME for folder in _folders() if os.path.lexists(folder / NAME)), None)


def load(path: Path | None = None) -> dict[str, Device]:
    """The devices, by label: those of the devices file, and this machine as ``cpu`` unless the file says otherwise.

    Parameters
    ----------
    path
        The file. Default: what `find` finds; without one there is ``cpu`` alone.

    Raises
    ------
    UsageError
        The file is not valid. The message tells every fault at once, each with its table and what would be valid.
    """
    found = {"cpu": Device(label="cpu", launch="local")}
    file = find() if path is None else path.expanduser()
    if file is None:
        return found
    tables = _parse(file, _read(file))
    if not tables:
        raise UsageError(f"{file} describes no device: add a table such as [orin], or remove the file. {_EXAMPLE}")
    faults: list[tuple[str, UsageError]] = []
    for label, table in tables.items():
        fields, wrong = keys.read(label, table, file.parent)
        faults += [(_title(label, table), fault) for fault in wrong]
        if not wrong:
            found[label] = Device(label=label, **fields)
    if faults:
        raise _together(file, faults)
    return found


def get(label: str) -> Device:
    """The device of that label.

    Raises
    ------
    UnknownNameError
        There is none; the error offers those there are.
    """
    found = load()
    if label not in found:
        file = find()
        alone = "Without a devices file there is one, this machine's CPU; `ngbkit devices init` writes such a file."
        raise UnknownNameError("device", label, found, alone if file is None else f"They are those of {file}.")
    return found[label]


def check(labels: Iterable[str]) -> None:
    """Raise UnknownNameError for the first label that no device has."""
    for label in labels:
        get(label)


def init(path: Path) -> Path:
    """Write a devices file to begin with, which only its owner can read and write.

    Raises
    ------
    UsageError
        There is one already, or it cannot be written.
    """
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as written:
            written.write(TEMPLATE)
    except FileExistsError:
        raise UsageError(f"{path} exists, and is left as it is: edit it, or move it away first.") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}. Try in another folder.") from error
    return path


def write_cores(cores: Sequence[int]) -> str:
    """Numbers of cores as the devices file has them: ``"0-3,8"``."""
    runs = [[core for _, core in run] for _, run in groupby(enumerate(sorted(cores)), lambda pair: pair[1] - pair[0])]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _folders() -> Iterator[Path]:
    """Where a devices file is looked for, in order."""
    home = Path.home()
    with suppress(FileNotFoundError):  # the current folder was removed
        here = Path.cwd()
        for folder in (here, *here.parents):
            yield folder
            if folder in (home, home.resolve()) or os.path.lexists(folder / ".git"):
                break
    chosen = os.environ.get("NGBKIT_CONFIG_DIR")
    base = os.environ.get("XDG_CONFIG_HOME")
    yield Path(chosen).expanduser() if chosen else (Path(base) if base else home / ".config") / "ngbkit"


def _read(file: Path) -> bytes:
    try:
        with open(file, "rb") as opened:
            about, content = os.fstat(opened.fileno()), opened.read()
    except OSError as error:
        raise UsageError(f"the devices file {file} cannot be read: {error.strerror}. {_EXAMPLE}") from error
    if about.st_uid not in (0, os.getuid()):
        raise UsageError(
            f"{file} belongs to another user (number {about.st_uid}), and its `setup` lines would be run: write one of "
            "your own, or make it yours (chown) if you trust it."
        )
    if about.st_mode & _WRITABLE_BY_OTHERS:
        raise UsageError(
            f"{file} can be written by others (mode {stat.S_IMODE(about.st_mode):04o}), and its `setup` lines would be "
            f"run: chmod go-w {shlex.quote(str(file))}"
        )
    return content


def _parse(file: Path, content: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 (byte {error.start}): save it as UTF-8.") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not TOML: {error}. Correct it there. {_EXAMPLE}") from None


def _title(label: str, table: Any) -> str:
    name = label if keys.is_label(label) else json.dumps(label, ensure_ascii=False)
    return f"[{name}]" if isinstance(table, Mapping) else name


def _together(file: Path, faults: Sequence[tuple[str, UsageError]]) -> UsageError:
    """One error for all that is wrong with a file."""
    if len(faults) > 1:
        return UsageError(
            "\n  ".join([f"{file} has {len(faults)} faults:", *(f"{where} {fault}" for where, fault in faults)])
        )
    ((where, fault),) = faults
    if isinstance(fault, UnknownNameError):
        return UnknownNameError(fault.kind, fault.name, fault.known, f"It stands in {where} of {file}.")
    return UsageError(f"{file}: {where} {fault}")
