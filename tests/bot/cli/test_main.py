"""The command as its users run it: on good evidence, on every kind of bad input, with a closed or full output."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import zstandard
from typer.testing import CliRunner

from bot.cli.commands.incidents import app as incidents_app
from bot.cli.console import load_rules
from bot.cli.diagnose import run
from bot.cli.diagnose_options import DiagnoseOptions
from bot.runtime.paths import database_url
from bot.store.digest_reading import rows_between
from bot.store.digest_rows import lemons
from bot.store.incidents import IncidentStore
from kb.digest.rows import ends
from tests.support.paths import BUNDLES, DEMO, ROOT

KILLED = ROOT / "tests/bundles/rank-killed"
HEALTHY = ROOT / "tests/bundles/healthy"
FULL = b"OSError: [Errno 28] No space left on device: '/scratch/moe/ckpt-880'\n"
STEPS = b"".join(b"iteration %d/ 9000 | lm loss: %.4f\n" % (i, 9 / i) for i in range(1, 400))


@pytest.fixture
def logs(tmp_path):
    """A folder for logs, one of which reports a full disk."""
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "rank-3.log").write_bytes(STEPS + FULL)
    return folder


def diagnose(signalbox, *words, **options):
    """A diagnosis as JSON that is not kept."""
    return signalbox("diagnose", "--json", "--no-store", *words, **options)


def faults(ran):
    """The fault classes found, the first one first."""
    return [diagnosis["fault"] for diagnosis in ran.report["diagnoses"]]


# What it does


def test_the_demo_needs_nothing(signalbox):
    """`signalbox demo` gives a diagnosis with its lines, from any folder, and keeps nothing."""
    ran = signalbox("demo")

    assert (ran.status, ran.err) == (0, "")
    assert b"Rank 5 on node-b: Data file damaged, or in another format [data_error]\n" in ran.out
    assert b"logs/rank-5.err:" in ran.out
    assert not signalbox.state.exists()
    assert signalbox("demo", "--json").report["diagnoses"][0]["fault"] == "data_error"


def test_a_bundle_is_diagnosed_and_kept(signalbox):
    """The report goes to stdout, and the incident into the store."""
    ran = signalbox("diagnose", "--bundle", KILLED)

    assert (ran.status, ran.err) == (0, "")
    kept = signalbox("incidents", "list", "--json").reports
    assert [stored_report["bundle"] for stored_report in kept] == [str(KILLED)]
    assert ran.out.decode().endswith("Saved as incident 1; `signalbox incidents show 1` shows it again.\n")
    shown = signalbox("incidents", "show", str(kept[0]["id"]), "--json")
    assert shown.report["id"] == diagnose(signalbox, "--bundle", KILLED).report["id"]


def test_logs_are_diagnosed_by_path(signalbox, logs):
    """`--logs` takes files and folders, several of them, and quotes the deciding line with its number."""
    other = logs.parent / "other.log"
    other.write_bytes(STEPS)

    ran = diagnose(signalbox, "--logs", logs, other)

    quoted = ran.report["diagnoses"][0]["evidence"][0]
    assert (ran.status, ran.report["bundle"], ran.report["streams"]) == (0, None, 2)
    assert faults(ran)[0] == "disk_full"
    assert (quoted["source"], quoted["line"], quoted["rank"]) == (str(logs / "rank-3.log"), 400, 3)


def test_fail_on_fault_is_for_pipelines(signalbox):
    """With `--fail-on fault` a fault is status 1, a healthy run 0."""
    assert diagnose(signalbox, "--bundle", KILLED, "--fail-on", "fault").status == 1
    assert diagnose(signalbox, "--bundle", HEALTHY, "--fail-on", "fault").status == 0
    assert diagnose(signalbox, "--bundle", KILLED, "--fail-on", "weather").status == 2


def test_the_same_bundle_gives_the_same_report(signalbox, tmp_path):
    """Everything but `timing` is the same for the same bundle, from whatever folder it is read."""
    copied = tmp_path / "elsewhere" / KILLED.name
    shutil.copytree(KILLED, copied)
    first = diagnose(signalbox, "--bundle", KILLED).report
    second = diagnose(signalbox, "--bundle", ".", cwd=copied).report

    assert first.pop("timing").keys() == second.pop("timing").keys()
    assert json.dumps(first) == json.dumps(second)


def test_each_subfolder_is_a_bundle(signalbox, tmp_path):
    """`--each` prints one JSON report per line, in the order of the names, for bundles of any content."""
    folder = tmp_path / "many"
    shutil.copytree(KILLED, folder / "b-killed")
    shutil.copytree(HEALTHY, folder / "c-healthy")
    (folder / "a-empty").mkdir()
    (folder / "d-binary").mkdir()
    (folder / "d-binary" / "x.log").write_bytes(bytes(range(256)) * 50)
    (folder / "a-file.txt").write_text("no bundle\n")

    ran = signalbox("diagnose", "--each", folder, "--json")

    assert ran.status == 0
    assert [report["bundle"] for report in ran.reports] == ["a-empty", "b-killed", "c-healthy", "d-binary"]
    verdicts = [report["verdict"] for report in ran.reports]
    assert verdicts == ["insufficient_evidence", "fault", "no_fault", "insufficient_evidence"]
    alone = diagnose(signalbox, "--bundle", folder / "b-killed").report
    assert {**ran.reports[1], "timing": 0} == {**alone, "timing": 0}
    assert signalbox("diagnose", "--each", folder, "--fail-on", "fault").status == 1


@pytest.mark.quick(1)
@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("terminal", [True, False])
def test_each_bundle_gets_its_cause_and_the_decision(tmp_path, cache, monkeypatch, capsys, terminal):
    """Also in a pipe: `| less` and a CI log are for people, and programs ask for JSON."""
    monkeypatch.setenv("SIGNALBOX_CACHE", str(cache))
    shutil.copytree(KILLED, tmp_path / "many" / "b-killed")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)

    assert run(DiagnoseOptions(each=tmp_path / "many")) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("b-killed: Rank 3 on node-a: Process killed by SIGKILL")
    assert second.startswith("    Find the cause before you restart")


@pytest.mark.slow  # test_the_same_logs_are_one_failure_however_often_they_are_diagnosed
@pytest.mark.usefixtures("known")
def test_each_bundle_is_stored_if_asked(tmp_path, cache, monkeypatch, capsys):
    """As one diagnosis after the other would; the list names the folder where the job has no name, not the path."""
    monkeypatch.setenv("SIGNALBOX_CACHE", str(cache))
    monkeypatch.setenv("SIGNALBOX_STATE", str(tmp_path / "state"))
    shutil.copytree(KILLED / "logs", tmp_path / "many" / "b-killed" / "logs")
    (tmp_path / "many" / "a-empty").mkdir()

    assert run(DiagnoseOptions(each=tmp_path / "many")) == 0
    assert not (tmp_path / "state").exists()
    assert run(DiagnoseOptions(each=tmp_path / "many", store=True)) == 0
    assert "2 of 2 stored as new incidents" in capsys.readouterr().err
    with IncidentStore(database_url()) as store:
        assert [(item.bundle, item.verdict) for item in store.list()] == [
            (str(tmp_path / "many" / "b-killed"), "fault"),
            (str(tmp_path / "many" / "a-empty"), "insufficient_evidence"),
        ]
    listed = CliRunner().invoke(incidents_app, ["list"], catch_exceptions=False).stdout
    assert [line.split()[-1] for line in listed.splitlines()] == ["JOB", "b-killed", "a-empty"]


@pytest.mark.usefixtures("known")
def test_the_same_logs_are_one_failure_however_often_they_are_diagnosed(tmp_path, cache, monkeypatch, capsys):
    """Neither an id of the job nor a time tells so: the list has it once, and its node has failed one job."""
    monkeypatch.setenv("SIGNALBOX_CACHE", str(cache))
    monkeypatch.setenv("SIGNALBOX_STATE", str(tmp_path / "state"))
    for name, gpu in (("one", "5d"), ("two", "ab")):
        (tmp_path / name / "logs").mkdir(parents=True)
        line = f"kernel: NVRM: Xid (PCI:0000:{gpu}:00): 79, pid=12, GPU has fallen off the bus.\n"
        (tmp_path / name / "logs" / "gpu-017.log").write_text(f"hostname: gpu-017\n{line}")
    for name in ("one", "one", "two", "one", "one"):
        assert run(DiagnoseOptions(bundle=tmp_path / name)) == 0
    out = capsys.readouterr().out
    assert "2 other jobs" not in out
    now = datetime.now(UTC)
    with IncidentStore(database_url()) as store:
        with store.database.session() as session:
            rows = rows_between(session, "default", now - timedelta(hours=1), now, until=now)
        assert [len(ends(rows)), len({row.one_job for row in rows})] == [2, 2]
        found = lemons(store.database, "default", 1, now + timedelta(minutes=1), load_rules(None, None).rulebook.faults)
    assert [(item.name, item.jobs) for item in found.nodes] == [("gpu-017", 2)]


# Bad usage


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["diagnose"], "nothing to diagnose; give a path"),
        (["diagnose", "--logs"], "nothing to diagnose; give a path"),
        (["diagnose", "--logs", "/nowhere/at/all.log"], "no such file or folder"),
        (["diagnose", "--bundle", "/nowhere"], "no such folder"),
        (["diagnose", "--bundle", "/etc/passwd"], "no such folder"),
        (["diagnose", "--each", "/nowhere"], "no such folder"),
        (["diagnose", "--bundle", "/", "--each", "/"], "give only one of"),
        (["diagnose", "job-1", "--bundle", "/"], "take no JOB"),
        (["diagnose", "no-such-job"], "no connector is configured to find one"),
        (["diagnose", "x" * 5000], "no connector is configured"),
        (["diagnose", "--logs", "x" * 5000], "File name too long"),
        (["diagnose", "--bundle", "x" * 5000], "no such folder"),
        (["diagnose", "../../\x1b[2J\u202e;rm"], "there is no such file or folder"),
        (["diagnose", "--logs", "\x1b[2J\n\r"], "no such file"),
        (["diagnose", "--logs", os.fsdecode(b"\xff\xfe")], "no such file"),
        (["diagnose", "--nonsense"], "No such option"),
        (["--site", "site", "diagnose"], "--site goes after the command: signalbox diagnose --site ..."),
        (["--site", "site", "rules", "lint"], "--site goes after the command: signalbox rules lint --site ..."),
        (["rules", "--site", "site", "lint"], "--site goes after the command: signalbox rules lint --site ..."),
        (["--nonsense", "diagnose"], "No such option: --nonsense"),
        (["diagnose", "--workers", "0"], "--workers"),
        (["diagnose", "--workers", "1000000"], "--workers"),
        (["nonsense"], "No such command"),
        (["evaluate", "/nowhere"], "no such folder"),
        (["evaluate", "."], "there is no case"),
        (["diagnose", "--logs", ".", "--rules", "/nowhere"], "/nowhere"),
        (["rules", "lint", "--rules", "/nowhere"], "/nowhere"),
        (["rules", "show", "no-such-rule"], "no rule 'no-such-rule'"),
        (["rules", "test", "no-such-rule"], "no rule 'no-such-rule'"),
        (["rules", "test", "--on", "/nowhere"], "no such file"),
        (["incidents", "show", "seven"], "seven"),
    ],
)
def test_bad_usage_is_reported_in_a_line(signalbox, words, told):
    """Errors go to stderr, with status 2 and nothing on stdout."""
    ran = signalbox(*words)

    assert (ran.status, ran.out) == (2, b"")
    last = ran.err.strip().splitlines()[-1]
    assert told in last
    assert len(last) < 1200
    assert "\x1b" not in ran.err


@pytest.mark.parametrize("words", [[], ["rules"], ["incidents"]])
def test_no_arguments_give_help(signalbox, words):
    """Without words the command shows what it can do."""
    ran = signalbox(*words)

    assert ran.status == 2
    assert "Usage:" in ran.err + ran.out.decode()


def test_a_path_without_the_option_is_read(signalbox, logs):
    """Without `--logs` the report is the same; with `--job`, an error suggests what may be meant."""
    assert faults(diagnose(signalbox, logs))[0] == "disk_full"
    assert f"did you mean `signalbox diagnose --logs {logs}`?" in signalbox("diagnose", "--job", logs).err
    missing = signalbox("diagnose", f"{logs}/no-such/rank-0.log")
    assert (missing.status, "there is no such file or folder" in missing.err) == (2, True)


def test_an_empty_folder_has_nothing_to_collect(signalbox, tmp_path):
    """A missing input exits with 3; an empty bundle gives a report that says that nothing was read."""
    empty = tmp_path / "none"
    empty.mkdir()

    assert [signalbox("diagnose", flag, empty).status for flag in ("--logs", "--each", "--bundle")] == [3, 3, 0]
    assert diagnose(signalbox, "--bundle", empty).report["verdict"] == "insufficient_evidence"


# Bad files


def broken(pack, data):
    """The data packed, without its last part."""
    packed = pack(data)
    return packed[: len(packed) - len(packed) // 4]


NOISE = b"".join(b"%d\n" % (i * 7919 % 104_729) for i in range(60_000))
BAD = {
    "empty": (b"", "empty"),
    "binary": (bytes(range(256)) * 99, "binary"),
    "utf-16": (FULL.decode().encode("utf-16"), "binary"),
    "7z": (b"7z\xbc\xaf\x27\x1c" + bytes(range(256)) * 99, "binary"),
    "truncated bzip2": (broken(bz2.compress, FULL + NOISE), "broken_compression"),
    "gzip head": (gzip.compress(FULL)[:9], "broken_compression"),
    "truncated gzip": (broken(gzip.compress, FULL + NOISE), "broken_compression"),
    "truncated xz": (broken(lzma.compress, FULL + NOISE), "broken_compression"),
    "truncated zst": (broken(zstandard.ZstdCompressor().compress, FULL + NOISE), "broken_compression"),
    "damaged gzip": (gzip.compress(FULL)[:-8] + bytes(8), "broken_compression"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_among_good_ones_is_a_gap(signalbox, logs, kind):
    """One bad file is named in the report, and everything else is still diagnosed."""
    content, code = BAD[kind]
    (logs / "rank-4.log").write_bytes(content)

    ran = diagnose(signalbox, "--logs", logs)

    assert (ran.status, ran.err, ran.codes) == (0, "", {code})
    assert faults(ran)[0] == "disk_full"


@pytest.mark.parametrize("kind", ["empty", "binary", "utf-16", "7z"])
def test_only_bad_files_are_nothing_collected(signalbox, tmp_path, kind):
    """Without readable input there is no report: status 3, and the reason."""
    bad = tmp_path / "rank-0.log"
    bad.write_bytes(BAD[kind][0])

    ran = diagnose(signalbox, "--logs", bad)

    assert (ran.status, ran.out) == (3, b"")
    assert ran.err.startswith(f"signalbox: {bad}: ")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("kind", ["truncated gzip", "truncated xz", "truncated zst"])
def test_what_stands_before_the_break_counts(signalbox, tmp_path, kind):
    """The lines of a cut file that are there are read."""
    (tmp_path / "rank-0.log").write_bytes(BAD[kind][0])

    ran = diagnose(signalbox, "--logs", tmp_path)

    assert (ran.status, ran.codes) == (0, {"broken_compression"})
    assert faults(ran) == ["disk_full"]


def test_several_gzip_members_are_one_log(signalbox, tmp_path):
    """A line in the second member is found, and its number counts through both."""
    (tmp_path / "rank-1.log.gz").write_bytes(gzip.compress(STEPS) + gzip.compress(FULL))

    ran = diagnose(signalbox, "--logs", tmp_path)

    assert (ran.codes, faults(ran)) == (set(), ["disk_full"])
    assert ran.report["diagnoses"][0]["evidence"][0]["line"] == 400


@pytest.mark.parametrize(
    "odd", [b"caf\xe9 \xff\xfe\xf0\x28\n", b"\0\0\0 hole \0\n", b"\xed\xa0\x80 surrogate\n", b"\r\r\r\n"]
)
def test_odd_bytes_in_text_do_no_harm(signalbox, tmp_path, odd):
    """Invalid UTF-8 and NUL bytes around a failure do not hide it, and the report stays JSON in UTF-8."""
    (tmp_path / "rank-2.log").write_bytes(STEPS + odd + FULL.rstrip(b"\n") + odd)

    ran = diagnose(signalbox, "--logs", tmp_path)

    assert (ran.status, faults(ran)[0]) == (0, "disk_full")
    assert signalbox("diagnose", "--no-store", "--logs", tmp_path).out.decode("utf-8").count("\0") == 0


def test_a_line_of_200_mb_is_cut(signalbox, tmp_path):
    """An endless line is read in bounded time and memory, and the lines after it are read."""
    path = tmp_path / "rank-0.log"
    with path.open("wb") as handle:
        handle.write(STEPS + b"x" * 10_000)
        handle.seek(200_000_000)  # a hole: zeros that take no disk
        handle.write(b"\n" + FULL)
    begun = time.perf_counter()

    ran = diagnose(signalbox, "--logs", path, "--workers", "1")

    assert time.perf_counter() - begun < 100
    assert faults(ran)[0] == "disk_full"
    assert len(ran.out) < 100_000


def test_a_loop_a_pipe_and_a_dead_link_are_gaps(signalbox, logs):
    """Nothing in a folder of logs is waited for or read twice."""
    (logs / "again").symlink_to(logs)
    (logs / "itself").symlink_to("itself")
    (logs / "gone.log").symlink_to("nowhere")
    (logs / "latest.log").symlink_to("rank-3.log")
    os.mkfifo(logs / "pipe.log")

    ran = diagnose(signalbox, "--bundle", logs)

    assert (ran.status, faults(ran)[0]) == (0, "disk_full")
    assert ran.codes == {"folder_loop", "unreadable", "same_file", "not_a_file"}
    assert {Path(gap["source"]).is_absolute() for gap in ran.report["gaps"]} <= {False, True}
    assert diagnose(signalbox, "--logs", logs / "pipe.log").status == 3


def test_control_characters_in_names_do_not_reach_the_terminal(signalbox, logs):
    """File names are text of strangers: they are escaped in the report, in gaps and in errors."""
    evil = os.fsencode(logs) + b"/\x1b[2J\x07\xe2\x80\xae\n\xff-rank-9.log"
    Path(os.fsdecode(evil)).write_bytes(STEPS + FULL)
    Path(os.fsdecode(evil + b"2")).write_bytes(b"")

    ran = signalbox("diagnose", "--no-store", "--verbose", "--logs", logs)

    assert (ran.status, ran.err) == (0, "")
    assert not set(ran.out) & (set(range(32)) - {10})
    assert b"\xe2\x80\xae" not in ran.out
    assert "disk_full" in faults(diagnose(signalbox, "--logs", logs))
    alone = signalbox("diagnose", "--logs", os.fsdecode(evil + b"2"))
    assert alone.status == 3
    assert "\x1b" not in alone.err
    assert alone.err.count("\n") == 1


@pytest.mark.slow  # connectors/bundles/test_streams.py
def test_a_bomb_is_read_to_a_bound(signalbox, logs):
    """320 MB packed into 320 KB: the report says where reading stopped, here at 96 MB, in less memory than that."""
    (logs / "rank-8.log.gz").write_bytes(gzip.compress(bytes(16 << 20)) * 20)
    bound = "from connectors.bundles import streams; streams.BOMB_OUTPUT = 96 << 20"
    told = "print(re.search('VmHWM:(.*)kB', open('/proc/self/status').read())[1], file=sys.stderr)"
    peak = f"import atexit, re, sys; atexit.register(lambda: {told})"
    run = f"{bound}; {peak}; sys.argv = ['signalbox', *sys.argv[1:]]; from bot.cli.main import main; main()"

    done = subprocess.run(
        [sys.executable, "-c", run, "diagnose", "--json", "--no-store", "--workers", "1", "--logs", str(logs)],
        capture_output=True,
        env=signalbox.environment(),
        timeout=60,
        check=False,
    )

    report = json.loads(done.stdout)
    assert "expands_too_much" in {gap["code"] for gap in report["gaps"]}
    assert report["diagnoses"][0]["fault"] == "disk_full"
    assert report["bytes_read"] < (96 << 20) + (16 << 20)
    assert int(done.stderr.split()[-1]) < 96 << 10  # KiB


# Rights


@pytest.fixture
def stranger(signalbox):
    """The command without root's rights, in a folder that everybody can reach, with a rule base that is compiled."""
    with tempfile.TemporaryDirectory(prefix="signalbox-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copytree(signalbox.cache, folder / "cache")
        for path in (folder / "cache", *(folder / "cache").iterdir()):
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield replace(
            signalbox, state=folder / "none" / "state", cache=folder / "cache", cwd=folder, without_rights=True
        )


def test_what_may_not_be_read_is_a_gap(stranger):
    """Unreadable files and folders are skipped; if nothing is readable, the error says so."""
    logs = stranger.cwd / "logs"
    (logs / "closed").mkdir(parents=True)
    (logs / "rank-0.log").write_bytes(STEPS + FULL)
    (logs / "rank-1.log").write_bytes(FULL)
    (logs / "job.yaml").write_text("id: 5\n")
    for path in ("closed", "rank-1.log", "job.yaml"):
        (logs / path).chmod(0)
    try:
        ran = diagnose(stranger, "--bundle", logs)
        alone = diagnose(stranger, "--logs", logs / "rank-1.log")
        hidden = diagnose(stranger, "--logs", logs / "closed" / "x.log")
        inside = diagnose(stranger, "--logs", logs / "closed")
    finally:
        for path in ("closed", "rank-1.log", "job.yaml"):
            (logs / path).chmod(0o755)

    assert (ran.status, ran.codes, faults(ran)[0]) == (0, {"unreadable", "job_unreadable"}, "disk_full")
    assert {gap["source"] for gap in ran.report["gaps"]} >= {"closed", "rank-1.log", "job.yaml"}
    assert (alone.status, hidden.status, inside.status) == (3, 2, 3)
    assert "Permission denied" in alone.err
    assert "Permission denied" in hidden.err


def test_folders_that_cannot_be_written_cost_only_what_they_are_for(stranger):
    """Without a cache it is slower, without a state folder the incident is not kept; the report is the same."""
    closed = stranger.cwd / "closed"
    closed.mkdir(mode=0o555)
    (stranger.cwd / "rank-0.log").write_bytes(STEPS + FULL)

    ran = replace(stranger, state=closed / "state", cache=closed / "cache")(
        "diagnose", "--json", "--logs", "rank-0.log"
    )

    assert (ran.status, faults(ran)[0]) == (0, "disk_full")
    assert ran.err.count("\n") == 1
    assert "the report was not stored as an incident" in ran.err
    assert list(closed.iterdir()) == []


@pytest.mark.parametrize("variable", ["SIGNALBOX_STATE", "SIGNALBOX_CACHE"])
def test_a_file_where_a_folder_should_be(signalbox, logs, tmp_path, variable):
    """A state or cache folder that is a file is as one that cannot be written."""
    (tmp_path / "file").write_text("x")

    ran = signalbox("diagnose", "--json", "--logs", logs, env={variable: str(tmp_path / "file")})

    assert (ran.status, faults(ran)[0]) == (0, "disk_full")
    assert ("not stored" in ran.err) == (variable == "SIGNALBOX_STATE")


# Outputs


@pytest.mark.parametrize(
    "words",
    [
        ("demo",),
        ("demo", "--json"),
        ("diagnose", "--bundle", KILLED),
        ("diagnose", "--each", KILLED.parent, "--json"),
    ],
)
def test_a_closed_pipe_is_no_error(signalbox, words):
    """`| head -1` may close the pipe at any time: status 0, nothing on stderr, and the incident is kept."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ran = signalbox(*words, stdout=writer)
        assert (ran.status, ran.err) == (0, "")
    finally:
        os.close(writer)
    assert len(signalbox("incidents", "list", "--json").reports) == ("--bundle" in words)


def test_a_closed_pipe_under_a_list_is_silent(signalbox):
    """Lists that are cut off by `head` print no error."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert signalbox("rules", "list", stdout=writer).err == ""
    finally:
        os.close(writer)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("words", [("demo",), ("demo", "--json"), ("rules", "list")])
def test_a_full_disk_under_the_output_is_reported(signalbox, words):
    """An answer that cannot be written is an error of one line."""
    with Path("/dev/full").open("w") as full:
        ran = signalbox(*words, stdout=full.fileno())

    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert "No space left on device" in ran.err


def test_no_output_at_all_is_survived(signalbox):
    """With stdout and stderr closed by whoever started it, as under some cron, there is still a status."""
    for end in (">&-", ">&- 2>&-"):
        line = f'exec "$0" -m bot.cli.main demo {end}'
        done = subprocess.run(
            ["/bin/sh", "-c", line, sys.executable], env=signalbox.environment(), capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")


# Rule files


def rule(name, **lines):
    """A rule file that is sound but for the lines given."""
    parts = {
        "format": "format: 1",
        "id": f"id: {name}",
        "title": "title: The moon is full",
        "fault": "fault: config_error",
        "role": "role: root_cause",
        "status": "status: experimental",
        "severity": "severity: low",
        "summary": 'summary: "The moon is full."',
        "cause": "cause: The calendar says so.",
        "impact": "impact: The run ends.",
        "match": "match:\n  one:\n    literal: 'the moon is full tonight'",
        "remediation": "remediation:\n  - action: change_config\n    text: Wait a day.",
        "references": "references:\n  - url: https://example.com/\n    shows: what it is",
    }
    return "\n".join((parts | lines).values()) + "\n"


BOMB = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
BAD_RULES = {
    "tabs": (rule("odd", match="match:\n\tone:\n\t\tliteral: 'x'"), "a tab where only spaces may stand"),
    "duplicate keys": (rule("odd", more="role: symptom"), "key 'role' is defined twice"),
    "unknown keys": (rule("odd", more="colour: red"), "unknown key 'colour'"),
    "anchor bomb": (BOMB, "anchor '&a' is not allowed"),
    "pathological regex": (
        rule("odd", match="match:\n  one:\n    regex: 'moonlight (?:a+)+$'"),
        "can take forever on a hostile line",
    ),
    "no regex": (rule("odd", match="match:\n  one:\n    regex: 'moonlight ('"), "not a regular expression"),
    "look-around": (rule("odd", match="match:\n  one:\n    regex: 'moonlight(?!x)'"), "outside the safe subset"),
    "wrong folder": (rule("other"), "but the folder is named 'odd'"),
    "empty": ("", "the file is empty"),
    "NUL bytes": ("format: 1\0", "U+0000 is not allowed"),
    "huge": ("#" * 3_000_000, "larger than 256 KiB"),
    "surprises": (rule("odd", title="title: no"), "odd/rule.yaml:3:8"),
}


@pytest.mark.parametrize("kind", BAD_RULES)
def test_a_bad_rule_is_reported_and_left_out(signalbox, few_rules, logs, kind):
    """Lint names file, line and fault with status 1; a diagnosis leaves the rule out, says so, and uses the others."""
    text, told = BAD_RULES[kind]
    folder = few_rules / "moon" / "odd"
    folder.mkdir(parents=True)
    (folder / "rule.yaml").write_text(text)

    linted = signalbox("rules", "lint", "--rules", few_rules)
    ran = diagnose(signalbox, "--rules", few_rules, "--logs", logs)

    lines = [line for line in linted.out.decode().splitlines() if line.startswith("moon/odd/rule.yaml:")]
    assert linted.status == 1
    assert any(told in line for line in lines)
    assert (ran.status, faults(ran)[0]) == (0, "disk_full")
    assert ran.err.startswith("signalbox: rule file skipped: moon/odd/rule.yaml:")
    assert ran.err.count("\n") == 1


def test_a_slow_confirm_is_reported_by_lint(signalbox, few_rules):
    """A regex of full syntax is looked at too."""
    folder = few_rules / "moon" / "odd"
    folder.mkdir(parents=True)
    slow = "match:\n  one:\n    literal: 'the moon is full tonight'\n    confirm: '(?:a+)+$'"
    (folder / "rule.yaml").write_text(rule("odd", match=slow))

    linted = signalbox("rules", "lint", "--rules", few_rules)

    assert linted.status == 1
    assert b"can take forever on a hostile line" in linted.out


def test_an_id_of_two_rules_leaves_out_both(signalbox, few_rules, logs):
    """Of two rules with one id neither is used, and each is named."""
    for family in ("moon", "sun"):
        folder = few_rules / family / "odd"
        folder.mkdir(parents=True)
        (folder / "rule.yaml").write_text(rule("odd"))

    ran = diagnose(signalbox, "--rules", few_rules, "--logs", logs)

    assert (ran.status, faults(ran)[0]) == (0, "disk_full")
    assert "moon/odd/rule.yaml:2:5: id 'odd' is also used by sun/odd/rule.yaml" in ran.err
    assert "sun/odd/rule.yaml:2:5: id 'odd' is also used by moon/odd/rule.yaml" in ran.err


def test_rule_files_that_are_no_files_are_reported(signalbox, few_rules, logs):
    """A FIFO or a dead link for a rule is not waited for."""
    for name in ("pipe", "link"):
        (few_rules / "moon" / name).mkdir(parents=True)
    os.mkfifo(few_rules / "moon/pipe/rule.yaml")
    (few_rules / "moon/link/rule.yaml").symlink_to("nowhere")

    linted = signalbox("rules", "lint", "--rules", few_rules)
    ran = diagnose(signalbox, "--rules", few_rules, "--logs", logs)

    assert linted.status == 1
    assert b"moon/pipe/rule.yaml:1:1: cannot be read: it is no file" in linted.out
    assert b"moon/link/rule.yaml:1:1: cannot be read: No such file or directory" in linted.out
    assert (ran.status, faults(ran)[0]) == (0, "disk_full")


@pytest.mark.parametrize("text", ["", "faults: [", "faults: []\n", None])
def test_without_its_vocabulary_no_rule_can_be_used(signalbox, few_rules, logs, text):
    """With a broken faults.yaml, lint lists the errors and a diagnosis is refused."""
    (few_rules / "faults.yaml").unlink()
    if text is not None:
        (few_rules / "faults.yaml").write_text(text)

    linted = signalbox("rules", "lint", "--rules", few_rules)
    ran = diagnose(signalbox, "--rules", few_rules, "--logs", logs)

    assert linted.status == 1
    assert b"faults.yaml:" in linted.out
    assert (ran.status, ran.out) == (2, b"")
    assert ran.err.startswith("signalbox: ")


def test_rules_can_be_listed_shown_and_tried(signalbox, few_rules):
    """`rules list`, `show`, `test` and `test --on` on a folder of one's own."""
    options = ("--rules", few_rules)
    listed = signalbox("rules", "list", *options)
    one = signalbox("rules", "list", "--fault", "cuda_oom", *options)
    tested = signalbox("rules", "test", *options)
    tried = signalbox("rules", "test", "--on", "-", *options, stdin=FULL)
    other = signalbox("rules", "test", "cuda-out-of-memory", "--on", "-", *options, stdin=FULL)

    assert [line.split()[0] for line in listed.out.decode().splitlines()] == ["cuda-out-of-memory", "disk-full"]
    assert [line.split()[0] for line in one.out.decode().splitlines()] == ["cuda-out-of-memory"]
    assert (few_rules / "storage/disk-full/rule.yaml").read_bytes() in signalbox(
        "rules", "show", "disk-full", "--source"
    ).out
    told = signalbox("rules", "show", "disk-full", *options).out.decode()
    assert told.startswith(
        "disk-full: No space left on the file system\nhigh root cause, fault disk_full, experimental\n"
    )
    titles = ("Cause", "Impact", "What to do", "It matches lines such as", "References")
    assert [line for line in told.splitlines() if line in titles] == list(titles)
    assert "    $ df -h $(dirname PATH); df -i $(dirname PATH)" in told
    assert max(map(len, told.splitlines())) <= 80
    assert (tested.status, tested.out.decode().split(",")[1]) == (0, " 0 failed\n")
    assert tried.out.decode().startswith("disk-full → disk_full")
    assert other.out == b"no rule matches\n"


def test_a_rule_test_that_fails_is_reported(signalbox, few_rules):
    """A log under match/ on which the rule is silent is status 1 and names who spoke."""
    (few_rules / "storage/disk-full/match/wrong.log").write_text("all is well\n")
    (few_rules / "storage/disk-full/silent/empty.log").write_text(" \n")

    ran = signalbox("rules", "test", "--rules", few_rules)
    linted = signalbox("rules", "lint", "--rules", few_rules)

    assert ran.status == 1
    assert "wrong.log: disk-full should match but does not (matched: no rule)" in ran.out.decode()
    assert (linted.status, b"empty.log:1:1: the test log is empty" in linted.out) == (1, True)


def test_the_exit_status_may_be_the_decision(signalbox, tmp_path):
    """For wrappers that requeue: distinct statuses for fix first, proven healthy, and undecided."""
    bundles = BUNDLES
    words = ("diagnose", "--no-store", "--exit-decision", "--bundle")
    assert signalbox(*words, bundles / "healthy").status == 0
    stops = tmp_path / "stops" / "logs"
    stops.mkdir(parents=True)
    (stops / "train.log").write_text("".join(f"step {number}/900 loss 2.{number}\n" for number in range(99)))
    assert signalbox(*words, stops.parent).status == 16
    (stops.parent / "job.yaml").write_text("state: RUNNING\n")
    assert signalbox(*words, stops.parent).status == 0
    (stops.parent / "job.yaml").write_text("state: FAILED\nexit_code: 1\n")
    assert signalbox(*words, stops.parent).status in (15, 16)
    assert signalbox(*words, DEMO).status == 15
    assert signalbox(*words, bundles / "rank-killed").status == 15  # who killed it is not known
    assert signalbox(*words, bundles / "healthy", "--fail-on", "fault").status == 2


def test_the_help_cuts_no_sentence(signalbox):
    """Each command says in a whole sentence what it does, in groups too."""
    for words in ((), ("rules",), ("incidents",), ("store",)):
        told = signalbox(*words, "--help").out.decode()

        assert "Commands:" in told
        assert "..." not in told.partition("Commands:")[2]


def test_rules_are_listed_by_words(signalbox, few_rules):
    """All words must be in the id, the fault or the title, in any case."""
    every = signalbox("rules", "list", "--rules", few_rules).out.decode().splitlines()
    first = every[0].split()[0]
    found = signalbox("rules", "list", first.upper(), "--rules", few_rules).out.decode().splitlines()

    assert [line.split()[0] for line in found] == [first]
    assert len(every) > 1
    assert signalbox("rules", "list", first, "absent-word", "--rules", few_rules).out == b""
