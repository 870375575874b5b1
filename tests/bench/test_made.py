"""The pure parts of the made-up measurements: texts by release, layouts, and how an answer is judged."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from bench import incidents, undiagnosable
from bench.made import (
    ABORT,
    KILL,
    LAYOUTS,
    RELEASES,
    Script,
    Work,
    begin,
    elastic_end,
    laid_out,
    make_site,
    remote_closed,
    srun_end,
    trace,
    watchdog,
    write_job,
)
from connectors.bundles.description import read_job


def site(torch=(2, 6), framework="pytorch-ddp"):
    """Two nodes of four ranks."""
    return make_site(Random(4), 2, 4, framework, torch)


def suspect(**told):
    """A suspect as a report has it."""
    return SimpleNamespace(**{"kind": "rank", "rank": None, "node": None, "score": 1.0} | told)


def report(*suspects):
    """A report with one diagnosis."""
    return SimpleNamespace(diagnoses=(SimpleNamespace(suspects=suspects),))


def test_a_site_counts_its_ranks_node_by_node():
    """Ranks fill the nodes in order, and know their number within them."""
    here = site()
    assert here.world == 8
    assert here.node(5) == here.nodes[1]
    assert here.local(5) == 1
    assert here.ranks(here.nodes[1]) == (4, 5, 6, 7)


def test_clocks_differ_by_at_most_two_seconds():
    """Two nodes never disagree more than the incidents promise."""
    for seed in range(30):
        skews = make_site(Random(seed), 8, 2, "hf").skew.values()
        assert 0 < max(skews) - min(skews) <= 2


@pytest.mark.parametrize("release", [item for item, _ in RELEASES])
def test_a_watchdog_names_its_rank_and_ends_the_process(release):
    """Every release reports the rank and the timeout, and aborts."""
    text = watchdog(site(release), 3, 1.7e9, Work(41))
    assert "[Rank 3] Watchdog caught collective operation timeout" in text
    assert "terminate called after throwing" in text
    assert ("SeqNum=41" in text) == (release >= (2, 0))


@pytest.mark.parametrize("release", [item for item, _ in RELEASES])
def test_only_newer_releases_say_where_the_rank_stands_and_prefix_it(release):
    """Before 2.3 there is neither a rank prefix nor the last work."""
    text = watchdog(site(release), 3, 1.7e9, Work(41, enqueued=2))
    assert text.startswith("[rank3]:[E") == (release >= (2, 3))
    assert ("last enqueued" in text) == (release >= (2, 3))
    assert ("43" in text and "completed" in text and "40" in text) == (release >= (2, 3))


def test_a_traceback_has_the_prefix_only_where_a_group_is_up():
    """A rank that dies before it joins has nothing to prefix with."""
    assert trace(site(), 2, [], "ValueError: x").endswith("[rank2]: ValueError: x")
    assert trace(site(), 2, [], "ValueError: x", joined=False).endswith("\nValueError: x")
    assert "[rank2]" not in trace(site((1, 13)), 2, [], "ValueError: x")


def test_a_lost_peer_is_a_system_error_before_torch_2():
    """The old releases of NCCL had no word for a remote error."""
    assert "ncclSystemError" in remote_closed(site((1, 13)), 1, 1.7e9, 2)
    assert "ncclRemoteError" in remote_closed(site((2, 4)), 1, 1.7e9, 2)


def test_the_launchers_block_names_the_first_failure_as_root_cause():
    """The first failure is under Root Cause, the rest under Failures; surviving ranks get SIGTERM."""
    here = site()
    text = elastic_end(here, here.nodes[1], 1.7e9, [(6, -ABORT), (5, -KILL)])
    failures, root = text.split("Root Cause (first observed failure):")
    assert "rank      : 6 (local_rank: 2)" in root
    assert "rank      : 5 (local_rank: 1)" in failures
    assert f"Sending process {here.pids[4]} closing signal SIGTERM" in failures
    assert f"Sending process {here.pids[5]} closing" not in failures


def test_srun_cancels_the_step_after_the_first_bad_exit():
    """The first task comes before the cancel, the others after it."""
    lines = srun_end(site(), 1.7e9, [(3, 1), (0, -ABORT)]).split("\n")
    assert "task 3: Exited with exit code 1" in lines[0]
    assert "CANCELLED AT" in lines[2]
    assert lines[3].endswith("task 0: Aborted (core dumped)")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_keeps_every_line_once(layout):
    """Nothing is lost or doubled, however blocks are interleaved."""
    here = site()
    script, at = begin(here, Random(1), 3)
    script.say(at, 5, "first of five\nsecond of five")
    script.say(at, f"agent {here.nodes[1]}", "the agent")
    lines = "".join(laid_out(here, script, layout, Random(2)).values()).splitlines()
    assert len(lines) == sum(item.text.count("\n") + 1 for item in script.said)
    assert sum(line.endswith("second of five") for line in lines) == 1


def test_ranks_have_files_of_their_own_or_a_prefix():
    """Every layout identifies the writing rank, except pdsh's, which identifies the node."""
    here, script = replace(site(), job=11), Script()
    script.say(5.0, 5, "words")
    place = {layout: next(iter(laid_out(here, script, layout, Random(2)).items())) for layout in LAYOUTS}
    assert place["ranks"] == ("rank-5.log", "words\n")
    assert place["merged"][1] == "[rank5]:words\n"
    assert place["nodes"] == (f"{here.nodes[1]}.log", "[default1]:words\n")
    assert place["pdsh"][1] == f"{here.nodes[1]}: words\n"
    assert place["tree"][0].endswith("attempt_0/1/stderr.log")


def test_the_job_file_can_be_read_back(tmp_path):
    """The bundle's reader finds the nodes and their ranks in it."""
    here = site()
    write_job(tmp_path, here, here.start + 60)
    job, gaps = read_job(tmp_path)
    assert gaps == ()
    assert job.nodes[here.nodes[0]] == (0, 1, 2, 3)
    assert job.end == here.start + 60


def test_the_same_seed_makes_the_same_incident(tmp_path):
    """Two makings agree byte for byte, and another seed differs."""
    kept = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        incidents.make("ecc", 7, seed, tmp_path / name)
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        kept.append([(str(path.relative_to(tmp_path / name)), path.read_bytes()) for path in files])
    assert kept[0] == kept[1]
    assert kept[0] != kept[2]


def test_there_are_sixty_incidents_and_forty_cases():
    """The plans have the sizes that the figures are asked for."""
    assert len(incidents.plan()) == incidents.COUNT
    assert len(undiagnosable.plan()) == undiagnosable.COUNT
    assert set(undiagnosable.plan()) == set(undiagnosable.ENDINGS)
    assert len(incidents.GIVES) == len(incidents.LIVE)
    assert set(incidents.GIVES) <= set(incidents.KINDS)


def test_a_suspect_is_right_by_rank_or_else_by_node():
    """A wrong rank is wrong even on the right node; without a rank the node counts."""
    truth = incidents.Truth("cuda_oom", (), (5,), ("b",), ("10.0.0.2",))
    assert incidents.placed(truth, report(suspect(rank=5)))
    assert not incidents.placed(truth, report(suspect(rank=4, node="b")))
    assert incidents.placed(truth, report(suspect(kind="node", node="b")))
    assert incidents.placed(truth, report(suspect(kind="node", node="10.0.0.2")))
    assert not incidents.placed(truth, report(suspect(kind="node", node="a"), suspect(rank=5)))
    assert not incidents.placed(truth, report(suspect(kind="job")))
    assert not incidents.placed(truth, report())


def test_where_all_are_alike_no_one_is_to_be_singled_out():
    """Naming the job, no suspect, or several with the same score is right; naming a single one is not."""
    truth = incidents.Truth("config_error")
    none: Any = SimpleNamespace(diagnoses=())
    assert incidents.placed(truth, report(suspect(kind="job")))
    assert incidents.placed(truth, report())
    assert incidents.placed(truth, report(suspect(rank=1), suspect(rank=2)))
    assert not incidents.placed(truth, report(suspect(rank=1), suspect(rank=2, score=0.5)))
    assert not incidents.placed(truth, none)


@pytest.mark.parametrize(
    ("verdict", "fault", "band", "quiet", "how"),
    [
        ("no_match", None, "", False, "abstained"),
        ("no_fault", None, "", True, "nothing_wrong"),
        ("no_fault", None, "", False, "called_healthy"),
        ("fault", "killed", "possible", False, "symptom"),
        ("fault", "cuda_oom", "weak", False, "weak"),
        ("fault", "cuda_oom", "possible", True, "wrong"),
    ],
)
def test_an_answer_to_an_undiagnosable_case_is_sorted(verdict, fault, band, quiet, how):
    """A confident cause is wrong, a symptom or a weak guess is not, and healthy only where nothing is wrong."""
    best = SimpleNamespace(fault=fault, band=band, rule="r", confidence=0.5, evidence=())
    told: Any = SimpleNamespace(verdict=verdict, diagnoses=(best,) if fault else ())
    assert undiagnosable.answered("case", told, {"killed"}, quiet=quiet).how == how
