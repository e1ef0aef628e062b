"""A real IPython shell with the extension loaded; all modules share a state folder, and so an engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell
from state import share_state_dir
from traitlets.config import Config

from ngbkit.commands import compilers

state_dir = pytest.fixture(autouse=True, scope="module")(share_state_dir)


@pytest.fixture(scope="module")
def only_shell() -> Iterator[InteractiveShell]:
    """One shell for all tests of a module, without history or colours: other modules are in no shell."""
    config = Config(HistoryManager={"enabled": False}, InteractiveShell={"colors": "nocolor"})
    yield InteractiveShell.instance(config=config)
    InteractiveShell.clear_instance()


@pytest.fixture
def shell(only_shell: InteractiveShell) -> Iterator[InteractiveShell]:
    """The shell with the extension loaded, and without the variables of other tests."""
    namespace = dict(only_shell.user_ns)
    only_shell.run_line_magic("load_ext", "ngbkit")
    yield only_shell
    only_shell.run_line_magic("unload_ext", "ngbkit")
    only_shell.user_ns.clear()
    only_shell.user_ns.update(namespace)


@pytest.fixture(autouse=True)
def no_trial_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try no import of a compiler that is described: tests of its listing do, in seconds for each of them."""
    monkeypatch.setattr(compilers, "_try_imports", lambda _modules: "")
