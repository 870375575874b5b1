"""What a closed incident is shown as: the cause that people confirmed, and whether it is another one than the answer gave first.

The same on the page, in the terminal and in Slack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from bot.incidents.resolution import Annotation, cause_text, word
from bot.policy.resolution_codes import Cause, Verdict
from bot.render.text_format import short_title
from kb.report import Diagnosis, Report


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The last valid close-out of an incident.

    `cause`: in words; `by`: who gave it; `fault`: its class, None where it names none; `action`: what was done, empty if nobody said.
    `replaces`: the answer gave another cause first, or none, or saw no failure where people did; `refuted`: the answer was wrong.
    """

    cause: str
    by: str
    fault: str | None = None
    action: str = ""
    replaces: bool = False
    refuted: bool = False

    @property
    def headline(self) -> str:
        """Return the cause with who confirmed it."""
        return headline(self.cause, confirmed=self.fault is not None or self.replaces, by=self.by)


def headline(cause: str, *, confirmed: bool, by: str) -> str:
    """Return the first line of a closed incident. `confirmed`: a cause is; else, people only closed it."""
    return f"{'Confirmed' if confirmed else 'Closed as'}: {short_title(cause)}{f', by {by}' if by else ''}"


def concluded(said: Iterable[Annotation], title: Callable[[str], str], report: Report) -> Conclusion | None:
    """Return what people closed an incident as; None before they have. `title`: the words for a fault's class."""
    holds = word(said)
    if holds is None:
        return None
    closing = holds.last.said
    named = closing.fault if closing.cause in ("shown", "fault") else None
    return Conclusion(
        cause_text(closing, title) or "no cause given",
        closing.who,
        named,
        closing.action,
        replaces(report, closing.cause, named),
        refutes(report, closing.verdict),
    )


def replaces(report: Report, cause: Cause | None, fault: str | None) -> bool:
    """Whether people gave another cause than the answer gave first. That the cause is unknown, or that no rule fits, replaces nothing by itself."""
    if cause == "no_failure":
        return report.verdict in ("fault", "no_match")
    first = report.diagnoses[0].fault if report.verdict == "fault" and report.diagnoses else None
    return cause in ("shown", "fault") and fault is not None and fault != first


def refutes(report: Report, verdict: Verdict | None) -> bool:
    """Whether people called the answer wrong. One that names no cause and does not say that nothing failed cannot be wrong."""
    return verdict == "wrong" and report.verdict in ("fault", "no_fault")


def confirmed_diagnosis(report: Report, fault: str | None) -> Diagnosis | None:
    """Return the diagnosis of the report whose class people confirmed; None if it has none."""
    return next((item for item in report.diagnoses if item.known and item.fault == fault), None)


def led_by(report: Report, diagnosis: Diagnosis) -> Report:
    """Return the report with this diagnosis first."""
    rest = (item for item in report.diagnoses if item is not diagnosis)
    return replace(report, diagnoses=(diagnosis, *rest))
