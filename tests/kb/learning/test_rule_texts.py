"""Titles and remedies of learned rules, in the words of the event and of people."""

from __future__ import annotations

import pytest

from kb.learning.rule_texts import LONGEST_TITLE, imperative, sentence_of, steps_of
from kb.learning.tokenizer import aligned

KNOWN = (
    "fix_data", "free_space", "platform_ticket", "restart_service", "restart_from_checkpoint", "exclude_node_job", "resubmit",
    "change_config", "fix_access", "hardware_ticket",
)  # fmt: skip


def test_a_title_says_what_the_event_says():
    """What varies between incidents becomes a word for its kind."""
    pieces = aligned(["put of 3 MiB refused: bucket quota reached", "put of 41 MiB refused: bucket quota reached"])
    assert sentence_of(pieces) == "put of N MiB refused: bucket quota reached"
    assert sentence_of(pieces, "QuotaError") == "QuotaError: put of N MiB refused: bucket quota reached"


def test_a_long_title_ends_with_a_clause_or_a_word():
    """It never exceeds the limit of the format."""
    title = sentence_of(aligned(["the first clause is long enough to stand alone, and this one is cut from the title"]))
    assert title == "the first clause is long enough to stand alone"
    assert len(sentence_of(aligned(["word " * 60]))) <= LONGEST_TITLE


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("I restarted the feed and lifted the hold", "Restart the feed and lift the hold."),
        ("raise the quota", "Raise the quota."),
        ("Two replicas had died", ""),
        ("", ""),
    ],
)
def test_what_people_did_becomes_advice(said, advice):
    """Sentences that do not begin with what somebody did are no advice."""
    assert imperative(said) == advice


WORDS = {"purge", "stage", "disable", "plan", "recompile", "double", "pack", "deploy"}


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("Purged the mirror cache", "Purge the mirror cache."),
        ("staged the data and planned the next window", "Stage the data and plan the next window."),
        ("Excluded the node and had its memory replaced", "Exclude the node and have its memory replaced."),
        ("Drained leaf excluded from the block", ""),
        ("Caused by an old image", ""),
        ("Flurbed the cache", ""),
    ],
)
def test_regular_past_tenses_are_looked_up(said, advice):
    """A participle that describes what happened is no step, and neither is a word that nobody knows."""
    assert imperative(said, WORDS) == advice


def test_what_is_no_sentence_of_steps_is_kept_as_it_is():
    """Rather than a step that nobody took."""
    steps, other = steps_of(["Drained leaf excluded from the block; it was back the next day"], KNOWN, WORDS)
    assert [(step.action, step.text) for step in steps] == [
        ("platform_ticket", "Drained leaf excluded from the block.")
    ]
    assert other == ("it was back the next day",)


def test_a_title_has_its_unit_and_ends_with_a_clause():
    """A number without its unit says little; a value behind the clause that says what is wrong is left out."""
    pieces = aligned(["ticket expired 41 s before barrier, 3 of 8", "ticket expired 7 s before barrier, 5 of 8"])
    assert sentence_of(pieces) == "ticket expired N s before barrier"


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("chunk {0} covers chunk {1} by {0} rows", "chunk N covers chunk M by K rows"),
        ("reader returned block {0} when block {1} was due", "reader returned block N when block M was due"),
        ("lane {0} of the log went from mark {1} to {0}", "lane N of the log went from mark M to K"),
        ("lease {0} on the shelf is lost", "lease N on the shelf is lost"),
    ],
)
def test_a_title_has_a_letter_for_each_value(said, title):
    """So that one is not taken for another."""
    assert sentence_of(aligned([said.format(31, 77), said.format(4, 95)])) == title


@pytest.mark.parametrize(
    ("said", "action"),
    [
        ("corrected the plan", "change_config"),
        ("saved less often", "change_config"),
        ("gave each rank a cache folder of its own", "change_config"),
        ("switched the storage class to late binding", "platform_ticket"),
        ("asked for a key of our own", "fix_access"),
        ("rebuilt the plugins in the image", "fix_environment"),
        ("rebuilt the index", "fix_data"),
        ("restored the right to delegate", "fix_access"),
        ("copied the right index", "fix_data"),
    ],
)
def test_an_action_follows_who_owns_the_thing(said, action):
    """The owner of a run changes its settings; nobody is sent a ticket for them."""
    known = (*KNOWN, "network_ticket", "storage_ticket", "fix_environment")
    assert [step.action for step in steps_of([said], known, {"save"})[0]] == [action]


def test_actions_come_from_what_was_done():
    """Other sentences are returned for the cause."""
    steps, other = steps_of(["Two replicas had died; restarted the feed. Resumed from the last checkpoint"], KNOWN)
    assert [step.action for step in steps] == ["restart_service", "restart_from_checkpoint"]
    assert other == ("Two replicas had died",)
    assert [step.action for step in steps_of(["replaced the node gpu-7"], KNOWN)[0]] == ["exclude_node_job"]


@pytest.mark.parametrize(
    ("said", "steps"),
    [
        ("cancelled the copied job and restarted with a fresh client id", ["platform_ticket", "resubmit"]),
        ("moved the rebuild behind a lock and restarted from the last checkpoint", ["platform_ticket", "restart_from_checkpoint"]),
        ("repacked the shards and reran the job", ["fix_data", "resubmit"]),
        ("restored the journal of the broker and restarted it", ["restart_service"]),
        ("redeployed the relay with the release build", ["restart_service"]),
        ("set RING_DEPTH=512 in the environment", ["change_config"]),
        ("added the training role back to the policy", ["fix_access"]),
        ("drained the node, flashed firmware 4.3 and returned it", ["hardware_ticket"]),
    ],
)  # fmt: skip
def test_what_is_done_to_the_job_is_a_step_of_its_own(said, steps):
    """Since its action differs from that of what was done before; and an action says what the step says."""
    assert [step.action for step in steps_of([said], KNOWN, WORDS)[0]] == steps


def test_what_somebody_had_done_becomes_advice():
    """The verb is told as the others are."""
    assert imperative("Had the clock board replaced", {"replace"}) == "Have the clock board replaced."


def test_a_long_title_ends_before_a_conjunction():
    """And with no word that leads to another."""
    said = "the staging table of this shard begins at row number {0} of the manifest but the part before it ends at row {0}"
    assert sentence_of(aligned([said.format(3), said.format(4)])) == (
        "the staging table of this shard begins at row number N of the manifest"
    )


def test_what_somebody_did_is_a_step_also_with_a_verb_that_no_list_has():
    """Never something else that people wrote, which would be taken for a cause; a state stays one."""
    found, other = steps_of(["Zorbed the mirror and resumed. Caused the outage. The lease was stale."], KNOWN, WORDS)
    assert ([step.text for step in found], other) == (
        ["Zorbed the mirror.", "Resume."],
        ("Caused the outage.", "The lease was stale."),
    )
    assert imperative("Synchronised the mirror", {"synchronize"}) == "Synchronise the mirror."


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("Waited until the rewrite had finished.", "Wait until the rewrite has finished."),
        ("Waited until the readers were idle", "Wait until the readers are idle."),
        ("Waited until all copies had ended and resubmitted", "Wait until all copies have ended and resubmit."),
        ("Waited until the copy finished", "Wait until the copy has finished."),
        ("Moved the files that had grown", "Move the files that had grown."),
    ],
)
def test_advice_is_in_the_present(said, advice):
    """Only what it waits for: what had been before stays as it was."""
    assert imperative(said) == advice


@pytest.mark.parametrize(
    ("said", "action"),
    [
        ("Mounted the bundle of the host.", "fix_environment"),
        ("Mounted the certificates of the site.", "fix_environment"),
        ("Added the certificate authority to the image.", "fix_environment"),
        ("Renewed the certificate.", "fix_access"),
        ("Mounted the bucket again.", "storage_ticket"),
    ],
)
def test_what_a_container_trusts_is_its_environment(said, action):
    """Neither the storage team nor whoever issues credentials has to act."""
    known = (*KNOWN, "fix_environment", "storage_ticket")
    assert [step.action for step in steps_of([said], known)[0]] == [action]
