"""A real IPython shell with the extension loaded, and one state folder, and so one engine, for all modules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell
from state import share_state_dir
from traitlets.config import Config

state_dir = pytest.fixture(autouse=True, scope="module")(share_state_dir)


@pytest.fixture(scope="session")
def only_shell() -> Iterator[InteractiveShell]:
    """Without history or colours. There is one, for each would collect garbage on its own when Python ends."""
    config = Config(HistoryManager={"enabled": False}, InteractiveShell={"colors": "nocolor"})
    yield InteractiveShell.instance(config=config)
    InteractiveShell.clear_instance()


@pytest.fixture
def shell(only_shell: InteractiveShell) -> Iterator[InteractiveShell]:
    """The shell with the extension loaded, and without the variables of other tests."""
    before = dict(only_shell.user_ns)
    only_shell.run_line_magic("load_ext", "ngbkit")
    yield only_shell
    only_shell.run_line_magic("unload_ext", "ngbkit")
    only_shell.user_ns.clear()
    only_shell.user_ns.update(before)
