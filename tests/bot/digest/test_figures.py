"""Every figure of the digest equals one that was worked out by other means, on weeks that chance made, across changes of clocks."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import msgspec
import pytest
from sqlalchemy import DateTime, bindparam, text

from bot.demo.sample_incidents import incidents
from bot.digest.codec import dumps, loads
from bot.incidents.ledger import Ledger
from bot.incidents.lifecycle import LifecycleStep
from bot.render.report_json import dumps as dumps_report
from bot.store.digest_rows import compute
from kb.digest.weeks import Week
from tests.support import digest_by_hand
from tests.support.filled_store import BOOK, FAULTS, NOW, fill, filled

BERLIN, LORD_HOWE = ZoneInfo("Europe/Berlin"), ZoneInfo("Australia/Lord_Howe")
CASES = [
    (1, 0.3, Week(2026, 46), ZoneInfo("America/New_York"), datetime(2026, 11, 12, 15, tzinfo=UTC)),  # not over
    (2, 0.8, Week(2026, 43), BERLIN, NOW),  # 169 hours
    (3, 0.3, Week(2026, 40), LORD_HOWE, NOW),  # 167.5 hours
    (4, 0.1, Week(2026, 47), BERLIN, NOW),  # few
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"seed{case[0]}-{case[2]}")
def both(request, tmp_path_factory):
    """A digest, all that is in its store, and the failures by hand in each of its eight weeks."""
    seed, pace, week, zone, until = request.param
    with Ledger(filled(tmp_path_factory, seed, pace=pace)) as ledger:
        digest = compute(ledger.database, "default", week, zone, until=until, faults=FAULTS)
        ends = digest_by_hand.every(ledger, "default", until)
    mondays = digest_by_hand.edges(week, zone)
    window = [item for item in ends if item.made >= mondays[0]]
    weeks = [digest_by_hand.failures(ends, start, end) for start, end in pairwise(mondays)]
    return digest, window, weeks, mondays, until


def close(value):
    """The same but for the last digits, at any depth; None is None."""
    if isinstance(value, dict):
        return {key: close(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(close(item) for item in value)
    return value if value is None else pytest.approx(value, rel=1e-9, abs=1e-9)


def plain(item) -> dict:
    """A value as JSON gives it."""
    return msgspec.to_builtins(item)


@pytest.mark.quick("seed1")
def test_counts(both):
    """Failures, jobs, reports, the trend's counts and hours."""
    digest, window, weeks, mondays, until = both
    assert [len(week) for week in weeks] == [trend_point.failures for trend_point in digest.trend]
    assert len(weeks[-1]) == digest.failures
    assert len({item.chain for item in weeks[-1]}) == digest.jobs
    assert sum(mondays[-2] <= item.at < mondays[-1] for item in window) == digest.reports
    hours = [(min(end, until.timestamp()) - start) / 3600 for start, end in pairwise(mondays)]
    assert hours == [trend_point.hours for trend_point in digest.trend]
    means = [hour / len(item) if len(item) >= 5 else None for hour, item in zip(hours, weeks, strict=True)]
    assert close(means) == [trend_point.between.value for trend_point in digest.trend]
    unknown = [(sum(each.report.verdict != "fault" for each in week), len(week)) for week in weeks]
    assert unknown == [(trend_point.unknown.hits, trend_point.unknown.n) for trend_point in digest.trend]
    assert unknown[-1] == (digest.unknown.hits, digest.unknown.n)


@pytest.mark.quick("seed1")
def test_gpu_hours(both):
    """Lost GPU-hours of each week and class, with the number of failures of which they are known."""
    digest, window, weeks, _, _ = both
    known, chains = digest_by_hand.attempts(window)
    costs = [[digest_by_hand.lost_with_parts(item, known, chains) for item in week] for week in weeks]
    for point, week in zip(digest.trend, costs, strict=True):
        there = [item for item in week if item is not None]
        assert {"value": close(sum(there)), "n": len(there), "of": len(week)} == plain(point.gpu_hours)
    assert close(digest_by_hand.middle([item for item in costs[-1] if item is not None])) == plain(digest.lost_each)
    groups = defaultdict(list)
    for item, cost in zip(weeks[-1], costs[-1], strict=True):
        groups[item.fault].append(cost)
    before = Counter(item.fault for item in weeks[-2])
    expected = {
        fault: (len(group), close(sum(item for item in group if item is not None)), before[fault])
        for fault, group in groups.items()
    }
    assert expected == {
        fault_class.fault: (fault_class.failures, fault_class.gpu_hours.value, fault_class.before)
        for fault_class in digest.classes
    }
    order = [(-fault_class.failures, -fault_class.gpu_hours.value) for fault_class in digest.classes]
    assert sorted(order) == order


@pytest.mark.quick("seed1")
def test_time_to_recover(both):
    """Each term's median, nine-tenths mark and mean; Baidu's formula and the effective ratio of every week."""
    digest, window, weeks, mondays, until = both
    known, chains = digest_by_hand.attempts(window)
    for at, (week, point) in enumerate(zip(weeks, digest.trend, strict=True)):
        found = [(item, *digest_by_hand.terms(item, known, chains)) for item in week]
        again = [(item, terms) for item, ran, terms in found if ran]
        whole = [sum(term for term in terms if term is not None) for _, terms in again if None not in terms]
        wall = 0.0
        for chain in {item.chain for item, _ in again}:
            runs = [known[key] for key in chains[chain]]
            starts = [start for run in runs if (start := run["scheduled"]) is not None]
            stops = [
                stop
                for run in runs
                for name in ("stopped", "last_iterated", "first_iterated")
                if (stop := run[name]) is not None
            ]
            if starts and stops:
                wall += max(0.0, min(max(stops), mondays[at + 1], until.timestamp()) - max(min(starts), mondays[at]))
        saving = [item.row.saving / 3600 for item, _ in again if item.row.saving is not None]
        value = len(again) * sum(whole) / len(whole) / 3600 + sum(saving) if len(whole) >= 5 else None
        ratio = max(0.0, 1 - value * 3600 / wall) if value is not None and wall > 0 else None
        assert close(ratio) == point.effective
        if at == len(weeks) - 1:
            for place, name in enumerate(("detection", "scheduling", "initialisation", "recomputation")):
                values = [term for _, terms in again if (term := terms[place]) is not None]
                assert close(digest_by_hand.middle(values)) == plain(getattr(digest.recovery, name))
            assert close(digest_by_hand.middle(whole)) == plain(digest.recovery.whole)
            one = digest.ineffective
            assert (len(again), len(whole), len({each.chain for each, _ in again})) == (
                one.interruptions,
                one.known,
                one.jobs,
            )
            assert close([value, wall / 3600, sum(saving)]) == [one.value, one.wall, one.saving.value]


def test_time_to_failure_by_size(both):
    """Hours run and failures of the attempts that stopped in the week."""
    digest, window, weeks, mondays, _ = both
    known, _ = digest_by_hand.attempts(window)
    gpus = {}
    for end in window:
        if end.row.job_id is not None and end.report.job.gpus:
            gpus[end.row.cluster, end.row.job_id] = end.report.job.gpus
    failed = {(item.row.cluster, item.row.job_id, item.attempt) for item in weeks[-1]}
    found = defaultdict(lambda: [0.0, 0, 0])
    for key, run in known.items():
        size, start, stop = gpus.get(key[:2]), run["scheduled"], run["stopped"]
        if size and start is not None and stop is not None and start <= stop and mondays[-2] <= stop < mondays[-1]:
            low = 1 if size <= 8 else 9 if size <= 64 else 65 if size <= 512 else 513
            found[low][0] += (stop - start) / 3600
            found[low][1] += key in failed
            found[low][2] += 1
    expected = {
        low: (close(hours), count, runs, close(hours / count) if count >= 5 else None)
        for low, (hours, count, runs) in found.items()
    }
    assert expected == {
        group_size.low: (
            group_size.to_failure.total,
            group_size.to_failure.n,
            group_size.runs,
            group_size.to_failure.value,
        )
        for group_size in digest.sizes
    }


def test_nodes(both):
    """Jobs by node and week, of hardware and network failures, and of those whose nodes people named."""
    digest, _, weeks, _, _ = both
    jobs = [defaultdict(set) for _ in weeks]
    for at, week in enumerate(weeks):
        for item in week:
            named = item.cause is not None and item.cause.nodes
            if named or (item.fault in FAULTS and FAULTS[item.fault].domain in ("hardware", "network")):
                for node in item.nodes:
                    jobs[at][node].add(item.chain)
    names = {node for job in jobs for node in job}
    assert len(names) == digest.offenders.named
    for node in digest.offenders.nodes:
        assert tuple(len(job.get(node.name, ())) for job in jobs) == node.weeks
        assert len(set().union(*(job.get(node.name, set()) for job in jobs))) == node.jobs
    every = sum(len(set().union(*(job.get(node, set()) for job in jobs))) for node in names)
    assert every == digest.offenders.namings
    shown = {item.name for item in digest.offenders.nodes}
    assert len(shown) == min(15, len(names))


def test_own_record(both):
    """Closed, right at the first place, within three, rightly none; rules fired and wrong; open."""
    digest, _, weeks, _, _ = both
    for record, ends in ((digest.record, weeks[-1]), (digest.long_record, [item for week in weeks for item in week])):
        answered = [end.judged for end in ends if end.report.verdict in ("fault", "no_fault")]
        judged = [item for item in answered if item in ("right", "right_not_first", "wrong")]
        silent = [
            end.judged
            for end in ends
            if end.report.verdict not in ("fault", "no_fault") and end.judged in ("wrong", "abstained_rightly")
        ]
        assert (sum(end.cause is not None for end in ends), len(ends)) == (record.closed.hits, record.closed.n)
        assert (judged.count("right"), len(judged)) == (record.top1.hits, record.top1.n)
        assert (len(judged) - judged.count("wrong"), len(judged)) == (record.top3.hits, record.top3.n)
        assert (silent.count("abstained_rightly"), len(silent)) == (record.abstained.hits, record.abstained.n)
    fired = Counter(item.report.diagnoses[0].rule for item in weeks[-1] if item.report.verdict == "fault")
    assert {rule_line.rule: rule_line.fired for rule_line in digest.fired}.items() <= fired.items()
    assert sorted(fired.values(), reverse=True)[:10] == [rule_line.fired for rule_line in digest.fired]
    rules = defaultdict(list)
    for item in (entry for week in weeks for entry in week):
        if item.report.verdict == "fault" and item.judged in ("right", "right_not_first", "wrong"):
            rules[item.report.diagnoses[0].rule].append(item.judged != "right")
    assert sum(len(rule) < 5 for rule in rules.values()) == digest.thinly_judged
    for line in digest.wrong:
        assert (sum(rules[line.rule]), len(rules[line.rule])) == (line.wrong.hits, line.wrong.n)
    assert min(10, sum(len(rule) >= 5 and any(rule) for rule in rules.values())) == len(digest.wrong)
    still = [item for week in weeks for item in week if item.cause is None and not item.quiet]
    assert (len(still), sum(item in still for item in weeks[-1])) == (digest.open_all, digest.open_week)
    assert {item.incident for item in digest.open} <= {item.id for item in still}


def test_new_and_cuts(both):
    """What only this week has; failures by cluster, partition, user, job, framework, image."""
    digest, window, weeks, mondays, _ = both
    before = [item for week in weeks[:-1] for item in week]
    compared = sum(any(start <= item.at < end for item in window) for start, end in pairwise(mondays[:-1]))
    assert compared == digest.new.compared
    if compared:
        fresh = {item.fault for item in weeks[-1]} - {item.fault for item in before} - {"unknown"}
        assert len(fresh) == len(digest.new.classes)
        nodes = {node for item in weeks[-1] for node in item.nodes} - {node for item in before for node in item.nodes}
        assert sorted(nodes)[:10] == list(digest.new.nodes)
    columns = {
        "cluster": "cluster",
        "partition": "partition",
        "user": "owner",
        "job": "job_name",
        "framework": "framework",
    }
    for cut in digest.cuts:
        counts = Counter(getattr(item.row, columns.get(cut.name, cut.name)) for item in weeks[-1])
        assert counts.pop(None, 0) == cut.unknown
        assert {line.value: line.failures for line in cut.lines}.items() <= counts.items()
        assert sum(counts.values()) == sum(line.failures for line in cut.lines) + cut.rest


@pytest.mark.quick("seed1")
def test_numbers_survive_json(both):
    """What is kept of a digest is all of it."""
    assert loads(dumps(both[0])) == both[0]
    json.loads(dumps(both[0]))


@pytest.mark.slow  # test_the_same_by_sql
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_both_databases_give_the_same(database, tmp_path):
    """SQLite and PostgreSQL; another tenant's incidents are not in it."""
    digests = []
    for url in (database, f"sqlite:///{tmp_path / 'other.db'}"):
        with Ledger(url) as ledger:
            fill(ledger, 6, days=40, pace=0.6)
            fill(ledger, 7, tenant="red", days=14, pace=0.6)
            digests.append(compute(ledger.database, "default", Week(2026, 47), BERLIN, until=NOW, faults=FAULTS))
    assert digests[0] == digests[1]
    assert digests[0].failures > 5


def test_the_same_by_sql(database):
    """Without missing values and feedback, plain SQL gives the same counts by class, cluster and partition."""
    week, span = Week(2026, 47), {"start": datetime(2026, 11, 15, 23), "end": datetime(2026, 11, 22, 23)}  # noqa: DTZ001
    with Ledger(database) as ledger:
        for incident in incidents(BOOK, NOW, days=12, seed=8):
            ledger.incidents.add(
                dumps_report(incident.report), incident.report, b"", None, incident.at, origin=incident.origin
            )
        digest = compute(ledger.database, "default", week, BERLIN, until=NOW, faults=FAULTS)
        found = {}
        with ledger.database.session() as session:
            for column in ("CASE verdict WHEN 'fault' THEN fault ELSE 'unknown' END", "cluster", "partition"):
                query = text(
                    f"SELECT {column}, count(*) FROM incident WHERE verdict NOT IN ('no_fault', 'insufficient_evidence') AND ended_at >= :start "  # noqa: S608
                    "AND ended_at < :end GROUP BY 1"
                ).bindparams(bindparam("start", type_=DateTime), bindparam("end", type_=DateTime))
                found[column] = dict(iter(session.execute(query, span)))
    lines = {cut.name: {line.value: line.failures for line in cut.lines} for cut in digest.cuts}
    assert found["cluster"] == lines["cluster"]
    assert found["partition"] == lines["partition"]
    assert next(iter(found.values())) == {fault_class.fault: fault_class.failures for fault_class in digest.classes}
    assert sum(found["cluster"].values()) == digest.failures > 5


def test_merged_failures_count_once(tmp_path):
    """One failure less for each that is merged, the same GPU-hours; opened again they are as many as before."""
    week = Week(2026, 47)
    with Ledger(f"sqlite:///{tmp_path / 'signalbox.db'}") as ledger:
        for incident in incidents(BOOK, NOW, days=6, seed=8):
            ledger.incidents.add(
                dumps_report(incident.report), incident.report, b"", None, incident.at, origin=incident.origin
            )

        def counted():
            found = compute(ledger.database, "default", week, BERLIN, until=NOW, faults=FAULTS)
            return found.failures, pytest.approx(found.gpu_hours.value), found.open_all

        before = failures, hours, still = counted()
        first, second, third = [
            item.id for item in ledger.incidents.list(30) if item.verdict != "no_fault" and item.job_id
        ][:3]
        ledger.lifecycle.step(second, "default", "1", LifecycleStep("merge", "ana", "cli", other=first), NOW)
        ledger.lifecycle.step(third, "default", "2", LifecycleStep("merge", "ana", "cli", other=second), NOW)
        assert counted() == (failures - 2, hours, still - 2)
        ledger.lifecycle.step(second, "default", "3", LifecycleStep("reopen", "ana", "cli"), NOW)
        ledger.lifecycle.step(third, "default", "4", LifecycleStep("reopen", "ana", "cli"), NOW)
        assert counted() == before


def test_an_empty_store(tmp_path):
    """An empty store is not an error, and no division by zero occurs."""
    with Ledger(f"sqlite:///{tmp_path / 'signalbox.db'}") as ledger:
        digest = compute(ledger.database, "default", Week(2026, 47), BERLIN, until=NOW, faults=FAULTS)
    assert digest.classes == ()
    assert [digest.failures, digest.reports, digest.new.compared] == [0, 0, 0]
    assert {None} == {trend_point.between.value for trend_point in digest.trend}
