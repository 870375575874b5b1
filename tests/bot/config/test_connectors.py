"""The table of connectors names modules, classes and functions as strings, which no type checker follows."""

from __future__ import annotations

from importlib import import_module

import pytest

from bot.config.connectors import KINDS


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_is_there(name):
    """Its module has the settings and the class that is built from them."""
    kind = KINDS[name]
    assert isinstance(kind.settings_class(), type)
    assert callable(getattr(import_module(kind.module), kind.connector))
