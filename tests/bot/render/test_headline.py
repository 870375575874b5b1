"""The headline of an answer and the sentence below it, which says more or is left out."""

from __future__ import annotations

import pytest

from bot.render.headline import explanation
from kb.report import Diagnosis, Report, Versions


@pytest.mark.parametrize(
    ("title", "summary", "shown"),
    [
        ("Network file system could not be mounted", "A network file system could not be mounted.", False),
        ("Quota lease revoked", "Quota lease revoked.", False),
        ("Slurm lost a node of the job", "Slurm lost a node of the job.", False),
        ("Slurm lost a node of the job", "Slurm lost node17 of the job.", True),
        ("GPU memory exhausted", "Rank 1 ran out of GPU memory.", True),
        ("Collective timed out", "A collective timed out after 600 s.", True),
    ],
)
def test_a_summary_is_shown_if_it_says_more_than_the_headline(title: str, summary: str, shown: bool) -> None:
    """A number, a name or another word that carries meaning."""
    first = Diagnosis(1, "f", "rule", 1, title, summary, 0.9, "likely", "root_cause")
    report = Report("", "", "fault", "failed", f"{title}: {summary}", Versions("1", "1", "", "1"), diagnoses=(first,))
    assert explanation(report) == (summary if shown else "")
