"""Runs bpftrace programs while a job is watched. Each writes to its own bounded file until it is stopped."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from connectors.base.commands import head, start, stop
from kb.model import Gap

PROGRAMS = Path(__file__).with_name("bpf")  # the bpftrace programs that are included
MOST_OUTPUT = 8 << 20  # bytes of output per program, which is stopped at this size
_NEEDS: Mapping[str, str] = {  # program → the library that it probes; "" for none
    "dstate": "",
    "offcpu": "",
    "syscalls": "",
    "nccl": "libnccl.so",
    "gloo": "libtorch_cpu.so",
    "step": "libtorch_cpu.so",
    "cuda": "libcudart.so",
}
LIBRARIES = tuple(sorted({name for name in _NEEDS.values() if name}))


@dataclass(slots=True)
class _Running:
    child: subprocess.Popen[bytes]
    output: Path
    said: Path


@dataclass(slots=True)
class Probes:
    """The programs in the folder `programs`, each with an output file in the folder `spool`."""

    programs: Path
    spool: Path
    command: str = "bpftrace"
    _running: dict[str, _Running] = field(default_factory=dict)
    _ended: dict[str, Path] = field(default_factory=dict)

    def start(self, libraries: Mapping[str, Path]) -> tuple[Gap, ...]:
        """Start the programs that can run. `libraries`: paths of those `LIBRARIES` that the job has loaded."""
        program = shutil.which(self.command)
        if program is None:
            reason = "bpftrace is not installed on this host: install the package `bpftrace`, 0.17 or later"
            return (Gap("ebpf_missing", "ebpf", reason),)
        if os.geteuid() != 0:
            return (Gap("ebpf_not_allowed", "ebpf", "bpftrace needs root, or CAP_BPF and CAP_PERFMON"),)
        gaps = []
        for name, library in _NEEDS.items():
            if library and library not in libraries:
                gaps.append(Gap("ebpf_not_run", f"ebpf/{name}", f"no process of the job has loaded {library}"))
                continue
            words = [program, "-q", "-f", "json", str(self.programs / f"{name}.bt")]
            gaps += self._start(name, [*words, str(libraries[library])] if library else words)
        return tuple(gaps)

    def _start(self, name: str, words: Sequence[str]) -> list[Gap]:
        output, errors = self.spool / f"{name}.json", self.spool / f".{name}.said"
        try:
            with output.open("wb") as out, errors.open("wb") as err:
                self._running[name] = _Running(start(words, out, err), output, errors)
        except OSError as error:
            return [Gap("ebpf_not_run", f"ebpf/{name}", f"cannot be run: {error.strerror or error}")]
        return []

    def poll(self) -> tuple[Gap, ...]:
        """Stop programs with too much output, and report those that exited."""
        gaps = []
        for name, item in list(self._running.items()):
            size = item.output.stat().st_size if item.output.exists() else 0
            if item.child.poll() is not None:
                said = " ".join(head(item.said, 600).decode("utf-8", "replace").split()) if item.said.exists() else ""
                gaps.append(Gap("ebpf_ended", f"ebpf/{name}", f"bpftrace exited: {said or 'no output'}"))
                self._ended[name] = self._running.pop(name).output
            elif size > MOST_OUTPUT:
                stop(item.child)
                gaps.append(Gap("ebpf_stopped", f"ebpf/{name}", f"stopped after {size} bytes of output"))
                self._ended[name] = self._running.pop(name).output
        return tuple(gaps)

    def outputs(self) -> dict[str, bytes]:
        """Return what each program has written so far, up to its last complete line."""
        found = {}
        for name, path in (*self._ended.items(), *((name, item.output) for name, item in self._running.items())):
            with suppress(OSError):
                text = head(path, MOST_OUTPUT)
                if whole := text[: text.rfind(b"\n") + 1]:
                    found[name] = whole
        return found

    def stop(self) -> None:
        """Stop all programs."""
        for name, item in list(self._running.items()):
            stop(item.child)
            self._ended[name] = self._running.pop(name).output
