"""Exceptions in logs that a pipeline, a terminal or a crash has damaged keep their class."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain

import pytest

from bot.authoring.selftest import evidence_of
from bot.rulebase.loader import knowledge
from kb.diagnosis.engine import diagnose
from kb.report import Report
from kb.scanning.matcher import Matcher

KNOWN = knowledge()
STEPS = [f"2025-04-02 11:{at:02d}:00,101 - INFO - step {at * 10} | loss: {3 - at / 50:.4f}" for at in range(6)]
ERRORS = {
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.33 GiB": "cuda_oom",
    "OSError: [Errno 28] No space left on device: '/ckpt/step_100.pt'": "disk_full",
    "KeyError: 'position_ids'": "code_bug",
    "ModuleNotFoundError: No module named 'flash_attn'": "dependency",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x512 and 1024x256)": "shape_or_dtype",
    "PermissionError: [Errno 13] Permission denied: '/data/train/shard_00.bin'": "access_denied",
    "torch.distributed.DistBackendError: NCCL error in: /pytorch/c10d/ProcessGroupNCCL.cpp:3356, remote process exited or "
    "there was a network error, NCCL version 2.26.2": "peer_failure",
}
Damage = Callable[[list[str]], list[str]]


def raised(error: str) -> list[str]:
    """A traceback as Python prints it."""
    return [
        "Traceback (most recent call last):",
        '  File "/srv/run/train.py", line 180, in main',
        "    trainer.fit(model, batches, checkpoint_every=options.checkpoint_every, log_every=options.log_every)",
        '  File "/srv/run/engine/loop.py", line 77, in step',
        "    out = self.model(batch['tokens'].to(self.device), batch['mask'].to(self.device), labels=batch['labels'])",
        error,
    ]


def of_two_ranks(lines: list[str]) -> list[str]:
    """Two ranks print the same traceback at once, line by line."""
    return list(chain.from_iterable((f"[rank0]: {line}", f"[rank1]: {line}") for line in lines))


def between_other_lines(lines: list[str]) -> list[str]:
    """Another process logs between the lines, into the same file."""
    return list(
        chain.from_iterable((line, f"2025-04-02 11:20:0{at},1 - INFO - rank 1 waits") for at, line in enumerate(lines))
    )


def wrapped(lines: list[str]) -> list[str]:
    """A terminal of 80 columns breaks each line."""
    return list(chain.from_iterable([line[at : at + 80] for at in range(0, len(line), 80)] for line in lines))


def as_json_lines(lines: list[str]) -> list[str]:
    """A logger writes each line as a record of its own."""
    return [
        json.dumps({"ts": "2025-04-02T11:20:00Z", "level": "error", "rank": 0, "message": line}, ensure_ascii=False)
        for line in lines
    ]


def in_one_record(lines: list[str]) -> list[str]:
    """A logger writes the whole traceback into one field."""
    return [json.dumps({"level": "ERROR", "message": "training failed", "exc_info": "\n".join(lines)})]


def of_a_container(lines: list[str]) -> list[str]:
    """The log driver json-file."""
    return [json.dumps({"log": f"{line}\n", "stream": "stderr", "time": "2025-04-02T11:20:00.1Z"}) for line in lines]


def in_the_journal(lines: list[str]) -> list[str]:
    """`journalctl -o json` of what a service logs as an error."""
    return [json.dumps({"_HOSTNAME": "node-a", "PRIORITY": "3", "MESSAGE": line, "_PID": "4711"}) for line in lines]


def printed_to_the_journal(lines: list[str]) -> list[str]:
    """The same of what a service prints: the journal gives each line the level of a notice."""
    return [json.dumps({"PRIORITY": "6", "_TRANSPORT": "stdout", "MESSAGE": line}) for line in lines]


def coloured(lines: list[str]) -> list[str]:
    """Colours around the class and around the message."""
    name, _, said = lines[-1].partition(":")
    return [*(f"\x1b[2m{line}\x1b[0m" for line in lines[:-1]), f"\x1b[1;31m{name}\x1b[0m:\x1b[35m{said}\x1b[0m"]


def coloured_json_lines(lines: list[str]) -> list[str]:
    """A container's log driver records lines with colours, whose escape character JSON escapes."""
    return [json.dumps({"log": f"\x1b[31m{line}\x1b[0m\n", "stream": "stderr"}) for line in lines]


def in_a_repr(lines: list[str]) -> list[str]:
    """A program prints the text of a worker's failure as Python shows a string."""
    return [f"worker 3 failed: {chr(10).join(lines)!r}"]


DAMAGES: dict[str, Damage] = {
    "whole": lambda lines: lines,
    "begins in the middle": lambda lines: lines[2:],
    "cut in its last line": lambda lines: [*lines[:-1], lines[-1][: max(20, len(lines[-1]) * 2 // 3)]],
    "of two ranks": of_two_ranks,
    "between other lines": between_other_lines,
    "wrapped": wrapped,
    "JSON lines": as_json_lines,
    "one JSON record": in_one_record,
    "container": of_a_container,
    "journal": in_the_journal,
    "printed to the journal": printed_to_the_journal,
    "coloured": coloured,
    "coloured JSON lines": coloured_json_lines,
    "in a repr": in_a_repr,
    "carriage returns": lambda lines: [f"{line}\r" for line in lines],
    "a level on each line": lambda lines: [f"2025-04-02 11:20:00,123 ERROR trainer: {line}" for line in lines],
}


@pytest.fixture(scope="module")
def engine() -> Matcher:
    """The whole base's patterns, compiled once."""
    return KNOWN.matcher()


def diagnosed(engine: Matcher, lines: list[str]) -> Report:
    """The report on a log of these lines."""
    return diagnose(evidence_of(KNOWN, engine, {"job.log": "\n".join([*lines, ""]).encode()}), KNOWN.rulebook)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("error", ERRORS)
def test_a_damaged_traceback_keeps_its_class(engine: Matcher, error: str, damage: str) -> None:
    """The line of the exception is there, if not whole."""
    report = diagnosed(engine, STEPS + DAMAGES[damage](raised(error)))
    assert [item.fault for item in report.diagnoses[:1]] == [ERRORS[error]]


@pytest.mark.parametrize("error", ERRORS)
def test_a_traceback_without_its_last_line_names_no_cause(engine: Matcher, error: str) -> None:
    """What was raised is not there: the run failed, and nobody can say more."""
    report = diagnosed(engine, STEPS + raised(error)[:-1])
    assert report.verdict == "no_match"
    assert {item.fault for item in report.diagnoses} <= {"unknown"}


@pytest.mark.parametrize(
    ("fault", "error", "texts"),
    [
        (
            "disk_full",
            "OSError: [Errno 28] {}: '/ckpt/step_100.pt'",
            (
                "Auf dem Gerät ist kein Speicherplatz mehr verfügbar",
                "Aucun espace disponible sur le périphérique",
                "设备上没有空间",
                "デバイスに空き領域がありません",
            ),
        ),
        (
            "disk_full",
            "OSError: [Errno 122] {}: '/home/u/step.pt'",
            (
                "Der zugewiesene Plattenplatz (Quota) ist überschritten",
                "Débordement du quota d'espace disque",
                "超出磁盘限额",
                "ディスク使用量制限を超過しました",
            ),
        ),
        (
            "access_denied",
            "PermissionError: [Errno 13] {}: '/data/shard_00.bin'",
            ("Keine Berechtigung", "Permission non accordée", "权限不够", "許可がありません"),
        ),
        (
            "host_oom",
            "OSError: [Errno 12] {}",
            (
                "Nicht genügend Hauptspeicher verfügbar",
                "Ne peut allouer de la mémoire",
                "无法分配内存",
                "メモリを確保できません",
            ),
        ),
        (
            "resource_limit",
            "OSError: [Errno 24] {}: '/data/x.bin'",
            ("Zu viele offene Dateien", "Trop de fichiers ouverts", "打开的文件过多", "開いているファイルが多すぎます"),
        ),
        (
            "port_in_use",
            "OSError: [Errno 98] {}",
            (
                "Die Adresse wird bereits verwendet",
                "Adresse déjà utilisée",
                "地址已在使用",
                "アドレスは既に使用中です",
            ),
        ),
        (
            "storage_io",
            "OSError: [Errno 5] {}: '/mnt/d/x.bin'",
            ("Eingabe-/Ausgabefehler", "Erreur d'entrée/sortie", "输入/输出错误", "入力/出力エラーです"),
        ),
        (
            "storage_io",
            "OSError: [Errno 116] {}: '/mnt/d/x.bin'",
            (
                "Veraltete Dateizugriffsnummer",
                "Identificateur de fichier périmé",
                "过旧的文件句柄",
                "古いファイルハンドルです",
            ),
        ),
    ],
)
def test_the_number_of_an_error_counts_whatever_the_language(
    engine: Matcher, fault: str, error: str, texts: tuple[str, ...]
) -> None:
    """The C library translates its messages; the numbers stay."""
    found = {
        said: [item.fault for item in diagnosed(engine, STEPS + raised(error.format(said))).diagnoses[:1]]
        for said in texts
    }
    assert found == {said: [fault] for said in texts}


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "error", [next(iter(ERRORS)), "OSError: [Errno 28] No space left on device: '/ckpt/step_100.pt'"]
)
def test_the_first_of_10000_chained_exceptions_is_the_cause(engine: Matcher, error: str) -> None:
    """Each is raised while the one before is handled, or because of it."""
    links = (
        ["", "During handling of the above exception, another exception occurred:", ""],
        ["", "The above exception was the direct cause of the following exception:", ""],
    )
    lines = raised(error)
    for number in range(1, 10_000):
        lines += links[number % 2] + raised(f"ValueError: level {number}")
    report = diagnosed(engine, STEPS + lines)
    assert report.diagnoses[0].fault == ERRORS[error]
