"""Workloads of the last seconds: asked once, by one of parallel calls, and not kept for long."""

import threading
from types import SimpleNamespace

import pytest

from connectors.base.contract import Deadline, SourceFailed
from connectors.kubernetes.recent import LARGEST, LASTS, MOST, RecentWorkloads

KEY = ("llm-7b", "ml", None)


def workload(pods=1):
    """What was found."""
    return (SimpleNamespace(pods=(None,) * pods),)


def test_a_workload_is_kept_for_seconds():
    """Within five seconds it is not asked again; a large one, and none, are not kept at all."""
    now = [0.0]
    recent = RecentWorkloads(lambda: now[0])
    calls = []

    def find(answer):
        def asked():
            calls.append(now[0])
            return answer

        return asked

    deadline = Deadline.within(60)
    first = workload()
    assert recent.get(KEY, find(first), deadline) is first
    now[0] = LASTS - 1
    assert recent.get(KEY, find(()), deadline) is first
    now[0] = LASTS + 1
    assert recent.get(KEY, find(()), deadline) == ()
    assert recent.get(KEY, find(workload(LARGEST + 1)), deadline)
    assert recent.get(KEY, find(first), deadline) is first
    assert calls == [0.0, LASTS + 1, LASTS + 1, LASTS + 1]


def test_the_oldest_are_forgotten():
    """Only a few workloads are kept."""
    recent = RecentWorkloads(lambda: 0.0)
    for at in range(MOST + 1):
        recent.keep((f"job-{at}", None, None), workload())
    asked = []
    for at in (0, MOST):

        def find(at=at):
            asked.append(at)
            return ()

        recent.get((f"job-{at}", None, None), find, Deadline.within(60))
    assert asked == [0]


def test_of_parallel_calls_one_asks():
    """The second call for a job waits for the first one's answer, until its own deadline."""
    recent = RecentWorkloads()
    begun, go = threading.Event(), threading.Event()
    answers = []

    def slow():
        begun.set()
        go.wait(60)
        return workload()

    threads = [threading.Thread(target=lambda: answers.append(recent.get(KEY, slow, Deadline.within(60))))]
    threads[0].start()
    assert begun.wait(60)
    with pytest.raises(SourceFailed, match="no answer within the time limit"):
        recent.get(KEY, slow, Deadline.within(0))
    threads.append(threading.Thread(target=lambda: answers.append(recent.get(KEY, tuple, Deadline.within(60)))))
    threads[1].start()
    go.set()
    for thread in threads:
        thread.join(60)
    assert answers[0] is answers[1]


def test_a_failure_is_not_kept():
    """After a failure the next call asks again."""
    recent = RecentWorkloads()

    def fail():
        raise SourceFailed("timeout", "late")

    with pytest.raises(SourceFailed):
        recent.get(KEY, fail, Deadline.within(60))
    assert recent.get(KEY, workload, Deadline.within(60))
