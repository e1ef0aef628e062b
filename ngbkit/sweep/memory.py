"""The memory of a column: which allocator its process has, and whether pages stay with it between calls."""

from __future__ import annotations

from typing import Literal, get_args

Memory = Literal["kept", "system", "huge", "jemalloc", "tcmalloc"]

MEMORY = "memory"
"""The option of every compiler by which a column has another memory than the sweep."""

MEMORIES: tuple[Memory, ...] = get_args(Memory)
KEPT, SYSTEM, HUGE, LIBRARIES = MEMORIES[0], MEMORIES[1], MEMORIES[2], MEMORIES[3:]

HELP = (
    "How the process of a column gets memory: kept, in which nothing goes back to the kernel between calls; system, "
    "as any Python process has it; huge, which is kept in huge pages; or the library jemalloc or tcmalloc"
)
