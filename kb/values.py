"""Dataclasses that are made in a tenth of the time, because their methods are compiled or bound when first used.

`dataclasses.dataclass` compiles six methods of each class at import, which takes half a millisecond. A diagnosis imports
two hundred such classes and makes objects of a third of them. `dataclass` of this module means the same, for the options
that it takes; `fields`, `replace`, `asdict`, pickling, `match` and msgspec work as usual.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

Fields = Sequence["dataclasses.Field[Any]"]


def _dataclass(
    cls: type | None = None, /, *, frozen: bool = False, slots: bool = False, eq: bool = True, order: bool = False
) -> Any:
    """Make a class a dataclass, as `dataclasses.dataclass` with these options does."""

    def made(given: type) -> type:
        if order or hasattr(given, "__dataclass_fields__"):  # compared, or made of another: rare
            return dataclasses.dataclass(frozen=frozen, slots=slots, eq=eq, order=order)(given)
        given.__doc__ = given.__doc__ or given.__name__  # otherwise its signature is computed, which takes long
        result: type = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(given)
        _add_methods(result, frozen=frozen, slots=slots, eq=eq)
        return result

    return made if cls is None else made(cls)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass


def _add_methods(cls: Any, *, frozen: bool, slots: bool, eq: bool) -> None:
    own, fields = cls.__dict__, dataclasses.fields(cls)
    params = cls.__dataclass_params__
    params.init = params.repr = True
    params.frozen, params.eq = frozen, eq
    methods = {"__init__": _init(cls, fields, frozen=frozen, slots=slots), "__repr__": _repr(fields)}
    if eq:
        methods["__eq__"] = _eq(fields)
        if own.get("__hash__") is None and ("__hash__" not in own or "__eq__" in own):
            cls.__hash__ = _hash(fields) if frozen else None
    if frozen:
        cls.__setattr__, cls.__delattr__ = _refusing(cls, fields)
        if slots:
            methods["__getstate__"], methods["__setstate__"] = _state(cls, fields)
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)


def _values(fields: Fields) -> Callable[[object], tuple[Any, ...]]:
    """Return a function that returns the values of some fields."""
    names = [field.name for field in fields]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda item: tuple(getattr(item, name) for name in names)


def _init(cls: Any, fields: Fields, *, frozen: bool, slots: bool) -> Callable[..., None]:
    """Return a constructor that is replaced by a compiled one at its first call."""

    def init(self: object, /, *args: Any, **kwargs: Any) -> None:
        cls.__init__ = compiled = _compiled_init(cls, fields, frozen=frozen, slots=slots)
        compiled(self, *args, **kwargs)

    return init


def _compiled_init(cls: Any, fields: Fields, *, frozen: bool, slots: bool) -> Any:
    missing = dataclasses.MISSING
    known: dict[str, Any] = {"_made": object(), "_set": object.__setattr__}
    parameters, body = [], []
    for field in fields:
        name = value = field.name
        default, factory = f"_default_{name}", f"_factory_{name}"
        known |= {default: field.default, factory: field.default_factory}
        if field.default_factory is not missing:
            value = f"{factory}() if {name} is _made else {name}" if field.init else f"{factory}()"
            parameters += [f"{name}=_made"] if field.init else []
        elif field.init:
            parameters += [name if field.default is missing else f"{name}={default}"]
        elif slots and field.default is not missing:
            value = default
        else:
            continue
        setter = getattr(getattr(cls, name, None), "__set__", None) if frozen and slots else None
        if setter is not None:  # of a slot: it need not be looked up by its name, so this takes two thirds of the time
            known[f"_set_{name}"] = setter
            body.append(f"_set_{name}(_self, {value})")
        else:
            body.append(f"_set(_self, {name!r}, {value})" if frozen else f"_self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("_self.__post_init__()")
    source = f"def __init__(_self, {', '.join(parameters)}):\n " + "\n ".join(body or ["pass"])
    exec(source, known)  # noqa: S102 - made of the names of fields, as in dataclasses
    known["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return known["__init__"]


def _repr(fields: Fields) -> Callable[[object], str]:
    names = [field.name for field in fields if field.repr]

    def written(self: object) -> str:
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return recursive_repr("...")(written)


def _eq(fields: Fields) -> Callable[[object, object], bool]:
    values = _values([field for field in fields if field.compare])

    def equal(self: object, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return equal


def _hash(fields: Fields) -> Callable[[object], int]:
    values = _values([field for field in fields if (field.compare if field.hash is None else field.hash)])
    return lambda self: hash(values(self))


def _refusing(cls: Any, fields: Fields) -> tuple[Callable[[object, str, Any], None], Callable[[object, str], None]]:
    names = frozenset(field.name for field in fields)

    def refuse_set(self: object, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def refuse_delete(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return refuse_set, refuse_delete


def _state(cls: Any, fields: Fields) -> tuple[Callable[..., Any], Callable[..., Any]]:
    values = _values(fields)

    def get_state(self: object) -> tuple[Any, ...]:
        return values(self)

    def set_state(self: object, state: Sequence[Any]) -> None:
        cls.__setstate__ = compiled = _compiled_set_state(cls, fields)
        compiled(self, state)

    return get_state, set_state


def _compiled_set_state(cls: Any, fields: Fields) -> Any:
    """Return a function that sets all slots: a worker's answer has thousands of points."""
    known = {f"_set_{field.name}": getattr(cls, field.name).__set__ for field in fields}
    names = [field.name for field in fields]
    body = [f"{', '.join(names)}, = _state", *(f"_set_{name}(_self, {name})" for name in names)] if names else ["pass"]
    exec("def set_state(_self, _state):\n " + "\n ".join(body), known)  # noqa: S102 - made of the names of fields
    return known["set_state"]
