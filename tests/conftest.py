"""What all tests share: generated examples are not timed, since a busy machine is no defect."""

from __future__ import annotations

from hypothesis import settings

pytest_plugins = ["pytester", "tests.support.left_processes"]

settings.register_profile("signalbox", deadline=None)
settings.load_profile("signalbox")
