"""An answer as a Slack message: the decision first, then why, then what was not seen. Whole and short: the file has the rest.

Every function gives a `Message` within Slack's limits. Words are those of the terminal (bot.render.phrases).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bot.policy.resolution_codes import VERDICTS
from bot.render import phrases
from bot.render.phrases import few, joined, many
from bot.slack.blocks.builders import (
    actions,
    bullets,
    button,
    choice,
    confirmed,
    divider,
    handled,
    header,
    link,
    mention,
    menu,
    note,
    overflow,
    paragraph,
    preformatted,
    rich,
    words,
)
from bot.slack.blocks.limits import Json, Message, fit
from bot.slack.blocks.mrkdwn import escaped, listed
from bot.slack.messages.card import Barred, Card, Chain, Life, Said
from kb.report import Diagnosis, EvidenceItem, Indicator, Report

_DIAGNOSES = 3
_QUOTES = (3, 2, 1)  # evidence items shown of the first, second and third diagnosis
_LINES = (4, 2, 1)  # lines shown of one of them
_QUOTED = 240  # characters of a line
_BRIEF = 160  # characters of what matters less
_SAID = 400  # characters of a sentence
_NAMED = 80  # characters of a name
_GAPS = 2
_NEEDED = 4  # gaps shown where they are the answer
_OPINIONS = 3
_ADVICE = 3
_TAUGHT = 4  # sentences on earlier runs
_UNUSUAL = 3  # lines that stand out
_ODD = 2  # nodes, stages and iterations that stand out, of each
_EXCLUDED = 3
_REASONS = 2
_LABEL = 60  # characters of a node's name on a button
_FALLBACK = 600

_MARKS = {"failed": "🔴", "hung": "🔴", "stopped": "🔴", "degraded": "🟠"}
_STATES = {
    "running": "running",
    "hung": "hangs",
    "degraded": "degraded",
    "failed": "failed",
    "stopped": "stopped",
    "completed": "completed",
}


def answered(report: Report, card: Card) -> Message:
    """The result: what to do, what happened, up to three diagnoses with their evidence, and what was not seen.

    A report that was closed is shown short: who closed it, and with what.
    """
    if card.life.whole is not None:
        return _part(report, card)
    if card.closings:
        return _closed(report, card)
    blocks = [header(_head(report)), *_decision(report, card), *_lived(card.life), *_facts(report, card)]
    lead = report.verdict != "fault"
    blocks += [*(_memory(report) if lead else ()), *_found(report, card), *(() if lead else _memory(report))]
    blocks += _not_seen(report)
    blocks += [*_bars(card), *_about(report, card), _buttons(report, card)]
    return fit(Message(_fallback(report), tuple(blocks)))


def name_of(report: Report) -> str:
    """What the job is called: by its name, else its id, else the folder its evidence came from."""
    return report.job.name or report.job.id or report.bundle or "the job"


def _head(report: Report) -> str:
    name = phrases.cut(name_of(report), _NAMED)
    if report.verdict == "no_match":
        return f"🟡 {name}: {_STATES.get(report.phase, 'failed')}, cause unknown"
    if report.verdict == "insufficient_evidence":
        return f"❔ {name}: not enough seen"
    if report.hang.lone is not None:
        return f"🟠 {name}: may hang"
    if report.verdict == "no_fault":
        return f"🟢 {name}: {joined([_STATES.get(report.phase, ''), 'nothing failed'])}"
    return f"{_MARKS.get(report.phase, '🔴')} {name}: {_STATES.get(report.phase, 'failed')}"


def _fallback(report: Report) -> str:
    decision = "" if report.verdict == "no_fault" else f"{phrases.decided(report)} {phrases.owned(report.decision)} "
    return escaped(f"{_head(report)}. {decision}{report.summary}", _FALLBACK)


# --- the first screen ------------------------------------------------------------------------------------------------


def _decision(report: Report, card: Card) -> list[Json]:
    """What to do, in bold; who owns it; why each node is left out; what happened."""
    decision = report.decision
    told = words(phrases.decided(report), _SAID, bold=True)
    owned = phrases.owned(decision)
    owner = words(f" {owned}" if owned else "", _NAMED)
    if card.owner:
        owner = [*(owner or words(" Owner:")), *words(" "), *mention(card.owner)]
    excluded = listed(phrases.excluded(decision), _EXCLUDED)
    why = "" if report.diagnoses else decision.why
    return rich(
        paragraph([*told, *owner], *(words(one, _SAID) for one in (*excluded, why))),
        paragraph(words(report.summary, _SAID)),
    )


def _facts(report: Report, card: Card) -> list[Json]:
    """Which job, how far it came, what its attempts were."""
    job = report.job
    stopped = job.attempts[-1].stopped if job.attempts else None
    which = joined(
        [
            f"job {job.id}" if job.id and job.id != name_of(report) else "",
            f"attempt {job.attempt}" if job.attempt is not None else "",
            *phrases.size_facts(job),
            f"state {job.state}" if job.state else "",
            f"stopped {phrases.clock(stopped)}" if stopped is not None else "",
        ]
    )
    hang = phrases.hang(report) or (phrases.voted(report.hang) if report.phase == "running" else "")
    rows = [which, joined(phrases.progress(report)), f"Hang {hang}" if hang else "", _chain(card.chain), _since(card)]
    return [note(phrases.cut(row, _SAID)) for row in rows if row]


def _since(card: Card) -> str:
    """What came after it: more attempts, the same failure again."""
    later = f"{many(card.later, 'later attempt')} failed too: see the thread" if card.later else ""
    same = f"the same failure came {many(card.times, 'time')}" if card.times > 1 else ""
    return joined([later, same])


def _chain(chain: Chain | None) -> str:
    if chain is None or (chain.attempt < 2 and not chain.earlier):
        return ""
    ends = few([f"{count} x {fault}" for fault, count in chain.earlier])
    return f"Failed {many(chain.attempt, 'time')} in a row{f'; before: {ends}' if ends else ''}"


def _lived(life: Life) -> list[Json]:
    """Who has it, whether it sleeps, what was merged into it."""
    told: list[list[Json]] = []
    if life.acked or life.assignee:
        head = "Acknowledged" if life.acked else "Assigned"
        by = [*words(" by " if life.acked else " to "), *mention(life.assignee)] if life.assignee else []
        told.append([*words(head, bold=True), *by])
    if life.snoozed is not None:
        told.append(words(f"Snoozed until {phrases.clock(life.snoozed)}", bold=True))
    if life.reopened:
        told.append(words("Reopened: what it was closed as does not hold", _SAID))
    if life.parts:
        named = few([f"{number} ({phrases.cut(job, _NAMED)})" for number, job in life.parts])
        told.append(
            [*words("With ", bold=True), *words(f"incident{'s' if len(life.parts) > 1 else ''} {named}", _SAID)]
        )
    return rich(paragraph(*told))


# --- why -------------------------------------------------------------------------------------------------------------


def _found(report: Report, card: Card) -> Iterator[Json]:
    """The diagnoses, or what stands out where there is none to rely on."""
    if report.verdict == "fault":
        yield from _diagnoses(report, card)
        if all(one.band == "weak" for one in report.diagnoses):
            yield from _indicators(report)
        return
    if report.hang.lone is not None and report.hang.advice:
        yield from rich(
            paragraph(words("To be sure, one of these:", bold=True)),
            bullets(listed(report.hang.advice, _ADVICE), _SAID),
        )
    yield from _indicators(report)
    near = [f"{one.title} ({one.fault}, {one.band}, rule {one.rule}@{one.rule_version})" for one in report.diagnoses]
    yield from rich(
        paragraph(words("Nearest known faults:", bold=True)) if near else [], bullets(listed(near, _DIAGNOSES), _SAID)
    )


def _diagnoses(report: Report, card: Card) -> Iterator[Json]:
    for place, one in enumerate(report.diagnoses[:_DIAGNOSES]):
        yield divider()
        yield from _diagnosis(one, place, card)
    rest = report.diagnoses[_DIAGNOSES:]
    if rest:
        yield note(phrases.cut(f"Also found: {few([f'{one.fault} ({one.band})' for one in rest])}", _SAID))


def _diagnosis(one: Diagnosis, place: int, card: Card) -> list[Json]:
    """One fault: the first with all that matters, those after it in a few lines.

    What to do stands in a block of its own: Slack folds long blocks.
    """
    role = "" if one.role == "root_cause" else f", {one.role}"
    weak = card.weak.get(one.rule)
    title = words(f"{one.rank}. {one.title}", _SAID, bold=True) + words(f" ({one.fault}{role})", _NAMED * 2)
    reasons = "" if place else phrases.tail("; ".join(one.reasons[:_REASONS]))
    sure = _labelled("Confidence", f"{one.band}{reasons}") + words(f" (rule {one.rule}@{one.rule_version})", _NAMED * 2)
    if weak is not None:
        sure += words(f" ⚠ weak rule: {weak}", _NAMED * 2, bold=True)
    where = joined(phrases.place(one))
    suspects = phrases.suspected(one.suspects)
    quotes = 1 if place and one.band == "weak" else _QUOTES[place]
    explained = "" if place else phrases.explains(one)
    told = rich(
        paragraph(
            title,
            sure,
            _labelled("Suspects", suspects),
            _labelled("Where", where),
        ),
        *(_quote(item, _LINES[place]) for item in one.evidence[:quotes]),
        paragraph(
            words("" if place else _more(len(one.evidence) - quotes), italic=True),
            _labelled("Explains", explained),
        ),
    )
    return [*told, *rich(*_remedy(one, place))]


def _labelled(label: str, text: str) -> list[Json]:
    """A line with a bold word before it, as a table's row; nothing where the text is empty."""
    return [*words(label, bold=True), *words(f" {text}", _SAID)] if text else []


def _quote(item: EvidenceItem, lines: int) -> list[Json]:
    """Where it stands and when it was written, and the text itself where nothing is read as markup."""
    when = phrases.clock(item.time) if item.time is not None else ""
    return [
        *paragraph([*words(phrases.source(item), _NAMED * 2, italic=True), *words(f" {when}" if when else "", _NAMED)]),
        *preformatted(item.text, lines, _QUOTED),
    ]


def _more(count: int) -> str:
    return f"… and {count} more in Evidence" if count > 0 else ""


def _remedy(one: Diagnosis, place: int) -> Iterator[list[Json]]:
    if not one.remediation or (place and one.band == "weak"):
        return
    step = one.remediation[0]
    yield paragraph(
        [
            *_labelled("Do first", step.text),
            *words(f" {phrases.grade(step)}", _NAMED, bold=step.grade == "disruptive"),
        ]
    )
    if place == 0:
        yield preformatted(step.command or "", 3, _SAID)
        yield paragraph(_labelled("Check", step.verify or ""))


# --- what stands out, and what was not seen --------------------------------------------------------------------------


def _memory(report: Report) -> list[Json]:
    """What earlier runs teach: before the lines that stand out where no rule knows it, after the diagnoses where one does."""
    found = phrases.remembered(report)
    if not found:
        return []
    rest = len(found) - _TAUGHT
    return rich(
        paragraph(words(phrases.REMEMBERED, bold=True)),
        bullets([*found[:_TAUGHT], *([f"… and {rest} more on the page"] if rest > 0 else [])], _SAID),
    )


def _indicators(report: Report) -> list[Json]:
    found = report.indicators
    if phrases.nothing_stands_out(found):
        return []
    shown = found.events[:_UNUSUAL]
    return [
        divider(),
        *rich(
            paragraph(words(phrases.standing_out(report), bold=True)),
            *(_unusual(one) for one in shown),
            paragraph(words(_more(len(found.events) - len(shown)), italic=True)),
            bullets(
                [
                    *_odd("Node", found.nodes),
                    *_odd("Stage", found.stages),
                    *_odd("Step", found.iterations),
                ],
                _SAID,
            ),
        ),
    ]


def _unusual(one: Indicator) -> list[Json]:
    if one.evidence is None:
        return [*paragraph(words(one.why, _SAID, italic=True)), *preformatted(one.what, 2, _QUOTED)]
    place = f"{phrases.source(one.evidence)}{phrases.tail(one.why)}"
    return [*paragraph(words(place, _SAID, italic=True)), *preformatted(one.evidence.text or one.what, 2, _QUOTED)]


def _odd(kind: str, found: Sequence[Indicator]) -> list[str]:
    told = [f"{kind}: {one.what}{phrases.tail(one.why)}" for one in found[:_ODD]]
    rest = len(found) - len(told)
    return [*told, *([f"… and {many(rest, f'more {kind.lower()}')}"] if rest else [])]


def _not_seen(report: Report) -> list[Json]:
    needed = report.verdict in ("insufficient_evidence", "no_match")
    points = listed(phrases.folded(report.gaps, sources=1), _NEEDED if needed else _GAPS)
    unjudged = phrases.not_judged(report.not_evaluated, 3)
    if not points and not unjudged:
        return []
    return rich(
        paragraph(words(phrases.not_seen(report), bold=True)),
        bullets([*points, *([unjudged] if unjudged else [])], _QUOTED if needed else _BRIEF),
    )


# --- the foot --------------------------------------------------------------------------------------------------------


def _about(report: Report, card: Card) -> list[Json]:
    """Who asked, the page, what gave the answer."""
    asked, page = _asked(card), link(card.link, "Incident page")
    muted = words(f"Muted: {card.muted}" if card.muted else "", _SAID)
    if muted and card.muted_by:
        muted += [*words(", by "), *mention(card.muted_by)]
    return [
        *rich(paragraph([*asked, *(words(" · ") if asked and page else []), *page], muted)),
        note("Only you see this" if card.private else "", _numbered(report, card)),
    ]


def _numbered(report: Report, card: Card) -> str:
    """The incident, for the command line, and what gave the answer."""
    number = "" if card.number is None else f"Incident {card.number}; "
    return phrases.cut(f"{number}{phrases.versions(report)}", _SAID)


def _asked(card: Card) -> list[Json]:
    if card.asked_by:
        return [*words("Asked by "), *mention(card.asked_by)]
    return words(f"Unasked: {card.why}", _SAID) if card.why else []


def _buttons(report: Report, card: Card) -> Json:
    handle = card.handle
    if report.verdict == "fault" or (report.verdict == "no_fault" and report.hang.lone is None):
        says = [button("right", "👍 Right", handle), button("wrong", "👎 Wrong", handle)]
    else:
        says = []
    propose = [button("propose_rule", "Propose a rule", handle)] if report.verdict == "no_match" else []
    return actions(
        *says,
        button("evidence", "Evidence", handle),
        button("close_out", "Close out", handle),
        *propose,
        _steps(card),
        _further(report, handle, propose=not propose),
    )


def _bars(card: Card) -> list[Json]:
    """The nodes to be left out, as the bar list has them, and a pair of buttons while somebody must decide."""
    if not card.bars:
        return []
    told = [[*words(f"{one.node}: {one.told}", _SAID), *_decided_by(one)] for one in card.bars[:_EXCLUDED]]
    rest = len(card.bars) - _EXCLUDED
    blocks = rich(
        paragraph(words("Bar list", bold=True), *told, words(f"… and {many(rest, 'more node')}" if rest > 0 else ""))
    )
    open_ = [one.node for one in card.bars if one.state == "proposed"]
    if not open_:
        return blocks
    names = few(open_)
    what = phrases.cut(open_[0], _LABEL) if len(open_) == 1 else f"{len(open_)} nodes"
    asks = (
        f"Signalbox will leave {names} out of what it advises, and say so where a job uses it again. "
        "It changes nothing on the cluster."
    )
    pair = (
        confirmed(button("bar_confirm", f"Bar {what}", card.handle), f"Bar {what}?", asks, "Bar"),
        button("bar_refuse", "Do not bar", card.handle),
    )
    return [*blocks, actions(*pair)]


def _decided_by(one: Barred) -> list[Json]:
    return [*words(", by "), *mention(one.by)] if one.by else []


def _steps(card: Card) -> Json:
    """The menu of steps besides the close-out, those that make sense now."""
    life, handle = card.life, handled(card.handle)
    if life.whole is not None or card.closings:
        told = {"reopen": "Reopen", **({} if life.whole is not None else {"merge": "Merge into…"})}
    else:
        told = {
            "ack": "" if life.acked and life.snoozed is None else "Acknowledge",
            "assign": "Assign…",
            "snooze": "Snooze…",
            "merge": "Merge into…",
            "reopen": "Wake up" if life.snoozed is not None else "",
        }
    return menu("life", "Take, put off…", [choice(f"{verb}:{handle}", label) for verb, label in told.items() if label])


def _further(report: Report, handle: str, *, propose: bool) -> Json:
    first = report.diagnoses[0] if report.diagnoses else None
    nodes = first is not None and any(one.node for one in first.suspects)
    told = {
        "again": "Run again",
        "mute_rule": "Mute this rule…" if first is not None else "",
        "mute_job": "Mute this job…",
        "mute_node": "Mute this node…" if nodes else "",
        "propose_rule": "Propose a rule…" if propose else "",
    }
    return overflow("more", [choice(f"{verb}:{handled(handle)}", label) for verb, label in told.items() if label])


# --- closed, or a part of another one --------------------------------------------------------------------------------


def _part(report: Report, card: Card) -> Message:
    """An incident that counts as a part of another one, in two lines."""
    assert card.life.whole is not None  # noqa: S101 - whoever calls has looked
    number, job, page = card.life.whole
    body = f"Merged into incident {number} ({phrases.cut(job, _NAMED)})"
    blocks = [
        header(f"⚪ {phrases.cut(name_of(report), _NAMED)}: {_STATES.get(report.phase, 'looked at')}, merged"),
        *rich(paragraph([*words(body, _SAID, bold=True), *words(" "), *link(page, "page")])),
        note(phrases.cut(joined([*phrases.size_facts(report.job), *phrases.progress(report)]), _SAID), _summed(report)),
        *_about(report, card),
        actions(button("evidence", "Evidence", card.handle), _steps(card)),
    ]
    return fit(Message(escaped(f"{name_of(report)}: {body}", _FALLBACK), tuple(blocks)))


def _closed(report: Report, card: Card) -> Message:
    """A closed incident in three lines: by whom, with what cause, what others said."""
    valid, *others = card.closings
    unlike = [one for one in others if (one.cause, one.verdict, one.nodes) != (valid.cause, valid.verdict, valid.nodes)]
    told = paragraph(
        [*words("Closed by ", bold=True), *_said(valid)],
        words(valid.note, _SAID, italic=True),
        *([*mention(one.by), *words(" does not agree: "), *_said(one, who=False)] for one in unlike[:_OPINIONS]),
        words(_others(len(unlike) - _OPINIONS)),
    )
    body = f"Closed: {valid.cause}{_nodes(valid)}{_bot(valid)}. It said: {phrases.decided(report)}"
    blocks = [
        header(f"⚪ {phrases.cut(name_of(report), _NAMED)}: {_STATES.get(report.phase, 'looked at')}, closed"),
        *rich(told),
        *_lived(replace(card.life, acked=False, assignee=None, snoozed=None, reopened=False)),
        note(phrases.cut(joined([*phrases.size_facts(report.job), *phrases.progress(report)]), _SAID), _summed(report)),
        *_about(report, card),
        actions(
            button("close_out", "Correct this", card.handle),
            button("evidence", "Evidence", card.handle),
            _steps(card),
            _further(report, card.handle, propose=True),
        ),
    ]
    return fit(Message(escaped(f"{name_of(report)}: {body}", _FALLBACK), tuple(blocks)))


def _said(one: Said, *, who: bool = True) -> list[Json]:
    by = [*mention(one.by), *words(": ")] if who else []
    return [*by, *words(f"{one.cause}{_nodes(one)}{_bot(one)}", _SAID)]


def _nodes(one: Said) -> str:
    if not one.nodes:
        return ""
    return f", {'node' if len(one.nodes) == 1 else 'nodes'} {few(one.nodes)}"


def _bot(one: Said) -> str:
    return f" (bot: {VERDICTS[one.verdict]})" if one.verdict else ""


def _others(count: int) -> str:
    return f"… and {count} more who do not agree" if count > 0 else ""


def _summed(report: Report) -> str:
    if not report.diagnoses:
        return "It said: no cause"
    first = report.diagnoses[0]
    return phrases.cut(f"It said: {first.title} ({first.band})", _SAID)
