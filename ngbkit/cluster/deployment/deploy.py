"""Bring ngbkit to a device, into an environment of its own there, and look at what the device can do with it.

    wheel -> one stream over the device's shell -> `ngbkit.cluster.deployment.onsite` over there: venv, pip, a look

Nothing has to be on the device but a Python, and nothing is changed there outside its state folder.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ngbkit.cluster import replies
from ngbkit.cluster.deployment import wheel, wheelhouse
from ngbkit.cluster.deployment.remote import Say, carry, nobody, own_python, settled
from ngbkit.cluster.devices import Device
from ngbkit.device.spec import FORMAT
from ngbkit.errors import DeviceError, UnknownNameError
from ngbkit.sweep import records

# The extras that bring compilers, and what a GPU needs to be read; the others are the client's.
DEVICE_EXTRAS = (
    *("torch", "onnxruntime", "openvino", "tvm", "iree", "executorch"),
    *("cuda", "onnxruntime-gpu", "tensorrt", "tensorrt-rtx"),
)
# Which of them where none is named, by processor: OpenVINO is Intel's.
_DEFAULTS = {"x86_64": ("torch", "onnxruntime", "openvino")}
_DEFAULT = ("torch", "onnxruntime")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """What a device can do now.

    Parameters
    ----------
    device
        Its label.
    version
        The version of ngbkit that is there.
    python
        The Python of the environment that was made.
    state_dir
        The folder that holds it, and all that runs will leave there.
    environment
        What the device is, as `ngbkit.hardware.environment.describe` tells it there.
    compilers
        Each compiler: ``compiler``, ``version``, and as ``missing`` why it cannot be used there, or ``""``.
    remark
        What is left to do until runs use it, a sentence; empty where there is nothing.
    """

    device: str
    version: str
    python: str
    state_dir: str
    environment: Mapping[str, Any]
    compilers: Sequence[Mapping[str, Any]]
    remark: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def to_text(self) -> str:
        """All of it in lines, for people."""
        about = self.environment
        packages = about.get("packages") or {}
        device = {
            "chip": about.get("chip"),
            "cores": f"{about.get('cores_usable')} of {about.get('threads')}",
            "memory": f"{(about.get('memory_bytes') or 0) / 2**30:.1f} GiB",
            "Python": f"{about.get('python')}, {self.python}",
            "libraries": ", ".join(f"{name} {number}" for name, number in packages.items()),
        }
        compilers = {
            one["compiler"]: f"not available: {one['missing']}" if one["missing"] else one["version"] or "available"
            for one in self.compilers
        }
        rows = {**device, "compilers": "", **{f"  {name}": text for name, text in compilers.items()}}
        width = max(map(len, rows))
        lines = [f"{name.ljust(width)}  {text}" for name, text in rows.items()]
        head = f"{self.device}: ngbkit {self.version} is ready in {self.state_dir}"
        more = f"To bring more of them: ngbkit deploy {self.device} --extras NAMES"
        if all(not one["missing"] for one in self.compilers):
            more = ""
        return "\n".join(replies.plain(line).rstrip() for line in [head, *lines, more, self.remark] if line)


def deploy(
    device: Device,
    *,
    extras: Sequence[str] | None = None,
    wheels: Path | bool = False,
    python: str | None = None,
    system_site_packages: bool = False,
    say: Say = nobody,
) -> Deployed:
    """Install the ngbkit that runs now on a device, in an environment of its own, and look at what it can do.

    Where it is there already it is brought up to date in place.

    Parameters
    ----------
    device
        The device, as the devices file has it.
    extras
        Which compilers to bring: some of `DEVICE_EXTRAS`. Default: PyTorch, ONNX Runtime, and on x86 OpenVINO.
    wheels
        False: the device fetches what it needs. True: it is fetched here and sent. A folder: what lies there is sent.
    python
        The Python over there that the environment is made of. Default: the device's own, else ``python3``.
    system_site_packages
        Whether the environment sees the packages of that Python too, as those of a Jetson's system.
    say
        Takes what is done, and what pip prints, line by line.

    Raises
    ------
    UsageError
        An extra that there is not, a folder without wheels, or a device that this cannot be done for.
    DeviceError
        It cannot be reached, or the installation failed; the message holds what was said last.
    """
    device = settled(device)
    known = [extra for extra in DEVICE_EXTRAS if extra in wheel.extras()]
    for extra in extras or ():
        if extra not in known:
            raise UnknownNameError("extra", extra, known, "Each brings a compiler and what that needs.")
    named = (python or own_python(device)) is not None
    told: dict[str, Any] = {"named": named, "system": system_site_packages}
    about = _read_look(device, carry(device, "look", python=python, told=told))
    if extras is None:
        wanted = _DEFAULTS.get(about["markers"]["platform_machine"], _DEFAULT)
        extras = [extra for extra in wanted if extra in known]
    with tempfile.TemporaryDirectory() as folder:
        files = [wheel.build(Path(folder))]
        if wheels is not False:
            house = wheelhouse.gather(about, files[0], extras, say) if wheels is True else wheels
            files += wheelhouse.needed(house, about["installed"])
            size = sum(file.stat().st_size for file in files) / 2**20
            say(f"sending {len(files)} wheel(s), {size:.1f} MiB")
        told |= {"wheel": files[0].name, "extras": list(extras), "offline": wheels is not False}
        return _read_deployed(device, carry(device, "install", python=python, told=told, files=files, say=say))


def _read_look(device: Device, answer: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {"glibc": str, "free_threaded": bool, "installed": list, "markers": dict}
    about = replies.take(device.label, answer, kinds)
    about["installed"] = [str(name) for name in about["installed"]]
    told = ("platform_machine", "platform_python_implementation", "python_version", "python_full_version")
    replies.take(device.label, about["markers"], dict.fromkeys([*told, *about["markers"]], str))
    return about


def _read_deployed(device: Device, answer: Mapping[str, Any]) -> Deployed:
    kinds = {"python": str, "state_dir": str, "version": str, "hello": dict, "compilers": list}
    found = replies.take(device.label, answer, kinds)
    hello = replies.take(device.label, found["hello"], {"format": int, "record_format": int, "environment": dict})
    for name, own in (("format", FORMAT), ("record_format", records.FORMAT)):
        if hello[name] != own:
            raise DeviceError(
                f"device {device.label} has {name} {hello[name]} after the deploy, this ngbkit {own}: was it changed "
                "while it ran? Start it again, and deploy again."
            )
    compilers = [
        {**replies.take(device.label, one, {"compiler": str, "missing": str}), "version": one.get("version")}
        for one in found["compilers"]
    ]
    return Deployed(
        device=device.label,
        version=found["version"],
        python=found["python"],
        state_dir=found["state_dir"],
        environment=hello["environment"],
        compilers=compilers,
        remark=_remark(device, found["python"]),
    )


def _remark(device: Device, python: str) -> str:
    if own_python(device) is not None:
        return f"Runs use python = {device.python!r}, as the devices file says. Without that line they use this one."
    if device.launch == "local" and device.python is None:
        return f"Runs on this machine use their client's own Python. To use this one: python = {python!r}"
    return ""
