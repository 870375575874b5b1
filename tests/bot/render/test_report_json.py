"""The JSON of a report: its shape, its schema, and the way back."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.render.report_json import dumps, from_json, iso, schema, schema_text, seconds, to_json
from kb.errors import UnreadableInput
from tests.support.bot_samples import EVERY, FALLEN_GPU, HEALTHY, KERNEL_LINE, NOON, TOO_LITTLE, UNKNOWN
from tests.support.paths import ROOT

SCHEMA_FILE = ROOT / "docs" / "report.schema.json"
VALIDATOR = jsonschema.Draft202012Validator(schema(), format_checker=jsonschema.FormatChecker())


def test_a_report_has_the_documented_shape():
    """The whole JSON of a small report, key for key and in the documented order."""
    actual = to_json(TOO_LITTLE, {"read": 0.25})

    expected = {
        "schema": "signalbox.report/1",
        "id": "31c4",
        "fingerprint": "01",
        "bundle": None,
        "window": {"start": None, "end": None},
        "job": {
            "id": None,
            "name": None,
            "attempt": None,
            "state": None,
            "nodes": None,
            "gpus": None,
            "owner": None,
            "attempts": [],
            "last_good": None,
            "ranks": None,
        },
        "versions": {
            "engine": "0.1.0",
            "rulebook": {"version": "2026.3", "digest": "sha256:5f0c"},
            "calibration": "2",
        },
        "verdict": "insufficient_evidence",
        "phase": "unknown",
        "summary": "Only the launcher's output was there, and it ends before the first step.",
        "decision": {
            "advice": "none",
            "exclude": [],
            "from_checkpoint": None,
            "steps_lost": None,
            "steps_lost_at_most": None,
            "gpu_hours_lost": None,
            "owner": "none",
            "why": "",
            "options": [],
            "find_cause": False,
        },
        "progress": {
            "last_iteration": None,
            "last_progress": None,
            "last_checkpoint": None,
            "stage": None,
            "total_iterations": None,
            "epoch": None,
            "epoch_iteration": None,
            "epoch_iterations": None,
        },
        "diagnoses": [],
        "indicators": {"events": [], "nodes": [], "stages": [], "iterations": [], "compared_with": ""},
        "hang": {"called": False, "votes": [], "suspected": False, "advice": [], "stacks": []},
        "memory": {"alike": [], "recalled": [], "outcomes": [], "digest": ""},
        "gaps": [
            {
                "code": "absent",
                "source": "rank logs",
                "reason": "none found",
                "scope": "ranks 0-31",
                "asked": "",
                "got": "",
                "rules_out": "which rank failed",
            },
            {
                "code": "absent",
                "source": "kernel log",
                "reason": "not collected",
                "scope": "",
                "asked": "",
                "got": "",
                "rules_out": "",
            },
        ],
        "not_evaluated": [{"rule": "xid-catalogue", "needs": "kernel log"}],
        "streams": 0,
        "bytes_read": 0,
        "time_zone": "utc",
        "completion": None,
        "timing": {"read": 0.25},
    }
    assert json.dumps(expected) == json.dumps(actual)


def test_times_are_iso_8601_in_utc():
    """Every time in the report is text that ends with Z; fractions of a second are kept."""
    body = to_json(FALLEN_GPU)

    assert body["window"] == {"start": "2026-03-01T10:00:00Z", "end": "2026-03-01T12:15:00.500000Z"}
    assert body["progress"]["last_progress"] == "2026-03-01T12:00:00Z"
    assert body["diagnoses"][0]["first_seen"] == "2026-03-01T12:00:13.250000Z"
    assert body["diagnoses"][0]["evidence"][0]["time"] == "2026-03-01T12:00:13.250000Z"
    assert body["diagnoses"][0]["evidence"][1]["time"] is None


def test_a_diagnosis_carries_its_evidence_by_id():
    """Suspects name the evidence against them, and a GPU is nested with its names."""
    suspect = to_json(FALLEN_GPU)["diagnoses"][0]["suspects"][0]

    assert suspect["evidence"] == ["e1"]
    assert suspect["gpu"] == {"index": 3, "uuid": "GPU-1f0e", "pci": "0000:5d:00"}


@pytest.mark.parametrize("report", EVERY, ids=lambda report: report.verdict)
def test_every_kind_of_report_keeps_the_schema(report):
    """Reports of all four verdicts are valid by the schema."""
    VALIDATOR.validate(json.loads(dumps(report, {"scan": 1.5})))


def test_the_schema_file_is_current():
    """docs/report.schema.json is what the module writes: `python -m bot.render.report_json > docs/report.schema.json`."""
    assert schema_text() == SCHEMA_FILE.read_text(encoding="utf-8")


def test_the_schema_describes_every_key():
    """No key of the format is without a description."""
    jsonschema.Draft202012Validator.check_schema(schema())
    objects = [schema(), *(part for part in schema()["$defs"].values() if "properties" in part)]
    nameless = [
        f"{part['title']}.{key}"
        for part in objects
        for key, value in part["properties"].items()
        if not value.get("description")
    ]

    assert nameless == []


def _objects(value, path=()):
    if isinstance(value, dict):
        yield path
        for key, item in value.items():
            yield from _objects(item, (*path, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _objects(item, (*path, place))


def _kinds(body):
    """Of each kind of object, the first one's path: items of a list with the same keys are one kind."""
    kinds = {}
    for path in _objects(body):
        places = tuple("*" if isinstance(step, int) else step for step in path)
        kinds.setdefault((places, *_within(body, path)), path)
    return kinds.values()


def _within(body, path):
    for step in path:
        body = body[step]
    return body


def test_the_schema_is_strict_everywhere():
    """Any key too many and any key missing, at any depth, is against the schema; `timing` alone is open."""
    body = to_json(FALLEN_GPU)
    for path in _kinds(body):
        if path == ("timing",):
            continue
        wider = json.loads(json.dumps(body))
        _within(wider, path)["surprise"] = 1
        assert not VALIDATOR.is_valid(wider), path
        for key in _within(body, path):
            narrower = json.loads(json.dumps(body))
            del _within(narrower, path)[key]
            assert not VALIDATOR.is_valid(narrower), (path, key)


@pytest.mark.parametrize("report", EVERY, ids=lambda report: report.verdict)
def test_a_report_comes_back_as_it_was(report):
    """What is read back is equal to what was written."""
    assert report == from_json(dumps(report, {"scan": 2.0}))


def test_a_report_is_one_line_and_the_same_each_time():
    """`dumps` gives no newline, and the same bytes for the same report."""
    line = dumps(FALLEN_GPU)

    assert b"\n" not in line
    assert line == dumps(from_json(line))


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_any_number_is_a_time_or_null(time):
    """Every float is written, and read back as the same value."""
    text = iso(time)

    assert text is None or text == iso(seconds(text))
    assert text is not None or not 0 <= time < 2.5e11


def test_numbers_that_json_lacks_do_not_get_out():
    """NaN and infinity become null, or zero where a number is required, and the result can be read back."""
    diagnosis = replace(FALLEN_GPU.diagnoses[0], confidence=math.nan, first_seen=math.inf)
    odd = replace(FALLEN_GPU, diagnoses=(diagnosis,), decision=replace(FALLEN_GPU.decision, gpu_hours_lost=math.inf))

    body = json.loads(dumps(odd, {"scan": math.nan}))

    VALIDATOR.validate(body)
    assert (body["diagnoses"][0]["confidence"], body["diagnoses"][0]["first_seen"]) == (0.0, None)
    assert body["decision"]["gpu_hours_lost"] is None
    assert from_json(dumps(odd)).diagnoses[0].confidence == 0.0


def test_text_that_is_no_unicode_still_gets_out():
    """A file name with undecodable bytes does not stop a report."""
    odd = replace(HEALTHY, bundle="run-\udcff", summary="ok")

    assert json.loads(dumps(odd))["bundle"] == "run-?"


def test_keys_of_a_later_version_are_left_out():
    """A report with keys that this version does not know is read without them."""
    body = to_json(HEALTHY)
    body["novelty"] = {"a": 1}
    body["job"]["colour"] = "green"

    assert from_json(json.dumps(body).encode()) == HEALTHY


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"schema": "signalbox.report/2"}',
        b'{"schema": "signalbox.report/1"}',
        b"[" * 100_000,
        dumps(HEALTHY).replace(b'"streams":1', b'"streams":"many"'),
        dumps(HEALTHY).replace(b'"phase":"completed"', b'"phase":"sleepy"'),
        dumps(HEALTHY).replace(b"2026-03-01T", b"yesterday "),
        dumps(HEALTHY).replace(b'"window":{', b'"window":[{').replace(b'},"job"', b'}],"job"'),
    ],
)
def test_what_is_no_report_is_refused(text):
    """Text that is not a report of this schema raises a clear error."""
    with pytest.raises(UnreadableInput, match="report"):
        from_json(text)


def test_evidence_of_an_indicator_has_its_time_too():
    """Evidence under an indicator is written as evidence under a diagnosis is."""
    indicator = replace(UNKNOWN.indicators.events[0], evidence=KERNEL_LINE)
    body = to_json(replace(UNKNOWN, indicators=replace(UNKNOWN.indicators, events=(indicator,))))

    assert iso(NOON + 13.25) == body["indicators"]["events"][0]["evidence"]["time"]


@pytest.mark.parametrize("zone", ["unknown", "mixed"])
def test_times_of_lines_without_a_zone_are_written_without_one(zone) -> None:
    """That they are read as UTC does not make them UTC. The window is that of the request."""
    report = replace(FALLEN_GPU, time_zone=zone, window=(NOON, NOON + 60))
    written = to_json(report)
    VALIDATOR.validate(written)
    assert not written["diagnoses"][0]["first_seen"].endswith("Z")
    assert written["window"]["start"].endswith("Z")
    assert from_json(dumps(report)) == report
