"""Damage to the bytes of a file: what disks, networks and hostile people do to it."""

from __future__ import annotations

from hypothesis import strategies as st

Damage = tuple[str, float, bytes]

DAMAGES: st.SearchStrategy[list[Damage]] = st.lists(
    st.tuples(
        st.sampled_from(["flip", "write", "insert", "delete", "zero", "copy", "truncate"]),
        st.floats(0, 1, exclude_max=True),
        st.one_of(
            st.binary(min_size=1, max_size=8),
            st.sampled_from([b"\xff" * 8, b"\x00" * 8, b"\xff\xff\xff\x7f", b"\x80" * 10, b"\x00" * 600]),
        ),
    ),
    min_size=1,
    max_size=4,
)


def apply(content: bytes, damages: list[Damage]) -> bytes:
    """Return the content after each damage, at its share of the length."""
    for kind, share, value in damages:
        place = int(share * len(content))
        before, after = content[:place], content[place:]
        content = {
            "flip": before + bytes([(after[:1] or b"\0")[0] ^ (1 << (value[0] % 8))]) + after[1:],
            "write": before + value + after[len(value) :],
            "insert": before + value + after,
            "delete": before + after[len(value) :],
            "zero": before + bytes(min(512, len(after))) + after[512:],
            "copy": before + content[: 16 * len(value)] + after,
            "truncate": before,
        }[kind]
    return content
