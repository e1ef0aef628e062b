"""The attempts of the conformance suite, for the tests of single compilers."""

from __future__ import annotations

from typing import Any

from ngbkit.testing.observation import Attempt, observe


def find_attempt(compiler: str, network: str = "small_conv", **options: Any) -> Attempt:
    """Return the first attempt at a network with these options, among others."""
    attempts = (attempt for attempt in observe(compiler) if attempt.network == network)
    return next(attempt for attempt in attempts if attempt.options.items() >= options.items())
