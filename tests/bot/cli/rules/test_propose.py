"""`signalbox rules propose --into`: says which files it wrote, and what a person does next."""

from __future__ import annotations

from dataclasses import dataclass

from bot.cli.rules import propose
from bot.learning.drafts.store import DraftContent, DraftEdits


@dataclass
class Drafter:
    """A drafter that learned one rule."""

    url: str
    config: object
    folder: object
    tell: object
    begin: object

    def content(self, *_: object, **__: object) -> DraftContent:
        """Of any incident."""
        files = {"rules/storage/lease/rule.yaml": b"id: lease\n", "rules/storage/lease/match/1.log": b"lease revoked\n"}
        return DraftContent(rule="lease", edits=DraftEdits("Lease", "storage_io", ("lease",), ()), files=files)


def test_the_written_files_and_the_next_step_are_named(tmp_path, monkeypatch, capsys):
    """The folder is not found otherwise, and a draft never fires."""
    monkeypatch.setenv("SIGNALBOX_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(propose, "DraftService", Drafter)
    assert propose.run(1, "default", into=tmp_path / "new") == 0
    told = capsys.readouterr().err
    for name in ("rules/storage/lease/rule.yaml", "rules/storage/lease/match/1.log"):
        assert f"written: {tmp_path / 'new' / name}" in told
        assert (tmp_path / "new" / name).is_file()
    assert "status: experimental" in told
    assert "rules lint --site" in told


def test_where_nothing_can_be_proposed_that_is_said_before_the_work(tmp_path, monkeypatch, capsys):
    """A draft takes a minute; --into needs no repository."""
    monkeypatch.setenv("SIGNALBOX_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(propose, "DraftService", None)
    assert propose.run(1, "default") == 1
    told = capsys.readouterr().err
    assert "`rules: pull_requests:` is not configured" in told
    assert "rules propose 1 --into FOLDER" in told
