"""Rules that come from a repository or a folder while the service runs: taken up at once, or refused with the last good ones kept."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlmodel import col, select

from bot.config.rules import PullRequests, Source
from bot.incidents.ledger import Ledger
from bot.learning.proposals.store import proposal_of, propose
from bot.rulebase import loader, reload, source_version
from bot.rulebase.reload import CurrentRules, RuleReloader, SourceState, check, folder_of, state_of
from bot.store.incidents import IncidentStore
from bot.store.tables import IncidentRow
from connectors.base.secret import Secret
from tests.doubles.listening import Answering, listening
from tests.support.common.alert_samples import alert, payload
from tests.support.common.served_bot import SECRET, bearer, ok, until
from tests.support.paths import DEMO
from tests.support.ports import kept_port
from tests.support.staged_proposals import git, proposed

MEMORY, FULL = "GPU memory exhausted", "No space left on the file system"
DISK = "storage/disk-full/rule.yaml"


@pytest.fixture(autouse=True)
def _places(tmp_path, few_rules, monkeypatch):
    """State and caches stay in the test's folder; the installation has one rule."""
    installed = tmp_path / "installed"
    shutil.copytree(few_rules, installed, ignore=shutil.ignore_patterns("storage"))
    monkeypatch.setattr(loader, "default_folder", lambda: installed)
    monkeypatch.setattr(source_version, "MOST_BYTES", 1 << 20)
    monkeypatch.setenv("SIGNALBOX_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("SIGNALBOX_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SIGNALBOX_SITE", raising=False)


@pytest.fixture
def home(few_rules, tmp_path):
    """A repository whose folder rules/ holds a small rule base."""
    home = tmp_path / "repository"
    home.mkdir()
    shutil.copytree(few_rules, home / "rules")
    git(home, "init", "-q", "-b", "main")
    commit(home, "the rules")
    return home


def commit(home: Path, message: str) -> str:
    """Commit everything; the commit."""
    git(home, "add", "-A")
    git(home, "commit", "-q", "--allow-empty", "-m", message)
    return git(home, "rev-parse", "HEAD").decode().strip()


def edit(home: Path, old: str, new: str, name: str = DISK) -> str:
    """Change a rule and commit it."""
    path = home / "rules" / name
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")
    return commit(home, "an edit")


@pytest.fixture
def source(home):
    """It, as a source."""
    return Source(git=str(home))


def pull(source: Source) -> SourceState:
    """A keeper that has just started looks."""
    told = RuleReloader(source).tick()
    assert told == state_of(source)
    return told


def titles(current: CurrentRules) -> list[str]:
    """The rules in force."""
    return [rule.title for rule in current.known().rulebook.rules]


def test_the_newest_version_comes_into_force(home, source):
    """Before the first pull there are the rules of the installation; then those of the repository, at each change."""
    current = CurrentRules(source)
    assert titles(current) == [MEMORY]
    first = commit(home, "first")
    assert (pull(source).version, state_of(source).words()) == (first, f"rules of version {first}")
    assert titles(current) == [MEMORY, FULL]
    before = current.known()

    second = edit(home, f'title: "{FULL}"', "title: No room on a disk")
    assert titles(current) == [MEMORY, FULL]
    assert pull(source).version == second
    assert titles(current) == [MEMORY, "No room on a disk"]
    assert before.rulebook.rules[1].title == FULL
    assert before.rulebook.digest != current.known().rulebook.digest
    assert current.known() is current.known()


def removed(home: Path, *names: str) -> str:
    """Remove files and commit."""
    git(home, "rm", "-r", "-q", *names)
    return commit(home, "removed")


def large(home: Path) -> str:
    """Add more than a rule base ever holds."""
    (home / "rules" / "data.bin").write_bytes(bytes(2 << 20))
    return commit(home, "large")


BROKEN = {
    "no YAML": (lambda home: edit(home, "id: disk-full", "id: [disk-full"), "storage/disk-full/rule.yaml:"),
    "an unknown word": (lambda home: edit(home, "role: root_cause", "role: culprit"), "storage/disk-full/rule.yaml:"),
    "a bad regex": (lambda home: edit(home, "regex: '", "regex: '("), "storage/disk-full/rule.yaml:"),
    "no vocabulary": (lambda home: removed(home, "rules/faults.yaml"), "faults.yaml"),
    "no rules": (lambda home: removed(home, "rules/memory", "rules/storage"), "there is no rule in its folder 'rules'"),
    "no folder": (lambda home: removed(home, "rules"), "there is no folder 'rules' in it"),
    "too much": (large, "are too much"),
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_version_is_refused(home, source, name):
    """The reason says where; the last good one stays until a better one comes, and the broken one is not tried again."""
    good = pull(source).version
    current = CurrentRules(source)
    standing = titles(current)
    breaks, words = BROKEN[name]
    broken = breaks(home)
    told = pull(source)

    assert (told.version, told.refused, words in told.why) == (good, broken, True), told
    assert (titles(current), titles(CurrentRules(source))) == (standing, standing)
    assert f"version {broken} is refused: " in told.words()
    assert str(folder_of(source)) not in told.why
    before = (folder_of(source) / "versions").stat().st_mtime_ns
    assert pull(source).why == told.why
    assert (folder_of(source) / "versions").stat().st_mtime_ns == before

    git(home, "revert", "--no-edit", "HEAD")
    fixed = commit(home, "fixed")
    assert (pull(source).version, state_of(source).refused) == (fixed, None)


def test_what_was_wrong_before_does_not_refuse_more(home, source):
    """A host that starts with faults still starts, and reports them; a version with the same faults is not worse."""
    edit(home, "role: root_cause", "role: culprit")
    first = pull(source)
    assert (first.refused, len(first.faults), titles(CurrentRules(source))) == (None, 1, [MEMORY])
    second = edit(home, "title: GPU memory exhausted", "title: No memory", "memory/cuda-out-of-memory/rule.yaml")
    assert (pull(source).version, state_of(source).faults) == (second, first.faults)
    edit(home, "role: root_cause", "role: culprit", "memory/cuda-out-of-memory/rule.yaml")
    assert "memory/cuda-out-of-memory" in pull(source).why


def test_a_source_that_is_away_changes_nothing(home, source, tmp_path):
    """The failure is reported, and cleared once the source is back."""
    good = pull(source).version
    home.rename(tmp_path / "away")
    told = pull(source)
    assert (told.version, told.trouble.startswith("git fetch: ")) == (good, True)
    (tmp_path / "away").rename(home)
    assert (pull(source).trouble, state_of(source).version) == (None, good)


def test_only_plain_files_come_out_of_a_repository(home, source):
    """Links, hidden files and test logs of rules are left out."""
    (home / "rules" / "VERSION").unlink()
    (home / "rules" / "VERSION").symlink_to("/etc/passwd")
    (home / "rules" / ".hidden").write_text("x")
    (home / "rules" / "sub").symlink_to("/etc")
    commit(home, "links")
    version = pull(source).version
    folder = folder_of(source) / "versions" / version
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())
    assert found == ["actions.yaml", "faults.yaml", "memory/cuda-out-of-memory/rule.yaml", DISK]


@pytest.mark.quick("_linked")
@pytest.mark.parametrize("where", ["_linked", "_whole", "_tidied"])
def test_killed_while_it_switches(home, source, monkeypatch, where):
    """The old version or the new one is in force, whole; the next look ends it."""
    first = pull(source).version
    second = edit(home, f'title: "{FULL}"', "title: Full")
    real, calls = getattr(reload, where), []

    def dies(*words):
        calls.append(words)
        raise KeyboardInterrupt

    monkeypatch.setattr(reload, where, dies)
    with pytest.raises(KeyboardInterrupt):
        RuleReloader(source).tick()
    monkeypatch.setattr(reload, where, real)
    assert len(calls) == 1
    assert titles(CurrentRules(source))[1] == (FULL if where == "_linked" else "Full")
    assert (first != second, pull(source).version, titles(CurrentRules(source))[1]) == (True, second, "Full")
    assert [path.name for path in folder_of(source).rglob(".new-*")] == []


def test_old_versions_go(home, source):
    """A few stay, for a process may be reading one."""
    for number in range(8):
        (home / "rules" / "VERSION").write_text(f"1.{number}\n")
        newest = commit(home, str(number))
        pull(source)
    found = {path.name for path in (folder_of(source) / "versions").iterdir()}
    assert (len(found), newest in found) == (reload.KEPT, True)
    assert CurrentRules(source).known().rulebook.version == "1.7"


def test_a_tag_and_another_folder(home):
    """Whatever the ref names; a folder elsewhere; the root."""
    git(home, "mv", "rules", "knowledge")
    tagged = commit(home, "moved")
    git(home, "tag", "-a", "-m", "release", "v1")
    (home / "knowledge" / "VERSION").write_text("later\n")
    commit(home, "later")
    assert pull(Source(git=f"file://{home}", ref="v1", folder="knowledge")).version == tagged
    rooted = home.parent / "rooted"
    shutil.copytree(home / "knowledge", rooted)
    git(rooted, "init", "-q", "-b", "main")
    commit(rooted, "root")
    source = Source(git=str(rooted), folder=".")
    pull(source)
    assert titles(CurrentRules(source)) == [MEMORY, FULL]


def test_a_folder_that_is_watched(few_rules):
    """The same without git: a copy of it is in force, so a half-written one does no harm."""
    source = Source(path=str(few_rules))
    pull(source)
    current = CurrentRules(source)
    digest = current.known().rulebook.digest
    rule = few_rules / DISK
    text = rule.read_text()
    rule.write_text(text[:100])
    assert (pull(source).refused is None, current.known().rulebook.digest) == (False, digest)
    rule.write_text(text.replace(f'title: "{FULL}"', "title: Full"))
    assert (pull(source).refused, titles(current)[1]) == (None, "Full")
    shutil.rmtree(few_rules)
    assert (pull(source).trouble.endswith("No such file or directory"), titles(current)[1]) == (True, "Full")


def test_an_overlay(home):
    """The site's rules are added to those of the installation; the version shows it."""
    (home / "site").mkdir()
    (home / "site" / "site.yaml").write_text("version: 1\n")
    own = (home / "rules" / DISK).read_text().replace("id: disk-full", "id: my-disk-full")
    (home / "site" / "rules" / "storage" / "my-disk-full").mkdir(parents=True)
    (home / "site" / "rules" / "storage" / "my-disk-full" / "rule.yaml").write_text(own)
    commit(home, "the site's")
    source = Source(git=str(home), folder="site", overlay=True)
    pull(source)
    book = CurrentRules(source).known().rulebook
    assert book.version.endswith("+site")
    assert {rule.id for rule in book.rules} == {"my-disk-full", "cuda-out-of-memory"}


def test_it_looks_when_it_is_time(home, source):
    """Not before; and a clock that was set back does not keep it waiting."""
    now = [1000.0]
    pulling = RuleReloader(source, lambda: now[0])
    assert pulling.tick() is not None
    for at, looks in ((1299.0, False), (1300.0, True), (1301.0, False), (5.0, True)):
        now[0] = at
        assert (pulling.tick() is not None) == looks, at
    assert pulling.tick() is None
    assert commit(home, "x") != state_of(source).version


def test_a_token_goes_to_the_server_and_nowhere_else(monkeypatch):
    """Not into messages, not onto a command line."""
    monkeypatch.setenv("RULES_TOKEN", "s3cr3t-of-rules")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    seen = []

    class Refusing(Answering):
        def reply(self):
            seen.append(self.lowered().get("authorization"))
            self.send(403, b"no", "text/plain")

    with listening(Refusing) as url:
        source = Source(git=f"{url}/acme/rules.git", token=Secret(env="RULES_TOKEN"))
        told = pull(source)
    assert seen[0] == "Basic eC1hY2Nlc3MtdG9rZW46czNjcjN0LW9mLXJ1bGVz"
    assert ("403" in told.trouble, "s3cr3t" in told.trouble, told.version) == (True, False, None)
    monkeypatch.delenv("RULES_TOKEN")
    assert "RULES_TOKEN is not set" in pull(source).trouble


def test_a_source_is_tried_without_keeping_anything(home, source):
    """`config check` reports the version, or what is wrong with it."""
    version = commit(home, "x")
    told = check(source)
    assert (
        told.works,
        told.words.startswith(f"version {version} can be loaded; in force on this host: the rules that"),
    ) == (True, True)
    assert not folder_of(source).exists()
    edit(home, "role: root_cause", "role: culprit")
    assert (check(source).works, "has errors" in check(source).words) == (False, True)
    removed(home, "rules/faults.yaml")
    assert (check(source).works, "would be refused" in check(source).words) == (False, True)
    shutil.rmtree(home)
    assert (check(source).works, check(source).words.startswith("git fetch: ")) == (False, True)


@pytest.fixture
def warm(cache, known):
    """The cache with the compiled rule base."""
    del known
    return cache


@pytest.fixture
def port():
    """A port for the service."""
    with kept_port() as one:
        yield one


@pytest.mark.slow  # test_the_newest_version_comes_into_force
def test_a_running_service_takes_up_what_is_merged(home, tmp_path, warm, port, monkeypatch):
    """With real processes: a rule is proposed as a branch, a person merges it, the next diagnosis uses it; /healthz reports a broken merge."""
    monkeypatch.setenv("SIGNALBOX_CACHE", str(warm))
    runs = tmp_path / "runs"
    for number in range(2):
        logs = runs / f"job-{number}" / "logs"
        logs.mkdir(parents=True)
        (logs / "rank-0.err").write_text("OSError: [Errno 28] No space left on device: '/scratch/out/step_40'\n")
        told = (DEMO / "job.yaml").read_text().replace("name: lm-tiny\n", f"name: job-{number}\n")
        (runs / f"job-{number}" / "job.yaml").write_text(told)
    (tmp_path / "spool").mkdir()
    (tmp_path / "signalbox.yaml").write_text(
        f"version: 1\ncollect: {{spool: {tmp_path / 'spool'}}}\n"
        f"rules:\n  source: {{git: {home}, every: 1}}\n  pull_requests: {{backend: local, repository: {home}}}\n"
        f'serve:\n  listen: 127.0.0.1:{port}\n  workers: 1\n  endings: {{"on": false}}\n'
        "  webhooks:\n    alerts: {secret: {env: HOOK_SECRET}, job_labels: [run]}\n"
        f"clusters:\n  main: {{connectors: {{recorded: {{type: bundles, folder: {runs}}}}}}}\n"
    )
    source = Source(git=str(home), every=1)
    words = [sys.executable, "-m", "bot.cli.main", "serve", "--config", str(tmp_path / "signalbox.yaml")]
    with (tmp_path / "serve.log").open("wb") as log:
        service = subprocess.Popen(words, env={**os.environ, "HOOK_SECRET": SECRET}, stderr=log, stdout=log)
    try:
        first = git(home, "rev-parse", "HEAD").decode().strip()
        until(lambda: ok(port) and state_of(source).version == first, 180)
        digests = [diagnosed(tmp_path, port, "job-0")]
        branch = proposed_rule(tmp_path, home)
        git(home, "merge", "-q", "--no-ff", "-m", "merged", branch)
        second = git(home, "rev-parse", "HEAD").decode().strip()
        until(lambda: state_of(source).version == second, 180)
        digests.append(diagnosed(tmp_path, port, "job-1"))
        broken = edit(home, "role: root_cause", "role: culprit")
        until(lambda: state_of(source).refused == broken, 180)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=30) as answer:
            told = json.loads(answer.read())
        # the process that found it out records it first, and says so then
        until(lambda: f"version {broken} is refused" in (tmp_path / "serve.log").read_text(), 180)
        service.send_signal(signal.SIGTERM)
        assert service.wait(120) == 0
    finally:
        service.kill()
        service.wait()
    assert digests == [digest_of(source, first), digest_of(source, second)]
    assert digests[0] != digests[1]
    assert told["status"] == "ok"
    assert told["rules"].startswith(f"rules of version {second}; version {broken} is refused: ")


def proposed_rule(folder: Path, home: Path) -> str:
    """Propose a rule, and wait until a worker has made its branch."""
    text = (home / "rules" / DISK).read_bytes().replace(b"id: disk-full", b"id: scratch-full")
    one = replace(proposed("scratch-full"), files={"storage/scratch-full/rule.yaml": text}, fault="disk_full")
    with Ledger(f"sqlite:///{folder / 'state' / 'signalbox.db'}") as ledger:
        number = propose(ledger.database, PullRequests("local", str(home)), one, datetime.now(UTC)).proposal
        until(lambda: proposal_of(ledger.database, number).state == "open", 180)
        return proposal_of(ledger.database, number).branch


def digest_of(source: Source, version: str) -> str:
    """The digest of a version's rules."""
    return reload._loaded(source, version).rulebook.digest


def diagnosed(folder: Path, port: int, job: str) -> str:
    """Have a job diagnosed by an alert; the digest of the rules that its answer names."""
    body = payload(alert(run=job))
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}/webhooks/alerts", body, {"Content-Type": "application/json", **bearer()}
    )
    urllib.request.urlopen(asked, timeout=30).close()  # noqa: S310 - the service under test
    end = time.monotonic() + 180
    with IncidentStore(f"sqlite:///{folder / 'state' / 'signalbox.db'}") as store:
        while time.monotonic() < end:
            with store.database.session() as session:
                found = session.exec(
                    select(IncidentRow.rulebook_digest).where(col(IncidentRow.job_name) == job)
                ).first()
            if found is not None:
                return found
            time.sleep(0.1)
    raise AssertionError((folder / "serve.log").read_text()[-2000:])
