"""What the compilers of torch's family do alike: threads, precision, layout, the GPU, waiting, outputs, contract."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ngbkit.compilers.base import Option, Program, Task
from ngbkit.errors import UnsupportedError
from ngbkit.hardware.accelerators import cuda
from ngbkit.sweep.records import Contract
from ngbkit.workloads.export import flatten

if TYPE_CHECKING:
    import numpy as np
    import torch

_PRECISIONS = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}
#: The precisions that all of a network is cast to.
CASTS = {"f16": "float16", "bf16": "bfloat16"}

#: What each of them offers besides its own options.
OPTIONS: Mapping[str, Option] = {
    "precision": Option(
        default="f32",
        help="f32 leaves the weights as they are, tf32 rounds factors of products (on a GPU), f16 and bf16 cast all",
        choices=("f32", "tf32", "f16", "bf16"),
    ),
    "channels_last": Option(
        default=False,
        help="lay images and the weights of convolutions out with their channels innermost",
        choices=(False, True),
    ),
}

#: A network that was cast does not compute: a kernel is missing, or its own code makes tensors of float32.
REFUSALS = (
    r"not implemented for '(Half|BFloat16)'",
    r"(must have|should be|to have) the same dtype|(Input|input) type .* should be the same",
    r"[Ee]xpected (scalar type|dtype|m1 and m2).*(but (found|got)|same dtype)",
)

# A driver and a build that know each other are not enough: the build must hold code for this very chip.
_PROBE = """
import torch
if torch.version.cuda is None:
    print(f"torch {torch.__version__} is built without CUDA; see pytorch.org for the build that goes with this driver")
else:
    try:
        one = torch.ones(2, 2, device="cuda")
        torch.relu(one @ one).cpu()
    except Exception as error:
        print(f"torch {torch.__version__} (CUDA {torch.version.cuda}) does not compute on this GPU: {error}")
"""


def probe_cuda() -> str:
    """Why torch cannot compute on the GPU of this process, or ``""``."""
    return cuda.lacks("torch", _PROBE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A network and its inputs, in the place, the precision and the layout in which they are computed.

    Parameters
    ----------
    module, inputs
        As torch has them.
    accelerator
        Where both are: ``"cpu"`` or ``"cuda"``.
    tf32
        Whether products of float32 may round their factors.
    channels_last
        Whether images have their channels innermost.
    """

    module: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]
    accelerator: str = "cpu"
    tf32: bool = False
    channels_last: bool = False


def bind(task: Task) -> Bound:
    """Give torch its threads, and put the module and the inputs of `task` where, and as what, they are to be computed.

    Raises
    ------
    UnsupportedError
        TF32 was asked of a CPU, or this torch has no GPU.
    """
    import torch

    torch.set_num_threads(task.threads)
    with contextlib.suppress(RuntimeError):  # it can be set once in a process
        torch.set_num_interop_threads(1)
    if task.module is None:
        raise ValueError("a task of the form 'module' came without a module.")
    precision = str(task.options.get("precision", "f32"))
    channels_last = bool(task.options.get("channels_last", False))
    _choose_products(precision, task.accelerator)
    module, inputs = place(
        task.module,
        [torch.tensor(array) for array in task.arrays],
        device=task.accelerator,
        dtype=getattr(torch, CASTS[precision]) if precision in CASTS else None,
        channels_last=channels_last,
    )
    return Bound(
        module=module,
        inputs=inputs,
        accelerator=task.accelerator,
        tf32=precision == "tf32",
        channels_last=channels_last,
    )


def _choose_products(precision: str, accelerator: str) -> None:
    """Settle what a product of float32 is computed in: torch's own choice differs by version, and for convolutions."""
    import torch

    tf32 = precision == "tf32"
    if tf32 and accelerator != "cuda":
        raise UnsupportedError("tf32 is a precision of NVIDIA GPUs; on a CPU, ask for f32 or bf16.")
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    if accelerator == "cuda":
        if not torch.cuda.is_available():
            raise UnsupportedError(
                f"torch {torch.__version__} has no GPU here: {probe_cuda() or 'torch.cuda.is_available() is False'}"
            )
        torch.backends.cudnn.allow_tf32 = tf32
        # Shapes do not change from call to call, so the fastest convolution is looked for once.
        torch.backends.cudnn.benchmark = True


def place(
    module: torch.nn.Module,
    inputs: Iterable[torch.Tensor],
    *,
    device: str,
    dtype: torch.dtype | None,
    channels_last: bool,
) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """The module, moved and cast in place, and the inputs that go with it.

    Parameters
    ----------
    device
        Of both.
    dtype
        Of all floating-point weights and inputs; None leaves them as they are.
    channels_last
        Whether four-dimensional weights and inputs are laid out so.
    """
    import torch

    module = module.to(device=device, dtype=dtype)
    if channels_last:
        module = module.to(memory_format=torch.channels_last)

    def put(tensor: torch.Tensor) -> torch.Tensor:
        moved = tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else None)
        return moved.contiguous(memory_format=torch.channels_last) if channels_last and moved.dim() == 4 else moved

    return module, tuple(put(tensor) for tensor in inputs)


def make_program(
    bound: Bound,
    enqueue: Callable[[], Any],
    runtime: str,
    *,
    notes: str = "",
    facts: Mapping[str, Any] | None = None,
    explain: Callable[[], dict[str, Any]] | None = None,
) -> Program:
    """The program of a compiled network: on a GPU `run` waits, and what it took of its memory is explained.

    Parameters
    ----------
    enqueue
        A call, as `without_gradients` makes it; it has been called before, for what the first call builds.
    runtime, notes, facts, explain
        What the compiler has to say.
    """
    told = explain or _nothing
    program = Program(
        run=enqueue,
        fetch=fetch,
        contract=contract(bound, runtime, notes),
        facts={**libraries(bound.accelerator), **(facts or {})},
        explain=told,
        within=torch_mode(),
    )
    if bound.accelerator == "cuda":
        import torch

        stream = torch.cuda.current_stream()
        program.run = waiting(enqueue, stream.synchronize)
        program.enqueue = enqueue
        program.stream = stream.cuda_stream
        program.explain = lambda: {**told(), **_gpu_memory()}
        torch.cuda.synchronize()
        # What compiling took on the way is no cost of a call.
        torch.cuda.reset_peak_memory_stats()
    return program


def _nothing() -> dict[str, Any]:
    return {}


def _gpu_memory() -> dict[str, Any]:
    """The most that calls took of torch's own pool on the GPU, weights included; libraries take more beside it."""
    import torch

    return {"gpu_peak_allocated_bytes": torch.cuda.max_memory_allocated()}


def without_gradients(call: Any, inputs: tuple[torch.Tensor, ...]) -> Callable[[], Any]:
    """`call` on `inputs`, recording nothing for a backward pass.

    To enter the inference mode costs 2 µs a call, and to see that one is in it 0.05 µs: a process that only infers
    enters it once, by the program's `within`.
    """
    import torch

    entered, enter = torch.is_inference_mode_enabled, torch.inference_mode

    def run() -> Any:
        if entered():
            return call(*inputs)
        with enter():
            return call(*inputs)

    return run


def waiting(enqueue: Callable[[], Any], wait: Callable[[], Any]) -> Callable[[], Any]:
    """``run`` on an accelerator: `enqueue`, and then `wait` until its outputs are there."""

    def run() -> Any:
        outputs = enqueue()
        wait()
        return outputs

    return run


def torch_mode() -> Callable[[], AbstractContextManager[Any]]:
    """``within`` of a program of torch: the mode in which nothing is recorded for a backward pass."""
    import torch

    return torch.inference_mode


def fetch(outputs: Any) -> list[np.ndarray]:
    """The tensors of a nested structure as arrays, in the order in which torch flattens it; short floats as float32."""
    import torch

    short = {torch.bfloat16, torch.float16}
    return [(one.float() if one.dtype in short else one).numpy(force=True) for one in flatten(outputs)]


def contract(bound: Bound, runtime: str, notes: str = "") -> Contract:
    """The contract of a call to torch, with the precision of the weights and the threads that torch really has."""
    import torch

    weights = [weight.dtype for weight in bound.module.parameters() if weight.is_floating_point()]
    dtypes = weights or [one.dtype for one in bound.inputs if one.is_floating_point()]
    names = {str(dtype).removeprefix("torch.") for dtype in dtypes}
    precisions = sorted({_PRECISIONS.get(name, name) for name in names}) or ["f32"]
    if bound.tf32:
        precisions = ["tf32" if precision == "f32" else precision for precision in precisions]
    matmul = torch.get_float32_matmul_precision()
    # A network's own code can have lowered it: with "medium" a CPU may multiply in bfloat16.
    lowered = "" if matmul == "highest" or bound.tf32 else f"float32 matmul precision {matmul}"
    return Contract(
        runtime=runtime,
        precision="+".join(precisions),
        threads=torch.get_num_threads(),
        transfers="excluded" if bound.accelerator == "cuda" else "none",
        notes="; ".join(filter(None, (notes, "channels last" if bound.channels_last else "", lowered))),
    )


def libraries(accelerator: str = "cpu") -> dict[str, Any]:
    """The libraries beneath torch that make its matrix products fast or slow: part of any speed-up is theirs."""
    import torch

    if accelerator == "cuda":
        return {
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
        }
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    return {
        "blas": blas.group(1) if blas else "unknown",
        "onednn": torch.backends.mkldnn.is_available(),  # type: ignore[no-untyped-call]
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }
