"""The form in which a person reads, edits and proposes a rule.

The form opens immediately; a worker then drafts and replays the rule and fills in the form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.learning.drafts.store import DraftEdits
from bot.learning.proposals.store import Proposal
from bot.render import text_format
from bot.slack.blocks.builders import (
    actions,
    button,
    divider,
    handled,
    link,
    mention,
    note,
    paragraph,
    preformatted,
    rich,
    section,
    words,
)
from bot.slack.blocks.limits import Json, Message, fit
from bot.slack.blocks.mrkdwn import escaped, is_person
from bot.slack.forms.close_out import fault_field, picked_fault
from bot.slack.forms.fields import Errors, box, entry, modal, state_values, string, ticked, typed, typing

PROPOSE_RULE = "propose_rule"
TITLE, TEXT = 80, 3000  # characters
MOST_LINES = 20
_OPEN = "Proposing a rule"


@dataclass(frozen=True, slots=True)
class RuleForm:
    """A draft as the form shows it.

    `subject`: the incidents that it comes from; `looks_for`: its conditions in words if they are more than text patterns (then
    `edits.regexes` is None); `lines`: matching log lines; `figures`: results of the replay; `hurts`: problems found by the
    replay; `notes`: remarks. `busy`: a replay is running.
    """

    handle: str
    subject: str
    edits: DraftEdits
    looks_for: str = ""
    lines: Sequence[str] = ()
    figures: Sequence[tuple[str, str]] = ()
    hurts: Sequence[str] = ()
    notes: Sequence[str] = ()
    busy: bool = False
    problem: str = field(default="")


def loading(handle: str, subject: str) -> Json:
    """Return the placeholder that opens immediately. A trigger is valid for three seconds, and drafting takes longer."""
    blocks = [
        section(
            f"Looking for a pattern that only {text_format.cut(subject, 200)} shows, and replaying it on past incidents…"
        ),
        note(
            "This usually takes 10 to 20 seconds, longer while the workers are busy. The form updates itself. You can close it: nothing is "
            "proposed until you submit."
        ),
    ]
    return _with_external_id(modal(PROPOSE_RULE, _OPEN, blocks, handle), handle)


def refused(handle: str, subject: str, reasons: Sequence[str]) -> Json:
    """Say that no rule can be drafted, and why."""
    blocks = [
        section(f"Cannot draft a rule for {text_format.cut(subject, 200)}."),
        *rich(*([{"type": "rich_text_list", "style": "bullet", "elements": [
            {"type": "rich_text_section", "elements": [{"type": "text", "text": text_format.cut(reason, 500)}]}
            for reason in list(reasons)[:10]]}],)),
        note("To write a rule yourself, run `signalbox rules new`."),
    ]  # fmt: skip
    return _with_external_id(modal(PROPOSE_RULE, _OPEN, blocks, handle), handle)


def form(shown: RuleForm) -> Json:
    """Return the draft as a form to read, edit, replay and propose."""
    edits = shown.edits
    blocks = [
        section(f"From {text_format.cut(shown.subject, 300)}."),
        *([note(f"⚠ {text_format.cut(shown.problem, 500)}")] if shown.problem else []),
        *_replay_blocks(shown),
        divider(),
        entry("title", "Title: what the rule finds", typing("title", edits.title, most=TITLE), optional=False),
        fault_field("Fault", edits.fault),
        *_pattern_field(shown),
        entry("silent", "Lines that must not match", typing("silent", "\n".join(edits.silent), most=TEXT, lines=True)),
        entry(
            "remediation", "Remediation",
            typing("remediation", "\n".join(edits.remediation), most=TEXT, lines=True), hint="One step per line. Start with what to do first.",
        ),
        entry("owner", "Owner", typing("owner", edits.owner, most=60), hint="Empty: the owner of the fault class"),
        *([_force_field()] if shown.hurts else []),
    ]  # fmt: skip
    return _with_external_id(
        modal(PROPOSE_RULE, "Propose a rule", blocks, shown.handle, submit="Propose"), shown.handle
    )


def _with_external_id(view: Json, handle: str) -> Json:
    """Name a view, so that a worker can update it later."""
    return view | {"external_id": handled(handle)}


def _replay_blocks(shown: RuleForm) -> list[Json]:
    if shown.busy:
        return [note("Replaying it on past incidents…")]
    told = [note(*(f"{name}: {value}" for name, value in shown.figures[:10]))] if shown.figures else []
    if shown.hurts:
        told.append(section("⚠ " + text_format.cut("; ".join(shown.hurts), 1500)))
    if shown.notes:
        told.append(note(*(text_format.cut(text, 300) for text in shown.notes[:5])))
    return [*told, actions(button("try_rule", "Replay again", shown.handle))]


def _pattern_field(shown: RuleForm) -> list[Json]:
    edits = shown.edits
    if edits.regexes is None:
        return [section(text_format.cut(shown.looks_for, 2000))]
    found = rich(preformatted("\n".join(shown.lines), 6, 1500)) if shown.lines else []
    text = "\n".join(edits.regexes)[:TEXT]
    field_: Json = {"type": "plain_text_input", "action_id": "patterns", "max_length": TEXT, "multiline": True}
    field_ |= {"initial_value": text} if text else {}
    return [
        *([note("Matches include:"), *found] if found else []),
        entry("patterns", "Patterns", field_, hint="One regular expression per line", optional=False),
    ]


def _force_field() -> Json:
    return entry("force", "Replay", box("force", "Propose it anyway", ticked=False))


# --- the status message ----------------------------------------------------------------------------------------------


def proposed(proposal: Proposal) -> Message:
    """Return the status of a proposed rule: one reply in the thread, edited as the status changes."""
    state, mark = _STATES[proposal.state]
    if proposal.state == "open" and proposal.draft:
        state = "is proposed as a draft"
    head = f"{mark} Rule {text_format.cut(proposal.rule, 80)} {state}"
    where = link(proposal.url, "pull request" if proposal.number is None else f"pull request {proposal.number}")
    by = [*words(", requested by "), *mention(proposal.who)] if is_person(proposal.who) else []
    branch = words(f" (branch {text_format.cut(proposal.branch, 120)})") if proposal.url is None else []
    told = [*words(f"{head}{': ' if where else ''}"), *where, *branch, *by, *words(".")]
    more = words(text_format.cut(proposal.error or "", 500), italic=True) if proposal.error else []
    return fit(Message(escaped(f"{head}: {proposal.content.title}", 600), tuple(rich(paragraph(told, more)))))


_STATES: Mapping[str, tuple[str, str]] = {
    "asked": ("is being proposed", "…"),
    "open": ("is proposed", "📬"),
    "merged": ("was merged", "✅"),
    "closed": ("was closed and will not be proposed again", "✖"),
    "failed": ("could not be proposed", "⚠"),
}


# --- reading submissions ---------------------------------------------------------------------------------------------


def read_form(state: object) -> tuple[DraftEdits, Errors]:
    """Return the submitted edits and the errors by field. Lines are stripped, empty ones dropped."""
    values = state_values(state)
    errors: Errors = {}
    title = typed(values, "title", TITLE, errors)
    if not title and "title" not in errors:
        errors["title"] = "A rule needs a title"
    regexes = _patterns(values, errors) if "patterns" in values else None
    return (
        DraftEdits(
            title=" ".join(title.split()),
            fault=picked_fault(values),
            regexes=regexes,
            silent=_lines(typed(values, "silent", TEXT, errors))[:MOST_LINES],
            remediation=_lines(typed(values, "remediation", TEXT, errors))[:MOST_LINES],
            owner=" ".join(typed(values, "owner", 60, errors).split()),
            force="force" in ticked(values, "force"),
        ),
        errors,
    )


def _patterns(values: Mapping[str, Any], errors: Errors) -> tuple[str, ...]:
    """Return regular expressions exactly as typed: they go back into the form and into the rule file."""
    text = string(values, "patterns")
    lines = tuple(line for line in text.splitlines() if line.strip())
    if not lines:
        errors["patterns"] = "Enter at least one regular expression, one per line"
    elif len(lines) > MOST_LINES or len(text) > TEXT:
        errors["patterns"] = f"At most {MOST_LINES} lines and {TEXT:,} characters"
    elif not all(line.isprintable() for line in lines):
        errors["patterns"] = "It contains an invisible character. Write it as \\t, \\x1b or the like"
    else:
        return lines
    return ()


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.splitlines() if line.strip())
