"""`diagnose --html` and `incidents show --html`: whole pages in files, and clear words where that cannot be."""

from __future__ import annotations

from tests.support.made_pages import Read
from tests.support.paths import DEMO


def test_the_page_of_an_answer_and_of_the_incident_kept(signalbox, tmp_path):
    """Both show the picture, the lines around the evidence and the curves; the second also shows feedback."""
    done = signalbox("diagnose", "--bundle", DEMO, "--html", tmp_path / "a.html")
    assert (done.status, done.err) == (0, "")
    signalbox("incidents", "close", "1", "--cause", "right", "--note", "the copy broke off")
    shown = signalbox("incidents", "show", "1", "--html", tmp_path / "b.html")
    assert (shown.status, shown.out, shown.err) == (0, b"", "")
    answer, incident = (Read((tmp_path / name).read_text(encoding="utf-8")) for name in ("a.html", "b.html"))
    both = (
        "Don't requeue yet. Fix the cause",
        "Who wrote when",
        "mm = mmap.mmap(fid.fileno()",
        "ValueError: mmap length",
        "Curves",
        "Loss",
        "step 36",
    )
    assert (answer.faults, answer.missing(*both)) == ([], [])
    assert (incident.faults, incident.missing("Incident 1", *both, "the copy broke off")) == ([], [])


def test_without_the_store_there_is_a_page_too(signalbox, tmp_path):
    """And nothing is kept."""
    done = signalbox("diagnose", "--bundle", DEMO, "--html", tmp_path / "a.html", "--no-store")
    assert (done.status, (tmp_path / "a.html").is_file(), signalbox.state.exists()) == (0, True, False)


def test_a_page_that_cannot_be_written_is_one_line(signalbox, tmp_path):
    """And `--each` has none."""
    done = signalbox("diagnose", "--bundle", DEMO, "--html", tmp_path / "no" / "a.html")
    assert (done.status, "cannot write the page: No such file or directory" in done.err) == (2, True)
    assert signalbox("diagnose", "--each", DEMO, "--html", tmp_path / "a.html").status == 2
    assert signalbox("incidents", "show", "7", "--html", tmp_path / "a.html").status == 2
