"""Hostile inputs by generators, each command in a process of its own: what came of every one.

    python tests/bench/hostile.py [--count 2500] [--seed 0] [--only sites,datasets,…]

Claim: no file of others is believed further than it is checked, and none ends in a traceback, a signal, a hang, an
escape sequence on the terminal, or files left behind. A row for each generator has the inputs and, of them, the
*silent* (an altered file that is taken as it was), *traceback*, *killed* (by a signal), *hung* (longer than 60 s),
*escape* (a control character printed), *left* (files that were left behind) and *lost* (trials that a run no longer
has); and the seconds. Each of these is printed with the line that makes it again; the exit code is 1 if there is one.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import logging
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import cast

from hostile_inputs import GENERATORS, Case

from ngbkit import options
from ngbkit.errors import NgbkitError, strip_controls
from ngbkit.figures import converter

LIMIT_S, WORKERS = 60, os.cpu_count() or 1
KINDS = ("silent", "ran", "traceback", "killed", "hung", "escape", "left", "lost")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def try_cases(name: str, base: Path, seed: int, count: int) -> tuple[dict[str, int], list[str]]:
    """Try inputs of a generator; return the numbers of problems, and a line for each input that has some."""
    counts, lines = Counter[str](), []
    cases = GENERATORS[name][0](base, random.Random(seed))
    process = converter._start()
    converter._start = lambda: process  # forks share it, one after another: each would start it anew
    with tempfile.TemporaryDirectory(dir=base) as folder:
        for number, case in enumerate(itertools.islice(cases, count)):
            problems, text = try_case(case, Path(folder))
            counts.update(problems)
            if problems:
                last = text.strip().splitlines()[-1:] or [""]
                lines.append(f"  {name} {seed}:{number} {sorted(problems)} {case.label!r}: {last[0][:200]!r}\n")
            for path in case.folders:
                shutil.rmtree(path, ignore_errors=True)
    return dict(counts), lines


def try_case(case: Case, base: Path) -> tuple[set[str], str]:
    """Run a command in a fork of this process; return what is wrong, and its output."""
    log, home = base / "log", base / "home"
    shutil.rmtree(home, ignore_errors=True)
    (home / "tmp").mkdir(parents=True)
    pid = os.fork()
    if pid == 0:
        code = 70
        with contextlib.suppress(BaseException):
            os.setsid()
            descriptor = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
            for number in (1, 2):
                os.dup2(descriptor, number)
            for stream in (sys.stdout, sys.stderr):
                cast(io.TextIOWrapper, stream).reconfigure(encoding="utf-8", errors="replace")
            state = next((path / "state" for path in case.folders if (path / "state").is_dir()), base / "empty")
            os.environ |= {"HOME": str(home), "TMPDIR": str(home / "tmp"), options.STATE_DIR: str(state)}
            tempfile.tempdir = None
            os.chdir(home)
            try:
                code = case.call(case.words) or 0
            except SystemExit as error:
                code = int(error.code or 0)
            except NgbkitError as error:
                code = 2
                print(strip_controls(str(error)))
            except BaseException:  # noqa: BLE001  what a shell would show
                traceback.print_exc()
            if case.run_id and not count_trials(case.run_id):
                print("LOST")
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    status = wait(pid)
    text = log.read_bytes().decode(errors="replace")
    problems = set()
    if status is None:
        problems.add("hung")
    elif os.WIFSIGNALED(status):
        problems.add("killed")
    elif case.is_altered and os.WEXITSTATUS(status) == 0 and "altered" not in text and not case.is_same():
        problems.add("silent")
    problems |= {kind for kind, sign in (("traceback", "Traceback (most"), ("lost", "LOST\n")) if sign in text}
    problems |= {"escape"} if CONTROL.search(text) else set()
    problems |= {"ran"} if (home / "canary").exists() else set()
    problems |= {"left"} if any((home / "tmp").iterdir()) else set()
    return problems, text


def count_trials(run_id: str) -> int:
    """Count the trials that a run has."""
    from ngbkit import runs

    with contextlib.suppress(Exception):
        return int(runs.load_dataset(runs.find(run_id)).sizes["compiler"])
    return 1  # what cannot be read was said


def wait(pid: int) -> int | None:
    """Wait for a process; None if it had to be killed."""
    for _ in range(LIMIT_S * 50):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.02)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def build_base(base: Path) -> None:
    """Build a site, a dataset, a network, and a state folder with a run."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import nbformat
    import onnx
    import torch
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
    from onnx import parser

    import ngbkit
    from ngbkit.publish import publish

    text = '<ir_version: 8, opset_import: ["": 17]> graph (float[batch, 16] x) => (float[batch, 16] y) { y = Relu(x) }'
    onnx.save(parser.parse_model(text), base / "mlp.onnx")
    onnx.save(parser.parse_model(text.replace("batch, 16", "batch, 3, 64, 64")), base / "pictures.onnx")
    sizes = ({0: torch.export.Dim("size")},)
    program = torch.export.export(torch.nn.Linear(16, 2), (torch.ones(2, 16),), dynamic_shapes=sizes)
    program.example_inputs = None
    torch.export.save(program, base / "program.pt2")
    logging.disable()  # torch logs its own tracebacks
    # Ghostscript, which Pillow starts for EPS
    (base / "bin").mkdir()
    (base / "bin" / "gs").write_text('#!/bin/sh\ntouch "$HOME/canary"\n')
    (base / "bin" / "gs").chmod(0o700)
    os.environ["PATH"] = f"{base / 'bin'}{os.pathsep}{os.environ['PATH']}"
    notebooks = base / "notebooks"
    (notebooks / "data").mkdir(parents=True)
    shutil.copy(base / "mlp.onnx", notebooks / "data")
    sweep = "-c identity,onnxruntime -b 1,2 -r 5 --threads 1"
    cells = [new_markdown_cell("# A study"), new_code_cell(f"%load_ext ngbkit\n%ngbench data/mlp.onnx {sweep} -o ds")]
    cells += [new_code_cell("ds.ngb.plot.throughput()"), new_code_cell("ds")]
    nbformat.write(new_notebook(cells=cells), notebooks / "01-study.ipynb")
    os.environ[options.STATE_DIR] = str(base / "state")
    data = ngbkit.Sweep(str(base / "mlp.onnx"), ["identity", "onnxruntime"], [1, 2], repeats=5, threads=1).run()
    data.ngb.save(base / "run.nc") if hasattr(data.ngb, "save") else ngbkit.dataset.storage.save(data, base / "run.nc")
    publish(notebooks, base / "site", measure="missing")
    from ngbkit.cluster import engines

    engines.close()


def main() -> int:
    """Try the inputs, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(GENERATORS))
    args = parser.parse_args()
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        base = Path(folder)
        build_base(base)
        print(f"{'':10}{'inputs':>8}", *(f"{kind:>10}" for kind in KINDS), f"{'seconds':>8}", flush=True)
        for name in args.only.split(","):
            start, count = time.perf_counter(), round(args.count * GENERATORS[name][1] / WORKERS)
            slots = [(name, base, args.seed * WORKERS + slot, count) for slot in range(WORKERS)]
            with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
                answers = pool.starmap(try_cases, slots)
            counts = sum((Counter(each[0]) for each in answers), Counter[str]())
            total.update(counts)
            cells = [f"{counts[kind]:>10}" for kind in KINDS]
            print(f"{name:10}{WORKERS * count:>8}", *cells, f"{time.perf_counter() - start:>8.0f}", flush=True)
            print(*(line for _, lines in answers for line in lines), sep="\n", end="", flush=True)
    return int(bool(total))


if __name__ == "__main__":
    sys.exit(main())
