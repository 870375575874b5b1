"""The L4-like set: what it holds, that it is the same each time, and how predictions are scored."""

from __future__ import annotations

import hashlib
import json
from collections import Counter

import pytest

from bench.l4set.build import HASH, build, source_hash
from bench.l4set.plan import LEVEL_SHARES, RECORDED_LEVELS, SYMPTOMS, plan
from bench.l4set.recorded import CARRIERS
from bench.l4set.score import MEASURES, Malformed, Prediction, Tally, read_predictions, render, score, tally
from bench.l4set.words import fill, logged

SEED = 20261122
TRUTH = {
    "symptom": "crash",
    "node_count": 8,
    "nodes": ["b"],
    "stage": "saving",
    "iteration": 100,
    "events": [
        {"kind": "line", "lines": [["logs/b.log", 10], ["logs/b.log", 12]]},
        {"kind": "absence", "lines": [["logs/c.log", 50]]},
    ],
    "neutral": {"logs/b.log": [[13, 20]]},
    "cascade": {"logs/a.log": [[5, 9]]},
}
HEALTHY = {
    "symptom": "healthy",
    "nodes": [],
    "stage": None,
    "iteration": None,
    "events": [],
    "neutral": {},
    "cascade": {},
}


def _digest(folder):
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return found.hexdigest()


def _line(folder, file, number):
    return (folder / file).read_bytes().decode().split("\n")[number - 1]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Three failures and a healthy pair, and where they lie."""
    out = tmp_path_factory.mktemp("l4set")
    return out, build(out, SEED, cases=3, healthy=1)


def test_the_sources_are_those_that_the_hash_tells():
    """A change of the generator is a change of HASH, so that figures on another set are not taken for the same."""
    assert HASH.read_text("utf-8").strip() == source_hash()


@pytest.mark.slow  # test_true_lines_exist_in_the_logs_that_a_reader_gets
def test_the_same_seed_gives_the_same_bytes(built, tmp_path):
    """A second build has each byte of the first, the truth included; another seed has others."""
    out, truth = built

    assert build(tmp_path / "again", SEED, cases=3, healthy=1) == truth
    assert _digest(tmp_path / "again") == _digest(out)
    assert build(tmp_path / "other", 7, cases=1, healthy=0)["cases"] != truth["cases"]


def test_true_lines_exist_in_the_logs_that_a_reader_gets(built):
    """Every decisive line has words in the bundle's logs, and faulty nodes are nodes of the job."""
    out, truth = built
    for name, case in truth["cases"].items():
        folder = out / "cases" / name
        job = (folder / "job.yaml").read_text("utf-8")
        assert all(f"{node}:" in job for node in case["nodes"])
        assert all(_line(folder, file, number).strip() for event in case["events"] for file, number in event["lines"])


def test_the_truth_lies_outside_of_the_bundles(built):
    """A bundle holds logs, the twin's logs and descriptions, nothing else; names do not tell failures from healthy pairs."""
    out, truth = built
    assert {path.name for name in truth["cases"] for path in (out / "cases" / name).iterdir()} == {
        "logs",
        "baseline",
        "job.yaml",
        "bundle.yaml",
    }
    assert sorted(truth["cases"]) == [f"case-{number:04d}" for number in range(1, 5)]


def test_the_plan_holds_the_shares_of_symptoms_and_levels():
    """100 failures have the paper's symptoms exactly, and the levels of its decisive lines within two points."""
    planned = plan(SEED, 100, 30)
    told = Counter()
    for item in planned:
        told.update(event.level for event in item.events)
        told.update(RECORDED_LEVELS.get(item.recorded, {}))
    shares = {level: told[level] / told.total() for level in LEVEL_SHARES}

    assert Counter(item.symptom for item in planned) == {**SYMPTOMS, "healthy": 30}
    assert shares == pytest.approx(LEVEL_SHARES, abs=0.02)


def test_the_plan_has_each_kind_of_spread():
    """Failures have all stages, single nodes and many, several faulty nodes and none, and lines that healthy runs have too."""
    planned = [item for item in plan(SEED, 100, 0) if item.fault]

    assert {item.stage for item in planned} == {
        "launch",
        "init",
        "data_load",
        "checkpoint_load",
        "iterating",
        "evaluating",
        "saving",
    }
    assert {item.fault.scope for item in planned} == {"one", "few", "none"}
    assert len({item.fault.name for item in planned}) >= 70
    assert any(event.common for item in planned for event in item.events)
    assert {event.channel for item in planned for event in item.events} >= {
        "absent",
        "turn",
        "trace",
        "kernel",
        "agent",
        "log",
    }


def test_recordings_say_what_their_decisive_lines_are():
    """Each recorded run has its decisive lines, at the levels that the plan counts, and takes little room."""
    for name, levels in RECORDED_LEVELS.items():
        told = json.loads((CARRIERS / f"{name}.json").read_text("utf-8"))
        assert {level for _, _, level in told["decisive"]} == set(levels)
        assert all(told["nodes"][node][line - 1] for node, line, _ in told["decisive"])
    assert sum(path.stat().st_size for path in CARRIERS.iterdir() if path.is_file()) < 300_000


def test_a_template_is_filled_with_values_and_chance():
    """Names are replaced by values, bounds and alternatives are drawn, and an unknown name is refused."""
    from random import Random

    assert fill("@{a} @{int:4-4} @{of:x|x}", {"a": 7}, Random(1)) == "7 4 x"
    with pytest.raises(KeyError):
        fill("@{nothing}", {}, Random(1))


def test_loggers_print_their_forms():
    """The same message in the forms of three programs."""
    who = {"host": "n1", "rank": 3, "local": 3, "pid": 77}

    assert logged("accelerate", "info", 0.25, 0, who, "__main__", "hi") == "01/01/1970 00:00:00 - INFO - __main__ - hi"
    assert logged("plain", "error", 0.25, 8, who, "a.b", "hi") == "1970-01-01 08:00:00,250 ERROR [n1/r3] a.b: hi"
    assert logged("swift", "debug", 0.25, 0, who, "a.b", "hi") == "[DEBUG:swift] hi"


def test_lines_nodes_stage_and_iteration_are_counted():
    """A line of an event hits, so does one near an absence; neutral lines do not count, consequences are false unless let pass."""
    said = Prediction(
        (("logs/b.log", 12), ("logs/c.log", 53), ("logs/b.log", 15), ("logs/a.log", 6), ("logs/a.log", 1)),
        ("a", "b"),
        "saving",
        110,
    )

    assert tally("x", TRUTH, said) == Tally(
        "x",
        "crash",
        hits=2,
        said=4,
        said_leniently=3,
        lines_found=2,
        lines=3,
        events_found=2,
        events=2,
        top1=False,
        top5=True,
        top1_many=False,
        top5_many=True,
        stage=True,
        iteration=True,
        five=True,
    )
    assert tally("x", TRUTH, said, top=1).said == 1
    assert tally("x", TRUTH | {"window": 1}, said).iteration is False
    assert tally("x", TRUTH, Prediction((("logs/a.log", 1),))).five is False
    assert tally("x", TRUTH, Prediction(iteration=111)).iteration is False
    assert tally("x", {**TRUTH, "node_count": 4}, said).top5_many is None


def test_what_is_indicated_in_a_healthy_pair_is_false():
    """Lines and nodes of a healthy pair are counted as false ones."""
    said = Prediction((("logs/a.log", 1),), ("a", "b"))

    assert tally("x", HEALTHY, said) == Tally("x", "healthy", healthy_lines=1, healthy_nodes=2)


def test_scores_have_intervals():
    """Perfect answers score 1 in each measure and 0 in false ones, no answer scores nothing, and a table shows both."""
    truth = {"cases": {"a": TRUTH, "b": HEALTHY, "c": {**TRUTH, "nodes": [], "iteration": None}}}
    lines = (("logs/b.log", 10), ("logs/b.log", 12), ("logs/c.log", 50))
    perfect = {"a": Prediction(lines, ("b",), "saving", 100), "c": Prediction(lines, (), "saving")}
    best, worst = score(truth, perfect), score(truth, {})

    assert {name: value[0] for name, value in best.items()} == {
        name: 0.0 if name.startswith("healthy") else 1.0 for name in MEASURES
    }
    assert worst["lines: precision"] is None
    assert (worst["lines: F1"][0], worst["node: top-5"][0]) == (0.0, 0.0)
    assert worst["node: none named where none is faulty"] == (1.0, 1.0, 1.0)
    assert "lines: F1, mean over cases               1.000  [1.000, 1.000]" in render(best)
    assert "lines: precision                            -" in render(worst)


def test_half_right_answers_have_an_interval_around_their_value():
    """Of twenty cases half found, the recall is a half, between its bounds."""
    truth = {"cases": {f"c{i}": TRUTH for i in range(20)}}
    said = {f"c{i}": Prediction((("logs/b.log", 10),)) for i in range(10)}
    interval = score(truth, said)["lines: recall of events"]
    assert interval is not None
    value, low, high = interval

    assert value == 0.25
    assert 0 < low < value < high < 0.5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "line 1"),
        ("[]", "an object by case"),
        ('{"z": {}}', "'z' is no case"),
        ('{"a": []}', "a: an object"),
        ('{"a": {"lines": [["f", "1"]]}}', "a: `lines`"),
        ('{"a": {"nodes": [1]}}', "a: `nodes`"),
        ('{"a": {"stage": 1}}', "a: `stage`"),
    ],
)
def test_predictions_of_another_form_are_refused(text, says):
    """A file of predictions that is not of the form says where."""
    with pytest.raises(Malformed, match=says):
        read_predictions(text, {"a": TRUTH})


def test_predictions_are_read():
    """Lines and nodes keep their order and are reported once."""
    text = '{"a": {"lines": [["f", 2], ["f", 1], ["f", 2]], "nodes": ["n", "n"], "stage": "init", "iteration": null}}'

    assert read_predictions(text, {"a": TRUTH}) == {"a": Prediction((("f", 2), ("f", 1)), ("n",), "init", None)}
