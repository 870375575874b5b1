"""When a hang is called, as a site and a job set it: from the numbers on disk to the answer."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

RULES = Path(__file__).parents[3] / "rules"
BEGIN = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
WAITS = (("all_reduce", "torch/distributed/distributed_c10d.py", 2806), ("train", "/home/u/fit.py", 210))
LOCKED = (("acquire", "/home/u/lease.py", 51), ("train", "/home/u/fit.py", 201))
HINT = "use rule: {parameter: number} with numbers of 0 or more; ignored"


def at(seconds: float) -> str:
    """A time as job.yaml has it."""
    return (BEGIN + timedelta(seconds=seconds)).isoformat()


def run(folder: Path, params: object = None, *, silent: float = 100.0, stacks: bool = True) -> Path:
    """A bundle of four ranks that stepped each 4 s and are silent for so long; rank 2 waits for a lock."""
    last = 4 * 40
    told = {"id": "88", "world_size": 4, "state": "RUNNING", "collected_at": at(last + silent)}
    rounds = {str(turn): last + silent - 20 * (3 - turn) for turn in (1, 2, 3)}
    told["samples"] = {name: at(when) for name, when in rounds.items()}
    (folder / "logs").mkdir(parents=True)
    (folder / "job.yaml").write_text(yaml.safe_dump(told | ({} if params is None else {"params": params})))
    for rank in range(4):
        lines = [
            f"{BEGIN + timedelta(seconds=4 * step):%Y-%m-%d %H:%M:%S} step {step} loss: 2.0" for step in range(1, 41)
        ]
        (folder / "logs" / f"rank-{rank}.log").write_text("\n".join(lines) + "\n")
        for name in rounds if stacks else ():
            frames = [
                {"name": function, "filename": file, "line": line}
                for function, file, line in (LOCKED if rank == 2 else WAITS)
            ]
            thread = {"pid": 900 + rank, "thread_id": 1, "thread_name": "MainThread", "active": True, "frames": frames}
            (folder / "stacks" / name).mkdir(parents=True, exist_ok=True)
            (folder / "stacks" / name / f"rank-{rank}.json").write_text(json.dumps([thread]))
    return folder


def site(folder: Path, **numbers: float) -> Path:
    """An overlay with numbers of the rule."""
    folder.mkdir()
    (folder / "site.yaml").write_text(yaml.safe_dump({"version": 1, "params": {"hang-called": numbers}}))
    return folder


def test_a_site_and_a_job_say_when_a_hang_is_called(signalbox, tmp_path: Path) -> None:
    """Silence of 100 s is none by default; a site calls it, and a job's own number comes before the site's."""
    soon, late = site(tmp_path / "soon", silence_least=60), {"hang-called": {"silence_least": 300}}
    words = ("diagnose", "--json", "--no-store", "--bundle")
    plain, own = run(tmp_path / "plain"), run(tmp_path / "own", {"hang-called": {"silence_least": 60}})
    patient = run(tmp_path / "patient", late)
    answers = (
        signalbox(*words, plain),
        signalbox(*words, plain, "--site", soon),
        signalbox(*words, own),
        signalbox(*words, patient, "--site", soon),
    )
    assert [ran.report["hang"]["called"] for ran in answers] == [False, True, True, False]


def test_numbers_that_nothing_takes_are_reported(signalbox, tmp_path: Path) -> None:
    """A misspelt name, a rule without parameters and a value that is not a number are gaps; the other settings apply."""
    wrong = {"hang-called": {"silence_lest": 60, "retry": "x", "silence_least": 60}, "disk-full": {"a": 1}, "b": 3}
    ran = signalbox("diagnose", "--json", "--no-store", "--bundle", run(tmp_path / "run", wrong))
    assert ran.report["hang"]["called"]
    assert sorted(gap["reason"] for gap in ran.report["gaps"] if gap["code"] == "job_params") == [
        f"params.b: {HINT}",
        "params.disk-full: only rule hang-called takes parameters from a job; for other rules use site.yaml",
        f"params.hang-called.retry: {HINT}",
        "params.hang-called.silence_lest: hang-called has no such parameter; did you mean 'silence_least'?",
    ]


def test_one_probe_alone_is_suspicion_and_says_what_to_switch_on(signalbox, tmp_path: Path) -> None:
    """With silent logs alone, no hang is called, the run is not called healthy, and the missing evidence is named."""
    ran = signalbox("diagnose", "--no-store", "--bundle", run(tmp_path / "run", silent=700.0, stacks=False))
    words = " ".join(ran.out.decode().split())
    assert words.startswith("The job may hang. Only one of four probes had data: silence, 4 of 4 logs have times")
    assert "Look closer, and don't stop anything yet: a hang is suspected but not confirmed." in words
    assert "Hang suspected (seen in logs; no data on stacks" in words
    assert "- sample stacks: run `py-spy dump --json` on every rank, three times, 20 s apart" in words


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("silence_most=9", "expected RULE.NAME=NUMBER, such as hang-called.silence_most=900"),
        ("hang-called.silence_most=-9", "expected RULE.NAME=NUMBER, such as hang-called.silence_most=900"),
        ("hang-called.silence_mots=9", "hang-called has no such parameter; did you mean 'silence_most'?"),
        ("disk-full.a=9", "only rule hang-called takes parameters from a job"),
    ],
)
def test_watch_refuses_numbers_that_nothing_takes(signalbox, tmp_path: Path, given: str, told: str) -> None:
    """With status 2, in one line that says what to write."""
    ran = signalbox("watch", "--logs", tmp_path, "--param", given, "--save", tmp_path / "kept")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert told in ran.err


def test_a_hang_of_a_single_process_is_no_collective_timeout(signalbox, tmp_path: Path) -> None:
    """Nobody waits for it in a collective, and no other rank is spoken of; where the stacks tell nothing, ranks may wait for each other."""
    folder = run(tmp_path / "alone", silent=200.0)
    told = yaml.safe_load((folder / "job.yaml").read_text())
    (folder / "job.yaml").write_text(yaml.safe_dump(told | {"world_size": 1}))
    for file in (*folder.glob("logs/rank-[123].log"), *folder.glob("stacks/*/rank-[123].json")):
        file.unlink()
    four = RULES / "hang/hang-called/match/silent-and-still"
    alone, several = (signalbox("diagnose", "--json", "--no-store", "--bundle", item).report for item in (folder, four))
    found = [(item["rule"], item["fault"]) for report in (alone, several) for item in report["diagnoses"][:1]]
    assert found == [("hang-called", "deadlock"), ("hang-called", "collective_timeout")]
    assert not any("other" in f"{item['title']} {item['cause']} {item['impact']}" for item in alone["diagnoses"])
