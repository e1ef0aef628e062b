"""The words of `ngbkit cache`: sizes, and what goes together."""

from __future__ import annotations

from pathlib import Path

import pytest
from keeping import run_cache

from ngbkit.commands.cache import format_size, parse_size
from ngbkit.commands.completion import LISTERS, Cursor
from ngbkit.errors import UsageError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("17", 17),
        ("5GB", 5_000_000_000),
        ("1.5 k", 1500),
        ("2GiB", 2 << 30),
        ("500mb", 500_000_000),
        ("1T", 10**12),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    """A size is parsed in powers of 1000, or of 1024 with an i."""
    assert size == parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_600, "1 MB"), (906_512_004, "907 MB")]
)
def test_sizes_are_written_with_three_digits(size: int, text: str) -> None:
    """A size is formatted with three digits in a unit that suits it."""
    assert text == format_size(size)


def test_cache_keys_complete(state_dir: Path) -> None:
    """Tab offers the keys of the device on the line."""
    for folder in ("cache/cpu/zz12", "cache/orin/zz34", "tuning/cpu/tvm/zz56"):
        (state_dir / folder).mkdir(parents=True)

    def list_keys(*words: str) -> list[str]:
        """List the keys that this test has made: others share its state folder."""
        keys = LISTERS["kept"](Cursor(typed="zz", words=words))
        return [key for key in keys if key.startswith("zz")]

    assert ["zz12", "zz56"] == list_keys("clean")
    assert ["zz34"] == list_keys("clean", "-d", "orin") == list_keys("clean", "--devices", "orin")
    assert [] == list_keys("clean", "-d", "oron")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("clean",), "--keep 5GB, or names"),
        (("clean", "--keep", "much"), "invalid size 'much'"),
        (("clean", "--keep", "iB"), "invalid size 'iB'"),
        (("clean", "--keep", "-5"), "invalid size '-5'"),
        (("clean", "--keep", 400 * "9" + "GB"), "invalid size '999"),
        (("list", "--keep", "5GB"), "invalid option --keep: got it with list; expected clean"),
        (("list", "-d", "cpu,orin"), "got 'cpu,orin'; expected one"),
        (("eat",), "invalid choice: 'eat'"),
    ],
)
def test_what_does_not_go_together_is_told(words: tuple[str, ...], message: str) -> None:
    """The command refuses conflicting arguments before it changes anything."""
    with pytest.raises(UsageError) as raised:
        run_cache(*words)

    assert message in str(raised.value)
