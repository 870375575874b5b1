"""What advice puts into files: cleaned patterns, and logs by which the rule's tests grow with it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bot.incidents.ledger import Ledger
from bot.learning.advice.advise import advise
from bot.learning.advice.test_logs import SingleRuleScan, fit
from bot.learning.drafts.edge_logs import MOST_WRITTEN
from bot.learning.replay.trial import base_of
from kb.errors import RuleError
from kb.learning.cases import Case
from kb.learning.discriminating_patterns import discriminate
from kb.learning.events import events_of
from kb.learning.negative_corpus import background
from tests.support.learning_views import FULL, NOW, OOM, STEPS, add, right, wrong

HOSTS = ("atlas", "gpu-b07.corp.example.net")
PLANTED = (
    "password=hunter2hunter2",
    "hf_abcdefghijklmnopqrstuvwxyz0123456789",
    "jane.doe@research.example.org",
    "on host zephyr",
    "10.20.30.40",
    "/home/jdoe/runs/out.pt",
    "asked by Marguerite",
    "worker-17.dc2.example.net",
    "qwzrtpl",
    "GPU-8a56a4bc-1184-a6a4-3e9f-0123456789ab",
    *HOSTS,
)
BESIDE = "".join(f"saver: {word} was here\n" for word in PLANTED)
QUOTA = "quota-daemon: project {} is over its grant and writes are refused on {}, " + " ".join(PLANTED[2:7]) + "\n"
MISSED = "writer: no space is left here on the volume of atlas, giving up, " + " ".join(PLANTED[2:7]) + "\n"


@pytest.fixture
def base(few_rules, cache, monkeypatch):
    """Two shipped rules with the shipped vocabulary."""
    monkeypatch.setenv("SIGNALBOX_CACHE", str(cache))
    return base_of(few_rules)


def advised(url, base, kind):
    """The one advice of a kind."""
    with Ledger(url) as ledger, ledger.database.session() as session:
        (advice,) = [item for item in advise(session, base, NOW).advice if item.kind == kind]
    return advice


def refuted(url, base):
    """Two incidents in which a rule was wrong and three in which it was right, full of what must not leave."""
    said = replace(wrong("storage_io"), nodes=HOSTS)
    for at in (1, 2):
        after = BESIDE.replace("was here", "came too late")  # lines that it printed before would show that it lived on
        text = STEPS + BESIDE + FULL.removeprefix(STEPS) + QUOTA.format(40 + at, "atlas") + after
        add(url, base.known, text, job=f"{at}", said=said)
    for at in (3, 4, 5):
        add(url, base.known, FULL, job=f"{at}", said=right("disk_full"))


def missed(url, base):
    """Two incidents that a rule missed, likewise, and one of another fault."""
    for at in (1, 2):
        text = STEPS + BESIDE + MISSED + "fatal: writer ended\n"
        add(url, base.known, text, job=f"{at}", said=replace(wrong("disk_full"), nodes=HOSTS))
    add(url, base.known, OOM, job="4", said=right("cuda_oom"))


def leaked(advice):
    """The planted texts that appear anywhere in an advice, including its reasons."""
    told = "\n".join([advice.title, *advice.reasons, *advice.patterns, *advice.files, *advice.files.values()]).lower()
    bare = [text.lower().rpartition(" ")[2].rpartition("=")[2] for text in PLANTED]
    found = [text for text in (*bare, "jane.doe", "jdoe", "gpu-b07") if text in told]
    return [*found, *(text for text in ("ana", "tim", "llm-1", "corp") if re.search(rf"\b{text}\b", told))]


def spoken(base, files, names):
    """For each of some logs, whether the advised rule fires, and whether the rule as it is does."""
    rule = next(item for item in base.known.rulebook.rules if item.id == "disk-full")
    scans = [SingleRuleScan(base, rule, text) for text in (files[rule.file], base.files[rule.file])]
    return [[scan.lines({"part-0.log": files[name].encode()}) != () for scan in scans] for name in names]


def test_a_narrowed_rule_gets_logs_on_which_it_is_silent_now(url, base):
    """The unchanged rule fires on each; no text contains any of the planted secrets."""
    refuted(url, base)
    advice = advised(url, base, "narrow")
    logs = [f"storage/disk-full/silent/advised-{number}.log" for number in (2, 1)]
    assert list(advice.files)[:3] == ["storage/disk-full/rule.yaml", *logs]
    silent = [name for name in advice.files if "/silent/" in name]
    assert spoken(base, advice.files, silent) == [[False, True]] * len(silent)
    assert len(silent) >= MOST_WRITTEN
    assert leaked(advice) == []


@pytest.mark.slow  # test_a_narrowed_rule_gets_logs_on_which_it_is_silent_now
def test_a_narrowed_rule_still_fires_beside_the_component_in_health(url, base):
    """The log has a line on which the rule fires, and lines that resemble the one that silences it; the advice says how it was tested."""
    refuted(url, base)
    advice = advised(url, base, "narrow")
    logs = [name for name in advice.files if "/match/" in name]
    assert {name.rpartition("/advised-")[2] for name in logs} <= {"healthy.log", "below-error.log", "overcome.log"}
    assert spoken(base, advice.files, logs) == [[True, True]] * len(logs)
    assert logs
    assert [reason for reason in advice.reasons if reason.startswith("of the variations of that line, they silence it")]


def test_a_widened_rule_gets_a_log_on_which_it_speaks_now(url, base):
    """The unchanged rule does not fire; similar logs are merged; no text contains any of the planted secrets."""
    missed(url, base)
    advice = advised(url, base, "widen")
    logs = [name for name in advice.files if "/match/" in name]
    own = [name for name in logs if "reworded" not in name]
    assert (next(iter(advice.files)), len(own)) == ("storage/disk-full/rule.yaml", 1)
    assert spoken(base, advice.files, logs) == [[True, False]] * len(logs)
    assert len(logs) > MOST_WRITTEN
    logs = [name for name in advice.files if "/silent/advised-" in name]
    assert spoken(base, advice.files, logs) == [[False, False]] * len(logs)
    told = "".join(advice.files[name] for name in logs)
    assert all(text in told for text in ("[info]", "recovered from: ", "will retry (1 of 3)"))
    assert leaked(advice) == []


def test_a_pattern_with_a_name_or_a_secret_is_not_fit():
    """Only whole words count: a name within another word is not a name."""
    cases = {
        at: Case(at, texts={"a.log": STEPS + "lease-agent: lease was revoked by the cinder volume\n"}) for at in (1, 2)
    }
    (event,) = [case_event for case_event in events_of(cases.values()) if "revoked" in case_event.key]
    found = discriminate(event, 1.0, cases, set(), background([]), names=())
    assert found is not None
    assert [fit(found, names) for names in ((), ("lea",), ("lease",), ("revoked",))] == [True, True, False, False]
    assert not fit(replace(found, search="token hf_abcdefghijklmnopqrstuvwxyz0123456789"), ())


def test_a_rule_with_faults_is_reported(base):
    """With their place."""
    rule = next(item for item in base.known.rulebook.rules if item.id == "disk-full")
    with pytest.raises(RuleError, match=r"storage/disk-full/rule\.yaml"):
        SingleRuleScan(base, rule, base.files[rule.file].replace("fault: disk_full", "fault: no_such"))
