"""The server of a load test."""

from __future__ import annotations

import threading

import pytest

from ngbkit.device.serving.batcher import Requests, choose_sizes, serve


def test_a_padded_batch_runs_only_where_it_answers_more_requests() -> None:
    """The size of a call answers most waiting requests a second; of equal ones it is the smallest."""
    assert [1, 1, 2, 2, 4] == choose_sizes({1: 1.0, 2: 1.0, 4: 1.9})
    assert [1, 1, 2, 4, 4] == choose_sizes({1: 1.0, 2: 1.9, 4: 2.0})
    assert [1, 1, 1, 1, 1] == choose_sizes({1: 1.0, 4: 4.0})


def test_a_free_server_takes_the_requests_that_wait() -> None:
    """A call has at most the largest size; every request is completed once, in the order of its arrival."""
    requests, calls, completed = Requests(), [], []
    requests.add([7, 8, 9])

    def call(size: int) -> None:
        calls.append(size)
        if len(calls) == 1:
            requests.add([10])
            requests.close()

    served = serve(requests, {1: lambda: call(1), 2: lambda: call(2)}, {1: 1.0, 2: 1.1}, completed.append)

    assert [2, 2] == calls
    assert [[7, 8], [9, 10]] == completed
    assert 2 == served.calls
    assert served.busy_s >= 0


@pytest.mark.parametrize(("more", "batch"), [([2], [1, 2]), ([], [1])])
def test_a_delay_waits_for_a_fuller_batch(more: list[int], batch: list[int]) -> None:
    """The wait ends when the batch is full, or when no further request will come."""
    requests = Requests()
    requests.add([1])
    thread = threading.Timer(0.05, lambda: requests.add(more) if more else requests.close())
    thread.start()
    size, ids = requests.take([1, 1, 2], 60.0)
    thread.join()

    assert (len(batch), batch) == (size, ids)


def test_a_delay_ends() -> None:
    """A request that stays alone is served alone."""
    requests = Requests()
    requests.add([1])

    assert (1, [1]) == requests.take([1, 1, 2], 0.01)
