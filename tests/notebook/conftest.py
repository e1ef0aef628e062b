"""Tests in a real IPython shell with the extension loaded."""

from __future__ import annotations

from shells import no_trial_imports, only_shell, shell, state_dir

__all__ = ["no_trial_imports", "only_shell", "shell", "state_dir"]
