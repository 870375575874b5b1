"""What all tests share: generated examples are not timed, since a busy machine is no defect."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("signalbox", deadline=None)
settings.load_profile("signalbox")
