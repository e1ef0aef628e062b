"""An environment with ngbkit in it: what there is to make it of, the making, and what it can do then."""

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

from ngbkit.cluster.deployment.onsite.folder import MARK, Refused, engines, foreign, locked, remove, some

READY = ".ready"
# What pip says of all that it leaves as it is.
_NO_NEWS = ("Requirement already satisfied", "ngbkit is already installed")

_CHECK = """
import json
from importlib import metadata
import ngbkit
from ngbkit import registry
from ngbkit.registry import version
from ngbkit.device import plan
compilers = registry.load_all(registry.COMPILERS).values()
print(json.dumps({
    "file": ngbkit.__file__,
    "version": metadata.version("ngbkit"),
    "hello": json.loads(plan.hello()),
    "compilers": [
        {
            "compiler": one.name,
            "version": version(one.packages[0]) if one.packages else None,
            "missing": one.unavailable(),
        }
        for one in compilers
    ],
}))
"""


def look(state_dir: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """What this machine is, to whoever picks wheels for it, and what is installed already."""
    env = state_dir / "env"
    library, version = platform.libc_ver()
    return {
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "glibc": version if library == "glibc" else "",
        "installed": [path.name for path in _distributions(env)] if _stays(env, request) else [],
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
    """Install the wheels that follow on the standard input in the environment of this device; what it can do then."""
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    wheels, downloads, env = (state_dir / name for name in ("wheels", "downloads", "env"))
    with locked(state_dir):
        _claim(state_dir)
        try:
            remove(wheels)
            (wheels / "tmp").mkdir(parents=True, mode=0o700)
            with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as stream:
                _unpack(stream, wheels)
            threading.Thread(target=_end_with_client, daemon=True).start()
            # Where a device's /tmp is a part of its memory, torch does not fit there.
            os.environ["TMPDIR"] = str(wheels / "tmp")
            _make(env, request)
            (env / READY).unlink(missing_ok=True)
            _fill(env, wheels / request["wheel"], request, downloads)
            about = _check(env, state_dir)
        finally:
            remove(wheels)
        (env / READY).write_text(about["version"] + "\n")
        remove(downloads)
    return {**about, "python": str(env / "bin" / "python"), "state_dir": str(state_dir)}


def _claim(state_dir: Path) -> None:
    """Refuse a folder that is somebody else's, or an environment that is in use; leave a mark in one that is ours."""
    if not (state_dir / MARK).exists():
        others = foreign(state_dir) or [path.name for path in state_dir.glob("env")]
        if others:
            raise Refused(
                f"{state_dir} holds what ngbkit has not put there ({some(others)}): "
                "name a folder of its own as `state_dir` in the devices file"
            )
        (state_dir / MARK).touch(mode=0o600)
    used = [one for one in engines(state_dir) if one["in_env"]]
    if used:
        # Its modules would change below it, and it would measure with a part of each.
        raise Refused(f"an engine runs in that environment ({used[0]['label']}): end it, and deploy again")


def _unpack(stream: tarfile.TarFile, folder: Path) -> None:
    for entry in stream:
        content = stream.extractfile(entry)
        if content is None or Path(entry.name).name != entry.name:
            raise Refused(f"{entry.name!r} came, which is no file of a name alone")
        with open(folder / entry.name, "wb") as write:
            shutil.copyfileobj(content, write, 1 << 20)


def _make(env: Path, request: Mapping[str, Any]) -> None:
    """Make the environment, unless one is there that will do."""
    if _stays(env, request):
        return
    missing = [module for module in ("venv", "ensurepip") if importlib.util.find_spec(module) is None]
    if missing:
        major, minor = sys.version_info[:2]
        raise Refused(
            f"{sys.executable} cannot make environments with pip in them, since it has no {missing[0]}: install its "
            f"venv package (Debian and Ubuntu: apt install python{major}.{minor}-venv), or name another by --python"
        )
    remove(env)
    env.mkdir(mode=0o700)
    # It may be the Python of the environment itself that runs here.
    program = [getattr(sys, "_base_executable", sys.executable), "-I", "-m", "venv", str(env)]
    _show([*program, *(["--system-site-packages"] if request["system"] else [])], "venv")


def _stays(env: Path, request: Mapping[str, Any]) -> bool:
    """Whether the environment is whole, still runs, and is what is asked for, where a Python or its packages are."""
    program = "import sys, pip; print(*sys.version_info[:2])"
    named = request["named"]
    if not (env / READY).is_file() or (request["system"] and not _sees_system(env)):
        return False
    with suppress(OSError):
        command = [str(env / "bin/python"), "-I", "-c", program]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return done.returncode == 0 and (not named or done.stdout.split() == [*map(str, sys.version_info[:2])])
    return False


def _sees_system(env: Path) -> bool:
    settings = (env / "pyvenv.cfg").read_text().replace(" ", "").splitlines()
    return "include-system-site-packages=true" in settings


def _distributions(env: Path) -> list[Path]:
    return list(env.glob("lib/python*/site-packages/*.dist-info"))


def _fill(env: Path, wheel: Path, request: Mapping[str, Any], downloads: Path) -> None:
    pip = [str(env / "bin/python"), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input"]
    # What came before an interruption is not fetched twice, and nothing of it stays in the user's own cache.
    pip += ["--cache-dir", str(downloads), "install", "--progress-bar", "off", "--no-warn-script-location"]
    # Python compiles what it imports, which is a small part of all that comes.
    pip += ["--no-compile"]
    if request["offline"]:
        pip += ["--no-index", "--find-links", str(wheel.parent)]
    # By its path, so that no index is asked for an ngbkit. One of the same version stays unless pip is told otherwise.
    if any(path.name.startswith("ngbkit-") for path in _distributions(env)):
        _show([*pip, "--no-deps", "--force-reinstall", str(wheel)], "pip")
    extras = ",".join(request["extras"])
    _show([*pip, f"{wheel}[{extras}]" if extras else str(wheel)], "pip")


def _check(env: Path, state_dir: Path) -> dict[str, Any]:
    done = subprocess.run(
        [str(env / "bin/python"), "-c", _CHECK],
        # A folder without modules: an ngbkit in the current one would come first.
        cwd=state_dir / "wheels",
        env={**os.environ, "NGBKIT_STATE_DIR": str(state_dir)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    sys.stderr.write(done.stderr)
    if done.returncode:
        raise Refused(f"ngbkit is installed and does not run:\n{_last(done.stderr.splitlines())}")
    about: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    if not Path(about["file"]).is_relative_to(env):
        raise Refused(
            f"what Python imports there is not what was installed but {about['file']}: PYTHONPATH is set, in `setup` "
            "or `env` of the devices file or in a start-up file of that machine; take it out there"
        )
    return about


def _show(program: Sequence[str], name: str) -> None:
    """Run a program and pass on what it prints as it comes; it ends with this process."""
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
                if not line.startswith(_NO_NEWS):
                    sys.stderr.write(line)
                    sys.stderr.flush()
                last.append(line.rstrip())
        code = process.wait()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code:
        raise Refused(f"{name} ended with {code}:\n{_last(last)}")


def _last(lines: Iterable[str]) -> str:
    return "\n".join(list(lines)[-20:]) or "(it said nothing)"


def _end_with_client() -> None:
    # Not by way of sys.stdin, whose lock would be held when Python ends.
    while os.read(0, 4096):
        pass
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
