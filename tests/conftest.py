"""What all tests share: generated examples are not timed, since a busy machine is no defect."""

from __future__ import annotations

import os
import sys

from hypothesis import settings

pytest_plugins = ["pytester", "tests.support.left_processes"]

# the suite starts hundreds of interpreters: without its bytecode on disk, each would compile the product
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile("signalbox", deadline=None)
settings.load_profile("signalbox")
