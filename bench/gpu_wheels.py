"""Gathers the wheels that a GPU machine without a network lacks, in pieces that travel one after the other.

    python bench/gpu_wheels.py .wheels --python 3.12 [--extras onnxruntime-gpu,tensorrt-rtx,tvm]
        [--have MACHINE.json] [--piece 50] [--sm 90]

The requirements are those of ngbkit's own extras, without the packages that the machine has (``--have`` reads them from
``machine.json``, which `gpu.py` writes), and ngbkit itself, for its entry points. Each wheel is packed again, smaller,
as ``NAME.whl.xz.00of03`` and so on; `gpu.py --wheels` joins and installs the pieces of every wheel that is complete.
With ``--sm 90`` its CUDA libraries hold the code of that architecture alone: ONNX Runtime's wheel then takes 68 MB
rather than 165.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import re
import struct
import subprocess
import sys
import zipfile
from collections.abc import Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
EXTRAS = "onnxruntime-gpu,tensorrt-rtx,tvm"
# A wheel names the oldest C library that it works with, and pip matches that name exactly.
PLATFORMS = ["manylinux1_x86_64", "manylinux2014_x86_64", *(f"manylinux_2_{minor}_x86_64" for minor in range(5, 40))]
# The first bytes of a group of codes for several architectures (nvcc's "fat binary"), and the kind of compiled code.
_CODE, _MACHINE_CODE = bytes.fromhex("50ed55ba"), 2
_PIECE = re.compile(r"(?P<wheel>.+\.whl)\.xz\.(?P<number>\d+)of(?P<count>\d+)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the pieces go")
    parser.add_argument("--python", required=True, metavar="X.Y", help="the Python version of the machine")
    parser.add_argument("--extras", default=EXTRAS, help=f"whose requirements to gather (default: {EXTRAS})")
    parser.add_argument(
        "--have", type=Path, metavar="FILE", help="machine.json of the machine, to leave out what it has"
    )
    parser.add_argument("--piece", type=float, default=50.0, metavar="MB", help="the size of a piece (default: 50)")
    parser.add_argument("--sm", type=int, metavar="N", help="blank the CUDA code of other architectures than sm_N")
    args = parser.parse_args()
    have = json.loads(args.have.read_text())["data"]["packages"] if args.have else {}
    requirements = drop_conflicts(set(list_requirements(args.extras.split(","), set(have))))
    args.folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="ngbkit-wheels-") as name:
        for requirement in requirements:
            download(requirement, args.python, Path(name))
        subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", name, str(ROOT)], check=True)
        wheels = sorted(Path(name).glob("*.whl"))
        with ProcessPoolExecutor() as pool:
            pieces = pool.map(partial(split, folder=args.folder, piece_mb=args.piece, sm=args.sm), wheels)
            for wheel, sizes in zip(wheels, pieces, strict=True):
                print(
                    f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, as {', '.join(f'{s:.1f}' for s in sizes)} MB"
                )


def list_requirements(extras: Collection[str], have: Collection[str]) -> Iterator[str]:
    """List the requirements of some of ngbkit's extras, and of those they name, that are not among `have`."""
    import tomllib  # not in the Python 3.10 of a Jetson, which only installs

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in extras:
        if extra not in declared:
            raise SystemExit(f"invalid extra: got {extra!r}; expected one of {', '.join(sorted(declared))}")
        for requirement in declared[extra]:
            if inner := re.fullmatch(r"ngbkit\[(.+)\]", requirement):
                yield from list_requirements(inner[1].split(","), have)
            elif normalise(read_name(requirement)) not in {normalise(package) for package in have}:
                yield re.sub(r"\[.*?\]", "", requirement)


def drop_conflicts(requirements: Collection[str]) -> list[str]:
    """Drop ONNX Runtime for the CPU if its build for GPUs is there: both bring the same module."""
    names = {read_name(requirement) for requirement in requirements}
    dropped = {"onnxruntime"} if "onnxruntime-gpu" in names else set()
    return sorted(text for text in requirements if read_name(text) not in dropped)


def read_name(requirement: str) -> str:
    return re.split(r"[\s<>=!~;\[]", requirement, maxsplit=1)[0]


def normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def download(requirement: str, python: str, folder: Path) -> None:
    tags = [flag for platform in PLATFORMS for flag in ("--platform", platform)]
    command = ["download", "-q", "--no-deps", "--only-binary=:all:", "--python-version", python, *tags]
    process = subprocess.run(
        [sys.executable, "-m", "pip", *command, "-d", str(folder), requirement],
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        print(f"{requirement}: not gathered: {process.stderr.strip().splitlines()[-1]}", file=sys.stderr)


def split(wheel: Path, folder: Path, piece_mb: float, sm: int | None = None) -> list[float]:
    """Compress a wheel and write it in pieces; return their sizes in MB. With `sm`, blank the code of other GPUs."""
    with TemporaryDirectory(prefix="ngbkit-wheel-") as name:
        # A stored archive compresses as a whole, a fifth smaller than file by file.
        plain = Path(name) / wheel.name
        with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(plain, "w", zipfile.ZIP_STORED) as target:
            for entry in source.infolist():
                data = source.read(entry)
                data = blank_others(data, sm) if sm and ".so" in entry.filename else data
                target.writestr(zipfile.ZipInfo(entry.filename), data)
        content = lzma.compress(plain.read_bytes())
    count = max(1, math.ceil(len(content) / (piece_mb * 1e6)))
    size = math.ceil(len(content) / count)
    pieces = [content[start : start + size] for start in range(0, len(content), size)]
    for number, piece in enumerate(pieces):
        (folder / f"{wheel.name}.xz.{number:02}of{count:02}").write_bytes(piece)
    return [len(piece) / 1e6 for piece in pieces]


def blank_others(library: bytes, sm: int) -> bytes:
    """Zero the code of other architectures than `sm` in a library: the driver reads the headers, which stay."""
    content, start = bytearray(library), 0
    while (start := content.find(_CODE, start)) >= 0:
        version, header, size = struct.unpack_from("<HHQ", content, start + 4)
        entry, end = start + header, start + header + size
        if version != 1 or end > len(content):  # these four bytes are something else
            start += 4
            continue
        while entry < end:
            kind, _, header, size = struct.unpack_from("<HHIQ", content, entry)
            architecture = int.from_bytes(content[entry + 28 : entry + 32], "little")
            if kind != _MACHINE_CODE or architecture != sm:
                content[entry + header : entry + header + size] = bytes(size)
            entry += header + size
        start = end
    return bytes(content)


def install(arrived: Path, collected: Path, site: Path) -> list[str]:
    """Add the pieces in `arrived` to those in `collected`; install complete wheels into `site`, and return all names.

    A wheel of this machine's own packages is never replaced: `site` is a folder for PYTHONPATH.
    """
    collected.mkdir(parents=True, exist_ok=True)
    for path in arrived.rglob("*.whl.xz.*"):
        if _PIECE.fullmatch(path.name):
            (collected / path.name).write_bytes(path.read_bytes())
    complete = [wheel for wheel, (have, count) in sorted(count_pieces(collected).items()) if have == count]
    for wheel in complete:
        if not (collected / wheel).exists():
            pieces = sorted(collected.glob(f"{wheel}.xz.*"))
            (collected / wheel).write_bytes(lzma.decompress(b"".join(piece.read_bytes() for piece in pieces)))
            options = ["--no-index", "--no-deps", "--no-compile", "--upgrade", "--target", str(site)]
            command = [sys.executable, "-m", "pip", "install", "-q", *options, str(collected / wheel)]
            process = subprocess.run(command, capture_output=True, text=True, check=False)
            if process.returncode:  # gathered for another Python: what it would bring is reported as lacking
                print(f"{wheel} is not installed: {process.stderr.strip().splitlines()[-1]}", file=sys.stderr)
    return complete


def count_pieces(folder: Path) -> dict[str, tuple[int, int]]:
    """Count the pieces of each wheel in a folder: those that are there, and all."""
    counts: dict[str, tuple[int, int]] = {}
    for path in folder.iterdir():
        if match := _PIECE.fullmatch(path.name):
            have, _ = counts.get(match["wheel"], (0, 0))
            counts[match["wheel"]] = (have + 1, int(match["count"]))
    return counts


if __name__ == "__main__":
    main()
