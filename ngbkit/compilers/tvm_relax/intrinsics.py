"""The hardware intrinsics that MetaSchedule's rules name, registered only for the kind of chip being tuned.

By itself TVM imports and parses the intrinsics of all kinds at each tuning: 20 s; this machine's own take less than
half a second.
"""

from __future__ import annotations

import importlib
import platform
import sys
import types
from pathlib import Path
from typing import Any

_PACKAGE = "tvm.s_tir.tensor_intrin"
_OF_CPU = {"x86_64": "x86", "amd64": "x86", "aarch64": "arm_cpu", "arm64": "arm_cpu", "riscv64": "riscv_cpu"}


def register(target: Any) -> None:
    """Register the target's intrinsics with TVM, and mark TVM's own package of all intrinsics as imported."""
    import tvm.s_tir

    name = _OF_CPU.get(platform.machine().lower()) if target.kind.name == "llvm" else None
    if _PACKAGE in sys.modules or name is None:
        return
    package = types.ModuleType(_PACKAGE)
    package.__path__ = [str(Path(tvm.s_tir.__path__[0], "tensor_intrin"))]
    sys.modules[_PACKAGE] = package
    importlib.import_module(f"{_PACKAGE}.{name}")
