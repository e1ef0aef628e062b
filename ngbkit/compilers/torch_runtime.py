"""The common runtime of compilers based on torch: threads, precision, layout, GPU, waiting, outputs, contract."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ngbkit.compilers.base import Memory, Option, Program, Task
from ngbkit.errors import UnsupportedError
from ngbkit.hardware.accelerators import cuda
from ngbkit.registry import find_version
from ngbkit.sweep.records import Contract
from ngbkit.workloads.export import flatten, to_array, to_tensor

if TYPE_CHECKING:
    import numpy as np
    import torch

    from ngbkit.compilers.profiles.profile import Profiler

_PRECISIONS = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}
#: The precisions to which the whole network is cast.
CASTS = {"f16": "float16", "bf16": "bfloat16"}

#: The options of every compiler based on torch.
OPTIONS: Mapping[str, Option] = {
    "precision": Option(
        default="f32",
        help="numeric precision: f32 keeps the weights, tf32 rounds factors of products (GPU), f16 and bf16 cast all",
        choices=("f32", "tf32", "f16", "bf16"),
    ),
    "channels_last": Option(
        default=False,
        help="memory layout of images and convolution weights with the channels innermost",
        choices=(False, True),
    ),
}

#: Build networks beside torch itself. Its release is that of here, since it decides what the networks are.
BUILDERS = (f"timm=={find_version('timm')}" if find_version("timm") else "timm",)

#: Errors of a network that cannot run after a cast: a kernel is missing, or its own code creates float32 tensors.
REFUSALS = (
    r"not implemented for '(Half|BFloat16)'",
    r"(must have|should be|to have) the same dtype|(Input|input) type .* should be the same",
    r"[Ee]xpected (scalar type|dtype|m1 and m2).*(but (found|got)|same dtype)",
)

# A driver and a build that match are not enough: the build must contain code for this very chip.
_PROBE = """
import torch
if torch.version.cuda is None:
    print(f"torch {torch.__version__} is built without CUDA; see pytorch.org for the build that matches this driver")
else:
    try:
        ones = torch.ones(2, 2, device="cuda")
        torch.relu(ones @ ones).cpu()
    except Exception as error:
        print(f"torch {torch.__version__} (CUDA {torch.version.cuda}) does not compute on this GPU: {error}")
"""


def probe_cuda() -> str:
    """Return the reason why torch cannot compute on the GPU of this process, or ``""``."""
    return cuda.find_problem("torch", _PROBE)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundNetwork:
    """A network and its inputs on their device, in their precision and layout."""

    module: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]
    accelerator: str = "cpu"
    tf32: bool = False  # whether float32 products may round their factors
    channels_last: bool = False


def bind(task: Task) -> BoundNetwork:
    """Set torch's threads, and move, cast and lay out the module and the inputs of `task` as its options say."""
    import torch

    torch.set_num_threads(task.threads)
    with contextlib.suppress(RuntimeError):  # it can be set only once per process
        torch.set_num_interop_threads(1)
    if task.module is None:
        raise ValueError("invalid task: got form 'module' without a module; expected a module.")
    precision = str(task.options.get("precision", "f32"))
    channels_last = bool(task.options.get("channels_last", False))
    _set_product_precision(precision, task.accelerator)
    module, inputs = place(
        task.module,
        [to_tensor(array) for array in task.arrays],
        device=task.accelerator,
        dtype=getattr(torch, CASTS[precision]) if precision in CASTS else None,
        channels_last=channels_last,
    )
    return BoundNetwork(
        module=module,
        inputs=inputs,
        accelerator=task.accelerator,
        tf32=precision == "tf32",
        channels_last=channels_last,
    )


def _set_product_precision(precision: str, accelerator: str) -> None:
    """Set the precision of float32 products: torch's default differs by version, and for convolutions."""
    import torch

    tf32 = precision == "tf32"
    if tf32 and accelerator != "cuda":
        raise UnsupportedError("invalid precision: got tf32, which only NVIDIA GPUs have; on a CPU, use f32 or bf16.")
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    if accelerator == "cuda":
        if not torch.cuda.is_available():
            raise UnsupportedError(
                f"torch {torch.__version__} has no GPU here: {probe_cuda() or 'torch.cuda.is_available() is False'}"
            )
        torch.backends.cudnn.allow_tf32 = tf32
        # Shapes are constant from call to call, so cuDNN searches for the fastest convolution once.
        torch.backends.cudnn.benchmark = True


def place(
    module: torch.nn.Module,
    inputs: Iterable[torch.Tensor],
    *,
    device: str,
    dtype: torch.dtype | None,
    channels_last: bool,
) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Move and cast a module in place, lay it out, and return it with its inputs treated alike.

    `dtype` applies to floating-point tensors (None leaves them unchanged), `channels_last` to four-dimensional ones.
    """
    import torch

    module = module.to(device=device, dtype=dtype)
    if channels_last:
        module = module.to(memory_format=torch.channels_last)

    def convert(tensor: torch.Tensor) -> torch.Tensor:
        moved = tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else None)
        return moved.contiguous(memory_format=torch.channels_last) if channels_last and moved.dim() == 4 else moved

    return module, tuple(map(convert, inputs))


def make_program(
    bound: BoundNetwork,
    enqueue: Callable[[], Any],
    runtime: str,
    *,
    notes: str = "",
    facts: Mapping[str, Any] | None = None,
    explain: Callable[[], dict[str, Any]] | None = None,
    profile: Callable[[], Profiler] | None = None,
) -> Program:
    """Build the program of a compiled network from `enqueue`, a call that has already run once."""
    import torch

    explain_compile = explain or dict
    program = Program(
        run=enqueue,
        fetch=fetch,
        contract=build_contract(bound, runtime, notes),
        facts={**list_libraries(bound.accelerator), **(facts or {})},
        explain=explain_compile,
        within=torch.inference_mode,
        feed=partial(feed, bound.inputs),
        memory=[[map_memory(tensor)] for tensor in bound.inputs],
        profile=profile,
    )
    if bound.accelerator == "cuda":
        program.profile = None
        stream = torch.cuda.current_stream()
        program.run = wait_after(enqueue, stream.synchronize)
        program.enqueue = enqueue
        program.stream = stream.cuda_stream
        program.explain = lambda: {
            **explain_compile(),
            "gpu_peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        }
        torch.cuda.synchronize()
        # Memory used only while compiling is no cost of a call.
        torch.cuda.reset_peak_memory_stats()
    return program


def feed(inputs: Iterable[torch.Tensor], arrays: Iterable[np.ndarray]) -> None:
    """Copy values over those of the inputs."""
    import torch

    with torch.inference_mode():
        for tensor, array in zip(inputs, arrays, strict=True):
            tensor.copy_(to_tensor(array))


def map_memory(tensor: torch.Tensor) -> Memory:
    """Map the memory of an input: as an array, which is written fastest, where NumPy has its type."""
    import torch

    is_plain = tensor.device.type == "cpu" and tensor.dtype != torch.bfloat16
    return tensor.numpy() if is_plain else TensorMemory(tensor)


@dataclass(frozen=True, slots=True)
class TensorMemory:
    """The memory of a tensor, on a GPU or of a type that NumPy lacks."""

    tensor: torch.Tensor

    def __getitem__(self, place: Any) -> TensorMemory:
        return TensorMemory(self.tensor[place])

    def __setitem__(self, place: Any, values: np.ndarray) -> None:
        import torch

        self.tensor[place] = to_tensor(values).to(self.tensor.device, self.tensor.dtype)
        if self.tensor.is_cuda:  # no timed call begins before
            torch.cuda.current_stream().synchronize()


def disable_gradients(call: Any, inputs: tuple[torch.Tensor, ...]) -> Callable[[], Any]:
    """Wrap `call` on `inputs` so that it records nothing for a backward pass.

    Entering inference mode costs 2 µs per call, checking for it 0.05 µs: a process that only infers enters it once,
    through the program's `within`.
    """
    import torch

    entered, enter = torch.is_inference_mode_enabled, torch.inference_mode

    def run() -> Any:
        if entered():
            return call(*inputs)
        with enter():
            return call(*inputs)

    return run


def wait_after(enqueue: Callable[[], Any], wait: Callable[[], Any]) -> Callable[[], Any]:
    """Build the ``run`` of an accelerator: `enqueue`, then `wait` until the outputs are ready."""

    def run() -> Any:
        outputs = enqueue()
        wait()
        return outputs

    return run


def fetch(outputs: Any) -> list[np.ndarray]:
    """Convert the tensors of a nested structure to arrays, in the order of `flatten`."""
    return [to_array(tensor) for tensor in flatten(outputs)]


def build_contract(bound: BoundNetwork, runtime: str, notes: str = "") -> Contract:
    """Build the contract of a torch call, with the precision of the weights and torch's actual number of threads."""
    import torch

    weights = [weight.dtype for weight in bound.module.parameters() if weight.is_floating_point()]
    dtypes = weights or [tensor.dtype for tensor in bound.inputs if tensor.is_floating_point()]
    names = {str(dtype).removeprefix("torch.") for dtype in dtypes}
    precisions = sorted({_PRECISIONS.get(name, name) for name in names}) or ["f32"]
    if bound.tf32:
        precisions = ["tf32" if precision == "f32" else precision for precision in precisions]
    matmul = torch.get_float32_matmul_precision()
    # A network's own code can lower it: with "medium" a CPU may multiply in bfloat16.
    lowered = "" if matmul == "highest" or bound.tf32 else f"float32 matmul precision {matmul}"
    return Contract(
        runtime=runtime,
        precision="+".join(precisions),
        threads=torch.get_num_threads(),
        transfers="excluded" if bound.accelerator == "cuda" else "none",
        notes="; ".join(filter(None, (notes, "channels last" if bound.channels_last else "", lowered))),
    )


def observe_state(contract: Contract) -> Contract:
    """Return a contract of torch with what the network's own code has set: threads, and what selects the kernels."""
    import torch

    dtype = str(torch.get_default_dtype()).removeprefix("torch.")
    states = {
        f"default dtype {dtype}": dtype != "float32",
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "oneDNN off": not torch.backends.mkldnn.enabled,
    }
    notes = "; ".join(filter(None, [contract.notes, *(state for state, is_set in states.items() if is_set)]))
    return replace(contract, threads=torch.get_num_threads(), notes=notes)


def list_libraries(accelerator: str = "cpu") -> dict[str, Any]:
    """Return the libraries that make torch's matrix products fast or slow, and so explain part of any speed-up."""
    import torch

    if accelerator == "cuda":
        return {
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
        }
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    return {
        "blas": blas.group(1) if blas else "unknown",
        "onednn": torch.backends.mkldnn.is_available(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }
