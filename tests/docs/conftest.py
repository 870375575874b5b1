"""The command, as the tests of its surfaces run it."""

from tests.bot.conftest import cold_signalbox, databases_made_quickly, signalbox, warm_start

__all__ = ["cold_signalbox", "databases_made_quickly", "signalbox", "warm_start"]
