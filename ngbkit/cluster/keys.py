"""The keys of a table in the devices file: the valid values of each, and the launchers that it fits."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from ngbkit import registry, validation
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.user_text import parse_path
from ngbkit.validation import Check, Label, text

BUILT_IN = ("local", "ssh", "slurm", "array", "attach")
STARTED = ("local", "ssh", "slurm", "array")
"""The launchers that start an engine."""

_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_CORES = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
_ADDRESS = text(r"[A-Za-z0-9][\w.:-]*", "")


def fits(*launchers: str) -> dict[str, tuple[str, ...]]:
    """Declare the built-in launchers that a key fits; a launcher of another package accepts every key."""
    return {"launchers": launchers}


def parse_device(record: type, label: str, table: Any, folder: Path) -> tuple[dict[str, Any], list[UsageError]]:
    """Parse a device's table as TOML gave it; return its fields and all faults. Paths are relative to `folder`."""
    if not isinstance(table, Mapping):
        return {}, [UsageError("is outside of any table: begin a device with a line such as [orin].")]
    faults: list[UsageError] = []
    if not is_label(label):
        faults.append(
            UsageError("is not a valid label; expected letters, digits and _ - . after the first, as in [orin-2].")
        )
    launch = table.get("launch")
    launchers = {field.name: field.metadata.get("launchers", BUILT_IN) for field in fields(record)}
    del launchers["label"]
    fitting = [name for name, names in launchers.items() if launch not in BUILT_IN or launch in names]
    plain = dict(table)
    for name, value in table.items():
        if name in launchers and name not in fitting:
            names = " or ".join(f'"{launcher}"' for launcher in launchers[name])
            fault = f'{name} does not fit launch = "{launch}", only {names}: remove it, or change launch.'
        elif name not in launchers and isinstance(value, Mapping):
            quoted = json.dumps(f"{label}.{name}", ensure_ascii=False)
            fault = f"has an unexpected table {name!r}; only env is one. Quote a label with a dot: [{quoted}]."
        else:
            continue
        faults.append(UsageError(fault))
        del plain[name]
    values, invalid = validation.parse_table(record, plain, fitting)
    if values.get("cluster") is not None:
        values["cluster"] = _resolve_cluster(values["cluster"], folder)
    return values, [*faults, *invalid, *_check_combination(record, table)]


def is_label(text: str) -> bool:
    """Return whether a device may have that label."""
    return validation.is_valid(Label, text)


def _check_combination(record: type, table: Mapping[str, Any]) -> Iterator[UsageError]:
    """Yield a fault for each key that is missing, or that contradicts another."""
    launch, network = table.get("launch"), table.get("network", "tunnel")
    expected = {
        name: validation.describe_valid(hint) for name, hint in get_type_hints(record, include_extras=True).items()
    }
    if launch is None:
        yield UsageError(f"launch is missing; expected {expected['launch']}.")
    requirements = [
        ("host", launch == "ssh", 'launch = "ssh"'),
        ("address", launch == "slurm", 'launch = "slurm"'),
        ("address", launch == "ssh" and network == "direct", 'network = "direct"'),
        ("indices", launch == "array", 'launch = "array"'),
    ]
    for name, is_required, setting in requirements:
        if is_required and name not in table:
            yield UsageError(f"{name} is missing, which {setting} requires; expected {expected[name]}.")
    options = table.get("sbatch")
    words = map(str, options) if launch == "array" and isinstance(options, list) else ()
    if any(word.startswith(("--array", "-a")) for word in words):
        yield UsageError("sbatch has --array, which `indices` sets: remove it there.")
    if launch == "ssh" and network == "tunnel" and "address" in table:
        yield UsageError('address requires network = "direct", a tunnel needs none: remove it, or change network.')


def _resolve_cluster(cluster: str, folder: Path) -> str:
    """Return the absolute path of a connection file; return the id of a cluster, which has no slash, as it is."""
    if cluster.startswith("~/"):
        return str(parse_path(cluster))
    return str(folder.absolute() / cluster) if "/" in cluster else cluster


def _parse_launch(value: Any) -> str:
    launchers = {*BUILT_IN, *registry.list_names(registry.LAUNCHERS)}
    if not isinstance(value, str):
        raise ValueError
    if value not in launchers:
        raise UnknownNameError("launcher", value, launchers)
    return value


def _parse_address(value: Any) -> str:
    address = str(_ADDRESS.convert(value))
    with suppress(ValueError):
        if ipaddress.ip_address(address).is_unspecified:
            address = ""
    if not address:
        raise ValueError
    return address


def _parse_cores(value: Any) -> tuple[int, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not parts or any(isinstance(part, bool) for part in parts):
        raise ValueError
    cores: set[int] = set()
    for part in parts:
        # A list has numbers, a text has ranges too.
        match = _CORES.fullmatch(str(part).strip()) if isinstance(part, str) == isinstance(value, str) else None
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ValueError
        cores.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(cores))


def _parse_variables(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError
    faults = []
    for name, content in value.items():
        if _VARIABLE.fullmatch(name) is None:
            faults.append(f"the name {name!r}")
        elif not isinstance(content, str) or "\0" in content:
            faults.append(f"the value of {name}")  # without the value, which may be a secret
    if faults:
        raise ValueError(" and ".join(faults))
    return dict(value)


def _parse_options(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(validation.is_valid(_Option, option) for option in value):
        raise ValueError
    return tuple(value)


Launch = Annotated[str, Check(_parse_launch, '"local", "ssh", "slurm", "array" or "attach"')]
Host = Annotated[
    str,
    # Nothing that a shell or ssh itself could take for more than a name: OpenSSH refuses the same characters.
    text(
        r"(?!-)(?!.*@-)[^\s\x00-\x1f\x7f'`\"$\\;&<>|(){}]+",
        "an alias of ~/.ssh/config or user@address, without blanks and quotes, and not beginning with -",
    ),
]
Program = Annotated[
    str,
    text(
        r"(/|~/)[^\x00-\x1f\x7f]+|[A-Za-z0-9_][\w.+-]*",
        'the name of a program, or a path that begins with "/" or "~/"',
    ),
]
Setup = Annotated[str, text(".*", "a text with lines for sh")]
Network = Annotated[str, text("tunnel|direct", '"tunnel" or "direct"')]
Address = Annotated[
    str, Check(_parse_address, "the address or name of this machine as the device sees it, not 0.0.0.0")
]
Cores = Annotated[tuple[int, ...], Check(_parse_cores, 'the numbers of cores: "0-3,8" or [0, 1]')]
Variables = Annotated[
    Mapping[str, str],
    Check(_parse_variables, 'a table of texts named by letters, digits and _: env = { OMP_PROC_BIND = "true" }'),
]
Accelerator = Annotated[str, text("cpu|cuda:(0|[1-9][0-9]{0,3})", '"cpu", or "cuda:0" with the number of the GPU')]
Folder = Annotated[str, text(r"(/|~/)[^\x00-\x1f\x7f]+", 'a folder that begins with "/" or "~/"')]
_Option = Annotated[str, text(r"-[^\x00-\x1f]+", "")]
SlurmOptions = Annotated[
    tuple[str, ...],
    Check(
        _parse_options,
        'a list of options, each a text that begins with "-": ["--partition=gpu", "--time=1:00:00"]',
    ),
]
Indices = Annotated[
    int, validation.integer(1, expected="the number of jobs that share the trials of a sweep, an integer >= 1")
]
Cluster = Annotated[
    str, text(r"[^\x00-\x1f\x7f]*", "the id of an ipyparallel cluster, or the path of its connection file")
]
Target = Annotated[int, validation.integer(0, expected="the number of an engine, an integer >= 0")]
