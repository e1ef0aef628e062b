"""Drift between runs is not attributed to networks."""

from __future__ import annotations

import numpy as np
import pytest

from ngbkit.predict.labels.drift_correction import compute_means, correct


def build_rows(*measurements: tuple[int, int, list[float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Build arrays from tuples of graph, run and logarithms."""
    graph, run, logs = zip(*measurements, strict=True)
    return np.array(logs, float), np.array(graph), np.array(run)


def remove_drift(
    logs: np.ndarray, graph: np.ndarray, run: np.ndarray, device: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    return compute_means(correct(logs, graph, run, device), graph)


def test_a_slow_run_makes_no_network_slow() -> None:
    """Three runs of different networks share some; their differences are recovered exactly."""
    truth, slowdown = np.array([0.0, 1.0, -2.0, 0.5]), np.array([0.0, 0.7, -0.3])
    measured = [
        (graph, run, [truth[graph] + slowdown[run]]) for graph, run in ((0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2))
    ]
    means, _ = remove_drift(*build_rows(*measured), np.array([0]))

    np.testing.assert_allclose(np.diff(truth), np.diff(means[:, 0]), atol=1e-6)


def test_devices_vary_by_themselves() -> None:
    """The drift of a device affects both of its runtimes, and none of another device."""
    measured = [(0, 0, [0.0, 0.0, 0.0]), (0, 1, [0.4, 0.4, 0.0]), (1, 1, [1.4, 1.4, 1.0])]
    means, _ = remove_drift(*build_rows(*measured), np.array([0, 0, 1]))

    np.testing.assert_allclose([1.2, 1.2, 1.0], means[1], atol=1e-6)
    np.testing.assert_allclose([0.2, 0.2, 0.0], means[0], atol=1e-6)


def test_a_variant_keeps_its_gain_over_the_network_measured_beside_it() -> None:
    """The runs of a network alone are slow on one runtime, and those beside its variant on the other."""
    alone = [(0, run, [0.0, slow]) for run, slow in ((0, 0.3), (1, 0.1))]
    beside = [row for run in (2, 3) for row in ((0, run, [0.2 * run, 0.0]), (1, run, [0.2 * run - 0.1, 0.05]))]
    means, _ = remove_drift(*build_rows(*alone, *beside), np.array([0, 0]))

    np.testing.assert_allclose([-0.1, 0.05], means[1] - means[0], atol=1e-6)


def test_a_runtime_without_ties_drifts_with_its_device() -> None:
    """A runtime that measured other networks in each run takes the slowdown of the one beside it."""
    measured = [(0, 0, [0.0, np.nan]), (0, 1, [0.4, np.nan]), (1, 0, [np.nan, 1.0]), (2, 1, [np.nan, 1.4])]
    means, _ = remove_drift(*build_rows(*measured), np.array([0, 0]))

    np.testing.assert_allclose([1.2, 1.2], means[1:, 1], atol=1e-6)


def test_a_runtime_with_ties_to_some_runs_drifts_with_its_device_in_the_others() -> None:
    """The third run is slow; the second runtime has another network in it, and ties between the first two."""
    measured = [(0, 0, [0.0, 2.0]), (0, 1, [0.0, 2.0]), (0, 2, [0.9, np.nan]), (1, 2, [np.nan, 3.9])]
    means, _ = remove_drift(*build_rows(*measured), np.array([0, 0]))

    np.testing.assert_allclose(1.0, means[1, 1] - means[0, 1], atol=1e-6)


def test_unconnected_measurements_are_unchanged() -> None:
    """The mean is unchanged, and NaN without a measurement."""
    measured = [(0, 0, [1.0, np.nan]), (1, 1, [3.0, 2.0])]
    means, errors = remove_drift(*build_rows(*measured), np.array([0, 0]))

    np.testing.assert_array_equal([[1.0, np.nan], [3.0, 2.0]], means)
    assert np.isnan(errors).all()


def test_noise_is_reported() -> None:
    """The error is the standard error of the mean of the residuals."""
    generator = np.random.default_rng(0)
    noise = generator.normal(0, 0.1, (40, 25))
    measured = [(graph, run, [noise[graph, run]]) for graph in range(40) for run in range(25)]
    _, errors = remove_drift(*build_rows(*measured), np.array([0]))

    assert 0.017 < np.median(errors) < 0.022


@pytest.mark.parametrize("count", [2, 3, 8])
def test_errors_of_few_labels_are_not_too_small(count: int) -> None:
    """The sample deviation of two normal values is a fifth too small on average."""
    noise = np.random.default_rng(1).normal(0, 0.1, (4_000, count))
    _, errors = compute_means(noise.reshape(-1, 1), np.repeat(np.arange(4_000), count))

    assert pytest.approx(0.1 / np.sqrt(count), rel=0.03) == errors.mean()
