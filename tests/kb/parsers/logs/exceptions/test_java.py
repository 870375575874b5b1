"""What messages of Java programs and of their launchers quote: causes without frames, and exceptions of tasks."""

import pytest

from kb.parsers.logs.exceptions.readers import READERS
from tests.support.parsing import structures

STAGE = "Job aborted due to stage failure: Task 1 in stage 2.0 failed 4 times, most recent failure: Lost task 1.3 in stage 2.0 "


def raised(text: str) -> list[tuple[object, object, object]]:
    """The first reading of each exception in the order of their places: class, message and the links below it."""
    found = {item.offset: item for item in reversed(structures(READERS, text))}
    return [(item.fields["type"], item.fields["message"], item.fields["chain"]) for _, item in sorted(found.items())]


def test_a_cause_without_frames_is_the_inner_link() -> None:
    """Launchers that print no stack still print the causes."""
    text = "com.acme.TrainException: fold 3 failed\nCaused by: java.io.IOException: bad footer\nstep 3\n"
    assert raised(text) == [("TrainException", "fold 3 failed", 1), ("IOException", "bad footer", 0)]


@pytest.mark.parametrize("task", ["(TID 9) (10.0.0.7 executor 2)", "(TID 9, gpu-7, executor 2)"])
def test_the_driver_quotes_the_exception_of_a_task(task: str) -> None:
    """Spark's driver repeats the last error of the task that failed too often."""
    text = (
        f'Exception in thread "main" org.apache.spark.SparkException: {STAGE}{task}: java.io.IOException: bad footer\n'
    )
    outer, inner = raised(text)
    assert (outer[0], outer[2]) == ("SparkException", 1)
    assert inner == ("IOException", "bad footer", 0)


def test_a_task_that_only_was_lost_quotes_no_exception() -> None:
    """What follows is then a reason, without a class."""
    (outer,) = raised(
        f"org.apache.spark.SparkException: {STAGE}(TID 9) (h executor 2): ExecutorLostFailure (executor 2 exited)\n"
    )
    assert (outer[0], outer[2]) == ("SparkException", 0)


def test_the_exceptions_behind_the_bridge_to_python() -> None:
    """Py4J shows the exception of Java in the second line of its message, and Spark's driver quotes the task in it."""
    text = (
        "Traceback (most recent call last):\n"
        '  File "/opt/run/fit.py", line 11, in main\n    est.fit(df)\n'
        "py4j.protocol.Py4JJavaError: An error occurred while calling o6.fit.\n"
        f": org.apache.spark.SparkException: {STAGE}(TID 9) (h executor 2): java.io.IOException: bad footer\n"
    )
    assert [(name, below) for name, _, below in raised(text)] == [
        ("Py4JJavaError", 2),
        ("SparkException", 1),
        ("IOException", 0),
    ]


def test_a_task_of_ray_in_one_line() -> None:
    """Without the traceback of the task, its exception stands behind the task."""
    text = "ray.exceptions.RayTaskError(KeyError): ray::Worker.step() (pid=4, ip=10.0.0.4) KeyError: 'reward'\n"
    assert raised(text) == [
        ("RayTaskError", "ray::Worker.step() (pid=4, ip=10.0.0.4) KeyError: 'reward'", 1),
        ("KeyError", "'reward'", 0),
    ]


def test_the_message_of_a_training_service() -> None:
    """SageMaker quotes the last error of the program, and the command below it is no part of the message."""
    text = 'ExitCode 1\nErrorMessage "ValueError: no labels"\nCommand "/usr/bin/python train.py"\n'
    assert raised(text) == [("ValueError", "no labels", 0)]
