"""What was seen is kept once, whoever adds it; on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import threading

from bot.store.idempotency import IdempotencyKeys


def test_what_was_added_is_known(database: str) -> None:
    """Also by another process, as often as it is added, and any number of keys."""
    keys = [f"key {number}" for number in range(1200)]
    with IdempotencyKeys(database) as one, IdempotencyKeys(database) as other:
        one.add(keys)
        one.add([])
        one.add(["key 1", "key 1", "another"])
        assert other.known([*keys, "another", "not this one"]) == {*keys, "another"}
        assert other.known([]) == frozenset()


def test_two_replicas_add_the_same_at_once(database: str) -> None:
    """Neither fails, whichever is faster."""
    failed: list[Exception] = []

    def add(seen: IdempotencyKeys, ready: threading.Barrier, keys: list[str]) -> None:
        ready.wait()
        try:
            seen.add(keys)
        except Exception as error:  # noqa: BLE001 - any failure is what is looked for
            failed.append(error)

    with IdempotencyKeys(database) as one, IdempotencyKeys(database) as other:
        for number in range(5):
            ready = threading.Barrier(2)
            keys = [f"{number}:{at}" for at in range(50)]
            threads = [
                threading.Thread(target=add, args=(seen, ready, own))
                for seen, own in ((one, keys), (other, keys[::-1]))
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert failed == []
