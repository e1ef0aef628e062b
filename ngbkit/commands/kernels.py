"""``ngbkit kernels``: the Jupyter kernel in the wheel, and one for each device."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ngbkit import options
from ngbkit.cluster import devices
from ngbkit.commands.answer import Answer
from ngbkit.commands.command import Call, Command
from ngbkit.errors import UnknownNameError, UsageError, import_optional
from ngbkit.sweep.argument import argument

KERNEL = "ngbkit"
"""The kernel in the wheel; the kernel of a device is named ``ngbkit-<label>``."""


def answer_kernels(call: Call) -> Answer:
    """List, install or remove kernels, and list the kernels that result."""
    args = call.args
    if args.action == "list":
        if args.names:
            raise UsageError(
                f"unexpected argument {' '.join(args.names)!r}: `ngbkit kernels list` lists the kernels of all devices."
            )
    elif args.action == "install":
        for label in args.names or [label for label in devices.load() if label != "cpu"] or ["cpu"]:
            install(label, sys_prefix=args.sys_prefix)
    else:
        ours = {row["kernel"]: row["device"] for row in list_kernels() if _is_ours(row["python"])}
        for label in args.names:
            if label not in ours.values():
                raise UnknownNameError("device with a kernel of this Python", label, ours.values())
        for kernel, label in ours.items():
            if not args.names or label in args.names:
                _spec_manager().remove_kernel_spec(kernel)
    rows = list_kernels()
    return Answer.of_rows(rows, "No kernel: `pip install 'ngbkit[notebook]'` installs one.", json=rows)


COMMAND = Command(
    name="kernels",
    help="List the Jupyter kernels of ngbkit, install one for each device, or remove them.",
    arguments=(
        argument(
            "action list|install|remove",
            "list the kernels of ngbkit (the default); install a kernel for each device of the devices file, or for "
            "the named devices; remove the kernels of the named devices, or of all, that start this Python",
        ),
        argument("names DEVICE", "labels of devices", nargs="*", completes="device"),
        argument("--sys-prefix", "install into this Python environment instead of the user's own folder"),
    ),
    run=answer_kernels,
)


def install(label: str, *, sys_prefix: bool = False) -> Path:
    """Install a kernel whose sweeps measure on a device, beside one of another Python; return its folder."""
    devices.check([label])
    manager = _spec_manager()
    name, display_name = f"{KERNEL}-{label}".lower(), f"ngbkit on {label}"
    if name in manager.find_kernel_specs() and not _is_ours(manager.get_kernel_spec(name).argv[0]):
        name = f"{name}-{hashlib.sha256(sys.prefix.encode()).hexdigest()[:6]}"
        display_name = f"{display_name} ({sys.prefix})"
    spec = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--ext", "ngbkit"],
        "display_name": display_name,
        "language": "python",
        "env": {options.DEVICE: label},
        "metadata": {"debugger": True},
    }
    with TemporaryDirectory() as source:
        # The logos of the kernel in the wheel, if it is installed.
        shipped = manager.find_kernel_specs().get(KERNEL)
        for logo in Path(shipped).glob("logo-*") if shipped else ():
            shutil.copy(logo, source)
        Path(source, "kernel.json").write_text(json.dumps(spec, indent=1))
        target = {"prefix": sys.prefix} if sys_prefix else {"user": True}
        return Path(manager.install_kernel_spec(source, kernel_name=name, **target))


def _spec_manager() -> Any:
    manager = import_optional("jupyter_client.kernelspec", "jupyter-client", "notebook").KernelSpecManager()
    with warnings.catch_warnings():
        # IPython's, of a home without its folder: kernels are looked for there as well, and there are none.
        warnings.simplefilter("ignore", UserWarning)
        _ = manager.kernel_dirs
    return manager


def list_kernels() -> list[dict[str, str]]:
    """List the kernels of ngbkit; the kernel in the wheel has no device, and starts the Python of its server."""
    rows = []
    for kernel, entry in sorted(_spec_manager().get_all_specs().items()):
        label, python = entry["spec"].get("env", {}).get(options.DEVICE, ""), entry["spec"]["argv"][0]
        remark = "" if label in ("", *devices.load()) else "the devices file has no such device any more"
        if label and not Path(python).exists():
            remark = f"its Python is not on this machine; remove it with: jupyter kernelspec remove {kernel}"
        row = {"kernel": kernel, "device": label or "any", "python": python, "where": entry["resource_dir"]}
        rows += [{**row, "remark": remark}] if label or kernel == KERNEL else []
    return rows


def _is_ours(python: str) -> bool:
    """Return whether a kernel starts this Python, by whichever of its names."""
    path, executable = Path(python), Path(sys.executable)
    return path.parent == executable.parent and path.exists() and path.samefile(executable)
