"""The command, as the tests of its surfaces run it."""

from tests.bot.conftest import cold_signalbox, signalbox, warm_start

__all__ = ["cold_signalbox", "signalbox", "warm_start"]
