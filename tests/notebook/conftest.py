"""A real IPython shell with the extension loaded; one state folder, and so one engine, for all tests of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from ngbkit import runs
from ngbkit.cluster import local
from ngbkit.runs import Summary


@pytest.fixture(autouse=True, scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Nothing that a test does shows in the user's own state folder."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NGBKIT_STATE_DIR", str(folder))
        yield folder
        local.close()


@pytest.fixture
def new_runs(state_dir: Path) -> Callable[[], list[Summary]]:
    """Gives the runs that this test has started."""
    known = {summary.id for summary in runs.summaries()}
    return lambda: [summary for summary in runs.summaries() if summary.id not in known]


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
