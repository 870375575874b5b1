"""Regular expressions that are compiled when they are first used.

A diagnosis imports about a thousand expressions but uses only some; compiling all would take a third of the start-up
time.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class _LazyPattern:
    """Stands for a compiled expression. An attribute is looked up once; from then on it is the instance's own."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self._source = (pattern, flags)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # of protocols such as copying and pickling, for which this is a plain object
            raise AttributeError(name)
        if name == "pattern":
            return self._source[0]
        compiled = self.__dict__.get("_compiled")
        if compiled is None:
            compiled = self.__dict__["_compiled"] = re.compile(*self._source)
        value = self.__dict__[name] = getattr(compiled, name)
        return value

    def __getstate__(self) -> tuple[str | bytes, int]:
        return self._source

    def __setstate__(self, source: tuple[str | bytes, int]) -> None:
        self._source = source


def lazy_compile(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return an object that behaves like `re.compile(pattern, flags)` but raises errors only at its first use.

    It is meant for module constants. It is not a `re.Pattern`, and functions of `re` do not accept it: call its
    methods.
    """
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))
