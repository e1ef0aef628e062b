"""The cost of a profiler in each kernel."""

import numpy as np

from ngbkit.device.timing.profiler_cost import subtract_cost


def test_the_excess_over_a_call_is_the_profilers() -> None:
    """Kernels that sum to more than a call without the profiler lose the same time each, up to ten microseconds."""
    seconds = np.array([1e-3, 2e-3])

    assert np.allclose(seconds - 2e-6, subtract_cost(seconds, 3e-3 - 4e-6))
    assert np.allclose(seconds - 1e-5, subtract_cost(seconds, 2e-3))
    assert np.array_equal(seconds, subtract_cost(seconds, 4e-3))


def test_a_slower_call_under_the_profiler_tells_its_cost() -> None:
    """Calls under the profiler that take longer tell its cost also where kernels leave time between them."""
    seconds = np.full((2, 5), 1e-3)

    assert np.allclose(seconds - 3e-6, subtract_cost(seconds, np.full(5, 3e-3), np.full(5, 3e-3 + 6e-6)))


def test_a_short_kernel_keeps_a_part_of_its_time() -> None:
    """A kernel shorter than the cost keeps a tenth."""
    assert np.allclose([1e-7, 1e-3 - 5e-6], subtract_cost(np.array([1e-6, 1e-3]), 1.001e-3 - 1e-5))
