"""Dataclasses with methods made late: the same as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from kb import values


class _Point:
    """A place."""

    x: int
    y: int = 2
    tags: list[str] = dataclasses.field(default_factory=list)
    note: str = dataclasses.field(default="", compare=False)
    seen: int = dataclasses.field(default=7, init=False, repr=False)


class _Bare:
    pass


OPTIONS = [{"frozen": frozen, "slots": slots, "eq": eq} for frozen in (0, 1) for slots in (0, 1) for eq in (0, 1)]


def _pair(body, options):
    """The class made by this module, and by the standard library."""
    own = {name: value for name, value in body.__dict__.items() if name not in ("__dict__", "__weakref__")}
    made = [type(body.__name__, (), dict(own)) for _ in range(2)]
    return values.dataclass(**options)(made[0]), dataclasses.dataclass(**options)(made[1])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_it_does_what_the_standard_library_does(options):
    """Construction, defaults, text, equality, hashes, and what is refused."""

    def told(cls):
        first, second = cls(1), cls(1, y=2, tags=[], note="other")
        first_words = [repr(first), first == second, first == cls(3), first != 1, first.seen, first.tags is second.tags]
        fields = [(item.name, item.default) for item in dataclasses.fields(cls)]
        more = [cls.__match_args__, dataclasses.asdict(second), repr(dataclasses.replace(first, x=9)), fields]
        params = cls.__dataclass_params__
        more += [params.frozen, params.eq, cls.__hash__ is None, hasattr(first, "__dict__")]
        for wrong in (cls, lambda: cls(1, 2, [], "", 5), lambda: cls(1, x=1), lambda: cls(1, z=1)):
            with pytest.raises(TypeError):
                wrong()
        try:
            first.x = 5
            del first.y
        except dataclasses.FrozenInstanceError as error:
            more.append(str(error))
        return [*first_words, *more]

    ours, theirs = _pair(_Point, options)
    assert told(ours) == told(theirs)
    assert [repr(cls()) for cls in _pair(_Bare, options)] == ["_Bare()", "_Bare()"]


@values.dataclass(frozen=True, slots=True)
class Kept:
    """Pickled and copied; says so when made."""

    name: str
    parts: tuple[Kept, ...] = ()
    shown: str = dataclasses.field(default="", hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shown", self.name.upper())


@values.dataclass(frozen=True, slots=True)
class Wider(Kept):
    """One field more."""

    size: int = 0


def test_objects_are_pickled_copied_and_hashed():
    """A frozen class with slots has no attributes that could be set from outside."""
    item = Kept("a", (Kept("b"),))

    assert item.shown == "A"
    pickled = pickle.loads(pickle.dumps(item))  # noqa: S301 - its own
    for same in (pickled, copy.deepcopy(item), copy.copy(item)):
        assert (same, hash(same)) == (item, hash(item))
    assert len({item, Kept("a", (Kept("b"),)), Kept("a")}) == 2
    assert (Wider("a", size=3).size, repr(Wider("a"))) == (3, "Wider(name='a', parts=(), shown='A', size=0)")
    assert Wider("a") != Kept("a")


def test_the_constructor_is_compiled_once():
    """The first object pays for it."""
    ours, _ = _pair(_Point, {"frozen": True, "slots": True})
    late = ours.__init__
    ours(1)
    compiled = ours.__init__
    ours(2)

    assert ours.__init__ is compiled is not late


def test_order_is_kept():
    """Classes that are compared are made by the standard library."""
    made = values.dataclass(frozen=True, order=True)(type("Step", (), {"__annotations__": {"n": "int"}}))

    assert made(1) < made(2)
