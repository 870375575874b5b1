"""An in-memory store of what the watcher has seen."""

from __future__ import annotations

from dataclasses import dataclass, field

from bot.store.database import StoreError


@dataclass
class Shelf:
    """A store of seen keys, which can fail."""

    keys: set[str] = field(default_factory=set)
    broken: bool = False

    def known(self, keys):
        """Return the stored keys."""
        self._check(keys)
        return self.keys & set(keys)

    def add(self, keys):
        """Store keys."""
        self._check(keys)
        self.keys |= set(keys)

    def _check(self, keys):
        assert len(keys) <= 500
        assert all(len(key) <= 200 for key in keys)
        if self.broken:
            raise StoreError("the store cannot be used")
