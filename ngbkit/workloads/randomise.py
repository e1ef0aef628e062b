"""Fresh values for what random initialisation leaves blank, so that a wrong result cannot hide behind a zero.

A newly built network is full of constants: BatchNorm statistics of 0 and 1, LayerScale of 1e-6, branches that end in a
weight of 0. What flows through them does not reach the output: zeroing a convolution in the middle of an untrained
resnet18 changes nothing at all, and an equivalence check would call that correct.

In training, BatchNorm learns how small its inputs are and makes up for it. With statistics that know nothing of them,
a network whose gates and activations each halve the signal fades out: efficientnet_b0, at 16 blocks of SiLU and
squeeze-and-excitation, returned its last biases whatever it was shown, to 1e-5. So BatchNorm is shown a sample.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

_SCALES = frozenset({"weight", "gamma", "scale", "ls", "alpha"})
# A BatchNorm whose inputs have less than this part of the variance that it divides by lets the signal fade.
_LEAST_SHARE = 0.25


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw what is drawn inside from `seed`, by torch, NumPy or `random`, and give the generators back as they were."""
    import torch

    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def randomise(module: torch.nn.Module, seed: int, probe: Callable[[], object] | None = None) -> None:
    """Re-draw, in place, every floating parameter and buffer whose values are all one constant.

    A value depends on the seed and on its tensor's qualified name only. Trained values are not constant and stay as
    they are, and so does a tensor of a single value.

    Parameters
    ----------
    module
        On the CPU, every lazy parameter materialised.
    seed
        From 0 up.
    probe
        Calls the module on a sample of two rows or more. With it, a BatchNorm whose statistics were drawn here, and
        that would let the signal fade, gets its variance scaled to what it then sees.

    Notes
    -----
    The draws keep signals of the networks that ngbkit knows finite and visible: a scale around one is multiplied by
    0.5 to 1, a small one (LayerScale's 1e-6) becomes 0.1 to 0.5, a shift of zero at most 0.1, a zero matrix is drawn so
    that it keeps the variance.
    """
    import torch

    blank = {
        name: tensor for name, tensor in (*module.named_parameters(), *module.named_buffers()) if _is_blank(tensor)
    }
    with torch.no_grad():
        for name, tensor in blank.items():
            tensor.copy_(_draw(name, tensor, seed))
        if probe is not None:
            _keep_alive(module, {id(tensor) for tensor in blank.values()}, probe)


def _keep_alive(module: torch.nn.Module, drawn: set[int], probe: Callable[[], object]) -> None:
    """Have each BatchNorm that was `drawn` look at its inputs before it divides them, in one call."""
    from torch.nn.modules.batchnorm import _BatchNorm

    def look(norm: _BatchNorm, args: tuple[torch.Tensor, ...]) -> None:
        mean, variance = norm.running_mean, norm.running_var
        assert mean is not None
        assert variance is not None
        inputs = args[0].float()
        seen = inputs.var([0, *range(2, inputs.ndim)], correction=0).mean() / _LEAST_SHARE
        share = float(seen / variance.mean())
        if 0 < share < 1:
            variance.mul_(share)
            mean.mul_(share**0.5)

    norms = [one for one in module.modules() if isinstance(one, _BatchNorm) and id(one.running_var) in drawn]
    handles = [norm.register_forward_pre_hook(look) for norm in norms]
    try:
        if norms:
            probe()
    finally:
        for handle in handles:
            handle.remove()


def run(module: torch.nn.Module, arrays: Sequence[np.ndarray]) -> object:
    """Call a module on these arrays: a probe for `randomise`."""
    import torch

    return module(*(torch.from_numpy(array) for array in arrays))


def _is_blank(tensor: torch.Tensor) -> bool:
    from torch.nn.parameter import is_lazy

    if is_lazy(tensor) or tensor.is_meta or tensor.layout != _strided() or not tensor.is_floating_point():
        return False
    if tensor.numel() < 2 or 0 in tensor.stride():  # an expanded view has one value, and cannot hold more
        return False
    first = tensor.flatten()[0]
    return bool(first.isfinite()) and bool((tensor == first).all())


def _strided() -> torch.layout:
    import torch

    return torch.strided


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
