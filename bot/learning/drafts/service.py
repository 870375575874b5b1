"""From an incident to a proposed rule: mined, drafted, edited by a person, tested. For Slack and the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import yaml
from sqlmodel import Session

from bot.authoring.selftest import evidence_of
from bot.config.rules import PullRequests
from bot.config.settings import Config
from bot.forges.base import PlanRefused
from bot.learning.drafts.cases import DraftCases, gathered
from bot.learning.drafts.edge_logs import tests_what
from bot.learning.drafts.edits import edited, looks_for, regexes_of, rule_path
from bot.learning.drafts.held_out import held_out
from bot.learning.drafts.neighbours import Example, examples_of
from bot.learning.drafts.rule_folder import draft
from bot.learning.drafts.store import Draft, DraftContent, DraftEdits, DraftRequest, draft_of, made_within
from bot.learning.proposals.pull_request import replayed
from bot.learning.proposals.store import ProposedRule, propose_within, refuse, told_of_within
from bot.learning.replay.backtest import backtest
from bot.learning.replay.clean_corpus import clean_logs
from bot.learning.replay.trial import RuleFiles, base_of, trial
from bot.notify.outbox import enqueue_item
from bot.queue.tasks import QueuedTask
from bot.queue.worker import TaskResult
from bot.rulebase.loader import default_folder
from bot.rulebase.reload import CurrentRules
from bot.store.database import Database
from bot.store.visibility import PUBLIC, Viewer
from kb.diagnosis.nearest_faults import nearest_faults
from kb.diagnosis.unknown import UNKNOWN
from kb.errors import RuleError
from kb.learning.cases import Candidate, Refusal
from kb.learning.existing_rules import decisive_line
from kb.learning.miner import mine
from kb.scanning.matcher import Matcher

UNCONFIGURED = "`rules: pull_requests:` is not configured"
SHOWN = 12  # log lines in a form or a pull request
_UNTOLD = (
    "None of the lines that indicate this failure distinguishes it from other incidents and good runs.",
    "Once you know the cause, close the incident with it and propose the rule again.",
)


@dataclass
class DraftService:
    """Drafts rules for one store.

    `url`: the URL of the database; `folder`: the rules folder; `site`: the overlay folder; None for the defaults. `tell` receives how
    many past incidents a draft was tried on, and of how many; `begin` the name of each step that takes a while, before it starts.
    """

    url: str
    config: Config
    folder: Path | None = None
    site: Path | None = None
    tell: Callable[[int, int], None] | None = None
    begin: Callable[[str], None] = lambda _: None

    @cached_property
    def base(self) -> RuleFiles:
        """The rule base that drafts are tested with."""
        self.begin("reading the rule base")
        return base_of(self.folder or default_folder(), self.site)

    @cached_property
    def _clean(self) -> Mapping[str, Mapping[str, bytes]]:
        folders = [Path(text) for text in self.config.learning.clean]
        known = self.base.known
        self.begin("reading logs of good runs")
        return clean_logs(known, self.folder or default_folder(), folders)

    @cached_property
    def _examples(self) -> tuple[Example, ...]:
        return examples_of(self.folder or default_folder(), self.base.known.rulebook.rules)

    @cached_property
    def _matcher(self) -> Matcher:
        return self.base.known.matcher()

    def _first_line(self, texts: Mapping[str, str]) -> str:
        """The line of the first event in some texts that no known symptom explains."""
        streams = {name: text.encode("utf-8", "replace") for name, text in texts.items()}
        known = self.base.known
        return decisive_line(evidence_of(known, self._matcher, streams), known.rulebook)

    def _nearest(self, lines: Sequence[str]) -> str:
        """The known fault whose rules share the rarest words with some lines; the class of unknown causes if none is near."""
        near = nearest_faults(lines, self.base.known.rulebook.rules)
        return near[0].fault if near else UNKNOWN

    # -- the steps -----------------------------------------------------------------------------------------------------

    def content(
        self,
        incident: int,
        tenant: str,
        edits: DraftEdits | None = None,
        *,
        alone: bool = False,
        seed: bool = False,
        viewer: Viewer = PUBLIC,
    ) -> DraftContent:
        """Return a draft with its replay, or why there is none. `alone`: ignore other incidents with the same cause.

        `seed`: an unknown failure needs no confirmed cause, because a person reads the draft and chooses the fault. `viewer`: the
        person for whom it is drafted.

        Raises:
            SignalboxError: the store or the rules cannot be used.
        """
        clean = self._clean
        self.begin("reading past incidents")
        found = gathered(
            self.url, incident, tenant, alone=alone, clean=clean, viewer=viewer, first_line=self._first_line,
            nearest=self._nearest if seed else None,
        )  # fmt: skip
        if found is None:
            return DraftContent(reasons=(f"Incident {incident} does not exist.",))
        self.begin("looking for the lines that tell these failures from other logs")
        mined = mine(found.cases, found.background, self.base.known.rulebook)
        if isinstance(mined, Refusal):
            return DraftContent(
                reasons=_UNTOLD if found.seed is not None and mined.code == "no_support" else mined.reasons
            )
        self.begin(f"drafting rule {mined.id} and its tests")
        drafted = self._drafted(found, mined)
        self.begin("trying the rule on past incidents")
        return self.replayed(drafted, tenant, edits)

    def _drafted(self, found: DraftCases, candidate: Candidate) -> DraftContent:
        texts = {case.id: case.texts for case in found.cases}
        known, files = self.base.known, self.base.files
        made = draft(candidate, texts, known, files, names=found.names, examples=self._examples)
        others = held_out(candidate, found.cases, found.background, known, files)
        rule = _rule(made.files)
        missing = tuple(f"To be added by a person: {item}" for item in made.missing)
        regexes = regexes_of(rule)
        return DraftContent(
            rule=candidate.id,
            edits=DraftEdits(
                title=candidate.title,
                fault=candidate.fault,
                regexes=regexes,
                remediation=tuple(str(item["text"]) for item in rule.get("remediation", ()) if isinstance(item, dict)),
            ),
            files=dict(made.files),
            looks_for="" if regexes is not None else _words(rule),
            lines=made.evidence[:SHOWN] or tuple(lines_of(made.files, "/match/")),
            notes=(*_seeded(found), *candidate.remarks, *missing),
            incidents=candidate.support,
            why=made.said,
            questions=(*made.questions, *others.questions),
            edge=(*others.figures, *made.figures),
            against=made.against,
        )

    def replayed(self, content: DraftContent, tenant: str, edits: DraftEdits | None = None) -> DraftContent:
        """Return a draft with a person's edits, replayed on all past incidents."""
        files = dict(content.files)
        if edits is not None:
            files = edited(files, edits, self.base.known.rulebook.faults)
        rule = _rule(files)
        own: dict[str, str | bytes | None] = dict(files)
        try:
            result = backtest(
                trial(self.base, own),
                self.url,
                self._clean,
                tenant=tenant,
                most=self.config.learning.judged,
                tell=self.tell,
            )
        except RuleError as error:
            hurts = tuple(f"the rule is not valid: {fault.message}" for fault in error.faults[:5])
            figures: tuple[tuple[str, str], ...] = ()
        else:
            figures, hurts, _ = replayed(result)
        if edits is None or edits.regexes in (None, content.edits.regexes):  # it is as it was when it was tested
            hurts = (*hurts, *content.against)
        # not proposed automatically, because the replay found problems; a proposal names the person who requests it anyway
        return msgspec.structs.replace(
            content,
            key=_key(rule),
            files=files,
            edits=edits or content.edits,
            patterns=looks_for(rule) or (_words(rule),),
            figures=(*figures[:-1], *content.edge, *figures[-1:]),  # the last one is the cost
            hurts=tuple(hurts),
            passed=not hurts,
        )

    def proposed(self, content: DraftContent, tenant: str, who: str) -> ProposedRule:
        """Return a draft as a proposal."""
        return ProposedRule(
            key=content.key,
            tenant=tenant,
            rule=content.rule,
            title=content.edits.title,
            fault=content.edits.fault or "",
            who=who,
            files=content.files,
            incidents=content.incidents,
            why=content.why,
            patterns=content.patterns,
            lines=content.lines,
            silent=silent_lines(content.files),
            figures=content.figures,
            questions=content.questions,
            notes=(*content.notes, *(f"Against it: {harm}" for harm in content.hurts)),
            passed=content.passed,
        )

    # -- for workers ---------------------------------------------------------------------------------------------------

    def do(self, work: QueuedTask) -> TaskResult:
        """Process the last request of a draft. The result is written when the task completes."""
        with Database(self.url) as store:
            found = draft_of(store, str(msgspec.json.decode(work.payload)["draft"]))
        if found is None or found.state == "proposed":
            return TaskResult("nothing to do")
        wish = found.wish
        if found.content is not None and found.content.files:
            content = self.replayed(found.content, found.tenant, wish.edits)
        else:
            content = self.content(found.incident_id, found.tenant, wish.edits, seed=True, viewer=Viewer(found.who))
        return TaskResult("drafted", lambda session: self._kept(session, found, wish, content))

    def _kept(self, session: Session, found: Draft, wish: DraftRequest, content: DraftContent) -> str:
        now = datetime.now(UTC)
        if content.reasons:
            made_within(session, found, "refused", content)
            self._shown(session, found, now)
            return "refused"
        agreed = not content.hurts or (wish.edits is not None and wish.edits.force)
        if wish.then != "propose" or not agreed:
            if made_within(session, found, "drafted", content):
                self._shown(session, found, now)
                if wish.then == "propose":
                    _reply_to_requester(session, found, "not proposed: " + "; ".join(content.hurts), now)
            return "drafted"
        settings = self.config.rules.pull_requests
        proposed = self.proposed(content, found.tenant, found.who)
        against = refusal(settings, proposed)
        if against is not None or settings is None:
            made_within(session, found, "drafted", content)
            _reply_to_requester(session, found, f"not proposed: {against}", now)
            return "refused"
        if not made_within(session, found, "proposed", content):
            return "somebody changed it in the meantime"
        asked = propose_within(session, settings, proposed, now, again=True)
        told_of_within(session, asked.proposal, channel=found.channel, parent=found.parent, now=now)
        return f"proposal {asked.proposal}"

    def _shown(self, session: Session, found: Draft, now: datetime) -> None:
        """Fill the open form."""
        payload = {"draft": found.handle, "version": found.version}
        enqueue_item(session, f"view:{found.handle}:{found.version}", found.tenant, "view", payload, now=now)


def refusal(settings: PullRequests | None, proposed: ProposedRule) -> str | None:
    """Return why the draft must not or cannot be proposed; None if it may be."""
    if settings is None:
        return UNCONFIGURED
    try:
        refuse(settings, proposed)
    except PlanRefused as error:
        return str(error)
    return None


def _reply_to_requester(session: Session, found: Draft, words: str, now: datetime) -> None:
    """Send a private reply to the person who asked."""
    payload = {"who": found.who, "channel": found.channel, "form": "message", "text": f"The rule was {words}."}
    enqueue_item(session, f"draft:{found.handle}:{found.version}", found.tenant, "reply", payload, now=now)


@dataclass
class DraftWorker:
    """Processes draft tasks, and caches what it built for a rule base until a different one is in force."""

    url: str
    config: Config
    current: CurrentRules
    _digest: str = ""
    _drafter: DraftService | None = None

    def do(self, work: QueuedTask) -> TaskResult:
        """Process the last request of a draft."""
        digest = self.current.known().rulebook.digest
        if self._drafter is None or digest != self._digest:
            self._drafter, self._digest = DraftService(self.url, self.config, *self.current.folders()), digest
        return self._drafter.do(work)


def _seeded(found: DraftCases) -> tuple[str, ...]:
    """Return what a person should know of a draft whose cause nobody has confirmed: how its class was chosen, and where it was seen."""
    seed = found.seed
    if seed is None:
        return ()
    if seed.like is not None:
        why = f"The draft starts with {seed.fault}: incident {seed.like} looked like it and was closed as that."
    elif seed.fault == UNKNOWN:
        why = "No known fault is close to its lines, so the draft starts with none."
    else:
        why = f"The draft starts with {seed.fault}, the known fault whose rules share the rarest words with its lines."
    told = f"Nobody has confirmed the cause of incident {found.cases[0].id}. {why}"
    return (told, *([f"Seen: {seed.seen}."] if seed.seen else []))


def _rule(files: Mapping[str, bytes]) -> dict[str, Any]:
    return dict(yaml.safe_load(files[rule_path(files)]))


def _key(rule: Mapping[str, Any]) -> str:
    """Return a fingerprint of a rule's patterns, whatever its title."""
    meant = [rule.get("match"), rule.get("when"), rule.get("not_when")]
    return f"learned:{sha256(msgspec.json.encode(meant, order='sorted')).hexdigest()[:32]}"


def _words(rule: Mapping[str, Any]) -> str:
    """Return a rule's patterns as they are written in its file."""
    meant = {name: rule[name] for name in ("match", "when", "not_when") if name in rule}
    return yaml.safe_dump(meant, sort_keys=False, width=100).strip()


def silent_lines(files: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return some lines that a rule must not match, one of each kind, each after a comment that says what it tests.

    First lines of real logs: of other failures, and near misses. Then those made by rule.
    """
    told: list[str] = []
    for path in sorted(files, key=lambda path: (bool(tests_what(path)), path)):
        real = "a line of another failure" if "/silent/neighbour-" in path else "a line of another run"
        what = tests_what(path) or (real if "/silent/neighbour-" in path or "/silent/near-" in path else "")
        line = next(iter(lines_of({path: files[path]}, "/silent/")), "")
        if what and line and f"# {what}:" not in told:
            told += [f"# {what}:", line]
    return tuple(told[:SHOWN])


def lines_of(files: Mapping[str, bytes], part: str) -> list[str]:
    """Return some lines of its test logs."""
    found = [
        line
        for path, data in sorted(files.items())
        if part in path
        for line in data.decode("utf-8", "replace").splitlines()
        if line.strip()
    ]
    return list(dict.fromkeys(found))[:SHOWN]
