"""What remains after a kill: one job, one kill at a point, one more run that succeeds."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func
from sqlmodel import col, select

from bot.demo.fakeslack.values import Message
from bot.store.tables import IncidentRow, OutboxRow, PostingRow, RequestRow, WorkRow
from tests.support.mortal_worker import Lives
from tests.support.slack_stage import ADA, BUNDLES, CHANNEL, Stage

MUST = ("after call: ", "before commit: update work", "after commit: update work")  # points that no choice leaves out


@dataclass(frozen=True, slots=True)
class Left:
    """What remains after a kill and one more run.

    `opened`: messages with only their opening text; `pictures`, `texts`: files in the thread; `undone`: rows with
    unfinished work.
    """

    incidents: int
    answers: int
    opened: int
    pictures: int
    texts: int
    undone: int


WHOLE = Left(incidents=1, answers=1, opened=0, pictures=1, texts=1, undone=0)


def prepare(folder: Path, job: str) -> None:
    """Copy a recorded failure under a unique name, so that its report and incident are its own."""
    shutil.copytree(BUNDLES["demo"], folder / "runs" / job)
    told = folder / "runs" / job / "job.yaml"
    told.write_text(told.read_text().replace("name: lm-tiny\n", f"name: {job}\n"))


def killed(  # noqa: PLR0917 - all of them are what a kill is about
    play: Stage, lives: Lives, url: str, folder: Path, job: str, points: Sequence[int]
) -> tuple[str, Left]:
    """Request a job, kill at each point in turn, then run on; return the last kill point and what remains."""
    prepare(folder, job)
    before = {answer.ts for answer in play.answers()}
    files = len(play.workspace.files)
    assert play.workspace.command(ADA, CHANNEL, "/diagnose", job).acknowledged
    where = ""
    for number in points:
        ended = lives.live(url, folder / "signalbox.yaml", number)
        assert ended.killed, (number, ended)
        where = ended.points[-1]
    ended = lives.live(url, folder / "signalbox.yaml")
    assert ended.error is None
    new = [answer for answer in play.answers() if answer.ts not in before]
    names = [file.name for file in play.workspace.files[files:] if file.shared]
    answers = sum(is_answer(message, job) for message in new)
    with play.ledger.database.session() as session:
        incidents = session.exec(select(func.count()).where(col(IncidentRow.job_name) == job)).one()
        undone = [
            session.exec(select(func.count()).where(*wanted)).one()
            for wanted in (
                (col(WorkRow.state).in_(("waiting", "running")),),
                (col(RequestRow.settled).is_(False),),
                (col(PostingRow.state) != "reminder", col(PostingRow.sent).is_distinct_from(col(PostingRow.version))),
                (col(OutboxRow.state) != "sent",),
            )
        ]
    texts = sum(name.endswith(".txt") for name in names)
    return where, Left(incidents, answers, len(new) - answers, len(names) - texts, texts, sum(undone))


def is_answer(message: Message, job: str) -> bool:
    """Whether it is the answer about this job, with feedback buttons."""
    buttons = {
        element.get("action_id")
        for block in message.blocks
        if block["type"] == "actions"
        for element in block["elements"]
    }
    return job in message.text and "right" in buttons


def chosen(points: Sequence[str], count: int) -> list[int]:
    """Return about `count` kill points (from 1): the important ones, and others evenly spread."""
    must = [number for number, name in enumerate(points, 1) if name.startswith(MUST)]
    others = [number for number in range(1, len(points) + 1) if number not in must]
    more = max(0, count - len(must))
    return sorted([*must, *others[:: max(1, len(others) // more)]][:count] if more else must)


def expected(point: str) -> tuple[Left, ...]:
    """Return what a kill at a point can leave behind."""
    if point in ("after call: chat.postMessage", "before commit: update posting"):
        # Slack has the opening words and we do not know it: they are posted again
        return (WHOLE, Left(1, 1, 1, 1, 1, 0))
    if "files.completeUploadExternal" in point or point.endswith("commit: update outbox"):
        return (WHOLE, Left(1, 1, 0, 0, 0, 0))  # whether Slack did it is not known: rather none than twice
    return (WHOLE,)
