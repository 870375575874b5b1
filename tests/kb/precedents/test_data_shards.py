"""Which parts of the data a run was at when it ended."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from kb.facts.evidence import Evidence
from kb.precedents.data_shards import in_common, named, shards_of
from kb.report import Indicator, Indicators, Report, Versions
from kb.scanning.summary import StreamSummary
from tests.support.kb_samples import ref

REPORT = Report("", "", "no_match", "failed", "", Versions("1", "1", "", "1"))


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("opening /data/train/shard-00012.tar ...", ["shard-00012.tar"]),
        ("reading s3://b/part-00003-of-00128.parquet: bad magic", ["part-00003-of-00128.parquet"]),
        ("dataset file=wiki_007.jsonl.zst, offset 12", ["wiki_007.jsonl.zst"]),
        ("rank 3 moves on to shard 0017", ["shard 17"]),
        ("data chunk id=4 is empty", ["data chunk 4"]),
        ("saving pytorch_model-00001-of-00004.bin", []),
        ("wrote global_step100/mp_rank_00_model_states.npz", []),
        ("loss 2.31 at step 100", []),
        ("train_text_document.bin", []),
        ("see rank-7.log.txt", []),
    ],
)
def test_names_of_parts_of_the_data(line: str, names: list[str]) -> None:
    """Files of data with a number in their name, and numbered shards; not what a run writes."""
    assert named(line) == names


def test_where_logs_walk_through_the_data_the_last_part_is_where_it_ended() -> None:
    """A file that is named only once can be any file: its name alone is no evidence."""
    walk = "".join(f"opening shard-{n:05}.tar\n" for n in range(12, 15))
    logs = [
        StreamSummary(ref("logs/0.log"), tail=walk),
        StreamSummary(ref("logs/1.log"), tail="opening only-01.tar\n"),
        StreamSummary(ref("dmesg", kind="kernel"), tail=walk.replace("shard", "other")),
    ]
    assert shards_of(REPORT, Evidence(streams=tuple(logs))) == ("shard-00014.tar",)


def test_what_the_deciding_lines_name_comes_first() -> None:
    """They need no walk: they say at what it failed."""
    told = replace(REPORT, indicators=Indicators(events=(Indicator("cannot parse part-00007.parquet", ""),)))
    logs = StreamSummary(ref("logs/0.log"), tail="shard 1\nshard 2\n")
    assert shards_of(told, Evidence(streams=(logs,))) == ("part-00007.parquet", "shard 2")


def test_what_all_have_in_common() -> None:
    """In the order of the first."""
    assert in_common([("c", "a", "b"), ("b", "c"), ("x", "c", "b")]) == ("c", "b")
    assert in_common([("a",), ()]) == ()
    assert in_common([]) == ()


def test_a_hostile_line_takes_no_time() -> None:
    """Digits and dots without end, which some expressions try in every way."""
    begun = time.process_time()
    for line in ("1." * 50_000, "1" * 100_000, "shard" * 20_000, "a1.tar" * 10_000):
        named(line)
    assert time.process_time() - begun < 2.0
