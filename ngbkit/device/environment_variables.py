"""The environment variables of a measurement: which count, and a digest of each, since a value may be secret."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

# Shells and test runners change these all the time, and no library reads them at its import.
VOLATILE = frozenset({"PWD", "OLDPWD", "COLUMNS", "LINES", "PYTEST_CURRENT_TEST"})
# Two sessions of a user on one machine differ in these, and their measurements do not. Each other variable counts: the
# folders of caches, settings and temporary files too (HOME, XDG_CACHE_HOME, TMPDIR), since runtimes read them.
_IMMATERIAL = re.compile(
    r"""
    # Shells: their own state; what one activated is an interpreter, which is described, and variables of its own.
    _|SHLVL|SHELL|PS\d|PROMPT.*|HIST.*|BASH_FUNC_.*|.*ZSH.*|ZDOTDIR|FPATH|FZF_.*|STARSHIP_.*|(HOST|OS|MACH)TYPE
    |DIRENV_.*|VIRTUAL_ENV.*|CONDA_(SHLVL|PROMPT.*|DEFAULT_ENV)|_*LMOD_.*|_*MODULES?(PATH|HOME|_).*|LOADEDMODULES
    |_(LMFILES|ModuleTable).*
    # Terminals, pagers and editors, which show text.
    |TERM.*|.*COLOR.*|TMUX.*|STY|WINDOW(ID|PATH)?|(VTE|ITERM|KITTY|WEZTERM|KONSOLE|ALACRITTY)_.*|LESS.*|.*PAGER|MANPATH
    |INFOPATH|EDITOR|VISUAL|.*EMACS.*|N?VIM.*|MYVIMRC|_*VSCODE_.*|(PYCHARM|PYDEVD|ELECTRON|SPY|GIT)_.*|MPLBACKEND|BROWSER
    # Jupyter, IPython and ipyparallel: their connections, and the name of the notebook.
    |JPY_.*|JUPYTER.*|IPYTHON.*|IPP_.*
    # Sessions of desktops, ssh, services and batch jobs: what they give is described (the host, its cores and GPUs).
    |XDG_.*(?<!_HOME)|(WAYLAND_)?DISPLAY|[XI]C?E?AUTHORITY|(DBUS|DESKTOP|GNOME|GTK|GDK|GIO|QT|KDE|IM|SESSION)_.*
    |GDMSESSION|CHROME_DESKTOP|XMODIFIERS|(SSH|GPG|SUDO|SYSTEMD|XPC)_.*|KRB5.*|INVOCATION_ID|JOURNAL_STREAM|MANAGERPID.*
    |NOTIFY_SOCKET|SLURM.*|WSL.*|MAIL|SECURITYSESSIONID|__CF.*
    # The user, and the locale, which shows numbers.
    |USER|USERNAME|LOGNAME|HOSTNAME|LANG|LANGUAGE|LC_.*|TZ
    # What grants access, and is often renewed; downloads and installers, whose results are described.
    |.*(_TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY|CREDENTIAL).*|.*_(proxy|PROXY)|UV(_.*)?|PIP_.*
    # Python's output; where it imports from is of the content of a network.
    |PYTHON(PATH|SAFEPATH|STARTUP|UNBUFFERED|IOENCODING|WARNINGS|DONTWRITEBYTECODE)
    # ngbkit's own, which the sweep and the description have; the patience is the device's.
    |PYTEST_.*|NGBKIT_(?!PATIENCE).*
    """,
    re.VERBOSE,
)
# A folder of PATH counts if it has a program that compilers start; that of an editor or of a Python has none.
_TOOLS = re.compile(r"(.*-)?(cc|c\+\+|gcc|g\+\+|clang|clang\+\+|ld|lld|ld\.\w+|as|nvcc|ptxas)(-\d+)?")


def digest_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return a short digest of each variable that may move a measurement, by its name."""
    return {
        name: blake2b(f"{name}={_list_tools(value) if name == 'PATH' else value}".encode(), digest_size=6).hexdigest()
        for name, value in sorted(environment.items())
        if name not in VOLATILE and not _IMMATERIAL.fullmatch(name)
    }


def _list_tools(path: str) -> list[str]:
    """List the folders of a path with programs that compilers start, each once."""
    return [folder for folder in dict.fromkeys(path.split(os.pathsep)) if _has_tools(Path(folder))]


def _has_tools(folder: Path) -> bool:
    try:
        return any(map(_TOOLS.fullmatch, os.listdir(folder)))  # noqa: PTH208  of /usr/bin, a thousand names
    except OSError:
        return False
