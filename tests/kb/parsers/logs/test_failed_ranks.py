"""What launchers print about the rank that ended first."""

import pytest

from kb.model import Structure
from kb.parsers.logs.failed_ranks import READERS


def read(text: str) -> list[Structure]:
    """Return the structures that the readers find at the first line."""
    window = text.encode()
    return [item for reader in READERS for item in reader.read(window, 0)]


@pytest.mark.parametrize(
    ("line", "ranks", "code"),
    [
        (
            "ERROR 2027-02-09 17:40:08 utils.py:9] ABORT!!! the trainer process with rank=[2, 3] was aborted.",
            [2, 3],
            None,
        ),
        ("ERROR:composer.cli.launcher:Rank 3 crashed with exit code 1.", [3], 1),
        ("[rank: 3] Child process with PID 812 terminated with code -9. Forcefully", [3], -9),
        ("Terminating remaining workers after failure of Process 3.", [3], None),
        ("meta_server_node.cc:9] UpdateTopoState] The node: 3 is timed out.", [3], None),
        ("TASK 3: failed       exit=139  duration=59.39s", [3], 139),
        ("Process name: 3\nExit code: 1", [3], 1),
        ('job fails: {\n  "3": {\n    "local_rank": 0,\n    "exitcode": -6,\n  }\n}', [3], -6),
    ],
)
def test_the_rank_that_ended_first(line: str, ranks: list[int], code: int | None) -> None:
    """Each form names the ranks, and the status where it has one."""
    found = read(line)

    assert [item.resource.rank for item in found] == ranks
    assert {item.fields.get("exitcode") for item in found} == {code}
    assert {item.fields["launcher"] for item in found} == {"first"}


@pytest.mark.parametrize(
    "line",
    [
        "TASK 3: accuracy 0.9",
        "Process name: 3",
        "Rank 3 crashed the party",
        "all trainer processes were aborted",
        "unit test fails: {",
    ],
)
def test_other_lines_name_none(line: str) -> None:
    """Words of these forms in another sense are no end of a rank."""
    assert read(line) == []
