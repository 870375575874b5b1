"""`signalbox diagnose --logs -`: a log that is piped in, of any packing, in bounded memory and disk, and no trace of it."""

from __future__ import annotations

import errno
import gzip
import io
import lzma
import os
import pty
import resource
import shutil
import signal
import subprocess
import tempfile
import time

import pytest
import zstandard

from bot.cli.standard_input import room_in, spool, spool_folder
from bot.runtime.errors import NothingCollected
from kb.errors import UnreadableInput

FULL = b"OSError: [Errno 28] No space left on device: '/scratch/moe/ckpt-880'\n"
STEPS = b"".join(b"iteration %d/ 9000 | lm loss: %.4f\n" % (i, 9 / i) for i in range(1, 400))
PACK = {"plain": bytes, "gzip": gzip.compress, "xz": lzma.compress, "zstd": zstandard.ZstdCompressor().compress}


@pytest.fixture
def spooling(tmp_path):
    """The folder for temporary files of a run; a file left in it would be a trace."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def diagnose(signalbox, spooling, data, *words):
    """A diagnosis of piped bytes leaves no file behind."""
    ran = signalbox("diagnose", *words, stdin=data, env={"TMPDIR": str(spooling)})
    assert list(spooling.iterdir()) == []
    return ran


@pytest.mark.parametrize("kind", PACK)
def test_a_piped_log_is_diagnosed(signalbox, spooling, kind):
    """Packed or not, its lines are quoted with their numbers, as of `stdin`."""
    ran = diagnose(signalbox, spooling, PACK[kind](STEPS + FULL), "--json", "--no-store", "--logs", "-")

    first = ran.report["diagnoses"][0]
    assert (ran.status, ran.err, ran.report["bundle"], first["fault"]) == (0, "", None, "disk_full")
    assert (first["evidence"][0]["source"], first["evidence"][0]["line"]) == ("stdin", 400)
    assert str(spooling).encode() not in ran.out


def test_the_state_that_is_given_counts_as_the_schedulers(signalbox, spooling):
    """It settles a log without an end; a reason for the end names the fault, with its source; another word is refused."""
    words = ("--json", "--no-store", "--logs", "-", "--state")
    whole = STEPS.replace(b"/ 9000", b"/ 399")
    done, cut = (diagnose(signalbox, spooling, whole, *words, state).report for state in ("completed", "TIMEOUT"))
    odd = diagnose(signalbox, spooling, STEPS, *words, "tired")

    assert (done["verdict"], done["phase"], done["job"]["state"]) == ("no_fault", "completed", "COMPLETED")
    first = cut["diagnoses"][0]
    assert (first["fault"], first["evidence"][0]["source"]) == ("time_limit", "as given")
    assert (odd.status, "--state tired: no scheduler's word" in odd.err) == (2, True)


def test_the_cost_is_known_where_the_number_of_gpus_is_given(signalbox, spooling):
    """As the description of a bundle gives it; no job has none."""
    words = ("--json", "--no-store", "--logs", "-", "--gpus")
    known, odd = (diagnose(signalbox, spooling, STEPS, *words, number) for number in ("64", "0"))

    assert known.report["job"]["gpus"] == 64
    assert (odd.status, "--gpus" in odd.err) == (2, True)


def test_the_report_is_the_same_each_time_and_is_kept(signalbox, spooling):
    """Wherever it was spooled; the incident names no temporary folder, and secrets are masked as in files."""
    secret = b"export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567\n"
    data = STEPS + secret + FULL

    first = diagnose(signalbox, spooling, data, "--json", "--logs", "-")
    second = diagnose(signalbox, spooling, data, "--json", "--no-store", "-")

    assert {**first.report, "timing": 0} == {**second.report, "timing": 0}
    shown = signalbox("incidents", "show", "1", "--json")
    assert shown.report["id"] == first.report["id"]
    kept = b"".join(path.read_bytes() for path in signalbox.state.rglob("*") if path.is_file())
    assert b"0123456789abcdef0123456789abcdef01234567" not in first.out + shown.out + kept
    assert str(spooling).encode() not in shown.out + kept


def test_empty_input_is_nothing_collected(signalbox, spooling):
    """Status 3 and one line with what to do."""
    ran = diagnose(signalbox, spooling, b"", "--logs", "-")

    assert (ran.status, ran.out, ran.err.count("\n")) == (3, b"", 1)
    assert "standard input is empty; pipe a log into it: " in ran.err


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (bytes(range(256)) * 99, "stdin: not text"),
        (FULL.decode().encode("utf-16"), "stdin: UTF-16"),
    ],
)
def test_what_is_no_text_is_nothing_collected(signalbox, spooling, data, told):
    """As of a file."""
    ran = diagnose(signalbox, spooling, data, "--logs", "-")

    assert (ran.status, ran.out, ran.err.count("\n")) == (3, b"", 1)
    assert told in ran.err


def test_broken_compression_is_a_gap_of_stdin(signalbox, spooling):
    """The text before the damage is read, and the gap names no temporary file."""
    noise = b"".join(b"%d\n" % (i * 7919 % 104_729) for i in range(60_000))
    packed = gzip.compress(FULL + noise)

    ran = diagnose(signalbox, spooling, packed[: len(packed) * 3 // 4], "--json", "--no-store", "--logs", "-")

    assert (ran.status, ran.codes) == (0, {"broken_compression"})
    assert {gap["source"] for gap in ran.report["gaps"]} == {"stdin"}
    assert ran.report["diagnoses"][0]["fault"] == "disk_full"


def test_closed_input_is_bad_usage(signalbox, spooling):
    """Status 2, one line."""
    command = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *signalbox.words(["diagnose", "--logs", "-"])],
        env=signalbox.environment({"TMPDIR": str(spooling)}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (command.returncode, command.stdout, command.stderr.count("\n")) == (2, "", 1)
    assert "which is closed; pipe a log into it: " in command.stderr
    assert list(spooling.iterdir()) == []


def test_a_terminal_is_not_waited_for(signalbox, spooling):
    """A missing pipe is reported at once."""
    ours, theirs = pty.openpty()
    try:
        ran = subprocess.run(
            signalbox.words(["diagnose", "--logs", "-"]),
            stdin=theirs,
            env=signalbox.environment({"TMPDIR": str(spooling)}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)

    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert "which is a terminal; pipe a log into it: " in ran.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_who_is_stopped_leaves_nothing(signalbox, spooling, number):
    """While input is still awaited: the private copy goes."""
    running = subprocess.Popen(
        signalbox.words(["diagnose", "--logs", "-"]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=signalbox.environment({"TMPDIR": str(spooling)}),
    )
    try:
        running.stdin.write(STEPS)
        running.stdin.flush()
        until = time.monotonic() + 60
        while not list(spooling.glob("*/stdin")) or not next(spooling.glob("*/stdin")).stat().st_size:
            assert time.monotonic() < until
            time.sleep(0.02)
        [folder] = spooling.iterdir()
        assert folder.stat().st_mode & 0o077 == 0
        running.send_signal(number)
        _, err = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()

    assert running.returncode in (128 + number, 130)
    assert b"Traceback" not in err
    assert list(spooling.iterdir()) == []


class Endless:
    """Input without end, in blocks."""

    def __init__(self) -> None:
        self.given = 0

    def read1(self, size: int) -> bytes:
        """As much as is asked for."""
        self.given += size
        return b"x" * size


class Failing:
    """Input that breaks off with an error."""

    def read1(self, size: int) -> bytes:
        """Return nothing, for any size."""
        del size
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def copied(source, tmp_path, room):
    """What is written of a source."""
    folder = tmp_path / "signalbox-stdin-x"
    folder.mkdir()
    with (folder / "stdin").open("xb") as file:
        spool(source, file, room)
    return (folder / "stdin").read_bytes()


def test_all_of_it_is_copied_up_to_the_bound(tmp_path):
    """A log that just fits is taken whole."""
    data = os.urandom(3_000_001)

    assert copied(io.BytesIO(data), tmp_path, len(data)) == data


def test_more_than_there_is_room_for_is_refused(tmp_path):
    """Reading stops at the bound, the disk no longer applies than it, and the line says what to do."""
    endless = Endless()

    with pytest.raises(
        UnreadableInput, match=r"larger than the 0\.0 GB .* set TMPDIR to a folder with more space"
    ) as told:
        copied(endless, tmp_path, 5_000_000)

    assert str(tmp_path) in str(told.value)
    assert endless.given < 7_000_000
    assert (tmp_path / "signalbox-stdin-x" / "stdin").stat().st_size <= 5_000_000


def test_a_full_disk_is_reported(tmp_path):
    """As by a limit on the size of files."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, before[1]))
    try:
        with pytest.raises(
            UnreadableInput, match="cannot store standard input here while it is read: File too large; set TMPDIR"
        ):
            copied(Endless(), tmp_path, 50_000_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_input_that_fails_is_reported(tmp_path):
    """One line, no traceback."""
    with pytest.raises(UnreadableInput, match="standard input cannot be read: Input/output error"):
        copied(Failing(), tmp_path, 1000)


def test_no_input_is_reported(tmp_path):
    """Nothing came."""
    with pytest.raises(NothingCollected, match="standard input is empty"):
        copied(io.BytesIO(), tmp_path, 1000)


def test_the_room_leaves_a_reserve(tmp_path, monkeypatch):
    """Five per cent of the file system stay free, a gibibyte at most; no more than 64 GiB are taken."""
    usage = {"total": 10 << 30, "free": 2 << 30}
    monkeypatch.setattr(
        shutil,
        "disk_usage",
        lambda _: type("Usage", (), usage),  # as shutil gives it
    )

    assert room_in(tmp_path) == (2 << 30) - (10 << 30) // 20
    usage.update(total=1 << 50, free=1 << 49)
    assert room_in(tmp_path) == 64 << 30
    usage.update(total=1 << 40, free=1 << 20)
    assert room_in(tmp_path) == 0


def test_the_folder_is_on_disk(monkeypatch, tmp_path):
    """$TMPDIR decides; without it /var/tmp, since /tmp may be in memory; where that is closed, what Python finds."""
    disk, memory = "/var/tmp", str(tmp_path)  # noqa: S108 - nothing is written there
    monkeypatch.setattr(tempfile, "tempdir", memory)
    monkeypatch.setattr(os, "access", lambda name, _: name == disk)
    monkeypatch.setenv("TMPDIR", memory)
    assert str(spool_folder()) == memory
    monkeypatch.setenv("TMPDIR", "")
    assert str(spool_folder()) == disk
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert str(spool_folder()) == memory


def test_a_folder_that_is_not_there_is_passed_over(signalbox, tmp_path):
    """As by everything that Python writes for a while."""
    ran = signalbox("diagnose", "--no-store", "--logs", "-", stdin=STEPS + FULL, env={"TMPDIR": str(tmp_path / "none")})

    assert (ran.status, ran.err) == (0, "")
