"""The world of a plan: the folder, the import path and the environment variables of the line that asked for it."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ngbkit import options
from ngbkit.device.environment_variables import VOLATILE
from ngbkit.files import write_atomically
from ngbkit.user_text import parse_json
from ngbkit.workloads.base import Workload
from ngbkit.workloads.files import find_script_folder, find_working_folder, is_on_python_path, list_local_packages

# The filters of Python's warnings, for the user's program alone.
WARNINGS = "PYTHONWARNINGS"
# The packages of this interpreter, which another one must not import.
_PACKAGES = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The surroundings in which a network is built; they are sent to engines of this machine, and never written."""

    # The working folder; empty if it was removed.
    folder: str
    # The entries of `sys.path` except that folder, which comes last, so that no file in it hides a module; only where
    # the user's PYTHONPATH names it, it keeps its place.
    path: tuple[str, ...] = ()
    # The variables that differ from the engine's own; None for one that the engine has and that was removed.
    variables: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    # The path of each network that a file of this machine defines, by the network's name.
    files: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def capture(cls, workloads: Iterable[Workload] = ()) -> World:
        """Capture the present world of this process, with all its variables."""
        folder = find_working_folder()
        entries = [Path(folder, entry) for entry in sys.path if isinstance(entry, str) and entry]
        last = {
            Path(user_folder) for user_folder in (folder, find_script_folder()) if not is_on_python_path(user_folder)
        }
        path = map(os.path.normpath, [*(entry for entry in entries if entry not in last), *entries])
        return cls(
            folder=folder,
            path=tuple(entry for entry in dict.fromkeys(path) if entry != folder or Path(entry) not in last),
            variables={name: value for name, value in os.environ.items() if name not in VOLATILE},
            files={workload.name: workload.path for workload in workloads if workload.path},
        )

    def compare(self, start: Mapping[str, str], constants: Iterable[str], *, shares_packages: bool) -> World:
        """Return this world for an engine that began with `start` and `constants`, and that may have its own path."""
        changes = {name: value for name, value in self.variables.items() if start.get(name) != value}
        removals = dict.fromkeys(start.keys() - self.variables.keys() - VOLATILE)
        # The engine's own state folder is that of the plan; its PYTHONPATH leads to ngbkit, and `path` to all else.
        ignored = {*constants, options.STATE_DIR, "PYTHONPATH", WARNINGS}
        variables = {name: value for name, value in {**changes, **removals}.items() if name not in ignored}
        return replace(self, variables=variables, path=self.path if shares_packages else ())

    def apply(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Apply the variables to an engine's own."""
        merged = {**environment, **self.variables}
        return {name: value for name, value in merged.items() if value is not None}

    def list_additions(self) -> list[str]:
        """List the entries of the path that belong to no installation, for another interpreter."""
        libraries = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
        return [
            entry
            for entry in self.path
            if Path(entry).name not in _PACKAGES
            and not entry.endswith(".zip")
            and not any(Path(entry).is_relative_to(library) for library in libraries)
        ]

    def restore(self, file: Path) -> World:
        """Return this world with the folder, the files and the additions to the path that a run began with.

        The file contains them; if it is missing, it is written, without the variables, which may be secret.
        """
        try:
            data = parse_json(file.read_text())
            folder, additions, files = str(data["folder"]), list(map(str, data["path"])), dict(data["files"])
        except (OSError, ValueError, LookupError, TypeError):
            with write_atomically(file) as draft:
                draft.write_text(json.dumps({**self.to_json(), "path": self.list_additions(), "variables": {}}))
            return self
        if not Path(folder).is_dir():
            folder = self.folder  # that of the run was moved or removed
        path = dict.fromkeys([*self.path, *(entry for entry in additions if entry != folder)])
        return replace(self, folder=folder, path=tuple(path), files=files)

    def list_warnings(self, workloads: Iterable[Workload]) -> dict[str, list[str]]:
        """List what this process and its engines import from different places, by the name of the package."""
        texts = [f"{workload.source} {workload.spec}" for workload in workloads]
        names = [name for name in list_local_packages() if any(name in text for text in texts)]
        return {
            name: [
                f"this process imports {name} of its folder, and engines the installed one. To measure the former, "
                f"install it, or start Python with PYTHONPATH={self.folder}"
            ]
            for name in names
        }

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> World:
        return cls(**{**data, "path": tuple(data["path"])})
