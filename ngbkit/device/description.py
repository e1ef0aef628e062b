"""The description of a device for a plan: its machine, chip and conditions, and what was found out about it before."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ngbkit import options
from ngbkit.device import peaks, releases
from ngbkit.device.isolation.settings import build_child_settings
from ngbkit.device.spec import Spec
from ngbkit.errors import DeviceError
from ngbkit.hardware import conditions, environment, telemetry
from ngbkit.hardware.accelerators import probing as accelerators
from ngbkit.user_text import parse_json


def list_variables(spec: Spec) -> Mapping[str, str]:
    """List the variables of the children of a plan, before those that ngbkit sets."""
    return spec.world.apply(os.environ) if spec.world else os.environ


def describe_device(spec: Spec, threads: int, observation_s: float) -> dict[str, Any]:
    """Describe the device and the conditions of the measurement, for a reader of the numbers."""
    machine = environment.describe()
    state = conditions.observe(observation_s)
    return {
        **machine,
        "clock": time.time(),
        "accelerator": spec.accelerator,
        **_describe_accelerator(spec.accelerator),
        "child_settings": build_child_settings(threads, list_variables(spec), spec.sweep.memory),
        "conditions": {**state, "warnings": conditions.list_warnings(state, threads)},
        "releases": releases.describe_releases(spec.state_dir, spec.sweep.compilers),
        "selfcheck": _load(options.LAYOUT.locate_selfcheck(spec.state_dir, spec.device), machine["chip"], threads),
        "history": _load(options.LAYOUT.locate_history(spec.state_dir, spec.device), machine["chip"], threads),
    }


def _describe_accelerator(accelerator: str) -> dict[str, Any]:
    """Describe the chip beside the CPU, or the problem that prevents its telemetry."""
    description: dict[str, Any] = {}
    chip = telemetry.open(accelerator)
    if chip is not None:
        description["telemetry"] = chip.describe()
    elif problem := telemetry.find_problem(accelerator):
        description["telemetry"] = {"problem": problem}
    if accelerator != "cpu":
        description["gpu"] = accelerators.describe()
    return description


def load_peaks(spec: Spec, threads: int) -> dict[str, Any]:
    """Load or measure the peaks of this device's CPU; without them, as on a GPU, only the roofline is missing."""
    if spec.accelerator != "cpu":
        return {}
    try:
        return asdict(peaks.load_or_measure(spec.state_dir, threads))
    except (DeviceError, OSError):
        return {}


def _load(path: Path, chip: str, threads: int) -> dict[str, Any]:
    """Load what was found out about this device; empty if there is nothing with this chip and these threads."""
    try:
        check = parse_json(path.read_text())
    except (OSError, ValueError):
        return {}
    return check if isinstance(check, dict) and (check.get("chip"), check.get("threads")) == (chip, threads) else {}
