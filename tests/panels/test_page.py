"""The page of a panel: what it sends, and what it does with what the user does."""

from __future__ import annotations

from typing import Any

import pytest

from ngbkit.errors import UsageError
from ngbkit.panels.page import MOST_CHARACTERS, Page, render_error


class SentPage(Page):
    """A page that records its messages."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[dict[str, Any]] = []

    def send(self, content: dict[str, Any], buffers: Any = None) -> None:
        """Record a message."""
        self.messages.append(content)

    @property
    def sent(self) -> list[dict[str, str]]:
        """The parts of each message."""
        return [message["parts"] for message in self.messages if message["kind"] == "html"]


@pytest.fixture
def page() -> SentPage:
    page = SentPage()
    page.show("page", "<p>outer</p>")
    page.flush()
    page.messages.clear()
    return page


def test_only_changed_parts_are_sent(page: SentPage) -> None:
    """A part that is shown again as it was is no message."""
    page.show("page", "<p>outer</p>")
    page.show("inner", "<b>1</b>")
    page.flush()
    page.flush()

    assert [{"inner": "<b>1</b>"}] == page.sent


def test_messages_are_short(page: SentPage) -> None:
    """Parts are split over messages, and a live run sends one of them at a time."""
    for number in range(6):
        page.show(f"row {number}", "x" * (MOST_CHARACTERS // 2))
    page.flush(most=1)
    first = list(page.sent)
    page.flush()

    assert 1 == len(first)
    assert 3 == len(page.sent)
    assert all(sum(map(len, parts.values())) <= MOST_CHARACTERS for parts in page.sent)
    assert 6 == len({name for parts in page.sent for name in parts})


def test_a_new_view_gets_all_parts_and_charts(page: SentPage) -> None:
    """A second view, or a page that was loaded again, has what the first one has, the outer part first."""
    page.show("inner", "<b>1</b>")
    page.draw("figure", {"mark": "point", "title": "points"})
    page.messages.clear()
    page.act("open")

    assert [["page", "inner"]] == [list(parts) for parts in page.sent]
    assert ("chart", "figure", "points") == tuple(page.messages[-1][key] for key in ("kind", "name", "title"))


def test_an_error_of_an_action_is_a_sentence(page: SentPage) -> None:
    """An action that raises ends nothing, and its error is shown as the words of magics."""

    def fail(_: Any) -> None:
        raise UsageError("no <network>. `ngbkit compilers` lists them.")

    page.actions["fail"] = fail
    page.act("fail")
    page.act("no such action")

    assert "no &lt;network&gt;. `%ngcompilers` lists them." in page.parts["message"]
    assert "role=" in page.parts["message"]


def test_an_unexpected_error_has_its_traceback() -> None:
    """An error that ngbkit does not know has its traceback, folded and escaped."""
    html = render_error(ZeroDivisionError("<1 / 0>"))

    assert "unexpected error: ZeroDivisionError: &lt;1 / 0&gt;" in html
    assert "<details><summary><small>traceback, for a report" in html


def test_the_library_of_charts_comes_from_the_kernel(page: SentPage) -> None:
    """The script of vega is sent once asked for, and asks no server."""
    from ngbkit.panels import page as pages

    script = pages._bundle_vega()

    assert script.rstrip().endswith(b"as vegaEmbed};")
    assert script is pages._bundle_vega()


def test_the_front_end_is_small() -> None:
    """Script and style together have less than a tenth of the size that a bundle may have."""
    assert len(str(Page._esm)) + len(str(Page._css)) < 30_000
    assert "morphChildren" in str(Page._esm)
