"""Starts the process that imports it once more, with a variable of random size, which moves its stack."""

import os
import random
import sys
from pathlib import Path

if "NGBKIT_BENCH_PADDING" not in os.environ:
    for descriptor in sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir()):
        if descriptor > 2 and Path(f"/proc/self/fd/{descriptor}").exists():
            os.set_inheritable(descriptor, True)
    padding = "x" * random.randrange(4096)
    os.execve(sys.executable, sys.orig_argv, {**os.environ, "NGBKIT_BENCH_PADDING": padding})
