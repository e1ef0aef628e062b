"""The devices file: the devices, how to reach each, and the settings of its engine.

    [orin]
    launch = "ssh"
    host = "orin"
    accelerator = "cuda:0"

It is the ``devices.toml`` of the current folder or of the nearest parent that has one, else that of the user's
configuration folder. ngbkit runs its `setup` lines, so it refuses a file that another user could have written.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ngbkit import options, validation
from ngbkit.cluster import keys
from ngbkit.cluster.shell import Shell
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.hardware.environment import format_cores
from ngbkit.user_text import parse_path, parse_toml
from ngbkit.validation import Label, PositiveCount

NAME = "devices.toml"
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_EXAMPLE = "`ngbkit devices init` writes a first one in a folder that has none."

TEMPLATE = """\
# The devices that ngbkit measures on: a table each, named by the label of its results.
#
#     ngbkit devices          lists them
#     ngbkit devices check    reports whether each can be reached and has ngbkit
#     ngbkit deploy LABEL     installs ngbkit there
#
# ngbkit reads the devices.toml of the current folder or of the nearest parent that has one, else that of the folder
# $NGBKIT_CONFIG_DIR, by default ~/.config/ngbkit. Only you may have write access to it, since ngbkit runs the lines of
# `setup`. The tables below are examples; remove the # from those that you need.

# This machine. It is a device without this table too; add keys to give it some cores only, for instance.
[cpu]
launch = "local"

# Some cores of this machine, as a device of their own.
#[socket0]
#launch = "local"
#cores = "0-7,16"                     # or [0, 1]; default: all of them
#threads = 8                          # of every runtime, unless the sweep sets it; default: one per core
#env = { OMP_PROC_BIND = "true" }     # environment variables of its engine
#python = "~/other/bin/python"        # default: the one that runs ngbkit

# A machine behind ssh; its port, user and key belong in ~/.ssh/config. It must answer without a prompt:
# ssh -o BatchMode=yes orin true
#[orin]
#launch = "ssh"
#host = "orin"                        # an alias of ~/.ssh/config, or user@address
#accelerator = "cuda:0"               # the GPU to measure on; default: "cpu", which hides every GPU
#python = "~/venv/bin/python"         # default: the environment that `ngbkit deploy orin` creates
#state_dir = "~/ngbkit"               # the folder of its records there; default: ~/.local/state/ngbkit
#setup = '''
#export LD_LIBRARY_PATH=/usr/local/cuda/lib64
#'''                                  # lines for sh, before each program there

# The same without a tunnel: its engine connects, encrypted, to an address of this machine.
#[orin-direct]
#launch = "ssh"
#host = "orin"
#network = "direct"                   # default: "tunnel", which opens no port on any network
#address = "192.168.55.100"           # this machine's, as the device sees it
#trust = "lab"                        # shares a controller with the devices of this group, each of which could then
#                                     # run code on the others; default: a controller of its own

# Jobs of Slurm, one per device.
#[a100]
#launch = "slurm"
#host = "login"                       # a login node behind ssh; default: sbatch runs here
#address = "10.0.0.5"                 # this machine's, as the compute nodes see it
#sbatch = ["--partition=gpu", "--gres=gpu:a100:1", "--time=2:00:00"]
#setup = "module load cuda"
#accelerator = "cuda:0"

# A Slurm job array: its jobs share the trials of a sweep, and go on if this machine ends.
#[nodes]
#launch = "array"
#indices = 50                         # jobs of the array; like nodes, whose results have this one label
#host = "login"                       # as above; no address, since nothing connects to this machine
#state_dir = "~/ngbkit"               # on the file system that the nodes and the login node share
#sbatch = ["--partition=cpu", "--exclusive", "--time=1:00:00"]

# An engine of an ipyparallel cluster of your own, with ngbkit installed.
#[mine]
#launch = "attach"
#cluster = "my-cluster"               # its id or its connection file; default: the one that `ipcluster start` starts
#target = 0                           # the number of the engine; default: the first
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device of the devices file, whose keys are the fields."""

    label: str
    launch: keys.Launch
    host: keys.Host | None = field(default=None, metadata=keys.fits("ssh", "slurm", "array"))
    python: keys.Program | None = field(default=None, metadata=keys.fits(*keys.STARTED))
    setup: keys.Setup = field(default="", metadata=keys.fits(*keys.STARTED))
    network: keys.Network = field(default="tunnel", metadata=keys.fits("ssh"))
    address: keys.Address | None = field(default=None, metadata=keys.fits("ssh", "slurm"))
    trust: Label | None = field(default=None, metadata=keys.fits("local", "ssh", "slurm"))
    cores: keys.Cores | None = field(default=None, metadata=keys.fits(*keys.STARTED))
    threads: PositiveCount | None = None
    env: keys.Variables = field(default_factory=dict, metadata=keys.fits(*keys.STARTED))
    accelerator: keys.Accelerator = "cpu"
    state_dir: keys.Folder | None = field(default=None, metadata=keys.fits(*keys.STARTED))
    sbatch: keys.SlurmOptions = field(default=(), metadata=keys.fits("slurm", "array"))
    indices: keys.Indices | None = field(default=None, metadata=keys.fits("array"))
    cluster: keys.Cluster | None = field(default=None, metadata=keys.fits("attach"))
    target: keys.Target | None = field(default=None, metadata=keys.fits("attach"))

    @property
    def shell(self) -> Shell:
        """The shell that runs its programs."""
        return Shell(host=self.host, setup=self.setup)

    @property
    def shares_packages(self) -> bool:
        """True if its engine imports the packages of this process."""
        return self.launch == "local" and self.python is None and not self.setup

    def environment(self) -> dict[str, str]:
        """Return the environment variables of its engine, which hide every GPU on a CPU."""
        number = self.accelerator.partition(":")[2]
        # ssh drops an empty value, so -1. In the order of the bus, a number means the same GPU to CUDA and to NVML.
        return {"CUDA_VISIBLE_DEVICES": number or "-1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", **self.env}

    @property
    def description(self) -> str:
        """A short description: ``"ssh host orin, cuda:0"``."""
        if self.launch == "local":
            words = ["this machine's CPU" if self.accelerator == "cpu" else f"this machine's {self.accelerator}"]
        elif self.launch == "attach":
            number = "an engine" if self.target is None else f"engine {self.target}"
            words = [
                f"{number} of the {'' if self.cluster else 'default '}ipyparallel cluster {self.cluster or ''}".rstrip()
            ]
        else:
            name = {"slurm": "Slurm", "array": "Slurm job array"}.get(self.launch, self.launch)
            words = [f"{name} host {self.host}" if self.host else name, *self.sbatch]
            if self.indices is not None:
                words.insert(1, f"{self.indices} indices")
        if self.launch != "local" and self.accelerator != "cpu":
            words.append(self.accelerator)
        return ", ".join([*words, f"cores {format_cores(self.cores)}"] if self.cores else words)


def find() -> Path | None:
    """Return the path of the devices file in effect; None if there is none."""
    # A broken link counts: skipping it in silence would hide the fault.
    return next((folder / NAME for folder in _list_folders() if os.path.lexists(folder / NAME)), None)


def load(path: Path | None = None) -> dict[str, Device]:
    """Load the devices by label: the devices of a file (by default, of `find`), and this machine as ``cpu``.

    The error for an invalid file lists every fault at once, each with its table and the valid values.
    """
    devices = {"cpu": Device(label="cpu", launch="local")}
    file = find() if path is None else parse_path(path)
    if file is None:
        return devices
    tables = parse_toml(file, _read(file))
    if not tables:
        raise UsageError(f"no device in {file}: add a table such as [orin], or remove the file. {_EXAMPLE}")
    faults: list[tuple[str, UsageError]] = []
    for label, table in tables.items():
        fields, errors = keys.parse_device(Device, label, table, file.parent)
        name = label if keys.is_label(label) else json.dumps(label, ensure_ascii=False)
        title = f"[{name}]" if isinstance(table, Mapping) else name
        faults += [(title, error) for error in errors]
        if not errors:
            devices[label] = Device(label=label, **fields)
    if faults:
        raise validation.join_faults(file, faults)
    return devices


def get(label: str) -> Device:
    """Return the device of that label; the error for an unknown one lists the labels."""
    devices = load()
    if label not in devices:
        file = find()
        hint = (
            "Without a devices file, this machine's CPU is the only device; `ngbkit devices init` writes such a file."
        )
        raise UnknownNameError("device", label, devices, hint if file is None else f"The devices are in {file}.")
    return devices[label]


def check(labels: Iterable[str]) -> None:
    """Raise UnknownNameError for the first label without a device."""
    for label in labels:
        get(label)


def init(path: Path) -> Path:
    """Write a first devices file, which only its owner can read and write; refuse to replace one."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(TEMPLATE)
    except FileExistsError:
        raise UsageError(f"{path} exists already: edit it, or move it away first.") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}. Try another folder.") from error
    return path


def _list_folders() -> Iterator[Path]:
    """Yield the folders to search for a devices file, in order."""
    home = options.get_home() or Path("/")
    with suppress(FileNotFoundError):  # the current folder was removed
        current = Path.cwd()
        for folder in (current, *current.parents):
            yield folder
            if folder in (home, home.resolve()) or os.path.lexists(folder / ".git"):
                break
    chosen = os.environ.get("NGBKIT_CONFIG_DIR")
    base = os.environ.get("XDG_CONFIG_HOME")
    yield parse_path(chosen) if chosen else (Path(base) if base else home / ".config") / "ngbkit"


def _read(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            status, content = os.fstat(file.fileno()), file.read()
    except OSError as error:
        raise UsageError(f"cannot read the devices file {path}: {error.strerror}. {_EXAMPLE}") from error
    if status.st_uid not in (0, os.getuid()):
        raise UsageError(
            f"{path} belongs to another user (uid {status.st_uid}), and ngbkit would run its `setup` lines: write your "
            "own file, or take ownership (chown) if you trust it."
        )
    if status.st_mode & _WRITABLE_BY_OTHERS:
        raise UsageError(
            f"other users can write {path} (mode {stat.S_IMODE(status.st_mode):04o}), and ngbkit would run its `setup` "
            f"lines: chmod go-w {shlex.quote(str(path))}"
        )
    return content
