"""An environment with ngbkit: a description of the machine, the installation, and a check of the compilers."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ngbkit.fleet.deployment.onsite.folder import (
    DEPLOYED,
    MARK,
    Refused,
    find_engines,
    is_deployed,
    is_ours,
    join_names,
    list_names,
    lock,
    remove,
)

READY = ".ready"
# pip's lines about packages that it does not change.
_UNCHANGED = ("Requirement already satisfied", "ngbkit is already installed")

_CHECK = """
import json
from importlib import metadata
import ngbkit
from ngbkit import registry
from ngbkit.registry import find_version
from ngbkit.device import plan
compilers = registry.load_all(registry.COMPILERS).values()
print(json.dumps({
    "file": ngbkit.__file__,
    "version": metadata.version("ngbkit"),
    "hello": json.loads(plan.hello()),
    "compilers": [
        {
            "compiler": compiler.name,
            "version": find_version(compiler.packages[0]) if compiler.packages else None,
            "missing": compiler.unavailable(),
        }
        for compiler in compilers
    ],
}))
"""


def describe_machine(state_dir: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Describe this machine for the choice of its wheels, and list the installed distributions."""
    env = state_dir / "env"
    library, version = platform.libc_ver()
    return {
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "glibc": version if library == "glibc" else "",
        "installed": [path.name for path in _list_distributions(env)] if _is_reusable(env, request) else [],
        # https://packaging.python.org/en/latest/specifications/dependency-specifiers/#environment-markers
        "markers": {
            "implementation_name": sys.implementation.name,
            "implementation_version": platform.python_version(),
            "os_name": os.name,
            "platform_machine": platform.machine(),
            "platform_python_implementation": platform.python_implementation(),
            "platform_release": platform.release(),
            "platform_system": platform.system(),
            "platform_version": platform.version(),
            "python_full_version": platform.python_version(),
            "python_version": ".".join(map(str, sys.version_info[:2])),
            "sys_platform": sys.platform,
        },
    }


def install(state_dir: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Install the wheels that follow on the standard input in the device's environment; return its check."""
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    wheels, downloads, env = (state_dir / name for name in ("wheels", "downloads", "env"))
    with lock(state_dir):
        _claim(state_dir)
        try:
            remove(wheels)
            (wheels / "tmp").mkdir(parents=True, mode=0o700)
            with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as stream:
                _unpack(stream, wheels)
            _keep_releases(wheels, state_dir / "releases", request["releases"])
            threading.Thread(target=_end_with_client, daemon=True).start()
            # A device's /tmp may be a part of its memory, which torch does not fit in.
            os.environ["TMPDIR"] = str(wheels / "tmp")
            _create(env, request)
            (env / READY).unlink(missing_ok=True)
            _install_wheels(env, wheels / request["wheel"], request, downloads)
            result = _check(env, state_dir)
        finally:
            remove(wheels)
        (env / READY).write_text(result["version"] + "\n")
        remove(downloads)
    return {**result, "python": str(env / "bin" / "python"), "state_dir": str(state_dir)}


def _claim(state_dir: Path) -> None:
    """Mark the folder as ngbkit's; refuse one with foreign files, or an environment in use."""
    if not is_deployed(state_dir):
        others = [name for name in list_names(state_dir) if name == "env" or not is_ours(state_dir)]
        if others:
            raise Refused(
                f"{state_dir} has files that are not ngbkit's ({join_names(others)}): "
                "name a folder of its own as `state_dir` in the devices file"
            )
        (state_dir / MARK).write_bytes(DEPLOYED)
    engines = [engine for engine in find_engines(state_dir) if engine["in_env"]]
    if engines:
        # It would measure with a mix of old and new modules.
        raise Refused(f"an engine runs in that environment ({engines[0]['label']}): end it, and deploy again")


def _unpack(stream: tarfile.TarFile, folder: Path) -> None:
    for entry in stream:
        content = stream.extractfile(entry)
        if content is None or Path(entry.name).name != entry.name:
            raise Refused(f"invalid file: got {entry.name!r}; expected a plain name")
        with open(folder / entry.name, "wb") as file:
            shutil.copyfileobj(content, file, 1 << 20)


def _keep_releases(wheels: Path, folder: Path, names: Sequence[str]) -> None:
    """Keep the wheels of releases where their environments are installed from; ngbkit may need the same ones."""
    if names:
        folder.mkdir(exist_ok=True, mode=0o700)
    for name in names:
        remove(folder / name)
        os.link(wheels / name, folder / name)


def _create(env: Path, request: Mapping[str, Any]) -> None:
    """Create the environment, unless a reusable one exists."""
    if _is_reusable(env, request):
        return
    missing = [module for module in ("venv", "ensurepip") if importlib.util.find_spec(module) is None]
    if missing:
        major, minor = sys.version_info[:2]
        raise Refused(
            f"{sys.executable} cannot create environments with pip, because it has no {missing[0]}: install its venv "
            f"package (Debian and Ubuntu: apt install python{major}.{minor}-venv), or name another by --python"
        )
    remove(env)
    env.mkdir(mode=0o700)
    # This Python may be that of the environment itself.
    program = [getattr(sys, "_base_executable", sys.executable), "-I", "-m", "venv", str(env)]
    _run([*program, *(["--system-site-packages"] if request["system"] else [])], "venv")


def _is_reusable(env: Path, request: Mapping[str, Any]) -> bool:
    """Return whether the environment is complete, runs, and fits a requested Python and its system's packages."""
    program = "import sys, pip; print(*sys.version_info[:2])"
    if not (env / READY).is_file() or (request["system"] and not _sees_system(env)):
        return False
    with suppress(OSError):
        command = [str(env / "bin/python"), "-I", "-c", program]
        process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        is_same = process.stdout.split() == [*map(str, sys.version_info[:2])]
        return process.returncode == 0 and (is_same or not request["named"])
    return False


def _sees_system(env: Path) -> bool:
    settings = (env / "pyvenv.cfg").read_text().replace(" ", "").splitlines()
    return "include-system-site-packages=true" in settings


def _list_distributions(env: Path) -> list[Path]:
    return list(env.glob("lib/python*/site-packages/*.dist-info"))


def _install_wheels(env: Path, wheel: Path, request: Mapping[str, Any], downloads: Path) -> None:
    pip = [str(env / "bin/python"), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input"]
    # Downloads before an interruption are not repeated, and none remains in the user's own cache.
    pip += ["--cache-dir", str(downloads), "install", "--progress-bar", "off", "--no-warn-script-location"]
    # Python compiles the modules that it imports, a small part of all.
    pip += ["--no-compile"]
    if request["offline"]:
        pip += ["--no-index", "--find-links", str(wheel.parent)]
    # By its path, so that pip asks no index for ngbkit. By default pip keeps an ngbkit of the same version.
    if any(path.name.startswith("ngbkit-") for path in _list_distributions(env)):
        _run([*pip, "--no-deps", "--force-reinstall", str(wheel)], "pip")
    extras = ",".join(request["extras"])
    _run([*pip, f"{wheel}[{extras}]" if extras else str(wheel)], "pip")


def _check(env: Path, state_dir: Path) -> dict[str, Any]:
    process = subprocess.run(
        [str(env / "bin/python"), "-c", _CHECK],
        # A folder without modules: Python would import an ngbkit in the current one first.
        cwd=state_dir / "wheels",
        env={**os.environ, "NGBKIT_STATE_DIR": str(state_dir)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    sys.stderr.write(process.stderr)
    if process.returncode:
        raise Refused(f"ngbkit is installed but does not run:\n{_join_last(process.stderr.splitlines())}")
    result: dict[str, Any] = json.loads(process.stdout.strip().splitlines()[-1])
    if not Path(result["file"]).is_relative_to(env):
        raise Refused(
            f"Python there imports {result['file']}, not the installed ngbkit: PYTHONPATH is set, in `setup` or `env` "
            "of the devices file or in a start-up file of that machine; remove it there"
        )
    return result


def _run(program: Sequence[str], name: str) -> None:
    """Run a program and print its output line by line; it ends with this process."""
    last: deque[str] = deque(maxlen=20)
    process = subprocess.Popen(
        program,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                if not line.startswith(_UNCHANGED):
                    sys.stderr.write(line)
                    sys.stderr.flush()
                last.append(line.rstrip())
        code = process.wait()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code:
        raise Refused(f"{name} ended with {code}:\n{_join_last(last)}")


def _join_last(lines: Iterable[str]) -> str:
    return "\n".join(list(lines)[-20:]) or "(no output)"


def _end_with_client() -> None:
    # Not through sys.stdin, whose lock would block the end of Python.
    while os.read(0, 4096):
        pass
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
