"""The environment: what a reader of a benchmark would ask."""

from __future__ import annotations

import json
from pathlib import Path

from ngbkit import environment, resources


def test_the_environment_is_plain_json_with_what_matters() -> None:
    """Chip, cores, memory, versions."""
    about = environment.describe()

    assert about == json.loads(json.dumps(about))
    assert about["chip"]
    assert 1 <= about["cores_usable"] <= about["threads"]
    assert about["memory_bytes"] > 1 << 28
    assert {"ngbkit", "numpy"} <= set(about["packages"])


def test_out_of_memory_kills_are_counted_by_the_kernel(tmp_path: Path) -> None:
    """Where it tells; else nothing is known."""
    (tmp_path / "vmstat").write_text("nr_free_pages 3\noom_kill 7\nother 1\n")

    assert 7 == resources.out_of_memory_kills(tmp_path / "vmstat")
    assert None is resources.out_of_memory_kills(tmp_path / "missing")


def test_cpu_use_is_a_share_of_all_cores() -> None:
    """Busy time over all time, in percent, over every stretch that was added."""
    use = resources.CpuUse()
    before = use.percent
    use.add(resources.CpuClock(1.0, 10.0), resources.CpuClock(2.0, 12.0))
    use.add(resources.CpuClock(5.0, 20.0), resources.CpuClock(5.0, 22.0))

    assert (None, 25.0) == (before, use.percent)
