"""A profile: the nodes of a source network, the kernels that a runtime executes for them, and the seconds of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np

Role = Literal["compute", "copy", "unmapped"]

PROFILED = "identity, inductor, onnxruntime and openvino have profiles on a CPU, and tensorrt on a GPU: no others"
"""The sentence on the compilers whose kernels ngbkit reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNode:
    """A node of the network as it was compiled.

    Parameters
    ----------
    name
        Its name in the ONNX file, or the path of the torch module that ran.
    operator
        ``"Conv"``, ``"Conv depthwise"``, ``"Conv grouped"``; ``"aten::conv2d"`` of a torch module.
    module
        The path of the torch module that it comes from, such as ``"layer3.1.conv2"``; empty if unknown.
    inputs
        The indices of the nodes whose values it reads.
    moves
        Whether it only moves or renames values.
    """

    name: str
    operator: str
    module: str = ""
    inputs: tuple[int, ...] = ()
    moves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel that a runtime executes in each call.

    Parameters
    ----------
    name, kind
        In the words of the runtime: ``"relu_1_nchwc"``, ``"nchwc.Conv"``.
    nodes
        The indices of the source nodes that it computes, alone or with other kernels.
    role
        ``"copy"``: it changes a layout or a type, or copies memory, for no source node. ``"unmapped"``: unknown nodes.
    """

    name: str
    kind: str
    nodes: tuple[int, ...] = ()
    role: Role = "compute"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profile:
    """The kernels of a program, and the seconds of each in each profiled call: a row per call, NaN where unknown.

    Parameters
    ----------
    nodes
        The source network in topological order.
    kernels
        In the order of their execution.
    seconds
        Of shape ``(calls, kernels)``.
    form
        The form of the source network, ``"onnx"`` or ``"module"``.
    notes
        Sentences on what the runtime does not report.
    """

    nodes: Sequence[SourceNode]
    kernels: Sequence[Kernel]
    seconds: np.ndarray
    form: Literal["onnx", "module"] = "onnx"
    notes: tuple[str, ...] = ()

    def compute_shares(self) -> dict[str, float]:
        """Compute the share of the kernels' time by role: in each kernel, the median of its calls counts."""
        import numpy as np

        medians = np.nan_to_num(np.nanmedian(self.seconds, axis=0)) if self.seconds.size else np.zeros(0)
        total = float(medians.sum()) or 1.0
        roles = np.array([kernel.role for kernel in self.kernels])
        return {role: float(medians[roles == role].sum()) / total for role in ("compute", "copy", "unmapped")}


def _do_nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profiler:
    """A program that is open for profiling, beside the one that was timed.

    Parameters
    ----------
    run
        One profiled call; it returns when the outputs are ready.
    read
        Returns the profile of all calls so far. It ends the profiling: `run` is not called again.
    prepare, finish
        Run before and after each profiled call, untimed.
    """

    run: Callable[[], Any]
    read: Callable[[], Profile]
    prepare: Callable[[], Any] = _do_nothing
    finish: Callable[[], Any] = _do_nothing
