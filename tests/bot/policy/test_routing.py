"""Where automatic answers go: subscriptions, owners, people, and which attempts form a chain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.policy.routing import (
    DAY,
    MOST_DESTINATIONS,
    Destination,
    JobFacts,
    Mention,
    People,
    Subscription,
    continues,
    destinations,
    facts_of,
    link_of,
    wanted,
)
from kb.model import Job, JobRecord
from kb.report import Decision, Diagnosis, Report, Versions

JOB = JobFacts("red", "west", "4711", "llm-7b", "ada", "train", None, 64)
POD = JobFacts("red", "k8s", "ml/llm-7b-3", "llm-7b-3", "ada", None, "ml", 64)
PEOPLE = People({"ada": "UADA1"}, {"hardware": "SHARD1"})


def report(fault="xid_79", owner="hardware", band="likely", verdict="fault"):
    """Return a report with one diagnosis, or none."""
    first = Diagnosis(1, fault, "gpu/xid", 1, "", "", 0.9, band, "root_cause", owner=owner)
    return Report(
        *("id", "print", verdict, "failed", ""),
        Versions("", "", "", ""),
        decision=Decision(owner=owner),
        diagnoses=(first,) if fault else (),
    )


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, "subscribed: all jobs"),
        ({"users": ("bob", "ada")}, "subscribed: user ada"),
        ({"users": ("bob",)}, None),
        ({"partitions": ("train",)}, "subscribed: partition train"),
        ({"partitions": ("debug",)}, None),
        ({"names": ("vision-*", "llm-*")}, "subscribed: job name llm-*"),
        ({"names": ("4711",)}, "subscribed: job name 4711"),
        ({"names": ("LLM-*",)}, None),
        ({"clusters": ("east",)}, None),
        ({"min_gpus": 64}, "subscribed: at least 64 GPUs"),
        ({"min_gpus": 65}, None),
        ({"faults": ("xid_*",)}, "subscribed: fault xid_*"),
        ({"faults": ("cuda_oom",)}, None),
        ({"owners": ("hardware",)}, "subscribed: owner hardware"),
        ({"owners": ("user",)}, None),
        ({"tenant": "blue"}, None),
        ({"users": ("ada",), "min_gpus": 8}, "subscribed: user ada, at least 8 GPUs"),
        ({"users": ("ada",), "min_gpus": 99}, None),
    ],
)
def test_what_a_subscription_wants(more, why):
    """All set fields must match; of several values one is enough."""
    assert wanted(Subscription("C11", **{"tenant": "red", **more}), report(), JOB) == why


def test_what_is_not_known_is_not_matched():
    """A job without user, size and diagnosis matches only subscriptions to everything."""
    bare = JobFacts("red", "west", "1")
    asks: list[dict[str, Any]] = [{}, {"users": ("*",)}, {"min_gpus": 1}, {"faults": ("*",)}, {"partitions": ("*",)}]
    found = [wanted(Subscription("C11", "red", **ask), report(fault=""), bare) for ask in asks]
    assert found == ["subscribed: all jobs", None, None, None, None]
    assert wanted(Subscription("C11", "red", partitions=("ml",)), report(), POD) == "subscribed: partition ml"


def test_each_place_once_with_all_reasons():
    """A channel gets the mention; a direct message needs none."""
    subscriptions = [
        Subscription("C11", "red", users=("ada",)),
        Subscription("UADA1", "red", users=("ada",)),
        Subscription("C11", "red", min_gpus=32),
        Subscription("C22", "red", min_gpus=512),
    ]
    assert destinations(report(), JOB, subscriptions, PEOPLE, announce="C99") == (
        Destination(
            *("C11", False, ("subscribed: user ada", "subscribed: at least 32 GPUs")),
            (Mention("group", "SHARD1", "owner hardware"),),
        ),
        Destination("UADA1", True, ("subscribed: user ada",)),
    )


def test_what_nobody_subscribed():
    """It goes to the tenant's channel, or nowhere; the number of places is limited."""
    assert [destination.to for destination in destinations(report(), JOB, (), announce="C99")] == ["C99"]
    assert destinations(report(), JOB, ()) == ()
    many = [Subscription(f"C{number:04}", "red") for number in range(100)]
    assert len(destinations(report(), JOB, many)) == MOST_DESTINATIONS


def test_a_quiet_start_goes_to_one_place():
    """During the rollout everything goes to one channel without mentions."""
    [one] = destinations(report(), JOB, [Subscription("C11", "red")], PEOPLE, announce="C99", only="C55")
    assert (one.to, one.mentions) == ("C55", ())


@pytest.mark.parametrize(
    ("answer", "user", "called"),
    [
        (report(), "ada", ["SHARD1"]),
        (report(band="weak"), "ada", ["UADA1"]),
        (report(owner="user"), "ada", ["UADA1"]),
        (report(owner="network"), "ada", ["UADA1"]),
        (report(owner="network"), "bob", []),
        (report(fault="", owner="none", verdict="no_match"), "ada", ["UADA1"]),
        (report(verdict="no_fault"), None, []),
    ],
)
def test_who_is_called(answer, user, called):
    """The group that owns the fault, else the user; no group for a weak diagnosis, and none if unknown."""
    [one] = destinations(answer, replace(JOB, user=user), (), PEOPLE, announce="C99")
    assert [mention.id for mention in one.mentions] == called


@pytest.mark.parametrize(
    ("job", "at", "other", "same"),
    [
        (JOB, 0, JOB, True),
        (JOB, 100 * DAY, replace(JOB, name="x"), True),
        (JOB, DAY, replace(JOB, id="4712"), True),
        (JOB, DAY + 1, replace(JOB, id="4712"), False),
        (JOB, 0, replace(JOB, id="4712", user="bob"), False),
        (JOB, 0, replace(JOB, id="4712", name="llm-8b"), False),
        (JOB, 0, replace(JOB, cluster="east"), False),
        (JOB, 0, replace(JOB, tenant="blue"), False),
        (replace(JOB, name="wrap"), 0, replace(JOB, name="wrap", id="4712"), False),
        (replace(JOB, user=None), 0, replace(JOB, user=None, id="4712"), False),
        (replace(JOB, id="7_1", name=""), 0, replace(JOB, id="7_2", name=""), True),
        (POD, 0, replace(POD, id="ml/llm-7b-4", name="llm-7b-4"), True),
        (POD, 0, replace(POD, id="dev/llm-7b-3", namespace="dev"), False),
    ],
)
def test_tries_of_one_job(job, at, other, same):
    """The same job at any time, and the same name and user within a day; common names link nothing."""
    assert continues(link_of(job), at, link_of(other), 0.0) is same


def test_facts_of_a_record():
    """The record has the facts that routing needs."""
    job = Job(id="4711", name="llm-7b", owner="ada", gpus=64)
    assert facts_of("red", "west", JobRecord(job, "slurm", partition="train")) == JOB


@pytest.mark.parametrize(
    "make",
    [
        lambda: Subscription("#general"),
        lambda: Subscription("S12345"),
        lambda: Subscription("C1"),
        lambda: Subscription("C11", min_gpus=-1),
        lambda: People(users={"ada": "ada@x"}),
        lambda: People(groups={"hardware": "U123"}),
    ],
)
def test_ids_that_are_none(make):
    """A name in place of an id is rejected with a message."""
    with pytest.raises(ValueError, match=r"\w"):
        make()
