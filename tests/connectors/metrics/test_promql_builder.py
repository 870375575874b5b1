"""PromQL with untrusted names: nothing in a name escapes its quotes, and nothing empty selects everything."""

from __future__ import annotations

from itertools import pairwise

import pytest

from connectors.metrics.promql_builder import (
    Selection,
    job_selection,
    node_selection,
    nodes_of,
    quoted,
    selection,
    split_window,
    step_of,
)
from kb.model import Attempt, Job, JobRecord, Member, Window


def test_a_selection_is_written_for_each_alternative():
    """One value is compared for equality, several match any of them, all with the required labels."""
    chosen = selection([{"namespace": "ml", "pod": ["a-0", "a-1"]}, {"hpc_job": "7"}], {"cluster": ("east",)})
    assert chosen.selectors("up") == (
        'up{cluster="east",namespace="ml",pod=~"a-0|a-1"}',
        'up{cluster="east",hpc_job="7"}',
    )
    assert chosen.each("a|b", "rate({}[5m])") == (
        'rate({__name__=~"a|b",cluster="east",namespace="ml",pod=~"a-0|a-1"}[5m])'
        ' or rate({__name__=~"a|b",cluster="east",hpc_job="7"}[5m])'
    )


def test_what_lacks_a_value_selects_nothing():
    """An empty matcher would match all series that lack the label."""
    for value in ("", None, [], [""]):
        assert not selection([{"namespace": "ml", "pod": value}, {"hpc_job": value}])
    assert not selection([{}], {"cluster": ("east",)})
    assert not node_selection([])
    assert not job_selection(JobRecord(Job(), "slurm"))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ('a"b', '"a\\"b"'),
        ("a\\", '"a\\\\"'),
        ("a\nb", '"a\\nb"'),
        ("{{x}}", '"{{x}}"'),
    ],
)
def test_text_stays_inside_its_quotes(name, told):
    """Quotes, backslashes and line ends are escaped."""
    assert quoted(name) == told


def test_a_name_in_a_regular_expression_means_itself():
    """Every RE2 special character is escaped, once for RE2 and once for the string."""
    assert selection([{"pod": ["a.*", "b|c"]}]).selectors("up") == ('up{pod=~"a\\\\.\\\\*|b\\\\|c"}',)
    assert node_selection(["n.1"]).selectors("up")[-1] == 'up{instance=~"(?:n\\\\.1)(?::[0-9]+)?"}'


@pytest.mark.parametrize("name", ["", "up{}", "up or vector(1)", "up|", "9up"])
def test_what_is_no_name_of_a_metric_is_refused(name):
    """Names of metrics and labels come from the code or the configuration, and are checked nevertheless."""
    with pytest.raises(ValueError, match="not a metric or label name"):
        selection([{"pod": "a"}]).selectors(name)
    with pytest.raises(ValueError, match="not a metric or label name"):
        selection([{f"{name} ": "a"}]).selectors("up")


def test_a_selector_without_labels_is_refused():
    """A matcher made by hand cannot select everything either."""
    with pytest.raises(ValueError, match="needs labels"):
        Selection(({},)).selectors("up")


def test_the_nodes_of_a_job_are_those_of_its_last_attempt_too():
    """In order, each once."""
    attempts = (Attempt(1, nodes=("old",)), Attempt(2, nodes=("b", "c")))
    record = JobRecord(Job(nodes={"a": (0,)}), "k", attempts=attempts, members=(Member("p", "c"), Member("q", "d")))
    assert nodes_of(record) == ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("span", "series", "step"),
    [(600, 8, 15), (86400, 8, 87), (86400, 2000, 864), (7200, 10**9, 120), (0, 1, 15)],
)
def test_steps_widen_with_the_window_and_the_series(span, series, step):
    """At most a thousand points per series, and some 200,000 in total."""
    assert step_of(Window(1e9, 1e9 + span), series) == step


def test_pieces_cover_the_window_and_touch():
    """Each begins where the previous one ended; none has more points than the server returns."""
    found = list(split_window(Window(1_000_007.0, 1_000_007.0 + 25_000 * 5), 5.0))
    assert found[0].start == 1_000_005.0
    assert found[-1].end == 1_000_007.0 + 25_000 * 5
    assert all(item.end == two.start for item, two in pairwise(found))
    assert all((window.end - window.start) / 5 < 10_000 for window in found)
    assert len(found) == 3


@pytest.mark.parametrize("window", [Window(), Window(5, None), Window(9, 5), Window(-1, 5), Window(0, 1e12)])
def test_a_window_needs_two_ends_in_order(window):
    """An invalid window is a programming error."""
    with pytest.raises(ValueError, match="a start and an end"):
        step_of(window, 1)
