"""The decision who may do what: refused by default, by workspace, place, visibility and verb."""

from __future__ import annotations

from itertools import product

import pytest

from bot.policy.permissions import (
    EVERYONE,
    GUESTS,
    VERBS,
    Asker,
    Profile,
    Rights,
    Target,
    may_see,
    refusal,
    standing,
)

CHANNEL, GROUP = "C0TEAM", "S0TEAM"
RIGHTS = Rights(channels=(CHANNEL,), verbs={"annotate": (GROUP, "U0NAMED"), "mute": (CHANNEL,), "bar": (GUESTS,)})


def why(verb="read", *, who="U0ANY", channel=CHANNEL, kind="member", target=None, rights=RIGHTS, seen=False):
    """Return why it is refused; None if it is allowed."""
    found = refusal(
        rights,
        verb,
        Asker(who, channel, kind),
        target or Target(),
        members=lambda group: {"U0GROUPED"} if group == GROUP else (),
        seen=lambda: seen,
    )
    return None if found is None else found.why


def test_nothing_is_allowed_to_whom_nobody_knows():
    """A person without any role is refused every action in every channel."""
    for verb, channel in product(VERBS, (CHANNEL, "D0ANY", None)):
        found = refusal(Rights(anywhere=True), verb, Asker("U0ANY", channel), members=lambda _: ())
        assert found is not None
        assert found.why == "unknown"


@pytest.mark.parametrize(
    ("delivered", "profile", "what"),
    [
        (("T1",), Profile(frozenset({"T1"})), "member"),
        (("T1", ""), Profile(frozenset({"T1"}), guest=True), "guest"),
        (("T2",), Profile(frozenset({"T1"})), "outside"),
        ((), Profile(frozenset({"T1"})), "outside"),
        (("T1",), Profile(frozenset({"T2"})), "outside"),
        (("T1",), Profile(frozenset()), "outside"),
        (("T1",), None, "unknown"),
        (("E1",), Profile(frozenset({"T9", "E1"})), "member"),
    ],
)
def test_standing(delivered, profile, what):
    """The delivery and the person must both be of an allowed workspace or organisation."""
    assert standing({"T1", "E1"}, delivered, profile) == what


def test_no_workspace_is_allowed_by_default():
    """Without a list, everybody is refused."""
    assert standing((), ("T1",), Profile(frozenset({"T1"}))) == "outside"


@pytest.mark.parametrize(
    ("asked", "refused"),
    [
        ({}, None),
        ({"channel": "C0OTHER"}, "channel"),
        ({"channel": "D0ANY"}, "stranger"),
        ({"channel": None}, "stranger"),
        ({"channel": "D0ANY", "seen": True}, None),
        ({"channel": "D0ANY", "who": "U0NAMED"}, None),
        ({"channel": "D0ANY", "who": "U0GROUPED"}, None),
        ({"channel": "D0ANY", "target": Target(sent_here=True)}, None),
        ({"channel": "D0ANY", "rights": Rights(anywhere=True)}, None),
        ({"channel": "D0ANY", "rights": Rights()}, "stranger"),
        ({"verb": "annotate"}, "person"),
        ({"verb": "annotate", "who": "U0NAMED"}, None),
        ({"verb": "annotate", "who": "U0GROUPED"}, None),
        ({"verb": "annotate", "who": "U0NAMED", "channel": "C0OTHER"}, "channel"),
        ({"verb": "mute"}, None),
        ({"verb": "mute", "channel": "D0ANY", "seen": True}, "person"),
        ({"verb": "admin"}, "person"),
        ({"kind": "guest"}, "guest"),
        ({"kind": "guest", "verb": "mute"}, "guest"),
        ({"kind": "guest", "verb": "bar"}, None),
        ({"verb": "bar"}, "person"),
        ({"kind": "guest", "verb": "annotate", "who": "U0NAMED"}, None),
        ({"kind": "outside", "verb": "annotate", "who": "U0NAMED"}, "workspace"),
        ({"target": Target(private_to="U0ANY")}, None),
        ({"target": Target(private_to="U0ADA")}, "hidden"),
        ({"target": Target(private_to="U0ADA"), "verb": "annotate"}, "hidden"),
        ({"target": Target(only_for="U0ADA")}, "hidden"),
        ({"target": Target(sent_elsewhere=True)}, "hidden"),
    ],
)
def test_who_may_do_what(asked, refused):
    """The first reason counts: workspace, place, visibility, verb."""
    assert why(**asked) == refused


def test_admins_see_private_answers_only_where_the_tenant_says_so():
    """By default only the requester sees them."""
    for says, what in ((False, "hidden"), (True, None)):
        rights = Rights((CHANNEL,), {"admin": ("U0BOSS",)}, admins_see_private=says)
        assert why(who="U0BOSS", target=Target(private_to="U0ADA"), rights=rights) == what
        assert why(who="U0ANY", target=Target(private_to="U0ADA"), rights=rights) == "hidden"


def test_everyone_has_no_guests():
    """Guests are named, or there is the word for them."""
    for verbs, kind, what in product(
        ((EVERYONE,), (GUESTS,), (EVERYONE, GUESTS)), ("member", "guest"), ("read", "admin")
    ):
        rights = Rights((CHANNEL,), {what: verbs})
        allowed = (EVERYONE if kind == "member" else GUESTS) in verbs
        assert (why(what, kind=kind, rights=rights) is None) == allowed


def test_what_is_private_has_one_reader():
    """And those who see everything."""
    assert may_see(None, None)
    assert may_see("U0ADA", "U0ADA")
    assert not may_see("U0ADA", None)
    assert not may_see("U0ADA", "U0BO")
    assert may_see("U0ADA", "U0BO", all_private=True)
