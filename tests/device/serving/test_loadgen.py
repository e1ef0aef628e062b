"""The server of a load test."""

from __future__ import annotations

from ngbkit.device.serving.loadgen import Requests, choose_sizes, serve


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
