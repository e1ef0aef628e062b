"""Deploys ngbkit to a device, into an environment in its state folder, and checks the compilers of the device."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ngbkit.cluster import replies
from ngbkit.cluster.devices import Device
from ngbkit.device.releases import list_requirements
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.fleet.deployment import DEVICE_EXTRAS, wheel, wheelhouse
from ngbkit.fleet.deployment.remote import Report, find_custom_python, request, resolve
from ngbkit.sweep.column import Column
from ngbkit.user_text import clean_line

# The default extras by processor: OpenVINO is Intel's.
_DEFAULTS = {"x86_64": ("torch", "onnxruntime", "openvino")}
_DEFAULT = ("torch", "onnxruntime")
# The extra that installs releases on the device.
_INSTALLER = "releases"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The ngbkit that a deploy has installed on a device."""

    device: str
    version: str
    # The Python of the new environment.
    python: str
    # The folder of the environment, and of all files of later runs.
    state_dir: str
    # The device's `ngbkit.hardware.environment.describe`.
    environment: Mapping[str, Any]
    # compiler, version, and missing: the reason why it is unavailable, or "".
    compilers: Sequence[Mapping[str, Any]]
    # The next step until runs use it, as a sentence; "" if there is none.
    remark: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def to_text(self) -> str:
        """Render it as lines of text."""
        packages = self.environment.get("packages") or {}
        facts = {
            "chip": self.environment.get("chip"),
            "cores": f"{self.environment.get('cores_usable')} of {self.environment.get('threads')}",
            "memory": f"{(self.environment.get('memory_bytes') or 0) / 2**30:.1f} GiB",
            "Python": f"{self.environment.get('python')}, {self.python}",
            "libraries": ", ".join(f"{name} {number}" for name, number in packages.items()),
        }
        compilers = {
            f"  {compiler['compiler']}": f"not available: {compiler['missing']}"
            if compiler["missing"]
            else compiler["version"] or "available"
            for compiler in self.compilers
        }
        rows = {**facts, "compilers": "", **compilers}
        width = max(map(len, rows))
        lines = [f"{self.device}: ngbkit {self.version} is ready in {self.state_dir}"]
        lines += [f"{name.ljust(width)}  {text}" for name, text in rows.items()]
        if any(compiler["missing"] for compiler in self.compilers):
            lines.append(f"To install more of them: ngbkit deploy {self.device} --extras NAMES")
        return "\n".join(clean_line(line).rstrip() for line in [*lines, self.remark] if line)


def deploy(
    device: Device,
    *,
    extras: Sequence[str] | None = None,
    releases: Sequence[str] = (),
    wheels: Path | bool = False,
    python: str | None = None,
    system_site_packages: bool = False,
    report: Report = str,
) -> Deployment:
    """Install the running ngbkit on a device, or update it there, and check the compilers of the device.

    `extras` are some of `DEVICE_EXTRAS`. The device downloads its `wheels` (False), or receives those that are
    downloaded here (True) or lie in a folder; so also those of `releases`, which are columns such as
    ``onnxruntime@1.23.2``: a device with a network downloads each at its first sweep. The environment is based on
    `python` of the device (by default the configured one, else ``python3``), with its system's packages if
    `system_site_packages`, as on a Jetson. `report` receives the progress and pip's output line by line.
    """
    device = resolve(device)
    available = [extra for extra in DEVICE_EXTRAS if extra in wheel.list_extras()]
    for extra in extras or ():
        if extra not in available:
            raise UnknownNameError("extra", extra, available, "Each installs a compiler and its requirements.")
    requirements = [_list_requirements(label) for label in releases]
    is_named = (python or find_custom_python(device)) is not None
    fields: dict[str, Any] = {"named": is_named, "system": system_site_packages}
    machine = _parse_machine(device, request(device, "look", python=python, fields=fields))
    if extras is None:
        defaults = _DEFAULTS.get(machine["markers"]["platform_machine"], _DEFAULT)
        extras = [extra for extra in defaults if extra in available]
    if requirements:
        extras = list(dict.fromkeys([*extras, _INSTALLER]))
    with tempfile.TemporaryDirectory() as folder:
        files = [wheel.build(Path(folder))]
        sent: list[Path] = []
        if wheels is not False:
            house = wheelhouse.download(machine, files[0], extras, report) if wheels is True else wheels
            shelf = None if wheels is True else house
            sent = [file for each in requirements for file in wheelhouse.download_release(machine, each, shelf, report)]
            files += wheelhouse.select_missing(house, machine["installed"])
            # Releases share some wheels, among themselves and with ngbkit: each travels once.
            files = list({file.name: file for file in [*files, *sent]}.values())
            size = sum(file.stat().st_size for file in files) / 2**20
            report(f"sending {len(files)} wheel(s), {size:.1f} MiB")
        fields |= {"wheel": files[0].name, "extras": list(extras), "offline": wheels is not False}
        fields["releases"] = sorted({file.name for file in sent})
        answer = request(device, "install", python=python, fields=fields, files=files, report=report)
        return _parse_deployment(device, answer)


def _list_requirements(label: str) -> tuple[str, ...]:
    """List what the environment of a column's release needs; UsageError if the column has none."""
    column = Column.parse(label)
    if not column.release:
        raise UsageError(f"invalid release: got {label}; expected a column with one, such as onnxruntime@1.23.2.")
    return list_requirements(column.load_compiler(), column.release)


def _parse_machine(device: Device, answer: Mapping[str, Any]) -> dict[str, Any]:
    types = {"glibc": str, "free_threaded": bool, "installed": list, "markers": dict}
    machine = replies.extract(device.label, answer, types)
    machine["installed"] = [str(name) for name in machine["installed"]]
    required = ("platform_machine", "platform_python_implementation", "python_version", "python_full_version")
    replies.extract(device.label, machine["markers"], dict.fromkeys([*required, *machine["markers"]], str))
    return machine


def _parse_deployment(device: Device, answer: Mapping[str, Any]) -> Deployment:
    types = {"python": str, "state_dir": str, "version": str, "hello": dict, "compilers": list}
    fields = replies.extract(device.label, answer, types)
    hello = replies.extract(device.label, fields["hello"], {"format": int, "record_format": int, "environment": dict})
    replies.check_formats(device.label, hello, "Did this ngbkit change while it ran? Restart it, and deploy again.")
    return Deployment(
        device=device.label,
        version=clean_line(fields["version"]),
        python=clean_line(fields["python"]),
        state_dir=clean_line(fields["state_dir"]),
        environment=replies.parse_note(device.label, "environment", device.label, hello["environment"])["value"],
        compilers=[_parse_compiler(device, item) for item in fields["compilers"]],
        remark=_build_remark(device, fields["python"]),
    )


def _parse_compiler(device: Device, item: Any) -> dict[str, Any]:
    """Check the description of one compiler; its version is None if it is not installed."""
    if not isinstance(item, Mapping):
        item = {"compiler": item}
    types = {"compiler": str, "missing": str, **({} if item.get("version") is None else {"version": str})}
    texts = replies.extract(device.label, item, types)
    return {"version": None, **{name: clean_line(text) for name, text in texts.items()}}


def _build_remark(device: Device, python: str) -> str:
    if find_custom_python(device) is not None:
        return f"Runs use python = {device.python!r} of the devices file. Remove that line to use this environment."
    if device.launch == "local" and device.python is None:
        return f"Runs on this machine use the client's own Python. To use this one: python = {python!r}"
    return ""
