"""A fake ONNX Runtime with providers of a GPU that does not exist: it computes on the CPU, in the fake driver's memory.

Everything except the provider is ONNX Runtime itself: sessions, bindings to addresses, profiles.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnxruntime
import pytest

from ngbkit.compilers import onnxruntime_runtime

ON_CPU = "CPUExecutionProvider"
# The attributes passed through from the real module.
_REAL = ("ExecutionMode", "GraphOptimizationLevel", "RunOptions", "__file__", "__version__")


class Settings(onnxruntime.SessionOptions):  # type: ignore[misc]  # ONNX Runtime has no types
    """Session options that record the entries that only the fake reads."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[str, str] = {}
        self.plugged: tuple[list[Any], dict[str, str]] | None = None

    def add_session_config_entry(self, name: str, value: str) -> None:
        self.entries[name] = value
        if not name.startswith("ep."):
            super().add_session_config_entry(name, value)

    def add_provider_for_devices(self, devices: list[Any], options: dict[str, str]) -> None:
        self.plugged = (devices, options)


class Binding:
    """A binding whose GPU addresses are addresses of this process."""

    def __init__(self, session: Any) -> None:
        self.real = session.io_binding()
        self.devices: list[str] = []

    def bind_input(self, name: str, device: str, *rest: Any) -> None:
        self.devices.append(device)
        self.real.bind_input(name, "cpu", *rest)

    def bind_output(self, name: str, device: str, *rest: Any) -> None:
        self.devices.append(device)
        self.real.bind_output(name, "cpu", *rest)


@dataclass
class FakeRuntime:
    """The replacement of `ngbkit.compilers.onnxruntime_runtime.onnxruntime`."""

    available: Sequence[str] = ("CUDAExecutionProvider", ON_CPU)  # the providers of this build
    chosen: str | None = None  # the provider that sessions report; by default the requested one
    owner: str | None = None  # the provider of all nodes; by default the requested one
    devices: Sequence[Any] = ()  # the devices that plugins offer
    refuses: str = ""  # part of a path that no session opens
    SessionOptions: type[Settings] = Settings
    opened: list[Session] = field(default_factory=list)
    registered: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        if name not in _REAL:
            raise AttributeError(name)
        return getattr(onnxruntime, name)

    def get_available_providers(self) -> Sequence[str]:
        return self.available

    def get_ep_devices(self) -> Sequence[Any]:
        return self.devices

    def register_execution_provider_library(self, name: str, path: str) -> None:
        del path
        if name in self.registered:
            raise RuntimeError(f"{name} is already registered")
        self.registered.append(name)

    def preload_dlls(self, directory: str) -> None:
        assert directory == ""
        print("Failed to load something optional")  # noqa: T201  as ONNX Runtime does

    def InferenceSession(
        self, model: Any, settings: Settings, providers: Any = None, enable_fallback: int = 1
    ) -> Session:
        assert not enable_fallback
        if self.refuses and self.refuses in str(model):
            raise RuntimeError("could not deserialize engine")
        session = Session(self, model, settings, providers)
        self.opened.append(session)
        return session


class Session:
    """A session on the CPU that reports the name of the requested provider."""

    def __init__(self, runtime: FakeRuntime, model: Any, settings: Settings, providers: Any) -> None:
        self.model, self.settings, self._runtime = model, settings, runtime
        if settings.plugged is None:
            [(self.requested, self.options)] = providers
        else:
            self.requested, self.options = settings.plugged[0][0].ep_name, settings.plugged[1]
        self.real = onnxruntime.InferenceSession(model, settings, providers=[ON_CPU], enable_fallback=0)
        self.waits: list[bool] = []
        self.bindings: list[Binding] = []
        engine = settings.entries.get("ep.context_file_path")
        if engine and settings.entries.get("ep.context_enable") == "1":
            Path(engine).write_bytes(model) if isinstance(model, bytes) else shutil.copy(model, engine)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def get_providers(self) -> list[str]:
        return [self._runtime.chosen or self.requested, ON_CPU]

    def get_provider_graph_assignment_info(self) -> list[Any]:
        return [SimpleNamespace(ep_name=self._runtime.owner or self.requested)]

    def io_binding(self) -> Binding:
        self.bindings.append(Binding(self.real))
        return self.bindings[-1]

    def run_with_iobinding(self, binding: Binding, options: Any = None) -> None:
        key = "disable_synchronize_execution_providers"
        self.waits.append(options is None or options.get_run_config_entry(key) != "1")
        self.real.run_with_iobinding(binding.real, options)


def install(patch: pytest.MonkeyPatch, **fields: Any) -> FakeRuntime:
    """Replace the compilers' ONNX Runtime by a fake one with those fields."""
    runtime = FakeRuntime(**fields)
    patch.setattr(onnxruntime_runtime, "onnxruntime", runtime)
    return runtime
