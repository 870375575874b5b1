"""`signalbox diagnose PATH`: what a word refers to, the message if it is ambiguous, and how to select the other."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
import typer

from bot.cli.diagnose_options import DiagnoseOptions
from bot.cli.targets import resolve_targets
from kb.errors import UnreadableInput

ROOT = Path(__file__).parents[3]
KILLED = ROOT / "tests/bundles/rank-killed"
FULL = b"OSError: [Errno 28] No space left on device: '/scratch/moe/ckpt-880'\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working folder without any configuration."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SIGNALBOX_CONFIG", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    return folder


@pytest.fixture
def configured(here, tmp_path, monkeypatch):
    """The same, with connectors configured, so that every word may be a job's name."""
    file = tmp_path / "signalbox.yaml"
    file.write_text("version: 1\n")
    monkeypatch.setenv("SIGNALBOX_CONFIG", str(file))
    return here


def resolved(*targets, **options):
    """What becomes of the words: the job, the bundle, the paths."""
    found = resolve_targets(DiagnoseOptions(targets=targets, **options))
    if found.bundle is not None:
        return ("bundle", str(found.bundle), found.targets)
    return ("logs" if found.logs else "job", *found.targets)


def refusal(capsys, *targets, **options):
    """The one line with which it is refused, with status 2."""
    with pytest.raises(typer.Exit) as refused:
        resolved(*targets, **options)
    said = capsys.readouterr()
    assert (refused.value.exit_code, said.out, said.err.count("\n")) == (2, "", 1)
    return said.err


@pytest.mark.parametrize(
    "part", ["logs/rank-0.log", "stacks/rank-0/1.txt", "flight_recorder/0", "metrics/m.json", "attempts/1/x.log"]
)
def test_a_folder_with_a_bundles_folders_is_a_bundle(here, part):
    """Also where there are logs next to those folders."""
    (here / "run" / part).parent.mkdir(parents=True)
    (here / "run" / part).write_bytes(FULL)
    (here / "run" / "train.log").write_bytes(FULL)

    assert resolved("run") == ("bundle", "run", ())


@pytest.mark.parametrize("name", ["job.yaml", "bundle.yaml", "events.json", "slurm.json", "pods.json"])
def test_a_folder_with_a_bundles_files_is_a_bundle(here, name):
    """A description or a part of it is enough; a folder of that name is not."""
    for folder in ("run", "other"):
        (here / folder).mkdir()
        (here / folder / "rank-0.log").write_bytes(FULL)
    (here / "run" / name).write_text("{}\n")
    (here / "other" / name).mkdir()

    assert resolved("run") == ("bundle", "run", ())
    assert resolved("other") == ("logs", "other")


def test_files_and_folders_of_logs_are_logs(here):
    """One, several, nested, by links, with any name."""
    (here / "deep" / "node-1" / "attempt_0" / "0").mkdir(parents=True)
    (here / "deep" / "node-1" / "attempt_0" / "0" / "stderr.log").write_bytes(FULL)
    (here / "out").write_bytes(FULL)
    (here / "linked").symlink_to(here / "deep")

    assert resolved("out") == ("logs", "out")
    assert resolved(str(here / "out")) == ("logs", str(here / "out"))
    assert resolved("deep") == ("logs", "deep")
    assert resolved("linked") == ("logs", "linked")
    assert resolved("deep", "out") == ("logs", "deep", "out")
    assert resolved(".") == ("logs", ".")


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("j1", "j2"), True),
        (("4711", "4712", "4713"), True),
        (("node-1", "node-2"), False),
        (("rank_0", "rank_1"), False),
        (("attempt_0", "attempt_1"), False),
        (("0", "1"), False),
        (("j1",), False),
    ],
)
def test_folders_that_may_each_be_a_job_are_read_as_one_with_a_word(here, capsys, names, told):
    """Parts of a job are known by their names: nodes, ranks, attempts, processes. Beside a log of all, folders are parts, too."""
    for name in names:
        (here / "jobs" / name).mkdir(parents=True)
        (here / "jobs" / name / "train.log").write_bytes(FULL)

    assert resolved("jobs") == ("logs", "jobs")
    assert (f"its {len(names)} subfolders are read as the logs of one job" in capsys.readouterr().err) == told
    (here / "jobs" / "main.log").write_bytes(FULL)
    assert resolved("jobs") == ("logs", "jobs")
    assert capsys.readouterr().err == ""


def test_options_keep_their_meaning(here, capsys):
    """With --logs, --bundle, --each and --job nothing is looked at."""
    shutil.copytree(KILLED, here / "killed")

    assert resolved("killed", logs=True) == ("logs", "killed")
    assert resolved("killed", job=True) == ("job", "killed")
    assert resolved(bundle=Path("killed")) == ("bundle", "killed", ())
    assert resolved() == ("job",)
    for more in ({"logs": True}, {"each": Path()}, {"bundle": Path()}):
        assert "--job cannot be combined with --bundle, --logs or --each" in refusal(capsys, "killed", job=True, **more)


def test_a_dash_is_standard_input(here, capsys):
    """With --logs or without it; it goes alone, and a file of that name is reached as a path."""
    (here / "-").write_bytes(FULL)

    assert resolved("-") == resolved("-", logs=True) == ("logs", "-")
    assert resolved("./-") == ("logs", "./-")
    assert "must be the only argument" in refusal(capsys, "-", "x.log")
    assert "must be the only argument" in refusal(capsys, "x.log", "-", logs=True)


@pytest.mark.usefixtures("here")
def test_what_is_no_path_is_a_job():
    """Also where it looks like one."""
    assert resolved("llm-7b") == ("job", "llm-7b")
    assert resolved("/nowhere/at/all.log") == ("job", "/nowhere/at/all.log")
    assert resolved("a", "b") == ("job", "a", "b")
    assert resolved("x" * 5000) == ("job", "x" * 5000)
    assert resolved("nul\0byte") == ("job", "nul\0byte")


def test_of_several_paths_the_missing_one_is_named(here, capsys):
    """Nothing is diagnosed without it."""
    (here / "a.log").write_bytes(FULL)

    assert "b.log: there is no such file or folder" in refusal(capsys, "a.log", "b.log")


def test_bundles_are_not_mixed_with_logs(here, capsys):
    """Each is a run of its own."""
    shutil.copytree(KILLED, here / "one")
    shutil.copytree(KILLED, here / "two")
    shutil.copytree(here / "one", here / "many" / "one")
    shutil.copytree(here / "two", here / "many" / "two")

    assert "one: this is a bundle" in refusal(capsys, "one", "two")
    assert "diagnose all with --each many" in refusal(capsys, "many")
    (here / "many" / "train.log").write_bytes(FULL)
    assert resolved("many") == ("logs", "many")


@pytest.mark.parametrize("names", [[], ["inner/"], [".hidden"], ["inner/model.safetensors"]])
def test_a_folder_that_is_neither_is_refused(here, capsys, names):
    """One line says what to name."""
    (here / "empty").mkdir()
    for name in names:
        path = here / "empty" / name
        path.parent.mkdir(exist_ok=True)
        path.mkdir() if name.endswith("/") else path.write_bytes(b"x")

    assert "give a log file, a folder of logs, or a bundle" in refusal(capsys, "empty")
    assert resolved("empty", logs=True) == ("logs", "empty")


def test_a_loop_of_links_ends(here, capsys):
    """A folder of nothing but itself is neither."""
    (here / "loop").mkdir()
    (here / "loop" / "again").symlink_to(here / "loop")

    assert "give a log file" in refusal(capsys, "loop")


def test_a_closed_folder_is_named(here, monkeypatch):
    """It may hold anything."""

    def closed(folder):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))

    (here / "closed").mkdir()
    monkeypatch.setattr("bot.cli.targets.os.scandir", closed)  # root may list every folder

    with pytest.raises(UnreadableInput, match="closed: cannot be read: Permission denied"):
        resolved("closed")


@pytest.mark.parametrize(("kind", "what"), [("bundle", "bundle"), ("folder", "folder of logs"), ("file", "log")])
def test_a_path_that_may_be_a_job_is_read_and_reported_to_be(configured, capsys, kind, what):
    """Where systems are connected a word may name both; the line says how to get the job."""
    name = "llm 7b"
    if kind == "bundle":
        shutil.copytree(KILLED, configured / name)
    elif kind == "folder":
        (configured / name).mkdir()
        (configured / name / "rank-0.log").write_bytes(FULL)
    else:
        (configured / name).write_bytes(FULL)

    assert resolved(name)[0] == ("bundle" if kind == "bundle" else "logs")
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        f"signalbox: {name}: read as the {what} of that name; for the job: signalbox diagnose --job '{name}'\n"
    )
    assert resolved(f"./{name}")[0] == ("bundle" if kind == "bundle" else "logs")
    assert resolved(name, job=True) == ("job", name)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "option",
    [
        {"window": "2h"},
        {"deadline": "60s"},
        {"cluster": "a"},
        {"namespace": "ml"},
        {"save": Path("kept")},
        {"config": Path("signalbox.yaml")},
    ],
)
def test_an_option_for_jobs_makes_it_the_job(configured, capsys, option):
    """The line says how to get the path."""
    (configured / "4711").write_bytes(FULL)

    assert resolved("4711", **option) == ("job", "4711")
    assert capsys.readouterr().err == ("signalbox: 4711: read as the job; for the path of that name: --logs 4711\n")


def test_an_empty_folder_of_a_jobs_name_is_no_obstacle(configured, capsys):
    """The job is diagnosed."""
    (configured / "llm-7b").mkdir()

    assert resolved("llm-7b") == ("job", "llm-7b")
    assert "read as the job; the folder of that name has no logs" in capsys.readouterr().err


def test_the_command_takes_paths(signalbox, tmp_path):
    """A bundle and a log given by path yield the same reports as the options, without a message."""
    (tmp_path / "rank-3.log").write_bytes(FULL)
    for words, same in (
        ([KILLED], ["--bundle", KILLED]),
        ([tmp_path / "rank-3.log"], ["--logs", tmp_path / "rank-3.log"]),
    ):
        ran, other = (signalbox("diagnose", "--json", "--no-store", *each) for each in (words, same))
        assert (ran.status, ran.err) == (0, "")
        assert {**ran.report, "timing": 0} == {**other.report, "timing": 0}
