"""Measures the effect of each precaution of ngbkit, those that a whole benchmark of another kind leaves out included.

    python bench/precautions.py --rounds 2 -r 20 > notebooks/data/02-disturbances.json

Beside the disturbances of ``ngbkit selfcheck --disturbances``, two other settings of ngbkit, and the two of `naive`:
every compiler in one process, and a module in training mode. Output: JSON, one row an effect.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from prepared import prepare

from ngbkit.device.isolation.settings import build_child_settings
from ngbkit.hardware import environment, subprocesses
from ngbkit.runs.selfcheck import disturbances
from ngbkit.runs.selfcheck.disturbances import COMPILERS, DISTURBANCES, NETWORK, Disturbance, Numbers
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.json_values import to_json_value
from ngbkit.workloads import timm
from ngbkit.workloads.subprocesses import build_python_path

TIMEOUT_S = 600.0


SETTINGS = (
    Disturbance(name="idle threads spin (onnxruntime)", compilers={"onnxruntime": 'onnxruntime{"spinning":true}'}),
    Disturbance(name="sequential blocks", arguments=("--sequential",)),
)


def measure_naively(spec: Mapping[str, Any]) -> Numbers:
    """Measure the network of a spec as `naive` does, in a process with the settings of ngbkit's children."""
    variables = {**os.environ, "PYTHONPATH": build_python_path(), **build_child_settings(spec["threads"])}
    command = [sys.executable, str(Path(__file__).with_name("naive.py")), json.dumps(dict(spec))]
    latency_s = subprocesses.run_json(command, environment=variables, timeout_s=TIMEOUT_S)
    baseline_s = latency_s[BASELINE]
    return {name: seconds if name == BASELINE else baseline_s / seconds for name, seconds in latency_s.items()}


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=disturbances.ROUNDS)
    parser.add_argument("-r", "--repeats", type=int, default=disturbances.REPEATS)
    parser.add_argument("--threads", type=int, default=environment.count_usable_cores())
    args = parser.parse_args()
    spec = {**prepare(timm.model(NETWORK), COMPILERS, args.threads), "repeats": args.repeats}
    comparisons = {"one process for all compilers": (COMPILERS, False), "eval() is missing": ((BASELINE,), True)}
    effects = disturbances.measure(
        rounds=args.rounds,
        repeats=args.repeats,
        threads=args.threads,
        disturbances=(
            *DISTURBANCES,
            *SETTINGS,
            *(
                Disturbance(
                    name=name,
                    measure=partial(measure_naively, {**spec, "compilers": compilers, "training": is_training}),
                )
                for name, (compilers, is_training) in comparisons.items()
            ),
        ),
        report=lambda line: print(line, file=sys.stderr),
    )
    print(json.dumps(to_json_value(effects.to_dict("records")), indent=1))


if __name__ == "__main__":
    main()
