"""Environment variables of a measurement: those of a session do not count, and every other one does."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngbkit.device.environment_variables import digest_variables

SESSION = """
TERM TERM_PROGRAM COLORTERM LS_COLORS TMUX TMUX_PANE STY SHLVL _ PS1 PWD OLDPWD HISTFILE VTE_VERSION WINDOWID
SSH_CLIENT SSH_CONNECTION SSH_TTY SSH_AUTH_SOCK DISPLAY WAYLAND_DISPLAY XAUTHORITY XDG_SESSION_ID XDG_RUNTIME_DIR
XDG_DATA_DIRS DBUS_SESSION_BUS_ADDRESS SESSION_MANAGER JPY_PARENT_PID JPY_SESSION_NAME JUPYTER_SERVER_ROOT IPYTHONDIR
CLICOLOR CLICOLOR_FORCE FORCE_COLOR NO_COLOR GIT_PAGER PAGER EDITOR MPLBACKEND PYDEVD_USE_FRAME_EVAL VSCODE_PID
VSCODE_IPC_HOOK_CLI USER LOGNAME LANG LC_ALL LC_NUMERIC INVOCATION_ID SLURM_JOB_ID VIRTUAL_ENV VIRTUAL_ENV_PROMPT
CONDA_SHLVL CONDA_PROMPT_MODIFIER HF_TOKEN AWS_SECRET_ACCESS_KEY DB_PASSWORD OPENAI_API_KEY https_proxy PIP_INDEX_URL
NGBKIT_STATE_DIR NGBKIT_ENGINE PYTEST_CURRENT_TEST PYTHONPATH LOADEDMODULES BASH_FUNC_module%%
"""
COUNTED = """
ATEN_CPU_CAPABILITY TIMM_FUSED_ATTN GLIBC_TUNABLES CUBLAS_WORKSPACE_CONFIG CUDNN_LOGLEVEL_DBG BLIS_NUM_THREADS
TBB_NUM_THREADS GOTO_NUM_THREADS PYTHONMALLOC PYTHONHASHSEED OMP_NUM_THREADS KMP_AFFINITY MALLOC_ARENA_MAX LD_PRELOAD
LD_LIBRARY_PATH CUDA_MODULE_LOADING CUDA_VISIBLE_DEVICES NVIDIA_TF32_OVERRIDE TORCHINDUCTOR_CACHE_DIR HOME TMPDIR CC
CXX XDG_CACHE_HOME XDG_CONFIG_HOME TOKENIZERS_PARALLELISM CONDA_PREFIX NGBKIT_PATIENCE HF_HOME ONEDNN_MAX_CPU_ISA X
"""


@pytest.mark.parametrize(("names", "expected"), [(SESSION, []), (COUNTED, sorted(COUNTED.split()))])
def test_what_counts(names: str, expected: list[str]) -> None:
    """Variables of sessions, secrets among them, have no digest; all others have one, known to ngbkit or not."""
    assert expected == list(digest_variables(dict.fromkeys(names.split(), "value")))


def test_a_digest_is_of_a_name_and_its_value() -> None:
    """Equal values of two variables cannot be told from their digests, which do not contain them."""
    digests = digest_variables({"CC": "gcc", "CXX": "gcc"})

    assert 2 == len({*digests.values()})
    assert {"CC": digests["CC"]} == digest_variables({"CC": "gcc"}) != digest_variables({"CC": "clang"})


def test_of_the_path_only_folders_with_compilers_count(tmp_path: Path) -> None:
    """A folder without a program that compilers start, a missing one and a second mention change nothing."""
    for name in ("bin/x86_64-linux-gnu-g++-12", "scripts/jupyter", "other/clang"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    paths = [
        ":".join(str(tmp_path / name) for name in names.split())
        for names in ("bin", "scripts missing bin bin", "other bin", "bin other")
    ]
    first, same, *others = (digest_variables({"PATH": path})["PATH"] for path in paths)

    assert first == same
    assert 3 == len({first, *others})
