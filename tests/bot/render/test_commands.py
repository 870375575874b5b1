"""Commands as people copy them: one a line, continued with a backslash, on the host that they are for."""

import pytest

from bot.render.commands import command_lines, host_of
from kb.report import Diagnosis, RemedyStep, Suspect


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("ibstat", ["ibstat"]),
        ("df -h /a; df -i /a", ["df -h /a", "df -i /a"]),
        ("grep 'a; b' x; ls", ["grep 'a; b' x", "ls"]),
        ("for a in b; do ls; done", ["for a in b; do ls; done"]),
        ("echo it's; ls", ["echo it's; ls"]),
        ("tool --first=1 --second=2", ["tool --first=1 \\", "    --second=2"]),
        ('tool "a long text with blanks"', ["tool \\", '    "a long text with blanks"']),
    ],
)
def test_commands_stay_what_they_are(command, expected):
    """A semicolon outside quotes ends a command; a quoted part, a loop and an open quote are never divided."""
    assert list(command_lines(command, 20)) == expected


def test_the_host_is_named_where_one_node_is_suspected():
    """A tool that shows the state of its host is for the suspect node; a scheduler's tool runs anywhere."""

    def host(command, *nodes):
        found = tuple(Suspect("node", node) for node in nodes)
        diagnosis = Diagnosis(1, "f", "r", 1, "t", "s", 1.0, "likely", "root_cause", suspects=found)
        return host_of(RemedyStep("check_gpu", "look", "t", command=command), diagnosis)

    assert host("nvidia-smi -L", "a") == "a"
    assert host("nvidia-smi -L", "a", "b") == ""
    assert host("nvidia-smi -L") == ""
    assert host("sacct -j 5", "a") == ""
