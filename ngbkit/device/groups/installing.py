"""The releases of compilers that the columns of a plan name: each is installed before anything is measured."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ngbkit import files
from ngbkit.device import release_files, releases
from ngbkit.device.groups.forking import Forker
from ngbkit.device.groups.worker import TrialFailedError, build_failure
from ngbkit.device.isolation.server_pool import close_interpreter
from ngbkit.errors import MissingDependencyError, UnsupportedError
from ngbkit.sweep.column import Column
from ngbkit.sweep.trials import Trial


@dataclass(slots=True, kw_only=True)
class Installer(Forker):
    """Installs the releases of one plan."""

    # Why a column cannot be measured here, by its label.
    _refusals: dict[str, str] = field(default_factory=dict)

    # The columns whose children imported another version.
    _reinstalled: set[str] = field(default_factory=set)

    def _install(self, labels: Iterable[str], *, again: bool = False) -> None:
        """Install the releases that labels name, each once, and find the interpreters of their children."""
        columns = {label: column for label in labels if (column := Column.read(label)).release}
        for number, (label, column) in enumerate(columns.items(), 1):
            requirements = releases.list_requirements(column.load_compiler(), column.release)
            text = f"installing {requirements[0].replace('==', ' ')} ({number} of {len(columns)})"
            self._report("stage", step="install", text=text)
            folder = releases.locate_environment(self.spec.state_dir, requirements)
            interpreter, before = str(release_files.locate_interpreter(folder)), releases.read_environment(folder)
            try:
                environment = releases.install(
                    self.spec.state_dir,
                    requirements,
                    variables=self.spec.world.apply(os.environ) if self.spec.world else os.environ,
                    interrupt=self.interrupt,
                    report=partial(self._report_installation, text),
                    again=again,
                )
            except InterruptedError:
                raise
            except (UnsupportedError, MissingDependencyError, OSError) as error:
                self._refusals[label] = str(files.explain(error) or error)
                continue
            if environment != before:
                close_interpreter(self.spec, interpreter)
            self._interpreters[label] = interpreter

    def _reinstall(self, trial: Trial, problem: str) -> None:
        """Install the release of a trial again, once; TrialFailedError if its child imported another version since."""
        label = trial.compiler
        if label in self._reinstalled:
            self._refusals[label] = f"{problem}, also after it was installed anew. Choose another release or index."
        else:
            self._reinstalled.add(label)
            self._install([label], again=True)
        if label in self._refusals:
            raise TrialFailedError(build_failure(trial, "unsupported", "install", self._refusals[label]))

    def _report_installation(self, text: str, progress: str) -> None:
        self._report("stage", step="install", text=f"{text}: {progress}")

    def describe_releases(self) -> dict[str, Any]:
        """Describe the environment of each column with a release; one that an earlier plan used keeps its note."""
        earlier = self.journal.notes("environment").get(self.spec.device, {}).get("releases", {})
        described = releases.describe_releases(self.spec.state_dir, self.spec.sweep.compilers)
        refused = {label: {"refusal": reason} for label, reason in self._refusals.items()}
        return {**earlier, **described, **refused}
