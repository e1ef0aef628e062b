"""Synthetic caches of a device: preparations, tuning results, and `ngbkit cache` on them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit import options
from ngbkit.cluster.caches import DeviceCaches, list_items
from ngbkit.commands.answer import Answer
from ngbkit.commands.cache import COMMAND, answer_cache
from ngbkit.commands.parser import build_parser, parse
from ngbkit.commands.shell import ShellCall

DAY_S = 86400.0
META = {
    "network": "resnet18",
    "batch_size": 1,
    "target": "llvm -mcpu=znver5",
    "versions": {"numpy": np.__version__},
    "candidates": 200,
    "tuning_s": 300.0,
}


def run_cache(*words: str) -> Answer:
    """Run `ngbkit cache` with these words; return its answer."""
    return answer_cache(ShellCall(parse(build_parser("ngbkit cache", COMMAND.arguments), words)))


def prepare(state_dir: Path, key: str, size: int = 1000, days: float = 0.0, device: str = "cpu") -> Path:
    """Create a preparation that was last used so many days ago."""
    folder = state_dir / "cache" / device / key
    (folder / "compiled" / "0123").mkdir(parents=True)
    (folder / "prepared.json").write_text(json.dumps({"facts": {"parameters": 11_689_512}}))
    (folder / "batch-1.onnx").write_bytes(b"\0" * (size - (folder / "prepared.json").stat().st_size))
    os.utime(folder, (time.time() - days * DAY_S,) * 2)
    return folder


def tune(state_dir: Path, key: str, device: str = "cpu", compiler: str = "tvm", **meta: Any) -> Path:
    """Create a tuning result with these fields in its meta.json."""
    folder = state_dir / "tuning" / device / compiler / key
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(json.dumps({**META, **meta}))
    (folder / "records.jsonl").write_text(f"records of {key}")
    return folder


def list_keys(caches: DeviceCaches) -> list[str]:
    return [item.key for item in list_items(caches)]


def switch_machine(tmp_path: Path, name: str = "elsewhere") -> Any:
    """Use the state folder of another machine for the block."""
    return options.set_options(state_dir=tmp_path / name)
