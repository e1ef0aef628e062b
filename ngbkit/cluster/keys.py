"""The keys of a table in the devices file: how to parse each, its valid values, and the launchers that it fits."""

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
from ngbkit.user_text import parse_path

BUILT_IN = ("local", "ssh", "slurm", "array", "attach")
_STARTED = ("local", "ssh", "slurm", "array")
# The labels that a sweep accepts: each names a folder on the device.
_LABEL = re.compile(r"\w[\w.-]*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_CORES = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
# Nothing that a shell or ssh itself could take for more than a name: OpenSSH refuses the same characters.
_HOST = r"(?!-)(?!.*@-)[^\s\x00-\x1f\x7f'`\"$\\;&<>|(){}]+"
_MAX_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a device."""

    # Returns the field of the device. Raises a ValueError for an invalid value, whose text (if any) names the part.
    parse: Callable[[Any], Any]
    # Describes the valid values.
    valid: str
    # The built-in launchers that it fits; a launcher of another package accepts every key.
    launches: tuple[str, ...] = BUILT_IN


def parse_table(label: str, table: Any, folder: Path) -> tuple[dict[str, Any], list[UsageError]]:
    """Parse a device's table as TOML gave it; return its fields and all faults. Paths are relative to `folder`."""
    if not isinstance(table, Mapping):
        return {}, [UsageError("is outside of any table: begin a device with a line such as [orin].")]
    faults: list[UsageError] = []
    if not is_label(label):
        faults.append(
            UsageError("is not a valid label; expected letters, digits and _ - . after the first, as in [orin-2].")
        )
    launch = table.get("launch")
    fitting = [name for name, key in KEYS.items() if launch not in BUILT_IN or launch in key.launches]
    fields: dict[str, Any] = {}
    for name, value in table.items():
        try:
            fields[name] = _parse_key(label, name, value, launch, fitting)
        except UsageError as fault:
            faults.append(fault)
    if "cluster" in fields:
        fields["cluster"] = _resolve_cluster(fields["cluster"], folder)
    return fields, [*faults, *_check_combination(table)]


def is_label(text: str) -> bool:
    """Return whether a device may have that label."""
    return _LABEL.fullmatch(text) is not None


def _parse_key(label: str, name: str, value: Any, launch: Any, fitting: Sequence[str]) -> Any:
    key = KEYS.get(name)
    if key is None and isinstance(value, Mapping):
        quoted = json.dumps(f"{label}.{name}", ensure_ascii=False)
        raise UsageError(f"has an unexpected table {name!r}; only env is one. Quote a label with a dot: [{quoted}].")
    if key is None:
        raise UnknownNameError("key", name, fitting)
    if name not in fitting:
        launchers = " or ".join(f'"{launcher}"' for launcher in key.launches)
        raise UsageError(f'{name} does not fit launch = "{launch}", only {launchers}: remove it, or change launch.')
    try:
        return key.parse(value)
    except UnknownNameError:
        raise
    except ValueError as error:
        raise UsageError(f"invalid {name}: got {str(error) or _shorten(value)}; expected {key.valid}.") from None


def _check_combination(table: Mapping[str, Any]) -> Iterator[UsageError]:
    """Yield a fault for each key that is missing, or that contradicts another."""
    launch, network = table.get("launch"), table.get("network", "tunnel")
    if launch is None:
        yield UsageError(f"launch is missing; expected {KEYS['launch'].valid}.")
    requirements = [
        ("host", launch == "ssh", 'launch = "ssh"'),
        ("address", launch == "slurm", 'launch = "slurm"'),
        ("address", launch == "ssh" and network == "direct", 'network = "direct"'),
        ("indices", launch == "array", 'launch = "array"'),
    ]
    for name, is_required, setting in requirements:
        if is_required and name not in table:
            yield UsageError(f"{name} is missing, which {setting} requires; expected {KEYS[name].valid}.")
    options = table.get("sbatch")
    if launch == "array" and isinstance(options, list) and any(map(_is_array_option, map(str, options))):
        yield UsageError("sbatch has --array, which `indices` sets: remove it there.")
    if launch == "ssh" and network == "tunnel" and "address" in table:
        yield UsageError('address requires network = "direct", a tunnel needs none: remove it, or change network.')


def _is_array_option(option: str) -> bool:
    return option.startswith(("--array", "-a"))


def _resolve_cluster(cluster: str, folder: Path) -> str:
    """Return the absolute path of a connection file; return the id of a cluster, which has no slash, as it is."""
    if cluster.startswith("~/"):
        return str(parse_path(cluster))
    return str(folder.absolute() / cluster) if "/" in cluster else cluster


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _build_text_parser(pattern: str) -> Callable[[Any], str]:
    """Build the parser of a text that matches the pattern and has no NUL."""
    form = re.compile(pattern, re.DOTALL | re.ASCII)

    def parse(value: Any) -> str:
        if not isinstance(value, str) or "\0" in value or form.fullmatch(value) is None:
            raise ValueError
        return value

    return parse


def _build_integer_parser(minimum: int) -> Callable[[Any], int]:
    """Build the parser of an integer >= `minimum`."""

    def parse(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise ValueError
        return value

    return parse


def _parse_launch(value: Any) -> str:
    launchers = {*BUILT_IN, *registry.list_names(registry.LAUNCHERS)}
    if isinstance(value, str) and value not in launchers:
        raise UnknownNameError("launcher", value, launchers)
    return _build_text_parser(".+")(value)


def _parse_address(value: Any) -> str:
    address = _build_text_parser(r"[A-Za-z0-9][\w.:-]*")(value)
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
    for name, text in value.items():
        if _VARIABLE.fullmatch(name) is None:
            faults.append(f"the name {name!r}")
        elif not isinstance(text, str) or "\0" in text:
            faults.append(f"the value of {name}")  # without the value, which may be a secret
    if faults:
        raise ValueError(" and ".join(faults))
    return dict(value)


def _parse_options(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(map(_build_text_parser(r"-[^\x00-\x1f]+"), value))


KEYS: Mapping[str, Key] = {
    "launch": Key(parse=_parse_launch, valid='"local", "ssh", "slurm", "array" or "attach"'),
    "host": Key(
        parse=_build_text_parser(_HOST),
        valid="an alias of ~/.ssh/config or user@address, without blanks and quotes, and not beginning with -",
        launches=("ssh", "slurm", "array"),
    ),
    "python": Key(
        parse=_build_text_parser(r"(/|~/)[^\x00-\x1f\x7f]+|[A-Za-z0-9_][\w.+-]*"),
        valid='the name of a program, or a path that begins with "/" or "~/"',
        launches=_STARTED,
    ),
    "setup": Key(parse=_build_text_parser(".*"), valid="a text with lines for sh", launches=_STARTED),
    "network": Key(parse=_build_text_parser("tunnel|direct"), valid='"tunnel" or "direct"', launches=("ssh",)),
    "address": Key(
        parse=_parse_address,
        valid="the address or name of this machine as the device sees it, not 0.0.0.0",
        launches=("ssh", "slurm"),
    ),
    "trust": Key(
        parse=_build_text_parser(r"\w[\w.-]*"),
        valid="the name of a group of devices that may run code on each other, in letters, digits and _ - .",
        launches=("local", "ssh", "slurm"),
    ),
    "cores": Key(parse=_parse_cores, valid='the numbers of cores: "0-3,8" or [0, 1]', launches=_STARTED),
    "threads": Key(parse=_build_integer_parser(1), valid="an integer >= 1"),
    "env": Key(
        parse=_parse_variables,
        valid='a table of texts named by letters, digits and _: env = { OMP_PROC_BIND = "true" }',
        launches=_STARTED,
    ),
    "accelerator": Key(
        parse=_build_text_parser("cpu|cuda:(0|[1-9][0-9]{0,3})"), valid='"cpu", or "cuda:0" with the number of the GPU'
    ),
    "state_dir": Key(
        parse=_build_text_parser(r"(/|~/)[^\x00-\x1f\x7f]+"),
        valid='a folder that begins with "/" or "~/"',
        launches=_STARTED,
    ),
    "sbatch": Key(
        parse=_parse_options,
        valid='a list of options, each a text that begins with "-": ["--partition=gpu", "--time=1:00:00"]',
        launches=("slurm", "array"),
    ),
    "indices": Key(
        parse=_build_integer_parser(1),
        valid="the number of jobs that share the trials of a sweep, an integer >= 1",
        launches=("array",),
    ),
    "cluster": Key(
        parse=_build_text_parser(r"[^\x00-\x1f\x7f]*"),
        valid="the id of an ipyparallel cluster, or the path of its connection file",
        launches=("attach",),
    ),
    "target": Key(
        parse=_build_integer_parser(0), valid="the number of an engine, an integer >= 0", launches=("attach",)
    ),
}
