"""Self-checks without measurements."""

from __future__ import annotations

from typing import Any

from ngbkit.hardware import environment
from ngbkit.runs.selfcheck.report import Noise, SelfCheck

NOISE = Noise(
    groups=200,
    failed=1,
    pending=0,
    rounds=20.0,
    samples=100.0,
    noise_floor=0.004,
    smallest_speedup=1.009,
    process_sd=0.002,
    round_sd=0.01,
    drift=0.03,
    coverage=0.95,
    coverage_low=0.91,
    coverage_high=0.973,
    coverage_within=0.9,
    contended_share=float("nan"),
)


def make(device: str = "cpu", **changes: Any) -> SelfCheck:
    """Build a self-check of this chip, with other values for some fields."""
    fields: dict[str, Any] = {
        "chip": environment.read_chip(),
        "threads": 2,
        "repeats": 100,
        "precision": None,
        "run": "20261120-101010-abcd",
        "created": "2026-11-20T10:10:10+00:00",
        "ngbkit_version": "0.1.0",
        "conditions": ("The load is high.",),
        "quiet": NOISE,
    }
    return SelfCheck(device=device, **{**fields, **changes})
