"""Publishing proposals: exactly one pull request despite failures, people's decisions win, and every outcome is reported."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.learning.proposals import publish as proposing
from bot.learning.proposals.publish import MOST_TRIES, ProposalWorker
from bot.learning.proposals.store import PROPOSE, tick
from bot.queue.tasks import TaskQueue
from bot.queue.worker import step
from bot.store.tables import PostingRow
from tests.doubles.github import primary, secondary
from tests.support.forge_server import Said
from tests.support.staged_proposals import PLENTY, START, Always, Killed, mortal, proposed, staged

KINDS = ("local", "github", "gitlab")


@pytest.fixture(params=KINDS)
def kind(request):
    """Each back end in turn."""
    return request.param


@pytest.fixture
def stage(kind, tmp_path, monkeypatch):
    """A stage of it."""
    with staged(kind, tmp_path, monkeypatch, **PLENTY) as one:
        yield one


def test_a_rule_is_proposed(stage, kind):
    """One branch with one commit upon the base, one request with labels, ready once the checks passed."""
    one = proposed()
    asked = stage.propose(one)
    stage.advance(asked.proposal)

    branch = "signalbox/rule/nic-flaps"
    kept = stage.kept(asked.proposal)
    [request] = stage.requests()
    assert (asked.how, kept.state, kept.draft, kept.sent, kept.error) == ("new", "open", False, 1, None)
    assert (request.branch, request.state, request.draft) == (branch, "open", False)
    assert (stage.files(branch), stage.commits(branch)) == (stage.whole(one), 1)
    if kind != "local":
        assert (request.title, request.labels) == ("Rule nic-flaps: The NIC flaps", ("signalbox", "rule"))
        assert (kept.number, kept.url.rpartition("/")[2]) == (1, "1")


@pytest.mark.quick("local-new", "gitlab-updated")
@pytest.mark.parametrize(("update", "points"), [(False, 20), (True, 7)], ids=["new", "updated"])
def test_killed_anywhere(stage, monkeypatch, update, points):
    """Before or after any call or commit: the next tries end in one request with all of it, and no comment."""

    def play(rule: str, die: int | None) -> list[str]:
        one = proposed(rule)
        number = stage.propose(one).proposal
        if update:
            stage.advance(number)
            one = proposed(rule, lines=3)
            assert stage.propose(one).how == "updated"
        met: list[str] = []
        try:
            with mortal(monkeypatch, die) as met:
                stage.advance(number)
        except Killed:
            assert len(met) == die
            stage.advance(number)
        branch = f"signalbox/rule/{rule}"
        kept = stage.kept(number)
        left = [request for request in stage.requests() if request.branch == branch]
        told = (kept.state, kept.draft, kept.sent, stage.commits(branch), stage.files(branch) == stage.whole(one))
        assert told == ("open", False, 2 if update else 1, 2 if update else 1, True), (met[-1:], kept.error)
        assert [(request.state, request.draft, request.comments) for request in left] == [("open", False, ())], points[
            -1:
        ]
        return met

    count = len(play("whole", None))
    assert count >= points
    for number in range(points):
        die = 1 + number * (count - 1) // (points - 1)
        play(f"rule-{die}", die)


@pytest.mark.quick("local")
def test_a_new_version_goes_upon_our_own_commit(stage, kind):
    """A removed file is deleted, the request stays the same, and text that people added is kept."""
    number = stage.propose(proposed()).proposal
    stage.advance(number)
    one = proposed(lines=2)
    files = {path: data for path, data in one.files.items() if "silent" not in path}
    one = replace(one, files={**files, "rdma/nic-flaps/match/two.log": b"flap\n"}, key="a sharper pattern")
    if kind == "github":
        stage.double.pulls[0].body = f"Ada wrote this.\n{stage.double.pulls[0].body}\nAnd this."
    assert stage.propose(one).how == "updated"
    stage.advance(number)

    [request] = stage.requests()
    assert (stage.files(request.branch), stage.commits(request.branch)) == (stage.whole(one), 2)
    assert (
        stage.propose(one).how
        == stage.propose(proposed(lines=2, key="a sharper pattern", files=one.files)).how
        == "same"
    )
    if kind == "github":
        assert (request.body.startswith("Ada wrote this.\n"), request.body.endswith("\nAnd this.")) == (True, True)
        assert request.body.count("<!-- signalbox: from here -->") == 1


@pytest.mark.quick("gitlab")
def test_a_branch_of_somebody_else_is_left_alone(stage, kind):
    """After a person's commit, a new version is only announced, once; their files stay unchanged."""
    number = stage.propose(proposed()).proposal
    stage.advance(number)
    branch = "signalbox/rule/nic-flaps"
    stage.push(branch, {"rules/rdma/nic-flaps/rule.yaml": b"id: nic-flaps\nby: ada\n"})
    before = stage.files(branch)
    stage.propose(proposed(lines=5))
    said = [stage.advance(number) for _ in range(3)]

    assert said[0] == "somebody else commits to the branch: Signalbox only comments there"
    assert (stage.files(branch), stage.commits(branch)) == (before, 2)
    assert stage.kept(number).error == said[0]
    if kind != "local":
        [comment] = stage.requests()[0].comments
        assert comment.startswith("Signalbox has an update for this proposal")
        stage.propose(proposed(lines=6))
        stage.advance(number)
        assert len(stage.requests()[0].comments) == 2


def test_a_branch_that_was_there_before_is_not_taken(stage):
    """Nobody's branch becomes ours by its name."""
    if stage.settings.backend == "local":
        stage.git("branch", "signalbox/rule/other", "main")
    stage.push("signalbox/rule/other", {"rules/x/other/rule.yaml": b"id: other\n"})
    stage.settings = replace(stage.settings, every=60.0)
    number = stage.propose(proposed("other")).proposal
    said = stage.advance(number)
    assert said == "there is a branch signalbox/rule/other with commits by others; delete or rename it"
    kept = stage.kept(number)
    assert (kept.state, kept.error, kept.ready_at - stage.clock) == ("asked", said, timedelta(hours=1))


@pytest.mark.quick("github")
def test_a_branch_that_is_as_the_base_is_free(stage, kind):
    """Nobody committed to it: it was made in advance, or the process was killed between two calls."""
    if kind == "local":
        stage.git("branch", "signalbox/rule/other", "main")
    else:
        branches = stage.double.repository.branches
        branches["signalbox/rule/other"] = branches["main"]
    one = proposed("other")
    number = stage.propose(one).proposal
    stage.advance(number)
    assert (stage.kept(number).state, stage.files("signalbox/rule/other")) == ("open", stage.whole(one))


@pytest.mark.quick("github")
def test_a_conflict_is_told_with_what_to_do(stage, kind):
    """The base has another rule of that name by now: the branch stays as it is, and so does the proposal."""
    number = stage.propose(proposed()).proposal
    stage.advance(number)
    before = stage.files("signalbox/rule/nic-flaps")
    if kind == "local":
        path = stage.home / "rules/rdma/nic-flaps/rule.yaml"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"id: nic-flaps\ntitle: by hand\n")
        stage.git("add", "-A")
        stage.git("commit", "-q", "-m", "by hand")
    else:
        (stage.double.pulls if kind == "github" else stage.double.merges)[0].conflict = True
    said = stage.advance(number)
    assert said.startswith(
        "it conflicts with the base branch, which changed the same rule: merge the base branch into "
    )
    assert (stage.kept(number).state, stage.kept(number).error) == ("open", said)
    assert stage.files("signalbox/rule/nic-flaps") == before
    stage.advance(number)
    if kind != "local":  # a branch has no place for comments
        assert [said in text for text in stage.requests()[0].comments] == [True]


@pytest.mark.quick("local-closed", "github-merged")
@pytest.mark.parametrize("state", ["merged", "closed"])
def test_a_persons_word_is_the_last(stage, state):
    """A closed or merged proposal is not proposed again unless a person asks for it; then it gets a new branch."""
    number = stage.propose(proposed()).proposal
    stage.advance(number)
    stage.decide("signalbox/rule/nic-flaps", state)
    stage.advance(number)
    again = stage.propose(proposed(lines=2))

    assert (stage.kept(number).state, again.how, again.proposal) == (state, state, number)
    assert stage.advance(number) == "nothing to do"
    assert stage.propose(proposed(key="the same rule, another pattern", lines=2), again=True).how == "new"

    asked = stage.propose(proposed(lines=3), again=True)
    assert (asked.proposal, asked.how, stage.kept(number).branch) == (number, "updated", "signalbox/rule/nic-flaps-3")
    stage.advance(number)
    assert [request.branch for request in stage.requests() if request.state == "open"] == ["signalbox/rule/nic-flaps-3"]
    assert (stage.kept(number).state, stage.kept(number).sent) == ("open", 2)


@pytest.mark.parametrize("kind", ["github", "gitlab"], indirect=True)
def test_closed_before_we_knew_that_it_was_open(stage):
    """Killed right after it was opened, and a person was faster than the next try: closed is closed."""
    number = stage.propose(proposed()).proposal
    stage.double.fault = lambda asked: (
        "after" if asked.method == "POST" and asked.parts[-1] in ("pulls", "merge_requests") else None
    )
    stage.advance(number)
    assert (stage.kept(number).number, len(stage.requests())) == (None, 1)
    stage.double.fault = lambda _: None
    stage.decide("signalbox/rule/nic-flaps", "closed")
    stage.advance(number, 60)
    assert (stage.kept(number).state, stage.kept(number).number, len(stage.requests())) == ("closed", 1, 1)


@pytest.mark.quick("local")
def test_a_sharper_pattern_of_the_same_rule_is_the_same_proposal(stage):
    """And when it is closed, neither pattern comes again."""
    number = stage.propose(proposed()).proposal
    assert stage.propose(proposed(key="sharper", lines=2)).proposal == number
    stage.advance(number)
    stage.decide("signalbox/rule/nic-flaps", "closed")
    stage.advance(number)
    assert {stage.propose(proposed(key=key, lines=4)).how for key in ("sharper", "key of nic-flaps")} == {"closed"}


@pytest.mark.quick("local")
def test_a_moved_base_does_no_harm(stage):
    """The commit goes upon the newest one of the base, and its other files stay."""
    stage.push("main", {"rules/x/y/rule.yaml": b"id: y\n"}) if stage.settings.backend != "local" else commit_on_main(
        stage
    )
    one = proposed()
    number = stage.propose(one).proposal
    stage.advance(number)
    assert stage.files("signalbox/rule/nic-flaps") == {**stage.whole(one), "rules/x/y/rule.yaml": b"id: y\n"}


def commit_on_main(stage):
    """A person commits in the clone's own work tree."""
    path = stage.home / "rules" / "x" / "y" / "rule.yaml"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"id: y\n")
    stage.git("add", "-A")
    stage.git("commit", "-q", "-m", "another rule")


@pytest.mark.quick("github")
def test_what_the_base_holds_already_is_not_proposed(stage, kind):
    """Somebody carried it over by hand."""
    one = proposed()
    files = {f"rules/{path}": data for path, data in one.files.items()}
    if kind == "local":
        for path, data in files.items():
            (stage.home / path).parent.mkdir(parents=True, exist_ok=True)
            (stage.home / path).write_bytes(data)
        stage.git("add", "-A")
        stage.git("commit", "-q", "-m", "by hand")
    else:
        stage.push("main", files)
    number = stage.propose(one).proposal
    said = stage.advance(number)
    assert (stage.kept(number).state, stage.kept(number).error, stage.requests()) == ("merged", said, [])
    assert said.endswith("already has this rule")


# -- limits ---------------------------------------------------------------------------------------------------------------


def test_no_more_than_so_many_an_hour_and_at_once(tmp_path, monkeypatch):
    """What waits says why and until when, and comes when there is room."""
    with staged("github", tmp_path, monkeypatch, hourly=2, at_once=3) as stage:
        numbers = [stage.propose(proposed(f"rule-{count}")).proposal for count in range(5)]
        said = [stage.advance(number, minutes=0) for number in numbers]
        assert [text.partition(" at ")[0] for text in said[:2]] == ["opened"] * 2
        assert said[2:] == ["waiting until 11:00 UTC: the limit is 2 new ones an hour"] * 3
        assert [stage.kept(number).error for number in numbers] == [None, None, *said[2:]]
        assert tick(stage.database, START) == 0

        stage.clock = START + timedelta(hours=1, seconds=1)
        later = [stage.advance(number, minutes=0) for number in numbers[2:]]
        full = "waiting: 3 proposals are open; the limit is 3"
        assert [text if "waiting" in text else "opened" for text in later] == ["opened", full, full]
        stage.decide("signalbox/rule/rule-0", "closed")
        assert stage.advance(numbers[0], minutes=0) == "it was closed and will not be proposed again"
        assert stage.advance(numbers[3], minutes=6).startswith("opened at ")
        assert len(stage.requests()) == 4


def test_two_workers_take_one_place(tmp_path, monkeypatch, database):
    """Of some proposals that come at the same moment for the last place all but one wait."""
    with staged("github", tmp_path, monkeypatch, database, hourly=5, at_once=1) as stage:
        numbers = [stage.propose(proposed(f"rule-{count}")).proposal for count in range(6)]
        with ThreadPoolExecutor(6) as pool:
            said = list(
                pool.map(
                    lambda number: ProposalWorker(stage.database, stage.settings, lambda: START, stage.forge()).advance(
                        number
                    ),
                    numbers,
                )
            )
        assert sorted("waiting" in text for text in said) == [False, *[True] * 5]
        assert len(stage.requests()) == 1


@pytest.mark.quick("github")
def test_two_workers_at_one_proposal_make_one_request(stage):
    """A worker that was considered dead continues while another one takes over."""
    number = stage.propose(proposed()).proposal

    def work(_: int) -> str:
        return ProposalWorker(stage.database, stage.settings, lambda: stage.clock, stage.forge()).advance(number)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    for _ in range(2):
        stage.advance(number, minutes=90)
    assert [(request.state, request.branch) for request in stage.requests()] == [("open", "signalbox/rule/nic-flaps")]
    assert (stage.kept(number).state, stage.commits("signalbox/rule/nic-flaps")) == ("open", 1)


@pytest.mark.quick("github")
def test_the_keeper_asks_for_what_is_due(stage):
    """Once for each proposal, until a worker has been at it; then after the pause."""
    number = stage.propose(proposed()).proposal
    with TaskQueue(str(stage.database._engine.url)) as works:
        assert works.counts() == {"waiting": 1}
        assert (tick(stage.database, START), works.counts()) == (1, {"waiting": 1})
        proposing = ProposalWorker(stage.database, stage.settings, lambda: stage.clock, stage.forge())
        assert step(works, {PROPOSE: proposing.do}, "w")
        assert (tick(stage.database, START + timedelta(minutes=1)), works.counts()) == (0, {"done": 1})
        assert tick(stage.database, START + timedelta(minutes=6)) == 1
    assert stage.kept(number).state == "open"


@pytest.mark.quick("github")
def test_a_message_that_tells_of_it_is_composed_anew(stage):
    """When it opens and when it is decided on; not when nothing changed."""
    with stage.database.session(write=True) as session:
        session.add(
            PostingRow(
                id=5,
                handle="h",
                once="o",
                tenant="default",
                channel="C1",
                state="answered",
                created_at=START,
                ready_at=START,
            )
        )
    number = stage.propose(proposed(), posting=5).proposal

    def version() -> int:
        with stage.database.session() as session:
            return session.get_one(PostingRow, 5).version

    stage.advance(number)
    opened = version()
    stage.advance(number)
    assert (opened > 1, version()) == (True, opened)
    stage.decide("signalbox/rule/nic-flaps", "merged")
    stage.advance(number)
    assert version() > opened


@pytest.mark.quick("github")
def test_other_settings_leave_proposals_elsewhere_alone(stage):
    """A proposal is not opened a second time in another repository; without the section, the error names what is missing."""
    number = stage.propose(proposed()).proposal
    stage.advance(number)
    elsewhere = replace(stage.settings, repository="/else/where" if stage.settings.backend == "local" else "acme/other")
    other = ProposalWorker(stage.database, elsewhere, lambda: stage.clock)
    assert other.advance(number).startswith("it was opened on ")
    assert (
        ProposalWorker(stage.database, None, lambda: stage.clock)
        .advance(number)
        .startswith("rules.pull_requests is not")
    )
    assert stage.kept(number).state == "open"


# -- drafts ---------------------------------------------------------------------------------------------------------------


@pytest.mark.quick("gitlab")
@pytest.mark.parametrize("kind", ["github", "gitlab"], indirect=True)
def test_it_is_a_draft_until_the_checks_pass(stage, kind):
    """Running and failed ones keep it a draft, and it says so; a person who makes it a draft again has the last word."""
    number = stage.propose(proposed()).proposal
    double = stage.double
    states = [{"name": "rules", "status": "in_progress", "conclusion": None}] if kind == "github" else "running"
    failed = [{"name": "rules", "status": "completed", "conclusion": "failure"}] if kind == "github" else "failed"
    passed = double.runs if kind == "github" else double.pipelines
    attribute = "runs" if kind == "github" else "pipelines"
    seen = []
    for wanted in (Always(states), Always(failed), passed):
        setattr(double, attribute, wanted)
        seen.append((stage.advance(number), stage.requests()[0].draft, stage.kept(number).draft))
    told = "rules" if kind == "github" else "pipeline failed"
    assert [item[1:] for item in seen] == [(True, True), (True, True), (False, False)]
    assert [item[0] for item in seen[:2]] == [
        "it stays a draft until the checks are done",
        f"it stays a draft: checks failed: {told}",
    ]
    if kind == "github":
        double.pulls[0].draft = True
    else:
        double.merges[0].title = f"Draft: {double.merges[0].title}"
    stage.advance(number)
    assert stage.requests()[0].draft


@pytest.mark.quick("gitlab")
@pytest.mark.parametrize("kind", ["github", "gitlab"], indirect=True)
def test_without_any_checks_the_replay_decides(stage, kind):
    """After some minutes without any; a replay that did not pass keeps it a draft for good."""
    setattr(stage.double, "runs" if kind == "github" else "pipelines", {})
    number = stage.propose(proposed()).proposal
    other = stage.propose(proposed("bad-rule", passed=False)).proposal
    waits = "it stays a draft until the checks have begun"
    assert stage.advance(number) == waits
    stage.propose(proposed(lines=2))
    assert stage.advance(number, minutes=11) == waits  # of the commit that went up just now
    assert stage.advance(number, minutes=5).startswith("opened at ")
    assert stage.advance(other, minutes=1) == "it stays a draft: the backtest did not pass"
    stage.advance(other, minutes=60)
    assert [request.draft for request in stage.requests()] == [False, True]


def test_a_repository_without_drafts(tmp_path, monkeypatch):
    """The request is opened without draft state."""
    with staged("github", tmp_path, monkeypatch) as stage:
        stage.double.drafts = False
        number = stage.propose(proposed()).proposal
        assert stage.advance(number).startswith("opened at ")
        assert [(request.state, request.draft) for request in stage.requests()] == [("open", False)]


# -- what forges answer ---------------------------------------------------------------------------------------------------

CALLS = {"github": 17, "gitlab": 13}
LIMIT = {"Retry-After": "120"}
FAULTS = {
    "401": (Said(401, {"message": "Bad credentials"}), "renew it; it is retried every hour", 3600),
    "403": (Said(403, {"message": "Resource not accessible by integration"}), "contents and pull requests", 3600),
    "404": (Said(404, {"message": "Not Found"}), "", 3600),
    "409": (Said(409, {"message": "Git Repository is empty."}), "it is checked again", 5),
    "422": (
        Said(422, {"message": "Validation Failed", "errors": [{"field": "x"}]}),
        "then propose the rule again",
        None,
    ),
    "429": (Said(429, {"message": "slow down"}, LIMIT), "rate limited", 120),
    "secondary": (secondary(77), "rate limited", 77),
    "secondary without a time": (secondary(None), "rate limited", 60),
    "used up": (primary(START.timestamp() + 60 + 900), "rate limited", 900),
    "500": (Said(500, b"<html>oh no</html>"), "a server error", 60),
    "503": (Said(503, {"message": "unavailable"}), "a server error", 60),
    "half": ("half", "ended early", 60),
    "hung up": ("after", "does not speak valid HTTP", 60),
    "no json": (Said(200, b"<html>proxy login</html>"), "is not JSON", 300),
    "another shape": (Said(200, {"message": "hello"}), "", 300),
    "elsewhere": (Said(302, None, {"Location": "https://evil.example/"}), "another host", 3600),
    "protected": (
        Said(422, {"message": "Repository rule violations found\n\nCannot create ref"}),
        "signalbox/rule/*",
        3600,
    ),
    "archived": (Said(403, {"message": "Repository was archived so is read-only."}), "configure another one", 3600),
}


@pytest.mark.quick("another shape-github", "404-gitlab", "429-github", "500-gitlab")
@pytest.mark.parametrize("kind", ["github", "gitlab"], indirect=True)
@pytest.mark.parametrize("name", FAULTS)
def test_what_a_forge_answers_is_reported(stage, kind, name):
    """Each call of the forge can fail: the error says what to do, the next try follows the forge's headers and makes one request, and no secret is printed."""
    fault, words, pause = FAULTS[name]
    place = list(FAULTS).index(name)
    for at in {place % CALLS[kind]} | ({(place + 8) % CALLS[kind]} if kind == "github" else set()):
        stage.double.seen.clear()
        stage.double.fault = lambda _, at=at: fault if len(stage.double.seen) == at + 1 else None
        if name == "used up":
            reset = primary((stage.clock + timedelta(minutes=16)).timestamp())
            stage.double.fault = lambda _, at=at, reset=reset: reset if len(stage.double.seen) == at + 1 else None
        rule = f"rule-{at}"
        number = stage.propose(proposed(rule)).proposal
        said = stage.advance(number)
        kept = stage.kept(number)
        stage.double.fault = lambda _: None
        if said.startswith(("opened", "it st")):  # labels hold nothing up; 404 is an answer to some questions
            assert kept.state == "open"
            continue
        assert (words in said, said[:500], "t0ken" in said) == (True, kept.error, False), (at, said)
        wanted = None if kept.state == "failed" else kept.ready_at - stage.clock
        if pause is None:
            assert kept.state in ("failed", "asked", "open"), said
        else:
            assert wanted == timedelta(seconds=pause), (at, said)
        stage.propose(proposed(rule))
        stage.advance(number)
        left = [request for request in stage.requests() if request.branch == f"signalbox/rule/{rule}"]
        assert [(request.state, request.draft) for request in left] == [("open", False)], (at, said, stage.answers[-1])
        assert stage.kept(number).error is None


@pytest.mark.parametrize("kind", ["github", "gitlab"], indirect=True)
def test_how_many_calls_a_proposal_takes(stage, kind):
    """Counts the calls, so that the test above covers each of them; checking an unchanged proposal takes one call."""
    number = stage.propose(proposed()).proposal
    stage.advance(number)
    assert len(stage.double.seen) == CALLS[kind]
    stage.advance(number)  # learns the mark of how it stands
    stage.double.seen.clear()
    assert (stage.advance(number), [item.method for item in stage.double.seen]) == ("nothing changed", ["GET"])


def test_it_is_given_up_in_the_end(tmp_path, monkeypatch):
    """A forge that is never there is asked more and more seldom, for some days; whoever proposes again starts again."""
    assert MOST_TRIES > 72  # an hour between them
    monkeypatch.setattr(proposing, "MOST_TRIES", 10)
    with staged("github", tmp_path, monkeypatch) as stage:
        number = stage.propose(proposed()).proposal
        stage.double.fault = lambda _: Said(502, None)
        waits = []
        while stage.kept(number).state == "asked":
            stage.clock = stage.kept(number).ready_at
            stage.advance(number, minutes=0)
            waits.append((stage.kept(number).ready_at - stage.clock).total_seconds())
        assert (waits[:7], set(waits[7:-1]), len(waits)) == ([60, 120, 240, 480, 960, 1920, 3600], {3600.0}, 10)
        stage.double.fault = lambda _: None
        assert stage.propose(proposed()).how == "updated"
        assert stage.advance(number).startswith("opened at ")
