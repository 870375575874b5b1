"""The weekly digest as a message: changes since the previous week, the most expensive causes, our accuracy. At most 12 blocks."""

from __future__ import annotations

from bot.digest import lead, phrases
from bot.digest.codec import loads
from bot.digest.tiles import tiles
from bot.render.text_format import many
from bot.slack.blocks.builders import actions, bullets, button, header, newline, note, paragraph, rich, words
from bot.slack.blocks.limits import Json, Message, fit
from bot.slack.blocks.mrkdwn import escaped
from kb.digest.digest import Digest

OPEN = "digest_open"  # the button that lists open incidents
_CLASSES = 5
_ACTIONS = 5
_SENTENCE = 400
_FALLBACK = 500
_THREAD = "In the thread: charts, the full report with all definitions (HTML) and the data (JSON)."


def message_of(numbers: bytes, open_handle: str | None = None, *, alone: bool = False) -> Message:
    """Return the digest as a message, from its stored figures. `open_handle`: the value of the button that lists open incidents.

    `alone`: the message goes to one person, without a thread of files.

    Raises:
        UnreadableInput: the figures were written by a different version.
    """
    digest = loads(numbers)
    head = f"Training job failures, week {digest.week}"
    blocks = [header(head), note(phrases.span(digest), *phrases.notes(digest))]
    blocks += _lead(digest)
    if digest.failures:
        blocks += [*_figures(digest), *_changes(digest), *_classes(digest), *_nodes(digest)]
    blocks += [note(_answer_record(digest))]
    if open_handle is not None and digest.open_all:
        blocks += [actions(button(OPEN, f"Not closed ({digest.open_all})", open_handle))]
    files = f"As of now, only to you. For the full report, run `signalbox digest --week {digest.week} --html FILE`."
    blocks += [note(files if alone else _THREAD)]
    return fit(Message(f"{head}: {_summary_text(digest)}", tuple(blocks)))


def failed(week: str, error: str) -> Message:
    """Return the message for a digest that failed. `error`: the id of the log entry."""
    text = f"The digest for week {week} failed. See error {error} in the Signalbox log."
    again = f"To try again, run `signalbox digest --week {week}`."
    return fit(
        Message(text, (header(f"Training job failures, week {week}"), *rich(paragraph(words(text))), note(again)))
    )


def _summary_text(digest: Digest) -> str:
    return escaped(" ".join(lead.sentences(digest)), _FALLBACK)


def _lead(digest: Digest) -> list[Json]:
    """Return what to read first: three sentences, and what to do, by owner."""
    told = [words(sentence, _SENTENCE) for sentence in lead.sentences(digest)]
    acts = [f"{action.owner}: {action.told}" for action in lead.actions(digest)]
    title = paragraph(words("What to do", bold=True)) if acts else []
    return rich(paragraph(*told), title, bullets(acts[:_ACTIONS], _SENTENCE))


def _figures(digest: Digest) -> list[Json]:
    """Return four figures, each compared with the previous week."""
    lines = [
        [*words(f"{tile.value} ", bold=True), *words(f"{_lower_case(tile.name)}: {tile.told}")]
        for tile in tiles(digest)
    ]
    return rich(paragraph(*lines))


def _lower_case(name: str) -> str:
    """Return a name for use inside a sentence."""
    return name if name.startswith("GPU") else name.lower()


def _changes(digest: Digest) -> list[Json]:
    lines = []
    for kind, names in phrases.news(digest):
        lines.append(words(names, 300) if kind == "new" else [*words(f"{kind}: "), *words(names, 300)])
    lines = lines or [words("nothing that the previous seven weeks did not have")]
    return rich(paragraph([*words(f"New in {digest.week}", bold=True), *newline(), *lines[0]], *lines[1:]))


def _classes(digest: Digest) -> list[Json]:
    """Return the most expensive causes as bullets. A fixed-width table would lose its columns on a phone."""
    dear = sorted(
        digest.classes, key=lambda fault_class: (-fault_class.gpu_hours.value, -fault_class.failures, fault_class.fault)
    )
    points = [
        f"{item.title}: {phrases.gpu_hours(item.gpu_hours)}, {many(item.failures, 'failure')} (before: {item.before})"
        for item in dear[:_CLASSES]
    ]
    if len(dear) > _CLASSES:
        points.append(f"{many(len(dear) - _CLASSES, 'more cause')}: see the full report")
    return rich(paragraph(words("By cause, most expensive first", bold=True)), bullets(points, 200))


def _nodes(digest: Digest) -> list[Json]:
    lemons = [node for node in digest.offenders.nodes if node.lemon]
    if not lemons:
        return []
    names = ", ".join(f"{lemon.name} ({lemon.jobs} jobs, score {lemon.score:.1f})" for lemon in lemons[:5])
    more = f" and {digest.offenders.lemons - 5} more" if digest.offenders.lemons > 5 else ""
    return rich(paragraph([*words("Repeat offenders ", bold=True), *words(f"over eight weeks: {names}{more}", 600)]))


def _answer_record(digest: Digest) -> str:
    """Return the accuracy of Signalbox in one line."""
    long = digest.long_record
    closed = f"not closed {digest.open_all}, {digest.open_week} of them from {digest.week}"
    if not any(item.n for item in (long.top1, long.top3, phrases.unknown_of(digest))):
        return f"Accuracy over {long.weeks} weeks: no feedback yet{f'; {closed}' if digest.open_all else ''}"
    return (
        f"Accuracy over {long.weeks} weeks: top answer correct {phrases.share(long.top1)}; "
        f"in the top three {phrases.share(long.top3)}; no cause named in {phrases.share(phrases.unknown_of(digest))}; "
        f"{closed}"
    )
