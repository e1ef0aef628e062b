"""What may stand in a table of the devices file: each key, how it is read, and with which launcher it goes."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngbkit import registry
from ngbkit.errors import UnknownNameError, UsageError

BUILT_IN = ("local", "ssh", "slurm", "attach")
_STARTED = ("local", "ssh", "slurm")
# As a sweep takes it: it names a folder on the device.
_LABEL = re.compile(r"\w[\w.-]*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_CORES = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
# What a shell or ssh itself could take for more than a name: the characters that OpenSSH refuses too.
_HOST = r"(?!-)(?!.*@-)[^\s\x00-\x1f\x7f'`\"$\\;&<>|(){}]+"
_MOST_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a device.

    Parameters
    ----------
    read
        The value as it is kept; a ValueError is a value that does not fit, its text (if any) what of it.
    valid
        What would fit, in words.
    launches
        The launchers of ngbkit's own that it goes with; one of another package may want any.
    """

    read: Callable[[Any], Any]
    valid: str
    launches: tuple[str, ...] = BUILT_IN


def read(label: str, table: Any, folder: Path) -> tuple[dict[str, Any], list[UsageError]]:
    """The fields of a device, and all that is wrong with its table.

    Parameters
    ----------
    label, table
        The device's label, and what TOML gave for it.
    folder
        The folder of the file, where relative paths begin.
    """
    if not isinstance(table, Mapping):
        return {}, [UsageError("stands outside of any table: begin a device with a line such as [orin].")]
    faults: list[UsageError] = []
    if not is_label(label):
        faults.append(
            UsageError("cannot be a label: valid are letters, digits and _ - . after the first, as [orin-2].")
        )
    launch = table.get("launch")
    fitting = [name for name, key in KEYS.items() if launch not in BUILT_IN or launch in key.launches]
    fields: dict[str, Any] = {}
    for name, value in table.items():
        try:
            fields[name] = _read_key(label, name, value, launch, fitting)
        except UsageError as fault:
            faults.append(fault)
    if "cluster" in fields:
        fields["cluster"] = _locate(fields["cluster"], folder)
    return fields, [*faults, *_missing(table)]


def is_label(text: str) -> bool:
    """Whether a device can be called that."""
    return _LABEL.fullmatch(text) is not None


def _read_key(label: str, name: str, value: Any, launch: Any, fitting: Sequence[str]) -> Any:
    key = KEYS.get(name)
    if key is None and isinstance(value, Mapping):
        quoted = json.dumps(f"{label}.{name}", ensure_ascii=False)
        raise UsageError(f"holds a table {name!r}, and only env is one. A label with a dot needs quotes: [{quoted}].")
    if key is None:
        raise UnknownNameError("key", name, fitting)
    if name not in fitting:
        goes = " or ".join(f'"{other}"' for other in key.launches)
        raise UsageError(f'{name} does not go with launch = "{launch}", only with {goes}: remove it, or change launch.')
    try:
        return key.read(value)
    except UnknownNameError:
        raise
    except ValueError as error:
        came = str(error) or f"{name} = {_shown(value)}"
        raise UsageError(f"{came} does not fit; valid is {key.valid}.") from None


def _missing(table: Mapping[str, Any]) -> Iterator[UsageError]:
    """What a table lacks, or has too much, given the rest of it."""
    launch, network = table.get("launch"), table.get("network", "tunnel")
    if launch is None:
        yield UsageError(f"launch is missing; valid is {KEYS['launch'].valid}.")
    needs = [
        ("host", launch == "ssh", 'launch = "ssh"'),
        ("address", launch == "slurm", 'launch = "slurm"'),
        ("address", launch == "ssh" and network == "direct", 'network = "direct"'),
    ]
    for name, is_needed, by in needs:
        if is_needed and name not in table:
            yield UsageError(f"{name} is missing, which {by} needs; valid is {KEYS[name].valid}.")
    if launch == "ssh" and network == "tunnel" and "address" in table:
        yield UsageError('address goes with network = "direct", and a tunnel needs none: remove it, or change network.')


def _locate(cluster: str, folder: Path) -> str:
    """A connection file's path in full; the id of a cluster, which holds no slash, as it is."""
    if cluster.startswith("~/"):
        return str(Path.home() / cluster[2:])
    return str(folder.absolute() / cluster) if "/" in cluster else cluster


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _text(form: str) -> Callable[[Any], str]:
    """Reads a text of that form, without a NUL."""
    fits = re.compile(form, re.DOTALL | re.ASCII)

    def read(value: Any) -> str:
        if not isinstance(value, str) or "\0" in value or fits.fullmatch(value) is None:
            raise ValueError
        return value

    return read


def _number(least: int) -> Callable[[Any], int]:
    """Reads an integer of at least that."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError
        return value

    return read


def _launch(value: Any) -> str:
    known = {*BUILT_IN, *registry.names(registry.LAUNCHERS)}
    if isinstance(value, str) and value not in known:
        raise UnknownNameError("launcher", value, known)
    return _text(".+")(value)


def _address(value: Any) -> str:
    address = _text(r"[A-Za-z0-9][\w.:-]*")(value)
    with suppress(ValueError):
        if ipaddress.ip_address(address).is_unspecified:
            address = ""
    if not address:
        raise ValueError
    return address


def _cores(value: Any) -> tuple[int, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not parts or any(isinstance(part, bool) for part in parts):
        raise ValueError
    found: set[int] = set()
    for part in parts:
        # In a list stand numbers, in a text ranges too.
        told = _CORES.fullmatch(str(part).strip()) if isinstance(part, str) == isinstance(value, str) else None
        if told is None or int(told[2] or told[1]) < int(told[1]):
            raise ValueError
        found.update(range(int(told[1]), int(told[2] or told[1]) + 1))
    return tuple(sorted(found))


def _variables(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError
    wrong = []
    for name, text in value.items():
        if _VARIABLE.fullmatch(name) is None:
            wrong.append(f"the name {name!r} in env")
        elif not isinstance(text, str) or "\0" in text:
            wrong.append(f"the value of {name} in env")  # which may be a secret, and is not repeated
    if wrong:
        raise ValueError(" and ".join(wrong))
    return dict(value)


def _options(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(map(_text(r"-[^\x00-\x1f]+"), value))


KEYS: Mapping[str, Key] = {
    "launch": Key(read=_launch, valid='"local", "ssh", "slurm" or "attach"'),
    "host": Key(
        read=_text(_HOST),
        valid="what ssh calls the machine: an alias of ~/.ssh/config or user@address, without blanks and quotes, and "
        "not beginning with -",
        launches=("ssh", "slurm"),
    ),
    "python": Key(
        read=_text(r"(/|~/)[^\x00-\x1f\x7f]+|[A-Za-z0-9_][\w.+-]*"),
        valid='the name of a program, or a path that begins with "/" or "~/"',
        launches=_STARTED,
    ),
    "setup": Key(read=_text(".*"), valid="a text, the lines for sh", launches=_STARTED),
    "network": Key(read=_text("tunnel|direct"), valid='"tunnel" or "direct"', launches=("ssh",)),
    "address": Key(
        read=_address,
        valid="the address or name of this machine as the device sees it, and one of its own: not 0.0.0.0",
        launches=("ssh", "slurm"),
    ),
    "cores": Key(read=_cores, valid='the numbers of cores: "0-3,8" or [0, 1]', launches=_STARTED),
    "threads": Key(read=_number(1), valid="an integer of at least 1"),
    "env": Key(
        read=_variables,
        valid='a table of texts whose names are letters, digits and _: env = { OMP_PROC_BIND = "true" }',
        launches=_STARTED,
    ),
    "accelerator": Key(
        read=_text("cpu|cuda:(0|[1-9][0-9]{0,3})"), valid='"cpu", or "cuda:0" with the number of the GPU'
    ),
    "state_dir": Key(
        read=_text(r"(/|~/)[^\x00-\x1f\x7f]+"), valid='a folder that begins with "/" or "~/"', launches=_STARTED
    ),
    "sbatch": Key(
        read=_options,
        valid='a list of options, each one text that begins with "-": ["--partition=gpu", "--time=1:00:00"]',
        launches=("slurm",),
    ),
    "cluster": Key(
        read=_text(r"[^\x00-\x1f\x7f]*"),
        valid="the id of an ipyparallel cluster, or the path of its connection file",
        launches=("attach",),
    ),
    "target": Key(read=_number(0), valid="the number of an engine, 0 or above", launches=("attach",)),
}
