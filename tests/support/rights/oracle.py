"""Who may pass a door, written down a second time and without the code of the product; and the walk through all doors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tests.support.rights.doors import TENANT, Asked, Door, Place
from tests.support.rights.scene import (
    ADA,
    BLUE,
    BOSS,
    CHANNELS,
    ELSE,
    NOBODY,
    PEOPLE,
    RED,
    UNLISTED,
    Scene,
    Someone,
    Target,
    direct,
)

PLACES = (
    Place(CHANNELS[RED]),
    Place(CHANNELS[BLUE]),
    Place(UNLISTED),
    Place(None),
    Place(None, used=CHANNELS[RED]),
    Place(None, used=CHANNELS[BLUE]),
    Place("home"),
    Place("home", used=CHANNELS[BLUE]),
    Place(CHANNELS[RED], team=ELSE),
    Place(None, used=CHANNELS[RED], team=ELSE),
)


@dataclass(frozen=True)
class Case:
    """A pair to test: a door and a delivery through it."""

    door: Door
    who: Someone
    place: Place
    target: Target
    by: str

    def __str__(self) -> str:
        where = f"{self.place.channel or 'direct'}{f' after {self.place.used}' if self.place.used else ''} of {self.place.team}"
        return f"{self.door} by {self.who.id} in {where}, {self.target.marker} as {self.by}"


def identified(who: Someone, place: Place) -> bool:
    """Whether Slack says that this is somebody of the workspace."""
    return place.team != ELSE and who.kind in ("member", "guest")


def holds(who: Someone, verb: str, tenant: str) -> bool:
    """Whether a person has a right in a tenant, wherever they are."""
    if tenant == RED:
        return verb in who.listed
    return who.kind == "member" and verb != "admin"


def at_home(who: Someone, place: Place, tenant: str) -> bool:
    """Whether a person uses a tenant from here."""
    if place.channel not in (None, "home"):
        return place.channel == CHANNELS[tenant]
    return place.used == CHANNELS[tenant] or (tenant == RED and bool(who.listed))


def sees(who: Someone, private_to: str | None, tenant: str) -> bool:
    """Whether a private incident exists for a person."""
    return private_to in (None, who.id) or (tenant == RED and "admin" in who.listed)


def may(case: Case) -> bool:
    """Whether the door opens."""
    door, who, place, target = case.door, case.who, case.place, case.target
    if not identified(who, place):
        return False
    if door.about == TENANT:
        return door.verb is None or any(
            at_home(who, place, tenant) and holds(who, door.verb, tenant) for tenant in (RED, BLUE)
        )
    return reaches(case) and (door.verb is None or holds(who, door.verb, target.tenant))


def reaches(case: Case) -> bool:
    """Whether the incident exists for this person from here."""
    who, place, target = case.who, case.place, case.target
    if case.by == "draft":  # it belongs to the place where it was asked for
        if target.private_to is not None:
            return who.id == target.private_to and at_home(who, Place(None, place.used), target.tenant)
        return True
    sent_to = {"message": target.channel, "reminder": direct(ADA.id)}.get(case.by, "")
    if sent_to.startswith("D"):
        return place.of(who) == sent_to  # nobody else has the button
    if not at_home(who, place, target.tenant) or (case.door.to_owner and who != ADA):
        return False
    if case.by == "job":
        return target.private_to in (None, who.id)  # nobody takes over another's order
    # a mute applies to everybody
    return case.by == "mute" or sees(who, target.private_to, target.tenant)


def readable(case: Case, targets: Iterable[Target]) -> set[str]:
    """The markers that may be shown to this person by this door, if it opens."""
    tenants = (
        {case.target.tenant}
        if case.door.about != TENANT
        else {t for t in (RED, BLUE) if at_home(case.who, case.place, t)}
    )
    return {item.marker for item in targets if item.tenant in tenants and sees(case.who, item.private_to, item.tenant)}


def problems(scene: Scene, case: Case) -> list[str]:
    """Deliver, and return what should not be."""
    if case.place.used is not None:
        scene.used(case.who.id, case.place.used)
    asked = Asked(scene, case.who, case.place, case.target)
    asked = replace(asked, handle=str(getattr(case.target, case.by)) if case.by not in ("", "form") else "")
    body = case.door.made(asked)
    scene.mark()
    seen = scene.deliver(body)
    allowed = may(case)
    shown = {item.marker for item in scene.targets if item.marker in seen.text}
    wrong = [] if seen.status == 200 else [f"status {seen.status}"]
    if "Something went wrong" in seen.text:
        wrong.append("an error of ours")
    if allowed:
        wrong += [] if case.door.shown(asked, seen) else ["refused"]
        wrong += [f"shows {name}" for name in sorted(shown - readable(case, scene.targets))]
    else:
        wrong += [f"shows {name}" for name in sorted(shown)]
        wrong += ["opens"] if case.door.shown(asked, seen) else []
        wrong += ["changes something"] if seen.wrote else []
        wrong += ["opens a form"] if seen.opened else []
        wrong += ["shows a cluster"] if "-cluster" in seen.text else []
    return [f"{case}: {item}; {'may' if allowed else 'may not'}" for item in wrong]


def every(scene: Scene, doors: Iterable[Door]) -> Iterator[Case]:
    """All pairs."""
    for door in doors:
        for who in PEOPLE:
            for place in PLACES:
                for target, by in _targets(scene, door):
                    yield Case(door, who, place, target, by)


def few(scene: Scene, doors: Iterable[Door]) -> Iterator[Case]:
    """For each door, the reasons to let somebody pass or not; the rarer ones at every fifth door."""
    red, grouped, guest, named, outside, unknown = PLACES[0], *PEOPLE[-5:]
    rare = ((grouped, red), (unknown, red), (ADA, PLACES[2]), (NOBODY, PLACES[6]), (ADA, PLACES[5]))
    for number, door in enumerate(doors):
        own = next((item for item in PEOPLE if item.listed == (door.verb,)), ADA)
        other = next(item for item in PEOPLE if len(item.listed) == 1 and item.listed != (door.verb,))
        usual = [(who, red) for who in (own, other, NOBODY, guest, named, outside)]
        usual += [(ADA, PLACES[1]), (ADA, PLACES[3]), (ADA, PLACES[8]), (NOBODY, PLACES[4]), rare[number % len(rare)]]
        for target, by in _targets(scene, door):
            pairs = []
            if target.marker == "red-shared":
                pairs = usual if by in ("", door.by[0]) else [(own, red)]
            elif target.marker == "red-private":
                pairs = [(NOBODY, red), (ADA, PLACES[3]), (BOSS, red)]
            elif by in ("", door.by[0]):
                pairs = [(ADA, red)] if target.private_to is None else [(BOSS, PLACES[1])]
            for who, place in pairs:
                yield Case(door, who, place, target, by)


def _targets(scene: Scene, door: Door) -> Iterator[tuple[Target, str]]:
    if door.about == TENANT:
        yield scene.targets[0], ""
        return
    for target in scene.targets:
        if not target.marker.endswith("second"):
            for by in door.by:
                yield target, by
