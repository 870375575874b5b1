"""Short replies to one person: acknowledgements and errors. See also bot.slack.messages.notices."""

from __future__ import annotations

from collections.abc import Sequence

from bot.render import text_format
from bot.slack.blocks.builders import actions, button, link, mention, paragraph, preformatted, rich, words
from bot.slack.blocks.limits import Message, fit
from bot.slack.blocks.mrkdwn import escaped

TAKEN = "Diagnosing "  # the start of every acknowledgement
_SENTENCE = 600
_NAME = 80
_DRAINS = 8  # drain commands shown


def text_reply(text: str) -> Message:
    """Return one sentence. Slack markup such as `<#C…>` is shown literally."""
    text = text.strip() or "…"
    return fit(Message(escaped(text, _SENTENCE), tuple(rich(paragraph(words(text, _SENTENCE))))))


def request_accepted(job: str, *, private: bool = False, there: bool = False, link_to: str | None = None) -> Message:
    """Acknowledge a request. `there`: a message in this channel answers it already or soon will; `link_to`: the address of the message."""
    name = text_format.cut(job, _NAME)
    if there:
        head = f"{name} is already being diagnosed in this channel, or was a moment ago: see "
        where = link(link_to, "the answer") or words("the message above")
        rest = words(". To diagnose it again, use “Run again” in its menu.")
        return fit(Message(escaped(f"{head}above.", _SENTENCE), tuple(rich(paragraph([*words(head), *where, *rest])))))
    return text_reply(f"{TAKEN}{name}. I'll {'send the result only to you' if private else 'post the result here'}.")


def opening_words(job: str, why: str, called: Sequence[str]) -> Message:
    """Return the opening text of an automatic answer. Mentions go here, because an edit notifies nobody."""
    head = (
        f"{text_format.cut(job, _NAME)} failed"
        if why.startswith(("job ended", "it ended"))
        else text_format.cut(job, _NAME)
    )
    people = [part for text in called for part in (*words(" "), *mention(text))]
    told = paragraph([*words(f"{head}. I'll post the diagnosis here."), *people], words(why, _SENTENCE, italic=True))
    return fit(Message(escaped(f"{head}{text_format.tail(why)}", _SENTENCE), tuple(rich(told))))


def assigned(incident: int, job: str, *, by: str, note: str, handle: str) -> Message:
    """Tell somebody that an incident was assigned to them. `by`: who did it; `handle`: the value of the button that opens it."""
    what = f" assigned incident {incident} ({text_format.cut(job, _NAME)}) to you"
    told = paragraph([*mention(by), *words(what)], words(note, _SENTENCE, italic=True))
    head = f"Incident {incident} ({text_format.cut(job, _NAME)}) was assigned to you"
    blocks = (*rich(told), actions(button("open_incident", "Open", handle)))
    return fit(Message(escaped(head, _SENTENCE), blocks))


def on_call(names: Sequence[str], *, configured: bool) -> Message:
    """Answer who is on call. `configured`: whether a rota is."""
    if not configured:
        return text_reply("No rota is configured. An admin sets on_call of the tenant.")
    if not names:
        return text_reply("Nobody is on call now, or the rota could not be read.")
    called = [part for number, name in enumerate(names) for part in (*(words(", ") if number else ()), *mention(name))]
    return fit(Message("On call", tuple(rich(paragraph([*words("On call: ", bold=True), *called])))))


def answer_ready(who: Sequence[str], told: str) -> Message:
    """Tell people that their answer is there. An edit of a message notifies nobody, a mention does."""
    called = [part for name in who for part in (*mention(name), *words(" "))]
    return fit(Message(escaped(told, _SENTENCE), tuple(rich(paragraph([*called, *words(told, _SENTENCE)])))))


def undelivered(job: str, why: str) -> Message:
    """Tell somebody why a direct message with an answer did not arrive. `why`: the error of Slack."""
    hints = {
        "messages_tab_disabled": "A workspace admin can enable the Messages tab of the app.",
        "user_disabled": "Your account is deactivated.",
        "restricted_action": "A workspace setting forbids it.",
    }
    hint = hints.get(why, "")
    job = text_format.cut(job, _NAME)
    return text_reply(
        f"I couldn't send you the diagnosis of {job} as a direct message: Slack says {why}. {hint}".strip()
    )


def exclusions_decided(nodes: Sequence[str], drains: Sequence[str], late: Sequence[str]) -> Message:
    """Report the decided exclusions, with the drain commands. Signalbox never runs them."""
    head = f"Excluded: {text_format.few(nodes)}." if nodes else "No node was excluded."
    more = f" {'; '.join(late)}." if late else ""
    how = "Signalbox changes nothing on the cluster. To drain the node, run:" if drains else ""
    parts = [
        paragraph(words(f"{head}{more}", _SENTENCE), words(how)),
        preformatted("\n".join(drains), _DRAINS, _SENTENCE),
    ]
    return fit(Message(escaped(f"{head}{more}", _SENTENCE), tuple(rich(*parts))))


def searching() -> Message:
    """Say that the person's recent failed jobs are being looked up."""
    return text_reply("Looking for your recent failed jobs…")


def internal_error(error: str) -> Message:
    """Report a bug in Signalbox. `error`: the id of the log entry."""
    return text_reply(f"Something went wrong in Signalbox (error {error}; see its log). It is safe to try again.")
