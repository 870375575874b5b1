"""What advice puts into files: cleaned patterns, and logs by which the rule's tests grow with it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bot.incidents.ledger import Ledger
from bot.learning.advice.advise import advise
from bot.learning.advice.test_logs import SingleRuleScan, fit
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
        text = STEPS + BESIDE + FULL.removeprefix(STEPS) + QUOTA.format(40 + at, "atlas") + BESIDE
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


def lines_of(base, files, name):
    """The lines on which the advised rule and the rule as it is speak, in one of the logs."""
    rule = next(item for item in base.known.rulebook.rules if item.id == "disk-full")
    log = {"part-0.log": files[name].encode()}
    texts = (files[rule.file], base.files[rule.file])
    return [SingleRuleScan(base, rule, text).lines(log) != () for text in texts]


def test_a_narrowed_rule_gets_logs_on_which_it_is_silent_now(url, base):
    """The unchanged rule fires on each; no text contains any of the planted secrets."""
    refuted(url, base)
    advice = advised(url, base, "narrow")
    logs = [f"storage/disk-full/silent/advised-{number}.log" for number in (2, 1)]
    assert list(advice.files) == ["storage/disk-full/rule.yaml", *logs]
    assert [lines_of(base, advice.files, name) for name in logs] == [[False, True]] * 2
    assert leaked(advice) == []


def test_a_widened_rule_gets_a_log_on_which_it_speaks_now(url, base):
    """The unchanged rule does not fire; similar logs are merged; no text contains any of the planted secrets."""
    missed(url, base)
    advice = advised(url, base, "widen")
    logs = [name for name in advice.files if "/match/" in name]
    assert (next(iter(advice.files)), len(logs)) == ("storage/disk-full/rule.yaml", 1)
    assert [lines_of(base, advice.files, name) for name in logs] == [[True, False]]
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
