"""Finding log files and reading them: names, kinds, packed files, and everything that can be wrong with a file."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import resource
import tracemalloc
import zlib
from functools import partial
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.base.filenames import name_hints
from connectors.bundles import streams
from connectors.bundles.streams import StreamReader, discover, is_plain
from kb.errors import UnreadableInput
from kb.model import StreamRef

LINES = b"".join(b"step %d of 9000, loss %.3f, host delta-%d\n" % (i, 9 / (i + 1), i % 7) for i in range(9000))


def found(*paths, bundle=False):
    """Names of the streams, and code and reason by source of the gaps."""
    result = discover(paths, bundle=bundle)
    return [Path(ref.uri).name for ref in result.streams], {Path(g.source).name: g for g in result.gaps}


def test_a_name_that_was_written_twice_is_one_name() -> None:
    """Tools put the name of the node before that of a file which has it already; two nodes are two."""
    named = {
        name: name_hints(StreamRef(name), name).resource.node for name in ("node-1_node-1_stderr.log", "node-1.log")
    }
    assert set(named.values()) == {"node-1"}
    assert name_hints(StreamRef("x"), "node-1_node-2.log").resource.node != "node-1_node-1"


def read(path, **options):
    """All bytes of a file and the codes of what went wrong."""
    reading = StreamReader(StreamRef(str(path)), **options)
    text = b"".join(reading)
    return text, [gap.code for gap in reading.gaps]


def zst(data):
    """The data as a frame of zstandard."""
    return zstandard.ZstdCompressor(level=3).compress(data)


PACKERS = {"gz": gzip.compress, "bz2": partial(bz2.compress, compresslevel=1), "xz": lzma.compress, "zst": zst}


# Which files there are


def test_files_are_listed_in_the_order_of_their_numbers(tmp_path):
    """Rank 10 comes after rank 9, whatever the order on disk."""
    for rank in (10, 9, 1):
        (tmp_path / f"rank-{rank}.log").write_text("x\n")

    names, gaps = found(tmp_path)

    assert names == ["rank-1.log", "rank-9.log", "rank-10.log"]
    assert gaps == {}


def test_hidden_files_and_files_of_other_kinds_are_passed_over(tmp_path):
    """Checkpoints, pictures and hidden files are not logs, and cause no gap."""
    for name in (".swp", "model.safetensors", "plot.png", "job.yaml", "a.log"):
        (tmp_path / name).write_text("x\n")

    assert found(tmp_path) == (["a.log"], {})


@pytest.mark.parametrize(
    ("head", "what"),
    [(b"PK\x03\x04", "a zip archive"), (b"\x04\x22\x4d\x18", "compressed by lz4"), (b"\x00\x01", "not text")],
)
def test_other_compressed_files_are_refused_with_those_that_are_read(tmp_path, head, what):
    """Whoever packed a log learns how to pack it."""
    (tmp_path / "a.log").write_bytes(head + bytes(range(256)))

    names, gaps = found(tmp_path / "a.log")

    assert names == []
    assert gaps["a.log"].reason == f"{what}; not read. Of compressed files, gzip, bzip2, xz and zstandard are read"


def test_an_archive_is_named_as_not_read(tmp_path):
    """Logs can be in a tar or zip; a gap says that they were not read."""
    (tmp_path / "logs.tgz").write_bytes(gzip.compress(b"x"))

    names, gaps = found(tmp_path)

    assert names == []
    assert gaps["logs.tgz"].code == "archive"


def test_parts_of_a_bundle_that_are_no_logs_are_named(tmp_path):
    """A baseline is not scanned, with a gap; metrics are not logs and are read elsewhere."""
    for name in ("metrics", "baseline", "logs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.log").write_text("x\n")

    names, gaps = found(tmp_path, bundle=True)

    assert names == ["a.log"]
    assert gaps["baseline"].code == "not_compared"
    assert "--deep" in gaps["baseline"].reason
    assert "metrics" not in gaps
    assert len(discover([tmp_path]).streams) == 3


@pytest.mark.parametrize("name", ["²", "٣.log", "a" * 200, "٣²3", "x\ty\nz", "\udcff.log", "-rf", "$(id)"])
def test_any_file_name_can_be_listed(tmp_path, name):
    """Odd digits, control characters and bytes that are not UTF-8 are valid names."""
    (tmp_path / name).write_text("x\n")
    (tmp_path / "2").write_text("x\n")

    assert sorted(found(tmp_path)[0]) == sorted([name, "2"])


def test_no_such_path_is_an_error(tmp_path):
    """A path that was named by the user must exist."""
    with pytest.raises(UnreadableInput, match="no such file"):
        discover([tmp_path / "gone.log"])


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b"])
def test_an_impossible_path_is_an_error_of_ours(name):
    """A name that the system refuses is reported like a missing one."""
    with pytest.raises(UnreadableInput, match=r"cannot be read|no such"):
        discover([Path(name)])


def test_a_loop_of_links_is_walked_once(tmp_path):
    """A folder that contains itself by a link is read once."""
    (tmp_path / "a.log").write_text("x\n")
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "itself").symlink_to("itself")

    names, gaps = found(tmp_path)

    assert names == ["a.log"]
    assert {name: gap.code for name, gap in gaps.items()} == {"again": "folder_loop", "itself": "unreadable"}


def test_a_file_under_two_names_is_read_once(tmp_path):
    """`latest.log` next to the file that it links to must not count everything twice."""
    (tmp_path / "a.log").write_text("x\n")
    (tmp_path / "latest.log").symlink_to("a.log")

    names, gaps = found(tmp_path)

    assert names == ["a.log"]
    assert (gaps["latest.log"].code, gaps["latest.log"].reason) == ("same_file", "same file as a.log; read once")
    assert found(tmp_path / "a.log", tmp_path / "a.log")[0] == ["a.log"]


def test_folders_are_walked_to_a_depth_only(tmp_path, monkeypatch):
    """A tree without end ends in a gap."""
    monkeypatch.setattr(streams, "DEEPEST", 3)
    deep = tmp_path.joinpath(*"abcde")
    deep.mkdir(parents=True)
    (deep / "x.log").write_text("x\n")
    (tmp_path / "a" / "y.log").write_text("x\n")

    names, gaps = found(tmp_path)

    assert names == ["y.log"]
    assert gaps["c"].code == "too_deep"


def test_so_many_files_and_no_more(tmp_path, monkeypatch):
    """Of a folder with too many files the first ones are read, with a gap."""
    monkeypatch.setattr(streams, "MOST_FILES", 3)
    for index in range(5):
        (tmp_path / f"{index}.log").write_text("x\n")

    names, gaps = found(tmp_path)

    assert names == ["0.log", "1.log", "2.log"]
    assert gaps[tmp_path.name].code == "too_many_files"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "empty"),
        (bytes(range(32)) * 100, "binary"),
        (b"\x7fELF\x02\x01\x01" + bytes(range(8)) * 400, "binary"),
        ("step 1\r\n".encode("utf-16"), "binary"),
        (b"\0" * 5000, "binary"),
    ],
)
def test_what_is_no_text_is_a_gap(tmp_path, content, code):
    """Empty and binary files are named, not scanned."""
    (tmp_path / "a.log").write_bytes(content)

    names, gaps = found(tmp_path)

    assert names == []
    assert gaps["a.log"].code == code


@pytest.mark.parametrize(
    "content",
    [
        b"ValueError: \xff\xfe\xc3( is no UTF-8\n",
        b"step 311 of 9000, loss 1.0\0\0\0 grad norm 2.0\n",
        b"\0" * 100_000 + b"step 7\n" * 2000,  # cut by a log rotation while the writer went on
        (b"\rstep 7 of 200" + b"\0" * 40) * 300,  # two programs write one file
        "Fehler: Gerät nicht verfügbar\n".encode("latin-1"),
        b"\x1b[31mRuntimeError\x1b[0m\r\n",
        b"x",
    ],
)
def test_odd_text_is_text(tmp_path, content):
    """Wrong encodings, NUL bytes, holes and colours do not make a log unreadable."""
    (tmp_path / "a.log").write_bytes(content)

    assert found(tmp_path) == (["a.log"], {})
    assert read(tmp_path / "a.log") == (content, [])


def test_a_pipe_is_not_waited_for(tmp_path):
    """A FIFO without a writer would be waited for without end."""
    os.mkfifo(tmp_path / "a.log")

    names, gaps = found(tmp_path)

    assert names == []
    assert (gaps["a.log"].code, gaps["a.log"].reason) == ("not_a_file", "a pipe, not a regular file; not read")
    assert discover([Path("/dev/null")]).gaps[0].reason == "a device, not a regular file; not read"


def test_a_file_that_vanishes_while_folders_are_read_is_a_gap(tmp_path):
    """A link to nowhere, as a file that was removed meanwhile, is a gap."""
    (tmp_path / "a.log").symlink_to(tmp_path / "gone")

    names, gaps = found(tmp_path)

    assert names == []
    assert (gaps["a.log"].code, gaps["a.log"].reason) == ("unreadable", "cannot be read: No such file or directory")


# Whose they are


@pytest.mark.parametrize(
    ("name", "rank", "node", "kind"),
    [
        ("rank-12.log", 12, None, "job"),
        ("logs/Rank_3.err", 3, None, "job"),
        ("global_rank7.out", 7, None, "job"),
        ("node-b-rank-4.log", 4, "node-b", "job"),
        ("worker-5/rank_5.log.gz", 5, "worker-5", "job"),
        ("dmesg-node3.log", None, "node3", "kernel"),
        ("node-c/kern.log.1", None, "node-c", "kernel"),
        ("slurmctld.log", None, None, "scheduler"),
        ("node-a.nhc.log", None, "node-a", "health"),
        ("team-b-13b-worker-6.log", None, "team-b-13b-worker-6", "job"),
        ("dgx-a100-014.log", None, "dgx-a100-014", "job"),
        ("dgx-a100-014-dmesg.log", None, "dgx-a100-014", "kernel"),
        ("ip-10-4-43-203.log.gz", None, "ip-10-4-43-203", "job"),
        ("10.4.43.203.log", None, "10.4.43.203", "job"),
        ("nvidia-smi-ip-10-4-43-203.log", None, "ip-10-4-43-203", "health"),
        ("gpu-c07.dmesg.txt", None, "gpu-c07", "kernel"),
        ("journal-team-b-worker-3.log", None, "team-b-worker-3", "kernel"),
        ("dmesg-r12u07.txt", None, "r12u07", "kernel"),
        ("node7.hpc.example.org.log", None, "node7.hpc.example.org", "job"),
        ("torchrun/ip-10-4-1-203/run_77/attempt_0/3/stderr.log", None, "ip-10-4-1-203", "job"),
        ("gpu-c07/dmesg.log", None, "gpu-c07", "kernel"),
        ("dmesg.log", None, None, "kernel"),
        ("dmesg-xid79.log", None, None, "kernel"),
        ("dmesg-2027-02-09.log", None, None, "kernel"),
        ("slurmstepd-node-a.log", None, "node-a", "job"),
        ("node-a.slurmd.log", None, "node-a", "scheduler"),
        ("llama-worker-0-x7k2p.log", None, "llama-worker-0-x7k2p", "job"),
        ("health-report2.log", None, None, "health"),
        ("dcgmi-diag1.log", None, None, "health"),
        ("nvidia-smi.log", None, None, "health"),
        ("job-master.log", None, None, "job"),
        ("node_exporter.log", None, None, "job"),
        ("nodes.log", None, None, "job"),
        ("gpu0.log", None, None, "job"),
        ("run-7/slurm-4411.out", None, None, "job"),
        ("ranking.log", None, None, "job"),
        ("frankfurt.log", None, None, "job"),
    ],
)
def test_names_tell_who_wrote(name, rank, node, kind):
    """Names contain rank, node and kind of source."""
    ref = name_hints(StreamRef(name), name)

    assert (ref.resource.rank, ref.resource.node, ref.kind) == (rank, node, kind)


def test_of_one_agent_the_local_rank_is_the_rank(tmp_path):
    """In a torchrun tree with one agent, local rank 3 is rank 3; with two agents the rank is unknown."""
    for agent in ("none_x1", "none_x2"):
        folder = tmp_path / agent / "attempt_0" / "3"
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text("x\n")

    one = discover([tmp_path / "none_x1"]).streams[0].resource
    two = discover([tmp_path]).streams[0].resource

    assert (one.rank, one.local_rank) == (3, 3)
    assert (two.rank, two.local_rank) == (None, 3)


@pytest.mark.parametrize(
    "name",
    [
        "paddle/log/workerlog.3",
        "workerlog.3.log",
        "msrun_log/worker_3.log",
        "logs/node_0_local_rank_3_stdout",
        "train_local_rank_3.log",
    ],
)
def test_files_named_by_a_local_rank(name, tmp_path):
    """Launchers name the files of a node's processes so. On one node, the local rank is the rank."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x\n")

    found = discover([tmp_path]).streams[0].resource

    assert (found.rank, found.local_rank) == (3, 3)


def test_a_local_rank_of_two_nodes_is_no_rank(tmp_path):
    """Each node has a local rank 1."""
    for node in (0, 1):
        (tmp_path / f"node_{node}_local_rank_1_stderr").write_text("x\n")

    assert [(ref.resource.rank, ref.resource.local_rank) for ref in discover([tmp_path]).streams] == [(None, 1)] * 2


def test_only_the_last_attempt_is_read(tmp_path):
    """Earlier attempts of the same launch are another story."""
    for attempt in (0, 1, 10):
        folder = tmp_path / f"attempt_{attempt}" / "0"
        folder.mkdir(parents=True)
        (folder / "stdout.log").write_text("x\n")

    result = discover([tmp_path])

    assert [ref.uri for ref in result.streams] == [str(tmp_path / "attempt_10/0/stdout.log")]
    assert [gap.code for gap in result.gaps] == ["earlier_attempt", "earlier_attempt"]


# Reading


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("block", [100, 1 << 20])
def test_packed_files_read_as_their_text(tmp_path, suffix, block):
    """gzip, xz and zstandard are recognised by their bytes, not by their names."""
    path = tmp_path / "a.log"
    path.write_bytes(PACKERS[suffix](LINES))

    assert read(path, block=block) == (LINES, [])
    assert not is_plain(StreamRef(str(path)))


@pytest.mark.parametrize("suffix", PACKERS)
def test_several_packed_members_are_one_text(tmp_path, suffix):
    """Log rotation appends members; some tools put zeros between them."""
    pack = PACKERS[suffix]
    path = tmp_path / "a.log"
    path.write_bytes(pack(LINES) + pack(b"") + bytes(8) + pack(b"the end\n") + bytes(70_000))

    assert read(path) == (LINES + b"the end\n", [])


@pytest.mark.quick("gz", "bz2", "zst")
@pytest.mark.parametrize("suffix", PACKERS)
def test_a_cut_packed_file_gives_what_it_has(tmp_path, suffix):
    """The text before the break is read, to its last line, and the break is a gap."""
    path = tmp_path / "a.log"
    noisy = b"".join(b"%d %s\n" % (i, zlib.crc32(b"%d" % i).to_bytes(4, "big").hex().encode()) for i in range(60_000))
    packed = PACKERS[suffix](noisy)
    path.write_bytes(packed[: len(packed) * 3 // 4])

    text, codes = read(path)

    assert codes == ["broken_compression"]
    assert noisy.startswith(text)
    assert len(text) > len(noisy) // 2


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("keep", [6, 10, 15])
def test_a_packed_file_of_a_few_bytes_is_a_gap(tmp_path, suffix, keep):
    """A header alone has no text and raises no exception."""
    path = tmp_path / "a.log"
    path.write_bytes(PACKERS[suffix](LINES)[:keep])

    assert read(path) == (b"", ["broken_compression"])


@pytest.mark.parametrize("suffix", PACKERS)
def test_something_else_behind_packed_data_is_reported(tmp_path, suffix):
    """Text appended to a packed file is not read; the packed part is."""
    path = tmp_path / "a.log"
    path.write_bytes(PACKERS[suffix](LINES) + b"plain text behind it\n")

    assert read(path) == (LINES, ["broken_compression"])


@pytest.mark.parametrize("suffix", PACKERS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_is_a_gap_or_harmless(tmp_path, suffix, data):
    """Whatever byte of a packed file is wrong, reading ends without an exception."""
    packed = bytearray(PACKERS[suffix](LINES[:20_000]))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path / "a.log"
    path.write_bytes(packed)

    text, codes = read(path)

    assert codes in ([], ["broken_compression"])
    assert len(text) <= 64 << 20


def test_frames_to_skip_are_skipped(tmp_path):
    """Pzstd puts a skippable frame in front of each part."""
    path = tmp_path / "a.zst"
    path.write_bytes(b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + zst(b"one\n") + b"\x5f\x2a\x4d\x18\x01\0\0\0x" + zst(b"two\n"))

    assert read(path) == (b"one\ntwo\n", [])


def test_xz_that_asks_for_much_memory_is_refused(tmp_path):
    """A dictionary of 1 GB would be taken from the memory of whoever diagnoses."""
    path = tmp_path / "a.xz"
    packed = bytearray(lzma.compress(b"x" * 100))
    at = packed.index(b"\x21\x01") + 2  # the size of LZMA2's dictionary, in the header of the first block
    packed[at] = 37
    head = packed[12 : 12 + (packed[12] + 1) * 4 - 4]
    packed[12 + len(head) : 16 + len(head)] = zlib.crc32(head).to_bytes(4, "little")
    path.write_bytes(packed)

    reading = StreamReader(StreamRef(str(path)))

    assert b"".join(reading) == b""
    assert re.search("[Mm]emory", reading.gaps[0].reason)


@pytest.mark.quick("gz", "zst")
@pytest.mark.parametrize("suffix", PACKERS)
def test_a_bomb_is_stopped(tmp_path, monkeypatch, suffix):
    """A file that unpacks to far more than logs do is read up to a limit, with a gap."""
    monkeypatch.setattr(streams, "BOMB_OUTPUT", 8 << 20)
    path = tmp_path / "a.log"
    path.write_bytes(PACKERS[suffix](b"\0" * (64 << 20)))

    text, codes = read(path, block=1 << 20)

    assert codes == ["expands_too_much"]
    assert len(text) <= max(9 << 20, 300 * path.stat().st_size + (1 << 20)) or suffix == "zst"


def test_much_text_from_a_large_file_is_no_bomb(tmp_path, monkeypatch):
    """Beyond the first bound only what expands beyond any log's ratio is stopped."""
    monkeypatch.setattr(streams, "BOMB_OUTPUT", 1000)
    path = tmp_path / "a.log"
    path.write_bytes(gzip.compress(LINES))

    assert read(path, block=1000) == (LINES, [])


def test_a_bomb_does_not_fill_the_memory(tmp_path):
    """Reading a quarter of a gigabyte that was packed into 8 kB holds a block, and of zstandard a piece, at a time."""
    path = tmp_path / "a.zst"
    path.write_bytes(zst(b"\0" * (256 << 20)))
    tracemalloc.start()
    try:
        total = sum(len(block) for block in StreamReader(StreamRef(str(path))))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert total == 256 << 20
    assert most < 200 << 20


@pytest.mark.slow  # test_a_bomb_does_not_fill_the_memory
def test_a_gigabyte_from_a_small_file_in_bounded_memory(tmp_path):
    """The real bound: a bomb of over 1 GiB is stopped there, in a few blocks of memory."""
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(bytes(64 << 20)) * 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    reading = StreamReader(StreamRef(str(path)))
    total = sum(len(block) for block in reading)

    assert total <= (1 << 30) + (4 << 20)
    assert [gap.code for gap in reading.gaps] == ["expands_too_much"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


def test_empty_members_without_end_end(tmp_path):
    """A file of thousands of empty members is read in a time that grows with its length."""
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"", mtime=0) * 50_000 + gzip.compress(b"x\n"))

    assert read(path) == (b"x\n", [])


def test_a_part_of_a_file_is_read_from_start_to_stop(tmp_path):
    """A shard is the bytes between two offsets, in blocks."""
    path = tmp_path / "a.log"
    path.write_bytes(LINES)

    blocks = list(StreamReader(StreamRef(str(path)), start=10, stop=2500, block=1000))

    assert b"".join(blocks) == LINES[10:2500]
    assert [len(block) for block in blocks] == [1000, 1000, 490]


def test_a_file_that_grows_is_read_to_where_it_was(tmp_path):
    """Data written after a file was found is not read, with a gap."""
    path = tmp_path / "a.log"
    path.write_bytes(LINES)
    ref = discover([path]).streams[0]
    with path.open("ab") as handle:
        handle.write(b"more\n")

    reading = StreamReader(ref)

    assert b"".join(reading) == LINES
    assert [gap.code for gap in reading.gaps] == ["growing"]


def test_a_file_that_grows_between_two_blocks_is_said_to(tmp_path):
    """Growth in the middle of reading changes nothing but the gap."""
    path = tmp_path / "a.log"
    path.write_bytes(LINES)
    reading = StreamReader(StreamRef(str(path)), block=1000)
    blocks = iter(reading)
    text = next(blocks)
    with path.open("ab") as handle:
        handle.write(b"more\n")

    assert text + b"".join(blocks) == LINES
    assert [gap.code for gap in reading.gaps] == ["growing"]


@pytest.mark.parametrize("start", [0, 200_000])
def test_a_file_that_shrinks_is_read_to_where_it_ends(tmp_path, start):
    """A file cut after it was found gives what it still has, in every one of its shards."""
    path = tmp_path / "a.log"
    path.write_bytes(LINES)
    ref = discover([path]).streams[0]
    os.truncate(path, 1000)

    reading = StreamReader(ref, start=start)

    assert b"".join(reading) == LINES[start:1000]
    assert [gap.code for gap in reading.gaps] == ["shrunk"]


def test_a_file_that_is_gone_is_a_gap(tmp_path):
    """A file removed after it was found is a gap, not an exception."""
    assert read(tmp_path / "gone.log") == (b"", ["unreadable"])
    assert is_plain(StreamRef(str(tmp_path / "gone.log")))


def test_a_link_out_of_a_bundle_is_not_followed(tmp_path):
    """A bundle from somebody else cannot make the reader open files around it; links within it are read."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.log").write_text("x\n")
    logs = tmp_path / "bundle" / "logs"
    logs.mkdir(parents=True)
    (logs / "a.log").write_text("y\n")
    (logs / "out.log").symlink_to(tmp_path / "outside" / "secret.log")
    (logs / "folder").symlink_to(tmp_path / "outside")

    found = discover([tmp_path / "bundle"], bundle=True)

    assert [Path(ref.uri).name for ref in found.streams] == ["a.log"]
    assert {gap.code for gap in found.gaps} == {"refused_link"}


def test_a_part_of_a_bundle_stays_within_the_bundle(tmp_path):
    """The logs of a good run may be elsewhere in the bundle, and nowhere else; outside of bundles links are followed."""
    bundle, other = tmp_path / "bundle", tmp_path / "other"
    (bundle / "baseline").mkdir(parents=True)
    other.mkdir()
    (other / "out.log").write_text("out\n")
    (bundle / "in.log").write_text("in\n")
    (bundle / "baseline/out.log").symlink_to(other / "out.log")
    (bundle / "baseline/in.log").symlink_to(bundle / "in.log")

    kept, free = discover([bundle / "baseline"], within=bundle), discover([bundle / "baseline"])

    assert [Path(ref.uri).name for ref in kept.streams] == ["in.log"]
    assert [gap.code for gap in kept.gaps] == ["refused_link"]
    assert [Path(ref.uri).name for ref in free.streams] == ["in.log", "out.log"]
