"""An ONNX Runtime with providers for a GPU that is not there: it computes on the CPU, in the memory of the fake driver.

Everything but the provider is ONNX Runtime itself: sessions, bindings to addresses, profiles.
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
# Of the names that are read of it, those that are as they are.
_REAL = ("ExecutionMode", "GraphOptimizationLevel", "RunOptions", "__file__", "__version__")


class Settings(onnxruntime.SessionOptions):  # type: ignore[misc]  # ONNX Runtime has no types
    """Session options that keep what only the fake looks at."""

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
    """A binding whose addresses on the GPU are addresses of this process."""

    def __init__(self, session: Any) -> None:
        self.real = session.io_binding()
        self.places: list[str] = []

    def bind_input(self, name: str, place: str, *rest: Any) -> None:
        self.places.append(place)
        self.real.bind_input(name, "cpu", *rest)

    def bind_output(self, name: str, place: str, *rest: Any) -> None:
        self.places.append(place)
        self.real.bind_output(name, "cpu", *rest)


@dataclass
class FakeRuntime:
    """What `ngbkit.compilers.onnxruntime_runtime.onnxruntime` is replaced by.

    Parameters
    ----------
    available
        The providers that this build has.
    taken
        What sessions say that they took; None: what was asked for.
    owner
        The provider that all nodes are assigned to; None: what was asked for.
    devices
        What plugins offer.
    refuses
        A part of the path of a file that no session opens.
    """

    available: Sequence[str] = ("CUDAExecutionProvider", ON_CPU)
    taken: str | None = None
    owner: str | None = None
    devices: Sequence[Any] = ()
    refuses: str = ""
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
    """A session on the CPU that bears the name of the provider that was asked for."""

    def __init__(self, runtime: FakeRuntime, model: Any, settings: Settings, providers: Any) -> None:
        self.model, self.settings, self._runtime = model, settings, runtime
        if settings.plugged is None:
            [(self.asked, self.options)] = providers
        else:
            self.asked, self.options = settings.plugged[0][0].ep_name, settings.plugged[1]
        self.real = onnxruntime.InferenceSession(model, settings, providers=[ON_CPU], enable_fallback=0)
        self.waits: list[bool] = []
        self.bindings: list[Binding] = []
        engine = settings.entries.get("ep.context_file_path")
        if engine and settings.entries.get("ep.context_enable") == "1":
            Path(engine).write_bytes(model) if isinstance(model, bytes) else shutil.copy(model, engine)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def get_providers(self) -> list[str]:
        return [self._runtime.taken or self.asked, ON_CPU]

    def get_provider_graph_assignment_info(self) -> list[Any]:
        return [SimpleNamespace(ep_name=self._runtime.owner or self.asked)]

    def io_binding(self) -> Binding:
        self.bindings.append(Binding(self.real))
        return self.bindings[-1]

    def run_with_iobinding(self, binding: Binding, options: Any = None) -> None:
        key = "disable_synchronize_execution_providers"
        self.waits.append(options is None or options.get_run_config_entry(key) != "1")
        self.real.run_with_iobinding(binding.real, options)


def install(patch: pytest.MonkeyPatch, **known: Any) -> FakeRuntime:
    """Make such a runtime that of the compilers."""
    runtime = FakeRuntime(**known)
    patch.setattr(onnxruntime_runtime, "onnxruntime", runtime)
    return runtime
