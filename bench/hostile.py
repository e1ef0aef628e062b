"""Hostile inputs by generators, each command in a process of its own: what came of every one.

    python bench/hostile.py [--count 2500] [--seed 0] [--only sites,datasets,arrays,options,state]

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
import json
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
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ngbkit import cli, options
from ngbkit.figures import converter

LIMIT_S, WORKERS = 60, os.cpu_count() or 1
KINDS = ("silent", "traceback", "killed", "hung", "escape", "left", "lost")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
FOREIGN = (
    "\x1b[2J",
    "\x1b]0;title\x07",
    "\x07",
    "\x7f",
    "\x9b31m",
    "\u202e",
    "\ufffe",
    "a\nb",
    "<script>",
    "=1+1",
    "..",
)
NUMBERS = ("nan", "inf", "-inf", "-1", "0", "1e12", "1e400", "1.5", "0x10", "1_0", "", " ", "9" * 5000, "\x1b[2J", "٣")
NESTED = "[" * 100_000


@dataclass(frozen=True)
class Case:
    """A command on hostile input."""

    label: str
    words: list[str]
    # Whether it must be refused, or said to be altered; others may succeed.
    is_altered: bool = False
    folders: list[Path] = field(default_factory=list)
    run_id: str = ""
    # Returns whether the input has what it had before it was altered, such as after a bit that nothing reads.
    is_same: Callable[[], bool] = lambda: False


Generator = Callable[[Path, random.Random], Iterator[Case]]


def damage(content: bytes, chooser: random.Random) -> tuple[str, bytes]:
    """Flip a bit of a content, cut it, insert bytes, or append some."""
    kind = chooser.choice(["flip", "flip", "flip", "cut", "insert", "append"])
    place = chooser.randrange(max(len(content), 1))
    if kind == "flip" and content:
        changed = bytearray(content)
        changed[place] ^= 1 << chooser.randrange(8)
        return f"{kind} {place}", bytes(changed)
    if kind == "cut":
        return f"{kind} {place}", content[:place]
    extra = chooser.randbytes(chooser.randrange(1, 40))
    return f"{kind} {place}", content + extra if kind == "append" else content[:place] + extra + content[place:]


def alter_json(value: object, chooser: random.Random) -> object:
    """Replace one part of a JSON value."""
    if isinstance(value, dict) and value and chooser.random() < 0.9:
        key = chooser.choice(sorted(value))
        return {**value, key: alter_json(value[key], chooser)}
    if isinstance(value, list) and value and chooser.random() < 0.9:
        place = chooser.randrange(len(value))
        return [*value[:place], alter_json(value[place], chooser), *value[place + 1 :]]
    choices = (None, True, -1, 10**400, 1e308, [], {}, [[[[]]]], *FOREIGN, "../../etc/passwd", f"{value}x", "/")
    return chooser.choice([choice for choice in choices if choice != value])


def make_sites(base: Path, chooser: random.Random) -> Iterator[Case]:
    """Yield altered sites and archives, to be verified and replayed."""
    site = base / "site"
    names = sorted(path for path in site.rglob("*") if path.is_file())
    while True:
        folder = Path(tempfile.mkdtemp(dir=base))
        copy = Path(shutil.copytree(site, folder / "site", symlinks=True))
        kind = chooser.choice(["file", "file", "manifest", "stranger", "archive", "member", "replay"])
        words, is_altered, label = ["verify", str(copy)], True, ""
        if kind in ("file", "replay"):
            path = copy / chooser.choice(names).relative_to(site)
            label, content = damage(path.read_bytes(), chooser)
            is_altered = content != path.read_bytes()
            path.write_bytes(content)
            label = f"{path.relative_to(copy)} {label}"
            if kind == "replay":
                words = ["replay", str(copy), "-o", str(folder / "out")]
        elif kind == "manifest":
            manifest = copy / "ngbkit-site.json"
            changed = alter_json(json.loads(manifest.read_text()), chooser)
            manifest.write_text(json.dumps(changed))
            is_altered = False  # whoever writes it anew may state another title
        elif kind == "stranger":
            label = chooser.choice(["link", "pipe", "empty", "extra"])
            place = copy / chooser.choice(["x", "notebooks/x", "notebooks/data/x.py", "_static/x"])
            place.parent.mkdir(parents=True, exist_ok=True)
            if label == "link":
                place.symlink_to("/etc")
            elif label == "pipe":
                os.mkfifo(place)
            else:
                place.mkdir() if label == "empty" else place.write_text("x")
        elif kind == "archive":
            label, content = damage((copy / "archive.zip").read_bytes(), chooser)
            (copy / "archive.zip").write_bytes(content)
        else:
            name = chooser.choice(["../x", "/tmp/x", "a/../../x", "notebooks/\x1b[2Jx.ipynb", "a\\..\\x", "x" * 300])
            with zipfile.ZipFile(copy / "archive.zip", "a") as archive, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                archive.writestr(zipfile.ZipInfo(name), "x")
            words = [chooser.choice(["verify", "replay"]), str(copy / "archive.zip")]
            words += ["-o", str(folder / "out")] if words[0] == "replay" else []
        yield Case(f"{kind} {label}", words, is_altered, [folder])


def make_datasets(base: Path, chooser: random.Random) -> Iterator[Case]:
    """Yield datasets with damaged bytes, and with foreign labels, to be printed."""
    import xarray as xr

    from ngbkit.dataset import storage

    source = base / "run.nc"
    data = storage.load(source)
    while True:
        folder = Path(tempfile.mkdtemp(dir=base))
        file = folder / "other.nc"
        is_altered = chooser.random() < 0.6
        if is_altered:
            label, content = damage(source.read_bytes(), chooser)
            file.write_bytes(content)
        else:
            assert isinstance(data, xr.Dataset)
            label = chooser.choice([text for text in FOREIGN if text.isprintable() or "\x00" not in text])
            name = chooser.choice(["workload", "compiler", "device"])
            labels = [f"{value}{label}" for value in data[name].values]
            changed = data.assign_coords({name: np.array(labels, dtype=object)})
            storage.save(changed.assign_attrs(note=label, run_id=f"x{label}"), file)
        words = chooser.choice([["show", str(file)], ["export", str(file)], ["show", str(file), "--json"]])
        yield Case(
            repr(label), words, is_altered, [folder], is_same=lambda file=file: data.identical(storage.load(file))
        )


def make_arrays(base: Path, chooser: random.Random) -> Iterator[Case]:
    """Yield values of inputs whose headers, sizes or kinds are hostile."""
    shapes = (
        "(10000000000,)",
        "(10**30,)",
        f"({10**30},)",
        "(-1,)",
        "(1,)*100",
        "()",
        "(0,)",
        "(1e9,)",
        NESTED,
        "(2, 16)",
    )
    while True:
        folder = Path(tempfile.mkdtemp(dir=base))
        file = folder / chooser.choice(["x.npz", "x.npy", "x.npz", "input_0.pb"])
        kind = chooser.choice(["header", "bomb", "pipe", "folder", "noise", "damaged", "object"])
        if kind == "header":
            shape = chooser.choice(shapes)
            text = f"{{'descr': '<f{chooser.choice('48')}', 'fortran_order': False, 'shape': {shape}, }}\n"
            body = b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little") + text.encode() + bytes(64)
            write_member(file, body)
        elif kind == "bomb":
            header = io.BytesIO()
            np.lib.format.write_array_header_2_0(
                header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 27, 2)}
            )
            with (
                zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
                archive.open("x.npy", "w", force_zip64=True) as member,
            ):
                member.write(header.getvalue())
                member.write(bytes(1 << 24))
        elif kind == "pipe":
            os.mkfifo(file)
        elif kind == "folder":
            file.mkdir()
        elif kind == "noise":
            file.write_bytes(chooser.randbytes(chooser.randrange(2000)))
        else:
            content = io.BytesIO()
            values = np.ones((2, 16), np.float32) if kind == "damaged" else np.array([{}], dtype=object)
            np.save(content, values, allow_pickle=True)
            write_member(file, damage(content.getvalue(), chooser)[1] if kind == "damaged" else content.getvalue())
        yield Case(
            f"{kind} {file.name}", ["inputs", str(base / "mlp.onnx"), "--inputs", f"mlp={file}"], False, [folder]
        )


def write_member(file: Path, body: bytes) -> None:
    """Write an array as it is, or into a zip."""
    if file.suffix != ".npz":
        file.write_bytes(body)
        return
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", body)


def make_options(base: Path, chooser: random.Random) -> Iterator[Case]:
    """Yield commands with a hostile value of one of their options, which reach no measurement."""
    parser = cli.build_parser(cli._load([]))
    commands = next(action.choices for action in parser._actions if isinstance(action.choices, dict))
    source = {"show": str(base / "run.nc"), "choose": str(base / "run.nc"), "compare": str(base / "run.nc")}
    while True:
        name = chooser.choice([name for name in commands if name not in ("deploy", "undeploy", "demo", "selfcheck")])
        actions = [each for each in commands[name]._actions if each.option_strings and each.nargs != 0]
        if not actions:
            continue
        option = chooser.choice(chooser.choice(actions).option_strings)
        value = chooser.choice([*NUMBERS, *FOREIGN])
        words = [name, *([source[name]] if name in source else ["nothing.onnx"]), f"{option}={value}"]
        yield Case(f"{name} {option} {value[:20]!r}", words if option[:2] == "--" else [*words[:-1], option, value])


def make_states(base: Path, chooser: random.Random) -> Iterator[Case]:
    """Yield commands on a state folder in which one file is damaged, or hostile JSON."""
    state = base / "state"
    (run,) = (path for path in (state / options.LAYOUT.runs).iterdir() if path.is_dir())
    while True:
        folder = Path(tempfile.mkdtemp(dir=base))
        copy = Path(shutil.copytree(state, folder / "state"))
        path = chooser.choice([each for each in sorted(copy.rglob("*")) if each.is_file() and each.name != "key"])
        if path.suffix == ".json" and chooser.random() < 0.7:
            kind = "json"
            hostile = ["", NESTED, "{" * 10, "null", "[]", "1" * 5000, '{"a": NaN}', "\ufeff{}", '"\\ud800"']
            changed = json.dumps(alter_json(json.loads(path.read_text()), chooser))
            path.write_text(chooser.choice([*hostile, *[changed] * 5]))
        else:
            kind, content = damage(path.read_bytes(), chooser)
            path.write_bytes(content)
        words = chooser.choice(
            [["runs"], ["cache"], ["show", run.name], ["runs", "--failures", run.name], ["compilers"]]
        )
        label = f"{path.relative_to(copy)} {kind} {' '.join(words)}"
        yield Case(label, words, False, [folder], run.name if path.name != "journal.sqlite" else "")


GENERATORS: dict[str, tuple[Generator, float]] = {
    "sites": (make_sites, 0.14),
    "datasets": (make_datasets, 0.2),
    "arrays": (make_arrays, 0.26),
    "options": (make_options, 0.25),
    "state": (make_states, 0.15),
}
"""The generators, each with its share of the inputs."""


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
                stream.reconfigure(encoding="utf-8", errors="replace")
            state = next((path / "state" for path in case.folders if (path / "state").is_dir()), base / "empty")
            os.environ |= {"HOME": str(home), "TMPDIR": str(home / "tmp"), options.STATE_DIR: str(state)}
            tempfile.tempdir = None
            os.chdir(home)
            try:
                code = cli.main(case.words)
            except SystemExit as error:
                code = int(error.code or 0)
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
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    import nbformat
    import onnx
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
    from onnx import parser

    import ngbkit
    from ngbkit.publish import publish

    text = '<ir_version: 8, opset_import: ["": 17]> graph (float[batch, 16] x) => (float[batch, 16] y) { y = Relu(x) }'
    onnx.save(parser.parse_model(text), base / "mlp.onnx")
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
