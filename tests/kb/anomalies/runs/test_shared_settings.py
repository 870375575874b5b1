"""Which setting failed nodes share and the others lack (kb.anomalies.runs.shared_settings)."""

from __future__ import annotations

from kb.anomalies.runs.shared_settings import SharedSetting, Witness, shared_settings


def nodes(prefix: str, count: int, *, failed: bool, driver: str, at: float) -> list[Witness]:
    """So many nodes of one run with a driver."""
    return [Witness(f"{prefix}{i}", failed, {"driver": driver, "torch": "2.9"}, at) for i in range(count)]


def test_what_all_failed_nodes_have_and_no_other_is_reported_with_when_it_came() -> None:
    """6 of 6 failed nodes got a driver that none of 20 others has."""
    said = shared_settings(
        [
            *nodes("bad", 6, failed=True, driver="580.1", at=200.0),
            *nodes("ok", 20, failed=False, driver="570.2", at=50.0),
        ]
    )
    assert said == (SharedSetting("driver", "580.1", 6, 6, 0, 20, 200.0, 4e-06),)
    assert said[0].text() == "6 of 6 failed nodes have driver 580.1, 0 of 20 others"


def test_what_the_whole_fleet_has_is_not_reported() -> None:
    """The same torch on all nodes explains nothing."""
    assert (
        shared_settings(
            [*nodes("bad", 6, failed=True, driver="a", at=1.0), *nodes("ok", 9, failed=False, driver="a", at=1.0)]
        )
        == ()
    )


def test_a_split_that_chance_gives_is_not_reported() -> None:
    """Two nodes of three are not a pattern."""
    few = [*nodes("bad", 2, failed=True, driver="b", at=1.0), *nodes("ok", 1, failed=False, driver="a", at=1.0)]
    assert shared_settings(few) == ()


def test_a_node_counts_once_though_it_ran_many_jobs() -> None:
    """Five failures of one node are one node, and it failed though it ran well before."""
    again = [Witness("n1", failed, {"driver": "b"}, float(at)) for at, failed in enumerate((False, True, True, True))]
    assert shared_settings([*again, *nodes("ok", 30, failed=False, driver="a", at=1.0)]) == ()


def test_of_a_node_that_got_another_driver_the_old_one_is_not_blamed() -> None:
    """Nodes that were well with the old driver and failed with the new one speak against the new one alone."""
    before = nodes("n", 6, failed=False, driver="a", at=1.0)
    after = nodes("n", 6, failed=True, driver="b", at=2.0)
    others = nodes("ok", 12, failed=False, driver="a", at=1.0)
    assert [
        (shared_setting.value, shared_setting.failed, shared_setting.well)
        for shared_setting in shared_settings([*before, *after, *others])
    ] == [("b", 6, 0)]


def test_nobody_failed() -> None:
    """Without failed nodes, or without any, no shared setting is reported."""
    assert shared_settings(nodes("ok", 5, failed=False, driver="a", at=1.0)) == ()
    assert shared_settings([]) == ()
