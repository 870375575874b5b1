"""A change of rules tried on stored incidents and on logs of good runs."""

from __future__ import annotations

import pytest
from sqlalchemy import update
from sqlmodel import col

from bot.authoring.diff import answer
from bot.authoring.selftest import evidence_of
from bot.authoring.selftest import tests_of as logs_beside
from bot.incidents.ledger import Ledger
from bot.learning.replay.backtest import ChangedAnswer, backtest
from bot.learning.replay.clean_corpus import clean_logs
from bot.learning.replay.trial import FirstAnswer, TrialJudge, base_of, trial
from bot.rulebase.loader import default_folder, engine
from bot.store.tables import ReplayRow
from kb.diagnosis.engine import diagnose
from kb.diagnosis.findings import evaluate_rules
from kb.errors import RuleError, UnreadableInput
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.learning.precision import HitRate
from kb.learning.required_literals import sieve
from tests.support.learning_views import FULL, GOOD, LEASE, OOM, add, right, rule, wrong

PATH = "storage/lease-revoked/rule.yaml"
CLEAN = {"good": {"rank-0.log": GOOD.encode()}}


@pytest.fixture
def base(few_rules, cache, monkeypatch):
    """Two shipped rules with the shipped vocabulary."""
    monkeypatch.setenv("SIGNALBOX_CACHE", str(cache))
    return base_of(few_rules)


def test_a_good_candidate_hurts_nothing(base, database):
    """It names what people named; where two rules speak the old answer stays; figures have their n."""
    known = base.known
    seen = [
        add(database, known, LEASE, job="1", said=wrong("storage_io")),
        add(database, known, LEASE, job="2", said=wrong("storage_io")),
        add(database, known, LEASE, job="3"),
    ]
    add(database, known, OOM, job="4", said=right("cuda_oom", "cuda-out-of-memory"))
    add(database, known, FULL, job="5", said=right("disk_full", "disk-full"))

    told = backtest(trial(base, {PATH: rule()}), database, CLEAN, workers=1)

    unknown, named = FirstAnswer("no_match"), FirstAnswer("fault", "storage_io", "lease-revoked")
    assert told.changes == (
        ChangedAnswer(seen[0], "new", unknown, named, "storage_io", better=True),
        ChangedAnswer(seen[1], "new", unknown, named, "storage_io", better=True),
        ChangedAnswer(seen[2], "new", unknown, named),
    )
    assert (told.rules, told.hits, told.hurts) == (("lease-revoked",), tuple(seen), ())
    assert (told.incidents, told.judged, told.unjudged, told.clean, told.clean_hits) == (5, 3, 0, 1, ())
    assert (told.precision, told.recall) == (HitRate(2, 2), HitRate(2, 2))


def test_an_answer_that_people_confirmed_is_not_taken_away(base, database):
    """A candidate that comes first where another was right hurts, and says where."""
    kept = add(database, base.known, OOM, job="1", said=right("cuda_oom", "cuda-out-of-memory"))
    greedy = rule("greedy", "data_error", regex="CUDA out of memory") + "explains: [cuda_oom]\n"

    told = backtest(trial(base, {"data/greedy/rule.yaml": greedy}), database, {}, workers=1)

    assert [(change.incident, change.kind, change.worse, change.new.fault) for change in told.changes] == [
        (kept, "changed", True, "data_error")
    ]
    assert told.shadowed == {"cuda-out-of-memory": 1}
    assert told.hurts == (f"it changes 1 answer that people confirmed: {kept} (cuda_oom to data_error (greedy))",)
    assert told.precision == HitRate(0, 1)


def test_what_speaks_on_a_good_run_hurts(base, database):
    """Also if no incident is stored."""
    told = backtest(trial(base, {PATH: rule(regex="training finished")}), database, CLEAN, workers=1)
    assert (told.clean_hits, told.incidents, told.precision) == (("good",), 0, HitRate(0, 0))
    assert told.hurts == ("it matches 1 of 1 clean logs: good",)


def test_a_replaced_rule_is_tried_against_what_it_was(base, database):
    """A narrowed rule loses answers; losing those marked wrong is not counted against it."""
    lost = add(database, base.known, FULL, job="1", said=wrong("storage_io"))
    path = "storage/disk-full/rule.yaml"
    text = base.files[path].replace("match:\n", "match:\n  steps:\n    regex: 'step \\d+ .{1,9} loss'\n", 1)
    text = text.replace("\nremediation:\n", "\nwhen: errno and not steps\nremediation:\n", 1)

    told = backtest(trial(base, {path: text}), database, {}, workers=1)

    assert (told.rules, told.hurts) == (("disk-full",), ())
    assert told.changes == (
        ChangedAnswer(
            lost, "lost", FirstAnswer("fault", "disk_full", "disk-full"), FirstAnswer("no_match"), "storage_io"
        ),
    )


def test_a_rule_that_is_taken_away_leaves_its_incidents_unanswered(base, database):
    """And hurts where it was right."""
    add(database, base.known, FULL, said=right("disk_full"))
    told = backtest(trial(base, {"storage/disk-full/rule.yaml": None}), database, {}, workers=1)
    assert [change.kind for change in told.changes] == ["lost"]
    assert len(told.hurts) == 1


def test_what_is_not_judged_is_reported(base, database):
    """Those with feedback come first; if a limit leaves some of them out, this is a reason against the rule."""
    for job in "123":
        add(database, base.known, LEASE, job=job, said=wrong("storage_io") if job != "2" else None)
    tried = trial(base, {PATH: rule()})
    two = backtest(tried, database, {}, workers=1, most=2)
    one = backtest(tried, database, {}, workers=1, most=1)
    assert (two.judged, two.unjudged, two.unjudged_said, two.hurts) == (2, 1, 0, ())
    assert (two.precision, two.recall) == (HitRate(2, 2), HitRate(2, 2))
    assert one.hurts == ("it may change too many answers: 1 incidents with feedback were not evaluated",)


def test_texts_that_are_gone_or_damaged_are_counted(base, database):
    """Nothing is made up of them."""
    add(database, base.known, LEASE, job="1")
    damaged = add(database, base.known, LEASE, job="2")
    with Ledger(database) as ledger, ledger.database.session(write=True) as session:
        session.execute(update(ReplayRow).where(col(ReplayRow.incident_id) == damaged).values(text_zstd=b"no zstd"))
    told = backtest(trial(base, {PATH: rule()}), database, {}, workers=1)
    assert (told.incidents, told.without_text, len(told.hits)) == (1, 1, 1)


def test_a_tenants_incidents_alone(base, database):
    """Another tenant's are not looked at."""
    own = add(database, base.known, LEASE, job="1", tenant="red")
    add(database, base.known, LEASE, job="2", tenant="blue")
    assert backtest(trial(base, {PATH: rule()}), database, {}, tenant="red", workers=1).hits == (own,)


def test_a_candidate_with_faults_is_refused(base):
    """Only the faults of changed rules are reported."""
    with pytest.raises(RuleError, match="no_such"):
        trial(base, {PATH: rule(fault="no_such")})
    with pytest.raises(RuleError):
        trial(base, {PATH: "\x00: ["})


def test_a_change_of_words_alone_touches_nothing(base):
    """What is written for people changes no answer; a class that explains more touches the rules that name it."""
    path = "storage/disk-full/rule.yaml"
    words = base.files[path].replace("A file system is full", "The file system is full")
    faults = base.files["faults.yaml"].replace("id: disk_full\n", "id: disk_full\n    outlives: true\n")
    assert trial(base, {path: words, "storage/disk-full/silent/x.log": b"x"}).rules == ()
    assert trial(base, {"faults.yaml": faults}).rules == ("disk-full",)


TEXTS = (OOM, FULL, LEASE, GOOD, LEASE + OOM, OOM + FULL, FULL + "lease of volume 3 was revoked\n", "")


def test_both_answers_are_those_of_the_two_rule_bases(base, few_rules):
    """As a whole diagnosis with each of them gives; where nothing is heard the two are the same."""
    narrower = base.files["storage/disk-full/rule.yaml"].replace(
        "\nremediation:\n", "\nnot_when:\n- reason: none\n  if: text\nremediation:\n", 1
    )
    extra = {PATH: rule(status="experimental") + "explains: [cuda_oom]\n", "storage/disk-full/rule.yaml": narrower}
    for path, text in extra.items():
        (few_rules / path).parent.mkdir(exist_ok=True)
        (few_rules / path).write_text(text)
    after = base_of(few_rules).known
    judge = TrialJudge(trial(base, extra))
    for text in TEXTS:
        streams = {"rank-0.log": text.encode()}
        old, new = (
            diagnose(evidence_of(known, known.matcher(), streams), known.rulebook) for known in (base.known, after)
        )
        heard = judge.hear(streams)
        told = (answer(old), answer(new))
        assert told == ((heard.old.words, heard.new.words) if heard is not None else (told[0], told[0]))


# -- what the first pass may leave out ---------------------------------------------------------------------------------


@pytest.mark.slow  # test_a_text_without_needles_is_let_through_by_none
def test_no_rule_speaks_where_its_needles_are_not(known):
    """Wherever a shipped rule matches the first of its test logs, its needles occur in the text."""
    matcher, missed, spoke = known.matcher(), [], set()
    patterns = sieve(known.rulebook.rules).patterns
    needles = engine()(patterns)  # compiled once for all rules
    for item in known.rulebook.rules:
        sifting = sieve([item])
        for test in [test for test in beside([item]) if test.speaks and test.path.is_file()][:1]:
            text = test.path.read_bytes()
            facts = Facts(evidence_of(known, matcher, {test.path.name: text}))
            if evaluate_rules(known.rulebook, [item], facts, History()).findings:
                spoke.add(item.id)
                found = {patterns[at] for at, _ in needles.hits(text)}
                if not sifting.lets({at for at, pattern in enumerate(sifting.patterns) if pattern in found}):
                    missed.append(f"{item.id}: {test.path.name}")
    assert missed == []
    assert len(spoke) > 200


def beside(rules):
    """The test logs of the shipped rules."""
    return logs_beside(default_folder(), rules)


def test_a_text_without_needles_is_let_through_by_none():
    """No rules, no needles."""
    assert not sieve(()).lets({1, 2})


def test_clean_logs_are_those_in_which_nothing_failed(base, tmp_path):
    """The near misses of the rules in which nothing is found, and every run of a folder."""
    (tmp_path / "runs" / "one" / "logs").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "logs" / "rank-0.log").write_text(GOOD)
    (tmp_path / "runs" / "two.log").write_text(GOOD)
    folder = tmp_path / "rules"
    found = clean_logs(base.known, folder, [tmp_path / "runs"])
    own = {
        str(tmp_path / "runs" / "one"): {"rank-0.log": GOOD.encode()},
        str(tmp_path / "runs" / "two.log"): {"two.log": GOOD.encode()},
    }
    assert {name: text for name, text in found.items() if name in own} == own
    near = {name.split("/")[0] for name in found if name not in own}
    assert near == {"cuda-out-of-memory", "disk-full"}
    with pytest.raises(UnreadableInput, match="cannot be read"):
        clean_logs(base.known, folder, [tmp_path / "none"])


def test_which_near_misses_count_is_judged_once(base, tmp_path, monkeypatch):
    """Judging all of them takes as long as the rest of a draft; a changed log or rule is judged again."""
    monkeypatch.setattr("bot.learning.replay.clean_corpus.cache_dir", lambda: tmp_path / "cache")
    found = clean_logs(base.known, tmp_path / "rules")
    with monkeypatch.context() as patch:
        patch.setattr("bot.learning.replay.clean_corpus._is_clean", None)  # whoever judges now fails
        assert clean_logs(base.known, tmp_path / "rules") == found
    rule = tmp_path / "rules" / "memory" / "cuda-out-of-memory"
    (rule / "silent" / "config-dump.log").write_bytes((rule / "match" / "torch-1.log").read_bytes())
    assert len(clean_logs(base.known, tmp_path / "rules")) < len(found)


@pytest.mark.slow  # test_what_speaks_on_a_good_run_hurts
def test_what_has_hurt_enough_is_not_tried_further(base, database):
    """The rest is not judged, and the report says so; judging all can be requested."""
    for at in range(12):
        add(database, base.known, OOM, job=f"{at}", said=right("cuda_oom"))
    greedy = rule("greedy", "data_error", regex="CUDA out of memory") + "explains: [cuda_oom]\n"
    tried = trial(base, {"data/greedy/rule.yaml": greedy})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bot.learning.replay.backtest._ROUND", 9)
        soon = backtest(tried, database, {}, workers=1)
        whole = backtest(tried, database, {}, workers=1, most=None)
    assert (soon.judged, soon.unjudged, len(soon.hurts)) == (9, 3, 1)
    assert (whole.judged, whole.unjudged, sum(change.worse for change in whole.changes)) == (12, 0, 12)
