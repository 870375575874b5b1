"""Commands to copy: one a line, never broken where a shell would run something else, and the host to run them on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kb.regex.lazy import lazy_compile
from kb.report import ONE_END

if TYPE_CHECKING:
    from kb.report import Diagnosis, RemedyStep

_PARTS = lazy_compile(r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\.|\s+|[^\s'"\\]+|.""")
_LOOPS = lazy_compile(r"(?:^|[;|&]\s*)(?:for|while|until|if|case|cd|export)\b|<<")  # what goes on over a semicolon
_LONE = frozenset("'\"\\")  # of a quote that is not closed: where the command ends is unknown
# Tools that show the state of the host that they run on.
_LOCAL = frozenset(
    [
        "df",
        "dmesg",
        "dcgmi",
        "ethtool",
        "free",
        "hccn_tool",
        "ibstat",
        "ibv_devinfo",
        "ip",
        "ipmitool",
        "ldconfig",
        "lscpu",
        "lsmod",
        "lsof",
        "lspci",
        "mlxfwmanager",
        "mount",
        "neuron-ls",
        "npu-smi",
        "nvidia-smi",
        "nvme",
        "perfquery",
        "ps",
        "py-spy",
        "ras-mc-ctl",
        "rdma",
        "rocm-smi",
        "show_gids",
        "ss",
        "systemctl",
    ]
)


def host_of(step: RemedyStep, diagnosis: Diagnosis) -> str:
    """Return the host to run a step's command on: the only suspect node, if the command shows the state of its host."""
    words = (step.command or "").split(maxsplit=1)
    nodes = () if any(suspect.why == ONE_END for suspect in diagnosis.suspects) else diagnosis.nodes
    return nodes[0] if words and words[0] in _LOCAL and len(nodes) == 1 else ""


def command_lines(command: str, width: int) -> Iterator[str]:
    """Yield commands one by one, the longer ones with a backslash at the end of each line but the last.

    Lines after the first begin with a space. A line that has no blank outside quotes stays whole, however long it is.
    """
    for line in command.splitlines():
        if _LOOPS.search(line) or not _LONE.isdisjoint(_PARTS.findall(line)):
            yield line
            continue
        for single in _separate(line):
            yield from _folded(single, width)


def _separate(line: str) -> Iterator[str]:
    """Yield the commands of a line that semicolons outside quotes separate."""
    text = ""
    for part in _PARTS.findall(line):
        if part.endswith(";") and not part.startswith(("'", '"', "\\")):
            yield (text + part.rstrip(";")).strip()
            text = ""
        else:
            text += part
    if text.strip():
        yield text.strip()


def _folded(command: str, width: int) -> Iterator[str]:
    if len(command) <= width:
        yield command
        return
    text = ""
    words = _words(command)
    for word in words:
        if text.strip() and len(text) + len(word) + 3 > width:
            yield f"{text} \\"
            text = "   "
        text = f"{text} {word}" if text else word
    yield text


def _words(command: str) -> list[str]:
    """Return the words of a command; a quoted part is never divided."""
    words = [""]
    for part in _PARTS.findall(command):
        if part.isspace():
            words.append("")
        else:
            words[-1] += part
    return [word for word in words if word]
