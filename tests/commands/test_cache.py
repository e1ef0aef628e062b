"""The words of `ngbkit cache`: sizes, ages, and what goes together."""

from __future__ import annotations

import pytest
from keeping import DAY_S, carry_out

from ngbkit.commands.cache_arguments import read_age, read_size, write_size
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
    """In powers of 1000, or of 1024 with an i."""
    assert size == read_size(text)


@pytest.mark.parametrize(("text", "seconds"), [("30d", 30 * DAY_S), ("12h", 43200.0), ("2w", 14 * DAY_S), ("90 s", 90)])
def test_ages_are_read_as_people_write_them(text: str, seconds: float) -> None:
    """A number and its unit."""
    assert seconds == read_age(text)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_600, "1 MB"), (906_512_004, "907 MB")]
)
def test_sizes_are_written_with_three_digits(size: int, text: str) -> None:
    """In the unit that suits them."""
    assert text == write_size(size)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("clean",), "--keep 5GB, --older-than 30d, or names"),
        (("clean", "--keep", "much"), "--keep 'much' does not read"),
        (("clean", "--keep", "iB"), "--keep 'iB' does not read"),
        (("clean", "--keep", "-5"), "--keep '-5' does not read"),
        (("clean", "--older-than", "30"), "--older-than '30' does not read"),
        (("list", "--keep", "5GB"), "--keep goes with clean, not with list"),
        (("export", "a.tar", "--with-libraries"), "--with-libraries goes with import"),
        (("clean", "--keep", "0", "--overwrite"), "--overwrite goes with export"),
        (("export",), "export needs a file"),
        (("import",), "import needs a file"),
        (("export", "."), "is a folder"),
        (("export", "a.tar"), "keeps no whole result of tuning"),
        (("import", "none.tar"), "none.tar cannot be read"),
        (("eat",), "invalid choice: 'eat'"),
    ],
)
def test_what_does_not_go_together_is_told(words: tuple[str, ...], told: str) -> None:
    """Before anything is touched."""
    with pytest.raises(UsageError) as raised:
        carry_out(*words)

    assert told in str(raised.value)
