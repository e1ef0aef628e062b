"""Random values for the constants of an untrained network, so that no wrong result hides behind a zero.

A newly built network is full of constants: BatchNorm statistics of 0 and 1, LayerScale of 1e-6, branches that end in a
weight of 0. Their signal never reaches the output: zeroing a convolution in the middle of an untrained resnet18 changes
nothing at all, and an equivalence check would accept that.

In training, BatchNorm learns the scale of its inputs and compensates for it. With random statistics, the signal fades
in a network whose gates and activations each halve it: efficientnet_b0, with 16 blocks of SiLU and
squeeze-and-excitation, returned its last biases for any input, to 1e-5. So BatchNorm is calibrated on a sample.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit.workloads import feeds
from ngbkit.workloads.base import BATCH, Network, TensorSpec
from ngbkit.workloads.export import to_tensor

if TYPE_CHECKING:
    import torch

_SCALES = frozenset({"weight", "gamma", "scale", "ls", "alpha"})
# The signal fades in a BatchNorm whose inputs have less than this share of the variance that it divides by.
_LEAST_SHARE = 0.25


@contextmanager
def seed_generators(seed: int) -> Iterator[None]:
    """Seed the generators of torch, NumPy and `random` for a block, and restore their states after it."""
    import torch

    python_state, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)


def compile_nothing() -> AbstractContextManager[None]:
    """Run compiled parts of a module eagerly; without them Dynamo is not loaded, and loading it takes seconds."""
    import torch

    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    stance: Any = torch.compiler.set_stance
    return stance("force_eager")  # type: ignore[no-any-return]


def build_network(module: torch.nn.Module, shape: tuple[int, ...], seed: int) -> Network:
    """Build the network of a module with one input of this `shape`, its constants re-drawn from `seed`."""
    inputs = [TensorSpec(name="input", shape=(BATCH, *shape))]
    randomise(module, seed, lambda: run(module, feeds.draw(inputs, {}, 2, seed)))
    return Network(inputs=inputs, module=module)


def randomise(module: torch.nn.Module, seed: int, probe: Callable[[], object] | None = None) -> None:
    """Re-draw, in place, every floating parameter and buffer whose values are all one constant.

    A value depends only on the seed and on its tensor's qualified name. Trained values vary and stay as they are, and
    so does a tensor of a single value. The module is on the CPU, its lazy parameters materialised. `probe` calls it on
    two rows or more, and thereby scales the re-drawn variance of each BatchNorm that would let the signal fade.

    The draws keep the signals of known networks finite and visible: a scale near one is multiplied by 0.5 to 1, a small
    one (LayerScale's 1e-6) becomes 0.1 to 0.5, a shift of zero at most 0.1; a zero matrix keeps the variance.
    """
    import torch

    blank = {
        name: tensor for name, tensor in (*module.named_parameters(), *module.named_buffers()) if _is_blank(tensor)
    }
    with torch.no_grad():
        for name, tensor in blank.items():
            tensor.copy_(_draw(name, tensor, seed))
        if probe is not None:
            _calibrate(module, {id(tensor) for tensor in blank.values()}, probe)


def _calibrate(module: torch.nn.Module, tensor_ids: set[int], probe: Callable[[], object]) -> None:
    """Scale the statistics of each BatchNorm among the re-drawn tensors to its inputs, in one call of the module."""
    from torch.nn.modules.batchnorm import _BatchNorm

    def scale(norm: _BatchNorm, args: tuple[torch.Tensor, ...]) -> None:
        mean, variance = norm.running_mean, norm.running_var
        assert mean is not None
        assert variance is not None
        inputs = args[0].float()
        largest = inputs.var([0, *range(2, inputs.ndim)], correction=0).mean() / _LEAST_SHARE
        share = float(largest / variance.mean())
        if 0 < share < 1:
            variance.mul_(share)
            mean.mul_(share**0.5)

    norms = [part for part in module.modules() if isinstance(part, _BatchNorm) and id(part.running_var) in tensor_ids]
    handles = [norm.register_forward_pre_hook(scale) for norm in norms]
    try:
        if norms:
            probe()
    finally:
        for handle in handles:
            handle.remove()


def run(module: torch.nn.Module, arrays: Sequence[np.ndarray]) -> object:
    """Call a module on these arrays, as the probe of `randomise`."""

    return module(*map(to_tensor, arrays))


def _is_blank(tensor: torch.Tensor) -> bool:
    import torch
    from torch.nn.parameter import is_lazy

    if is_lazy(tensor) or tensor.is_meta or tensor.layout != torch.strided or not tensor.is_floating_point():
        return False
    if tensor.numel() < 2 or 0 in tensor.stride():  # an expanded view stores a single value
        return False
    first = tensor.flatten()[0]
    return bool(first.isfinite()) and bool((tensor == first).all())


def _draw(name: str, tensor: torch.Tensor, seed: int) -> torch.Tensor:
    import torch

    key = hashlib.blake2b(f"{seed}\0{name}".encode(), digest_size=7).digest()
    unit = torch.rand(tensor.shape, generator=torch.Generator().manual_seed(int.from_bytes(key, "big")))
    constant = float(tensor.flatten()[0])
    if abs(constant) >= 0.1:
        return constant * (0.5 + 0.5 * unit)
    if constant != 0:
        return (0.1 + 0.4 * unit) * (1 if constant > 0 else -1)
    if tensor.ndim > 1:
        fan_in = tensor.numel() / tensor.shape[0]
        return (2 * unit - 1) * float((3 / fan_in) ** 0.5)
    if name.rpartition(".")[2] in _SCALES:
        return 0.1 + 0.4 * unit
    return 0.2 * unit - 0.1
