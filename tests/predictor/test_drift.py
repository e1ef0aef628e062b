"""What runs differ by as a whole is no difference of networks."""

from __future__ import annotations

import numpy as np

from ngbkit.predictor.drift import settle


def rows(*several: tuple[int, int, list[float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """From (graph, run, logarithms)."""
    graph, run, logs = zip(*several, strict=True)
    return np.array(logs, float), np.array(graph), np.array(run)


def test_a_slow_run_makes_no_network_slow() -> None:
    """Three runs of other networks each, tied by what they share; only differences are known, and they are exact."""
    truth, slower = np.array([0.0, 1.0, -2.0, 0.5]), np.array([0.0, 0.7, -0.3])
    measured = [
        (graph, run, [truth[graph] + slower[run]]) for graph, run in ((0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2))
    ]
    found, _ = settle(*rows(*measured), np.array([0]))

    np.testing.assert_allclose(np.diff(truth), np.diff(found[:, 0]), atol=1e-6)


def test_devices_vary_by_themselves() -> None:
    """Two runtimes of one device go up and down together, those of another do not."""
    measured = [(0, 0, [0.0, 0.0, 0.0]), (0, 1, [0.4, 0.4, 0.0]), (1, 1, [1.4, 1.4, 1.0])]
    found, _ = settle(*rows(*measured), np.array([0, 0, 1]))

    np.testing.assert_allclose([1.2, 1.2, 1.0], found[1], atol=1e-6)
    np.testing.assert_allclose([0.2, 0.2, 0.0], found[0], atol=1e-6)


def test_what_nothing_ties_stays_as_measured() -> None:
    """In the mean; NaN where nothing was measured."""
    measured = [(0, 0, [1.0, np.nan]), (1, 1, [3.0, 2.0])]
    found, errors = settle(*rows(*measured), np.array([0, 0]))

    np.testing.assert_array_equal([[1.0, np.nan], [3.0, 2.0]], found)
    assert np.isnan(errors).all()


def test_noise_is_told() -> None:
    """The standard error of the mean of what is left."""
    generator = np.random.default_rng(0)
    noise = generator.normal(0, 0.1, (40, 25))
    measured = [(graph, run, [noise[graph, run]]) for graph in range(40) for run in range(25)]
    _, errors = settle(*rows(*measured), np.array([0]))

    assert 0.017 < np.median(errors) < 0.022
