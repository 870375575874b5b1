"""Lines of many logs as one: merged by time, of chosen ranks, nodes and times, found by a regex, masked."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

from bot.live.log_view import LineFilter, end_of, lines_of, of_bundle, of_paths, ranks_of
from bot.live.tail import LogTail
from bot.runtime.safe_regex import search_of
from kb.errors import UnreadableInput

DAY = 1_795_132_800.0  # 2026-11-20T00:00:00Z


def _write(folder: Path, **logs: str | bytes) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in logs.items():
        data = text if isinstance(text, bytes) else text.encode()
        (folder / name.replace("__", "-").replace("_dot_", ".")).write_bytes(data)
    return folder


def _shown(folder: Path, **wanted) -> list[str]:
    gaps = []
    found = [f"{line.rank} {line.text}" for line in lines_of(of_paths([folder]), LineFilter(**wanted), gaps)]
    assert gaps == []
    return found


def _at(seconds: int) -> str:
    return f"2026-11-20 00:{seconds // 60:02d}:{seconds % 60:02d}"


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Two ranks that write in turn; the second logs an exception."""
    return _write(
        tmp_path / "logs",
        rank__0_dot_log=f"{_at(1)} a\n{_at(3)} c\n",
        rank__1_dot_log=f"{_at(2)} b\nTraceback:\n  File x\n{_at(4)} d\n",
    )


def test_ranks_are_merged_by_time(two: Path) -> None:
    """Lines without a stamp stay with the line before them."""
    assert _shown(two) == ["0 a", "1 b", "1 Traceback:", "1   File x", "0 c", "1 d"]


def test_what_is_read_from_a_line(two: Path) -> None:
    """The parsed time, rank, source and number, and the line unchanged."""
    [_, line, *_] = lines_of(of_paths([two]), LineFilter(), [])
    assert line == (DAY + 2, 1, None, "rank-1.log", 1, "b", f"{_at(2)} b")


def test_ranks_times_and_nodes(tmp_path: Path, two: Path) -> None:
    """Each narrows; a line of an unknown speaker is not of a rank that is asked for."""
    assert _shown(two, ranks=frozenset({1}), start=DAY + 3) == ["1 d"]
    assert _shown(two, end=DAY + 3) == ["0 a", "1 b", "1 Traceback:", "1   File x"]
    assert _shown(two, node="node-7") == []
    merged = _write(tmp_path / "merged", train_dot_log="[rank3]: x\n[rank4]: y\nplain\n", node__7_dot_log="of node 7\n")
    assert _shown(merged, ranks=frozenset({4})) == ["4 y"]
    assert _shown(merged, node="node-7") == ["None of node 7"]


def test_structured_lines_tell_their_own_time_and_rank(tmp_path: Path) -> None:
    """Of JSON lines the keys count."""
    line = '{"step": 1, "rank": 5, "timestamp": 1795132802}'
    folder = _write(tmp_path / "l", a_dot_log=f"{_at(1)} before\n{_at(3)} behind\n", b_dot_jsonl=f"{line}\n")
    assert _shown(folder) == ["None before", f"5 {line}", "None behind"]


def test_a_search_finds_lines_with_their_times(two: Path) -> None:
    """A line has the time of the timestamp before it."""
    [line] = lines_of(of_paths([two]), LineFilter(grep=search_of("file X", ignore_case=True)), [])
    assert (line.time, line.text, line.number) == (DAY + 2, "  File x", 3)


def test_hostile_regexes() -> None:
    """What would take for ever elsewhere is quick; what cannot be linear is refused, saying what."""
    search = search_of(r"(a+)+$")
    assert search(b"a" * 50_000 + b"b") is False
    assert search_of("ÄÖ|x")("äÄÖ".encode()) is True
    for pattern in (r"(?=x)", r"(x)\1", "(", "\ud800"):
        with pytest.raises(UnreadableInput, match="lookaround"):
            search_of(pattern)
    with pytest.raises(UnreadableInput, match="too large"):
        search_of(r"\pL{90}")


def test_a_regex_has_a_length() -> None:
    """A far too long one is refused."""
    with pytest.raises(UnreadableInput, match="1000 characters"):
        search_of("a" * 1001)


def test_secrets_are_masked(tmp_path: Path) -> None:
    """In text and in the whole line, without moving anything."""
    folder = _write(tmp_path / "l", rank__0_dot_log=f"{_at(1)} password=hunter2hunter\n{_at(2)} b\n")
    [first, second] = lines_of(of_paths([folder]), LineFilter(), [])
    assert (first.text, first.whole, second.text) == (f"password={'*' * 13}", f"{_at(1)} password={'*' * 13}", "b")


def test_progress_bars_show_their_last_state(tmp_path: Path) -> None:
    """Of a line that was written over the last state is shown; a search finds any of them."""
    folder = _write(tmp_path / "l", rank__0_dot_log="1%\rError: x\r3%\nend\r\n")
    assert _shown(folder) == ["0 3%", "0 end"]
    assert _shown(folder, grep=search_of("Error")) == ["0 Error: x"]


def test_odd_bytes_and_long_lines(tmp_path: Path) -> None:
    """Bytes that are not text, a line of megabytes and a log without a final newline are all split into lines."""
    folder = _write(tmp_path / "l", rank__0_dot_log=b"\x80\xff\xfe odd\n" + b"x" * (9 << 20) + b"\nlast")
    lines = list(lines_of(of_paths([folder]), LineFilter(), []))
    assert [len(line.text) for line in (lines[0], lines[-1])] == [7, 4]
    assert max(len(line.text) for line in lines) < 17_000


def test_packed_and_damaged_logs(tmp_path: Path) -> None:
    """Readable parts of compressed logs are shown, damaged ones reported."""
    packed = gzip.compress(b"one\ntwo\n" * 5000)
    folder = _write(tmp_path / "l", rank__0_dot_log_dot_gz=packed[:-20])
    gaps = []
    assert len(list(lines_of(of_paths([folder]), LineFilter(), gaps))) > 5000
    assert [gap.code for gap in gaps] == ["broken_compression"]


def test_memory_does_not_grow_with_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many logs are merged block by block."""
    monkeypatch.setattr("bot.live.log_view.MEMORY", 4 << 20)
    text = "".join(f"{_at(second)} line {second} of this log, and more of it\n" for second in range(3500))
    folder = _write(tmp_path / "l", **{f"rank__{rank}_dot_log": text for rank in range(4)})
    tracemalloc.start()
    count = sum(1 for _ in lines_of(of_paths([folder]), LineFilter(), []))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 4 * 3500
    assert peak < 3 << 20


def test_a_bundle_says_who_spoke(tmp_path: Path) -> None:
    """bundle.yaml names ranks where files do not."""
    _write(tmp_path / "logs", x_dot_log=f"{_at(1)} hello\n")
    (tmp_path / "bundle.yaml").write_text("format: 1\nfiles: {logs/x.log: {rank: 9, node: n1}}\n")
    [line] = lines_of(of_bundle(tmp_path), LineFilter(), [])
    assert (line.rank, line.node, line.source) == (9, "n1", "logs/x.log")


def test_the_end_of_logs(two: Path, tmp_path: Path) -> None:
    """The last stamp; without one when they were written."""
    assert end_of(of_paths([two])) == DAY + 4
    plain = of_paths([_write(tmp_path / "p", a_dot_log="x\n")])
    assert end_of(plain) == plain.written


@pytest.mark.parametrize(("text", "ranks"), [("7", {7}), ("0-2,8", {0, 1, 2, 8}), (" 1 , 1", {1})])
def test_ranks(text: str, ranks: set[int]) -> None:
    """A rank, a list, a range."""
    assert ranks_of(text) == ranks


@pytest.mark.parametrize("text", ["", "x", "3-1", "1-", "-1", "0-9999999", "1,,2"])
def test_no_ranks(text: str) -> None:
    """All else is refused."""
    with pytest.raises(UnreadableInput, match="--rank"):
        ranks_of(text)


def test_following(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Existing lines come first, then new ones, also of new files; an unfinished line waits; a rotated log is read from its start."""
    monkeypatch.setattr("bot.live.tail.AGAIN", 1)
    tailing = LogTail(lambda: of_paths([two]), LineFilter())
    assert [line.text for line in tailing.look()] == ["a", "b", "Traceback:", "  File x", "c", "d"]
    assert list(tailing.look()) == []
    with (two / "rank-0.log").open("a") as handle:
        handle.write(f"{_at(9)} new\n{_at(10)} not ye")
    (two / "rank-2.log").write_text(f"{_at(8)} other\n")
    assert [(line.rank, line.text, line.number) for line in tailing.look()] == [(2, "other", 1), (0, "new", 3)]
    with (two / "rank-0.log").open("a") as handle:
        handle.write("t\n")
    (two / "rank-1.log").rename(two / "old.log.1")
    (two / "rank-1.log").write_text(f"{_at(11)} after\n")
    assert [line.text for line in tailing.look()] == ["not yet", "after"]


def test_following_begins_near_the_end(tmp_path: Path) -> None:
    """Of a long log the last lines, whole ones; with a time the whole of it is looked through."""
    text = "".join(f"{_at(second)} line {second}\n" for second in range(3000))
    folder = _write(tmp_path / "l", rank__0_dot_log=text)
    lines = list(LogTail(lambda: of_paths([folder]), LineFilter()).look())
    assert (lines[-1].text, len(lines) < 500, lines[0].text.startswith("line "), lines[0].number) == (
        "line 2999",
        True,
        True,
        0,
    )
    lines = list(LogTail(lambda: of_paths([folder]), LineFilter(start=DAY + 10), from_start=True).look())
    assert (lines[0].text, lines[0].number) == ("line 10", 11)
