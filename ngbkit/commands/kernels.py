"""``ngbkit kernels``: the Jupyter kernel in the wheel, and one for each device."""

from __future__ import annotations

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
from ngbkit.errors import MissingDependencyError, UnknownNameError, UsageError
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
        kernels = {label: kernel for kernel, label in _find_installed().items() if label}
        for label in args.names or list(kernels):
            if label not in kernels:
                raise UnknownNameError("device with a kernel", label, kernels)
            _spec_manager().remove_kernel_spec(kernels[label])
    rows = [_build_row(kernel, label) for kernel, label in _find_installed().items()]
    return Answer(json=rows, rows=rows, empty="No kernel: `pip install 'ngbkit[notebook]'` installs one.")


COMMAND = Command(
    name="kernels",
    help="List the Jupyter kernels of ngbkit, install one for each device, or remove them.",
    arguments=(
        argument(
            "action list|install|remove",
            "list the kernels of ngbkit (the default); install a kernel for each device of the devices file, or for "
            "the named devices; remove the kernels of the named devices, or of all",
        ),
        argument("names DEVICE", "labels of devices", nargs="*", completes="device"),
        argument("--sys-prefix", "install into this Python environment instead of the user's own folder"),
    ),
    run=answer_kernels,
)


def install(label: str, *, sys_prefix: bool = False) -> Path:
    """Install a kernel whose sweeps measure on a device by default, and return its folder."""
    devices.check([label])
    manager = _spec_manager()
    with TemporaryDirectory() as source:
        folder = Path(source)
        _copy_logos(manager, folder)
        (folder / "kernel.json").write_text(json.dumps(build_spec(label), indent=1))
        target = {"prefix": sys.prefix} if sys_prefix else {"user": True}
        return Path(manager.install_kernel_spec(source, kernel_name=f"{KERNEL}-{label}".lower(), **target))


def build_spec(label: str) -> dict[str, Any]:
    """Build the content of ``kernel.json`` for the kernel of a device."""
    return {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--ext", "ngbkit"],
        "display_name": f"ngbkit on {label}",
        "language": "python",
        "env": {options.DEVICE: label},
        "metadata": {"debugger": True},
    }


def _spec_manager() -> Any:
    try:
        from jupyter_client.kernelspec import KernelSpecManager
    except ImportError as error:
        raise MissingDependencyError("jupyter-client", "notebook") from error
    manager = KernelSpecManager()
    with warnings.catch_warnings():
        # IPython's, of a home without its folder: kernels are looked for there as well, and there are none.
        warnings.simplefilter("ignore", UserWarning)
        _ = manager.kernel_dirs
    return manager


def _copy_logos(manager: Any, folder: Path) -> None:
    """Copy the logos of the kernel in the wheel, if it is installed."""
    shipped = manager.find_kernel_specs().get(KERNEL)
    for logo in Path(shipped).glob("logo-*") if shipped else ():
        shutil.copy(logo, folder)


def _find_installed() -> dict[str, str]:
    """Find the device of each installed kernel of ngbkit, by kernel; the kernel in the wheel has none."""
    specs = {kernel: entry["spec"] for kernel, entry in sorted(_spec_manager().get_all_specs().items())}
    labels = {kernel: str(spec.get("env", {}).get(options.DEVICE, "")) for kernel, spec in specs.items()}
    return {kernel: label for kernel, label in labels.items() if label or kernel == KERNEL}


def _build_row(kernel: str, label: str) -> dict[str, str]:
    manager = _spec_manager()
    is_removed = label and label not in devices.load()
    return {
        "kernel": kernel,
        "device": label or "any",
        "where": manager.find_kernel_specs()[kernel],
        "remark": "the devices file has no such device any more" if is_removed else "",
    }
