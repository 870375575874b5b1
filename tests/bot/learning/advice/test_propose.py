"""`signalbox rules advise --propose N`: an advice goes the way of learned rules, into a real repository."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from bot.authoring.selftest import evidence_of
from bot.cli.rules.advise import propose_advice
from bot.incidents.ledger import Ledger
from bot.learning.advice.advise import RuleAdvice
from bot.learning.advice.propose import against, in_the_way
from bot.learning.proposals.store import Proposal, ProposedRule, proposals
from bot.learning.replay.backtest import Backtest
from bot.learning.replay.shadow import count_within, shadowed
from bot.learning.replay.trial import RuleFiles, base_of
from kb.errors import SignalboxError
from kb.learning.yaml_edits import with_value
from tests.support.learning_views import FULL, LEASE, add, right, rule, wrong
from tests.support.staged_proposals import git

QUOTA = FULL + "quota-daemon: project {} is over its grant and writes are refused\n"
FILE = "storage/disk-full/rule.yaml"
OTHERS = (("narrow:1", "disk-full"), ("widen:1", "disk-full"), ("widen:1", "cuda-out-of-memory"))
SHADOW = "storage/lease-revoked/rule.yaml"


@dataclass(frozen=True)
class Site:
    """A rules folder, the clone of its repository, a store."""

    rules: Path
    clone: Path
    url: str

    def base(self) -> RuleFiles:
        """The rules as they are."""
        return base_of(self.rules)

    def propose(self, number=1, **given) -> int:
        """As it is typed; the exit status."""
        return propose_advice(number, self.rules, None, None, **{"clean": (), "branch": self.clone, **given})

    def branches(self) -> list[str]:
        """Of the clone."""
        return git(self.clone, "branch", "--format=%(refname:short)").decode().split()

    def changed(self, branch: str) -> list[str]:
        """The files that differ on a branch, below the folder of the rules."""
        names = git(self.clone, "diff", "--name-only", f"main..{branch}").decode().split()
        return [name.removeprefix("rules/") for name in names]

    def text(self, branch: str, path: str) -> str:
        """A file as a branch has it."""
        return git(self.clone, "show", f"{branch}:rules/{path}").decode()

    def proposals(self) -> tuple[Proposal, ...]:
        """Those in the store."""
        with Ledger(self.url) as ledger:
            return proposals(ledger.database)

    def live(self, job, said=None):
        """An incident as a worker keeps it, its shadows counted."""
        base = self.base()
        number = add(self.url, base.known, LEASE, job=job, said=said)
        evidence = evidence_of(base.known, base.known.matcher(), {"rank-0.log": LEASE.encode()})
        with Ledger(self.url) as ledger, ledger.database.session(write=True) as session:
            count_within(session, number, "default", shadowed(base.known, evidence))


@pytest.fixture
def site(few_rules, cache, tmp_path, monkeypatch):
    """Two shipped rules and a shadow, in a repository too; an empty store; nothing configured."""
    path = few_rules / SHADOW
    path.parent.mkdir(parents=True)
    path.write_text(rule(status="shadow"))
    clone = tmp_path / "clone"
    clone.mkdir()
    git(clone, "init", "-q", "-b", "main")
    for file in (item for item in few_rules.rglob("*") if item.is_file()):
        target = clone / "rules" / file.relative_to(few_rules)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "-m", "the rules")
    for name, value in {"CACHE": cache, "STATE": tmp_path / "state", "CONFIG": ""}.items():
        monkeypatch.setenv(f"SIGNALBOX_{name}", str(value))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return Site(few_rules, clone, f"sqlite:///{tmp_path / 'state' / 'signalbox.db'}")


def refuted(site):
    """Two incidents in which a rule was wrong, three in which it was right."""
    base = site.base()
    for at in (1, 2):
        add(site.url, base.known, QUOTA.format(40 + at), job=f"{at}", said=wrong("storage_io"))
    for at in (3, 4, 5):
        add(site.url, base.known, FULL, job=f"{at}", said=right("disk_full"))


def test_a_narrowing_becomes_a_branch_with_its_logs(site, capsys):
    """One commit that changes the rule and adds the logs on which it is silent now; another kind of change of it has to wait."""
    refuted(site)
    assert site.propose() == 0, capsys.readouterr().err
    branch = "signalbox/rule/disk-full"
    assert site.branches() == ["main", branch]
    logs = [f"storage/disk-full/silent/advised-{number}.log" for number in (1, 2)]
    made = [name for name in site.changed(branch) if not re.search("reworded|healthy|below-error|overcome", name)]
    assert made == [FILE, *logs]  # beside the texts made from them
    assert "\nnot_when:\n" in site.text(branch, FILE)
    assert "is over its grant and writes are refused" in site.text(branch, logs[0])
    (kept,) = site.proposals()
    message = git(site.clone, "log", "-1", "--format=%B", branch).decode()
    assert (kept.state, kept.content.passed, kept.key.partition(":")[0]) == ("open", True, "narrow")
    assert "| First answers lost |" in message
    assert "grant and writes are refused" in message

    others = [ProposedRule(key, "default", item, "", "", "", {}) for key, item in OTHERS]
    assert [in_the_way(other, (kept,)) for other in others] == [None, kept, None]


def test_a_promotion_becomes_a_branch_where_nothing_speaks_against_it(site, tmp_path, capsys):
    """The rule's status changes and nothing else; on a clean log that it names it is refused."""
    for at in range(9):
        site.live(f"{at}", wrong("storage_io"))
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "good.log").write_text(LEASE)
    assert site.propose(branch=None) == 1
    assert "not proposed: `rules: pull_requests:` is not configured" in capsys.readouterr().err
    assert site.propose(clean=[runs]) == 1
    assert "not proposed: it matches 1 of" in capsys.readouterr().err
    assert (site.branches(), site.proposals()) == (["main"], ())

    assert site.propose() == 0, capsys.readouterr().err
    branch = "signalbox/rule/lease-revoked"
    assert (site.branches(), site.changed(branch)) == (["main", branch], [SHADOW])
    assert site.text(branch, SHADOW) == rule(status="experimental")


def test_a_change_that_breaks_the_rules_own_tests_is_refused(few_rules, cache, monkeypatch):
    """The test logs of the rule are run against the changed rule."""
    monkeypatch.setenv("SIGNALBOX_CACHE", str(cache))
    base = base_of(few_rules)
    advice = RuleAdvice("widen", "disk-full", "", (), (), {FILE: with_value(base.files[FILE], "when", "database")})
    told = Backtest((), hurts=("it hurts",))
    hurt, broken = against(advice, base, few_rules, told)
    assert (hurt, broken.partition(": match/")[0]) == ("it hurts", "the rule would fail its own tests")


def test_a_number_that_is_not_in_the_list_is_reported(site):
    """With how long it is."""
    with pytest.raises(SignalboxError, match=r"there is no advice 1: .* lists 0"):
        site.propose()
