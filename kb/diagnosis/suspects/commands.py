"""Fills the names that are known into the commands of a remedy, and says what to put in for the others.

`ssh <node> uptime` is for the suspect node.

Names come from logs and people copy commands into shells, so only names of harmless characters are filled in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kb.regex.lazy import lazy_compile
from kb.report import Suspect

_HARMLESS = lazy_compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:-]{0,251}[A-Za-z0-9])?")

_SLURM_JOB = lazy_compile(r"\bslurmstepd: (?:error: )?.{0,80}?(?:StepId=|\*\*\* JOB |\*\*\* STEP )(\d{1,12})\b")
_LIBRARY = lazy_compile(r"(?<![\w.+-])(lib[\w+-]{1,60}\.so(?:\.\d{1,6}){0,4})(?![\w.])")
_PLACEHOLDER = lazy_compile(r"<[a-z][a-z. ]{0,30}>")
# What a person puts in where the evidence does not name it. All placeholders of rules are here (tests/rules).
WHAT_TO_PUT_IN: Mapping[str, str] = {
    "<bucket>": "the bucket's name",
    "<checkpoint>": "the checkpoint's path",
    "<checkpoint folder>": "the folder that checkpoints are saved to",
    "<dataset>": "the path of the dataset, without its ending",
    "<endpoint host>": "the host of the launcher's --rdzv-endpoint",
    "<endpoint port>": "its port",
    "<environment>": "the path of the environment",
    "<file>": "the file that the traceback leads to",
    "<file.so>": "the library that the message names",
    "<head>": "the address of Ray's head node",
    "<host>": "the name that could not be resolved",
    "<hostfile>": "the launcher's host file",
    "<id>": "the ID of the nodes' security group",
    "<image>": "the job's container image",
    "<interface>": "each interface of the training network",
    "<job>": "the job's ID",
    "<lock file>": "each file that `find` printed",
    "<log>": "the log of the rank",
    "<master>": "the host of the rendezvous (MASTER_ADDR)",
    "<mount>": "the mount point of the file system",
    "<name>": "the host name in MASTER_ADDR",
    "<node>": "the name of each node of the job in turn",
    "<package>": "the package that the message names",
    "<path>": "the path that the job uses",
    "<pid>": "the process ID of the rank (`ps -ef` on its node)",
    "<pod>": "the name of the pod (`kubectl get pods`)",
    "<port>": "the port of the rendezvous (MASTER_PORT)",
    "<prefix>": "the path within the bucket",
    "<program>": "the program that could not be started",
    "<registry>": "the host of the image registry",
    "<shard>": "the data file that was read last",
    "<spool>": "that folder",
}


_ANY_SYSTEM = frozenset({"curl", "git", "huggingface-cli", "nvidia-smi", "pip", "python", "wandb"})
_POSIX = lazy_compile(r"[|<>]|\$\(|/(?:dev|proc|sys|etc|tmp|var)/")
_ONE_COMMAND = lazy_compile(r"""(?:"[^"]*"|'[^']*'|[^;"'])+""")  # a semicolon within quotes is part of a command


def on_windows(command: str | None) -> str | None:
    """Return those of a step's commands that Windows has too; None without any."""
    parts = [part.strip() for part in _ONE_COMMAND.findall(command or "")]
    kept = [part for part in parts if part.split(" ")[0] in _ANY_SYSTEM and not _POSIX.search(part)]
    return "; ".join(kept) or None


def with_hints(text: str, command: str | None) -> str:
    """Return a step's text, and what to put in for the placeholders that its command still has."""
    left = dict.fromkeys(_PLACEHOLDER.findall(command or ""))
    told = [f"{place} with {WHAT_TO_PUT_IN[place]}" for place in left if place in WHAT_TO_PUT_IN]
    return f"{text} Replace {', and '.join(told)}." if told else text


def slurm_job(lines: Iterable[str]) -> str | None:
    """Return the number of the Slurm job that lines of slurmstepd name, if they agree on one."""
    found = {match[1] for line in lines if (match := _SLURM_JOB.search(line))}
    return found.pop() if len(found) == 1 else None


def library_in(lines: Iterable[str]) -> str | None:
    """Return the file of a shared library that lines name, if they agree on one."""
    found = {match[1] for line in lines for match in _LIBRARY.finditer(line)}
    return found.pop() if len(found) == 1 else None


def filled(
    command: str | None,
    suspects: Sequence[Suspect],
    job: str | None,
    package: str | None = None,
    library: str | None = None,
) -> str | None:
    """Return a command with the node and pod of the first suspect that has one, and other known names in their places.

    The places are `<node>` and so on; `job`: the job's id; `package`, `library`: those that the message names.
    """
    if command is None or "<" not in command:
        return command
    known = {
        "<node>": next((suspect.node for suspect in suspects if suspect.node), None),
        "<pod>": next((suspect.pod for suspect in suspects if suspect.pod), None),
        "<job>": job,
        "<package>": package,
        "<file.so>": library,
    }
    for place, name in known.items():
        if name is not None and _HARMLESS.fullmatch(name) is not None:
            command = command.replace(place, name)
    return command
