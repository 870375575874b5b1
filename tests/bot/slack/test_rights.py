"""Every way into the app against every kind of person; `python bench/rights.py` walks all pairs, these are a few hundred."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from bot.rulebase.loader import Knowledge
from bot.slack.listeners.commands import VERBS
from bot.slack.messages import answer_footer
from bot.slack.messages.card import Card, IncidentStatus
from bot.slack.use_cases.access import AccessControl
from tests.support.bot_samples import FALLEN_GPU
from tests.support.rights import oracle
from tests.support.rights.doors import CLOSED, DOORS, Asked, Door, Place, submitted
from tests.support.rights.scene import ADA, BOSS, CHANNELS, NOBODY, RED, Scene, scene


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, known: Knowledge) -> Iterator[Scene]:
    """Two tenants with shared and private incidents, and the app."""
    logging.getLogger("bot.slack").setLevel(logging.ERROR)
    with scene(tmp_path_factory.mktemp("rights"), known) as made:
        yield made
    logging.getLogger("bot.slack").setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def restored(stage: Scene) -> Iterator[None]:
    """Each test finds the store as it was."""
    yield
    stage.seen.wrote = True
    stage.restore()


def test_every_listener_is_a_door(stage: Scene) -> None:
    """What is registered with the app is in the table, and the other way round; nothing is registered in another way."""
    assert set(stage.listeners) == {(door.kind, door.name) for door in DOORS}
    assert len(stage.listeners) == len(stage.app._listeners)


def test_every_subcommand_and_option_is_a_door() -> None:
    """Those of `/signalbox`, of the menus of an answer, and of a closed and a snoozed incident."""
    parts = {(door.name, door.part.partition(" ")[0]) for door in DOORS}
    assert {("/signalbox", verb) for verb in VERBS} <= parts
    status = (IncidentStatus(), IncidentStatus(snoozed=1.0), IncidentStatus(whole=(1, "job", None)))
    menus = [answer_footer.manage_menu(replace(Card("h"), life=life)) for life in status]
    menus.append(answer_footer.more_menu(FALLEN_GPU, "h", propose=True))
    offered = {(menu["action_id"], option["value"].partition(":")[0]) for menu in menus for option in menu["options"]}
    assert offered == {part for part in parts if part[0] in ("life", "more")} - {("life", "")}


@pytest.mark.quick("event", "command", "action")
@pytest.mark.parametrize("kind", sorted({door.kind for door in DOORS}))
def test_nobody_passes_who_may_not(stage: Scene, kind: str) -> None:
    """Who may passes, and sees only what they may; who may not sees nothing, changes nothing, and no form opens."""
    numbered = [case for case in oracle.few(stage, DOORS) if case.door.kind == kind]
    found = []
    for case in numbered:
        found += oracle.problems(stage, case)
        stage.restore()
    assert found == []
    assert {oracle.may(case) for case in numbered} == {True, False}


@pytest.mark.slow  # test_nobody_passes_who_may_not
def test_the_walk_finds_a_hole(stage: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rights are not asked for, the walk says so for each way in."""
    monkeypatch.setattr(AccessControl, "allow", lambda self, person, *_: self.tenants_of(person)[0])
    doors = [door for door in DOORS if door.verb is not None and not door.to_owner]
    open_ = set()
    for case in oracle.few(stage, doors):
        if case.place == Place(CHANNELS[RED]) and case.target.tenant == RED and not oracle.may(case):
            open_ |= {str(case.door)} if oracle.problems(stage, case) else set()
            stage.restore()
    assert open_ == {str(door) for door in doors}


def test_a_form_is_submitted_only_by_whom_it_was_opened_for(stage: Scene) -> None:
    """The handle of another person's form is worth nothing."""
    stolen = submitted("close_out", CLOSED, handle=lambda asked: asked.opened(who=ADA))
    door = Door("view", "close_out", "", "annotate", stolen)
    own = Asked(stage, ADA, Place(CHANNELS[RED]), stage.targets[0])
    other = replace(own, who=BOSS)
    for asked, wrote in ((other, False), (own, True)):
        body = door.made(asked)
        stage.mark()
        assert stage.deliver(body).wrote is wrote
    assert "expired" not in stage.seen.text


def test_what_is_hidden_reads_like_what_never_was(stage: Scene) -> None:
    """Another person's private incident and an unknown handle give the same answer."""
    button = next(door for door in DOORS if door.name == "right").made
    asked = Asked(stage, NOBODY, Place(CHANNELS[RED]), stage.targets[2], stage.targets[2].listed)
    texts = []
    for handle in (asked.handle, "nothing-of-this-name"):
        stage.mark()
        seen = stage.deliver(button(replace(asked, handle=handle)))
        texts.append([text for text in seen.texts if "expired" in text])
        stage.restore()
    assert texts[0] == texts[1] != []
