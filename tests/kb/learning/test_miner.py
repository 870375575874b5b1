"""From resolved incidents to the rule that finds them, or to why there is none."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from kb.learning.cases import Candidate, Refusal
from kb.learning.miner import mine
from kb.learning.negative_corpus import background, negative_text
from kb.rulebase.rule import Name, Pattern, Rule
from tests.support.resolved_cases import BOOK, GONE, LEASE, STEPS, case, leases, others, seen

OTHER = "[rank0]: sample 17 of part 3 cannot be decoded\n"


def found(cases, held_against=None):
    """The candidate of some cases."""
    result = mine(cases, held_against or others(OTHER), BOOK)
    assert isinstance(result, Candidate), result
    return result


def refused(cases, held_against=None):
    """The code of the reason why there is no candidate."""
    result = mine(cases, held_against or others(OTHER), BOOK)
    assert isinstance(result, Refusal), result
    return result.code


def test_what_incidents_share_and_others_lack_becomes_the_pattern():
    """The pattern is the line without its numbers, named after its words; the incidents that support it are listed."""
    candidate = found(leases(1, 2, 3))
    line = {
        "regex": "[Ll]ease of volume (?P<value_1>[\\d.]+) was refused by its owner at epoch (?P<value_2>[\\d.]+)",
        "level": "error_if_stated",
        "recovered": False,
    }
    assert candidate.match == {"line": line}
    assert (candidate.id, candidate.family, candidate.title) == (
        "lease-volume-owner-epoch",
        "host",
        "Lease of volume N was refused by its owner at epoch M",
    )
    assert (candidate.support, candidate.asked, candidate.alone, candidate.counter, candidate.tried) == (
        (1, 2, 3),
        (1, 2, 3),
        False,
        (),
        4,
    )
    assert candidate.lines[2] == {"logs/rank-0.log": (LEASE.format(rank=2, volume=14, epoch=5).rstrip(),)}
    assert candidate.remarks == ()


def test_an_exception_is_looked_for_as_one():
    """By the constant part of its message if that tells enough, also where a program logs it; else with its class."""
    candidate = found([case(item, GONE.format(rank=item, volume=item * 3)) for item in (1, 2, 3)])
    message = "[Vv]olume (?P<value_1>[\\d.]+) is gone from mount table"
    assert candidate.match == {
        "line": {"exception": {"message": message}},
        "logged": {"regex": message, "level": "error", "recovered": False},
    }
    short = "[rank{}]: quota.VolumeGoneError: unmounted volume {}\n"
    alone = found([case(item, short.format(item, item * 3)) for item in (1, 2, 3)])
    assert alone.match["line"]["exception"]["type"] == "VolumeGoneError"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("thread 'feed-{0}' panicked at src/feed.rs:21{0}:9:\n{1}\n", ""),
        (
            "terminate called after throwing an instance of 'depot::LeaseError'\n  what():  {1}\n",
            "Aborted (core dumped)\n",
        ),
        (
            'grpc._channel._InactiveRpcError: <_InactiveRpcError of RPC that terminated with:\n\tdetails = "{1}"\n',
            ">\n",
        ),
        (
            "py4j.protocol.Py4JJavaError: An error occurred while calling o4{0}.next.\n: com.depot.LeaseException: {1}\n",
            "\tat com.depot.Lease.get(Lease.java:41)\n",
        ),
    ],
)
def test_an_error_is_what_it_says_and_not_the_line_that_announces_it(before, after):
    """Any program's failure begins with such a line."""
    told = [before.format(item, f"volume {item * 7} is owned by epoch {item + 3}") + after for item in (1, 2, 3)]
    cases = [case(item, text, decisive=text.partition("\n")[0]) for item, text in enumerate(told, start=1)]
    line = found(cases).match["line"]
    assert re.search(line["regex"], "volume 99 is owned by epoch 12")


@pytest.mark.parametrize("closing", ["shutting down", "pump lost, leaving", "exiting with 4"])
def test_a_line_that_only_says_that_the_program_stops_gives_way_to_the_reason(closing):
    """Whatever its level: any failure of the program ends with it."""
    text = (
        '{{"level":"error","logger":"pump","msg":"ledger digest mismatch","part":{0}}}\n'
        '{{"level":"fatal","logger":"main","msg":"{1}","code":4}}\n'
    )
    told = [text.format(item, closing) for item in (3, 14, 25)]
    cases = [case(item, text, decisive=text.split("\n")[1]) for item, text in enumerate(told, start=1)]
    regex = found(cases).match["line"]["regex"]
    assert regex.startswith("[Ll]edger digest mismatch(?:")
    assert re.search(regex, text.format(7, closing)).groupdict() == {"part": "7"}


def test_what_rules_know_as_a_consequence_of_the_fault_is_not_the_cause():
    """Also if it is an exception, and the cause only a line of a log."""
    text = (
        "pump: lane {0} wedged after doorbell check, function reset was refused\n"
        "[rank{0}]: Traceback (most recent call last):\n"
        "[rank{0}]: RuntimeError: collective watchdog gave up on the group\n"
    )
    symptom = replace(BOOK.faults["data_error"], id="gave_up", symptom=True)
    known = replace(
        BOOK,
        rules=(
            Rule(
                id="gave-up", family="host", title="", fault="gave_up", role="symptom", status="stable", severity="high",
                patterns=(Pattern("line", regex="watchdog gave up on the group"),), when=Name("line"),
                summary="", cause="", impact="", remediation=(),
            ),
        ),
        faults={**BOOK.faults, "gave_up": symptom},
    )  # fmt: skip
    told = mine([case(item, text.format(item)) for item in (1, 2, 3)], others(OTHER), known)
    assert isinstance(told, Candidate)
    assert "wedged" in told.match["line"]["regex"]


@pytest.mark.parametrize(
    "line",
    [
        'Exception in thread "feed-{0}" com.depot.feed.SnapshotTombstonedException: ledger snapshot {0} was tombstoned at epoch {0}',
        "ERROR: LoadError: LedgerMismatch: ledger snapshot {0} was tombstoned at epoch {0}",
    ],
)
def test_exceptions_of_other_languages_are_found_by_what_they_say(line):
    """On a line of any form, since only Python prints a traceback."""
    cases = [case(item, line.format(item) + "\n") for item in (1, 2, 3)]
    match = found(cases).match
    assert "exception" not in match["line"]
    assert re.search(match["line"]["regex"], "ledger snapshot 7 was tombstoned at epoch 9")


def test_a_bare_error_number_counts_only_where_it_was_raised():
    """Any program may print what the system says of it."""
    text = (
        "Traceback (most recent call last):\n"
        '  File "/opt/job/train.py", line 1{0}, in main\n    feed()\n'
        '  File "/opt/job/layout.py", line 7, in read_stripe_map\n    os.getxattr(path, name)\n'
        "OSError: [Errno 61] No data available: '/data/part-{0}.lay'\n"
    )
    match = found([case(item, text.format(item)) for item in (1, 2, 3)]).match
    assert set(match) == {"line"}
    assert match["line"]["exception"] == {
        "type": "OSError",
        "message": r"Errno 61\b\] No data available(?:: (?P<value_1>.{2,120}))?",
        "frame": r"\bin read_stripe_map$",
    }


OTHER_FAILURE = "[rank0]: depot gateway rejected the manifest of part {0}: its signature had been revoked\n"


def test_another_failure_closed_as_the_same_fault_is_not_joined_by_or():
    """Each has its own cause and remedy; only wordings of one event are alternatives."""
    unlike = [case(item, OTHER_FAILURE.format(item), note="somebody revoked the key") for item in (7, 8, 9)]
    candidate = found([*leases(1, 2, 3), *unlike])
    assert (candidate.support, candidate.notes, len(candidate.match)) == ((1, 2, 3), ("", "", ""), 1)
    assert candidate.remarks == ()  # nothing that the rule must be told of


def test_of_lines_without_a_word_of_failure_the_one_that_says_most_is_taken_and_asked_about():
    """A reviewer decides whether it is the failure, since nothing in it says so."""
    text = "[ 41{0}.5] cachefs: lane {0} quiesced by its daemon with {0} requests inside\n[ 41{0}.6] cachefs: lane {0} detached\n"
    candidate = found([case(item, text.format(item)) for item in (1, 2, 3)])
    assert "quiesced" in candidate.match["line"]["regex"]
    assert candidate.questions[0].startswith("Is this line the failure?")


@pytest.mark.parametrize("ending", ["*** Check failure stack trace: ***", "Aborted (core dumped)"])
def test_how_any_program_ends_is_never_the_pattern(ending):
    """Also where incidents share nothing else that others lack: such a rule would name every abort."""
    words = ("shelf", "anchor", "violin")
    result = mine([case(item, f"{words[item - 1]} broke\n{ending}\n") for item in (1, 2, 3)], others(), BOOK)
    assert isinstance(result, Refusal)


def test_a_rule_is_about_the_incident_that_it_was_asked_for():
    """Also if others closed as the same fault share more among themselves."""
    candidate = found([*leases(1), *(case(item, OTHER_FAILURE.format(item)) for item in (7, 8, 9))])
    assert (candidate.support, candidate.asked, candidate.alone) == ((1,), (1, 7, 8, 9), True)
    assert candidate.remarks == ("Provisional: only incident 1 supports this.",)


def test_a_number_stays_where_only_it_tells_faults_apart():
    """Otherwise the words alone would speak on another fault."""
    text = "kernel: NVRM: Xid (PCI:0000:3b:00): {xid}, pid={pid}, name=python3, engine halted\n"
    cases = [case(item, text.format(xid=48, pid=4000 + item), "gpu_memory_ecc") for item in (1, 2, 3)]
    against = others(*(text.format(xid=79, pid=5000 + item) for item in range(4)))
    regex = found(cases, against).match["line"]["regex"]
    assert [bool(re.search(regex, text.format(xid=xid, pid=1))) for xid in (48, 79, 480)] == [True, False, False]


def test_a_place_of_a_device_is_captured_under_its_usual_name():
    """As rules name it, so that texts may."""
    text = "kernel: mlx5_core 0000:{bus}:00.0: device health compromised, reached rank {rank}\n"
    cases = [case(item, text.format(bus=f"{item + 10:02x}", rank=item)) for item in (1, 2, 3)]
    regex = found(cases).match["line"]["regex"]
    assert re.search(regex, text.format(bus="af", rank=12)).groupdict() == {"pci": "0000:af:00.0", "value_1": "12"}


def test_one_incident_alone_says_so():
    """It needs a line about harm, since one incident has many lines that no other has."""
    candidate = found([case(1, "[rank3]: fatal: lease of volume 7 was refused by its owner\n")])
    assert (candidate.support, candidate.alone, candidate.remarks) == (
        (1,),
        True,
        ("Provisional: only incident 1 supports this.",),
    )


def test_the_second_incident_makes_a_rule_firm():
    """It keeps its name, so that the proposal is the same; the mark and the question go."""
    one, two = found(leases(1)), found(leases(1, 2))
    assert (one.id, one.family, one.title) == (two.id, two.family, two.title)
    assert [(item.alone, item.remarks) for item in (one, two)] == [
        (True, ("Provisional: only incident 1 supports this.",)),
        (False, ()),
    ]
    assert [any("a second incident is closed" in text for text in item.questions) for item in (one, two)] == [
        True,
        False,
    ]


def test_one_that_was_closed_alike_is_named_only_if_its_line_resembles():
    """It may be the same failure in other words; another failure of the class is none of the rule's business."""
    candidate = found([*leases(1, 2), case(5, OTHER)])
    assert (candidate.support, candidate.asked, candidate.remarks) == ((1, 2), (1, 2, 5), ())
    like = case(5, "[rank1]: fatal: owner of volume 8 refused to extend our lease beyond epoch 4\n")
    assert found([*leases(1, 2), like]).remarks == (
        "The rule does not match incident 5, closed with the same class and with a similar line. Is this the same failure, worded differently?",
    )
    unlike = case(5, "[rank1]: ERROR trainer: owner gone, exiting\n")
    assert found([*leases(1, 2), unlike]).remarks == ()  # half of a short line is one word


def test_a_wrong_close_out_finds_no_support():
    """The distinctive lines also occur in incidents of another fault, and these are named."""
    text = "[rank0]: fatal: decoder of sample {} gave up on corrupt frame\n"
    cases = [case(item, text.format(item), "gpu_memory_ecc") for item in (1, 2)]
    result = mine(cases, others(*(text.format(item) for item in (7, 8, 9))), BOOK)
    assert isinstance(result, Refusal)
    assert (result.code, "incident 100 (data_error)" in " ".join(result.reasons)) == ("no_support", True)


def test_incidents_that_share_nothing_are_named_with_the_way_to_learn_from_one():
    """They may be different failures that were closed as the same class."""
    found = mine([case(item, STEPS) for item in (1, 4)], others(STEPS), BOOK)
    assert isinstance(found, Refusal)
    assert found.reasons[0].startswith("Nothing in the stored lines of incidents 1, 4, all closed as storage_io, ")
    assert "`signalbox rules propose 1 --alone`" in found.reasons[1]
    alone = mine([case(1, STEPS)], others(STEPS), BOOK)
    assert isinstance(alone, Refusal)
    assert "--alone" not in " ".join(alone.reasons)


def _known(fault):
    """The base with a rule for the lease's line, which names a fault."""
    pattern = Pattern("line", regex="lease of volume .{1,20} was refused")
    rule = Rule("lease", "A lease", fault, "root_cause", "stable", "high", "", "", "", (pattern,), Name("line"), ())
    return replace(BOOK, rules=(rule,))


def test_one_close_out_against_a_rule_is_not_enough():
    """The rule that matches the same line and names another fault is reported; several incidents outweigh it."""
    result = mine(leases(1), others(OTHER), _known("gpu_memory_ecc"))
    assert isinstance(result, Refusal)
    assert (result.code, "Rule lease" in result.reasons[0]) == ("explained", True)
    several = mine(leases(1, 2, 3), others(OTHER), _known("gpu_memory_ecc"))
    assert several.remarks == ("Rule lease looks for the same line and names gpu_memory_ecc.",)
    assert isinstance(mine(leases(1), others(OTHER), _known("storage_io")), Candidate)


def test_a_consequence_in_an_incident_closed_so_does_not_speak_against_its_cause():
    """Storage brings about failed checkpoints; somebody may have closed one as that."""
    against = others(*(LEASE.format(rank=0, volume=1, epoch=item) for item in (1, 2)), fault="checkpoint_save")
    assert found(leases(1, 2, 3), against).counter == ()


@pytest.mark.parametrize(
    ("cases", "code"),
    [
        ([], "gone"),
        ([replace(lease, texts={}) for lease in leases(1, 2)], "gone"),
        ([replace(lease, texts={"logs/rank-0.log": " \n"}) for lease in leases(1)], "gone"),
        ([replace(lease, fault=None) for lease in leases(1)], "unnamed"),
        ([replace(lease, against=("data_error",)) for lease in leases(1)], "disputed"),
        ([replace(lease, fault="gone_fault") for lease in leases(1)], "unnamed"),
        ([replace(lease, fault="code_bug") for lease in leases(1, 2)], "plain_bug"),
        ([case(item, STEPS) for item in (1, 2)], "no_support"),
    ],
)
def test_where_nothing_can_be_learned_the_reason_is_reported(cases, code):
    """Logs that are gone, an unnamed fault, contradicting close-outs, bugs, and too little evidence."""
    assert refused(cases) == code


def test_two_who_disagree_are_reported_where_others_agree():
    """The others carry the rule, and a reviewer knows."""
    cases = leases(1, 2, 3)
    candidate = found([replace(cases[0], against=("data_error",)), *cases[1:]])
    assert candidate.remarks == ("People disagree about incident 1: others said data_error.",)


@pytest.mark.parametrize(
    "last",
    [
        "AttributeError: 'Trainer' object has no attribute 'warm_lease'",
        "KeyError: 'lease_of_volume'",
        "NameError: name 'lease_volume' is not defined",
        "ZeroDivisionError: division by zero",
        "AssertionError",
        "ValueError: lease_volume",
    ],
)
def test_a_plain_bug_of_own_code_is_no_rule(last):
    """Its words are of that code alone, however it was closed."""
    text = f'Traceback (most recent call last):\n  File "/work/team/train.py", line 8, in lease\n    step()\n{last}\n'
    assert refused([case(item, text) for item in (1, 2, 3)]) == "plain_bug"


def test_a_stage_that_all_support_tells_apart():
    """Only where the line alone does not."""
    cases = [replace(lease, stage="saving") for lease in leases(1, 2, 3)]
    told = [
        negative_text(100 + at, "data_error", {"a.log": STEPS + LEASE.format(rank=0, volume=1, epoch=at)}, stage="init")
        for at in range(2)
    ]
    assert found(cases, background(told)).match["line"]["where"] == {"stages": ["saving"]}


def test_how_many_ranks_say_it_tells_apart():
    """One rank in these incidents, every rank in those of the other fault."""
    line = LEASE.format(rank=0, volume=1, epoch=2)
    cases = [replace(lease, texts={**lease.texts, "r1": STEPS, "r2": STEPS}) for lease in leases(1, 2, 3)]
    told = [negative_text(100 + at, "data_error", {f"r{rank}": STEPS + line for rank in range(4)}) for at in range(2)]
    assert found(cases, background(told)).when == {"ranks": "line", "at_most": 1}


def test_two_lines_distinguish_together_what_neither_does_alone():
    """Both lines occur in incidents of other faults, but never together."""
    one, two = "[rank1]: error: mount table was reloaded twice\n", "[rank1]: fatal: volume owner is unknown\n"
    cases = [case(number, one + two) for number in (1, 2, 3)]
    candidate = found(cases, others(one, one, two, two))
    assert (sorted(candidate.match), candidate.when) == (["beside", "line"], {"all": ["line", "beside"]})
    assert candidate.remarks == ("No single line distinguishes these incidents from others; the condition does.",)


def test_a_hang_is_distinguished_by_where_a_rank_is():
    """No line shows it; the stacks do, without the line of code."""
    stood = seen("stack_outlier", **{"class": "deadlock", "activity": "user", "frame": "Lease.wait (lease.py:93)"})
    moved = seen("stack_outlier", **{"class": "deadlock", "activity": "user", "frame": "Lease.wait (lease.py:95)"})
    cases = [case(1, "", "deadlock", observed=(stood,)), case(2, "", "deadlock", observed=(moved,))]
    told = [
        negative_text(100, "data_error", {"a": STEPS}, observed=(seen("stack_outlier", **{"class": "data_error"}),))
    ]
    candidate = found(cases, background(told))
    assert candidate.match == {"seen": {"structure": {"kind": "stack_outlier", "fields": {"class": "deadlock"}}}}


def test_a_stack_that_others_have_too_is_reported_by_its_frame():
    """As few fields as tell the incidents apart."""
    frame = {"class": "deadlock", "activity": "user", "frame": "Lease.wait (lease.py:93)"}
    cases = [case(item, "", "deadlock", observed=(seen("stack_outlier", **frame),)) for item in (1, 2)]
    other = seen("stack_outlier", **{"class": "deadlock", "activity": "user", "frame": "Loader.read (io.py:3)"})
    told = [negative_text(100, "data_error", {"a": STEPS}, observed=(other,))]
    test = found(cases, background(told)).match["seen"]["structure"]["fields"]
    assert re.fullmatch(test["frame"], "Lease.wait (lease.py:120)") is not None


def test_what_some_show_otherwise_is_a_second_pattern():
    """Any of them is enough."""
    shown = [seen("collective_culprit", why=why, op="all_reduce") for why in ("missing", "missing", "disagrees")]
    cases = [case(at, "", "deadlock", observed=(item,)) for at, item in enumerate(shown, start=1)]
    candidate = found(cases)
    fields = [entry["structure"]["fields"] for entry in candidate.match.values()]
    assert (fields, candidate.when, candidate.support) == ([{"why": "missing"}, {"why": "disagrees"}], None, (1, 2, 3))


def test_names_of_places_are_no_words_of_a_rule():
    """A host that all three incidents share is still a host."""
    text = "[rank0]: fatal: lease of hopper was refused by its owner\n"
    cases = [case(item, text, names=frozenset({"hopper"})) for item in (1, 2, 3)]
    candidate = found(cases)
    assert "hopper" not in repr((candidate.match, candidate.title, candidate.id))


def test_the_order_of_what_it_is_held_against_changes_nothing():
    """The same incidents give the same rule."""
    against = others(OTHER, "[rank0]: disk is slow\n")
    turned = background(tuple(reversed(against.others)))
    assert found(leases(1, 2, 3), against) == found(leases(1, 2, 3), turned)


def test_near_misses_share_words_and_are_of_other_faults():
    """What the rule must stay silent on: the same words with another meaning."""
    near = "[rank0]: lease of volume 7 was renewed by its owner"
    assert found(leases(1, 2, 3), others(f"{near}\n", OTHER)).near == (near,)


def test_what_came_first_decides_not_what_stood_near():
    """A warning and the end of any program stand beside the fatal line in all incidents; neither becomes a pattern."""
    text = (
        "[rank1]: WARNING: depot client of part {part} is slow\n"
        "[rank1]: fatal: depot lease of part {part} was revoked\n"
        "Aborted (core dumped)\n"
    )
    cases = [
        case(item, text.format(part=item * 3), decisive=f"[rank1]: fatal: depot lease of part {item * 3} was revoked")
        for item in (1, 2, 3)
    ]
    candidate = found(cases)
    assert list(candidate.match) == ["line"]
    assert re.search(candidate.match["line"]["regex"], "depot lease of part 4711 was revoked")


def test_lines_at_error_level_do_not_speak_on_lines_below_it():
    """The same words at level INFO report something else."""
    text = "2026-03-11 10:31:12,104 ERROR depot: lease of part {} was revoked by owner\n"
    values = found([case(item, text.format(item)) for item in (1, 2, 3)]).match["line"]
    assert (values["level"], values["recovered"]) == ("error_if_stated", False)


def test_lines_that_say_so_themselves_are_not_kept_from_it():
    """Of a failure that is logged as a warning, and of one whose line speaks of its retries, the rule does not ask otherwise."""
    text = "2026-03-11 10:31:12,104 WARNING depot: lease of part {} was revoked by owner, attempt 3 of 3\n"
    values = found([case(item, text.format(item)) for item in (1, 2, 3)]).match["line"]
    assert not {"level", "recovered"} & set(values)


DROPPED = "2026-03-11 10:31:12,104 ERROR depot quiesced, {} requests dropped by the owner\n"


def test_none_of_them_is_health_only_where_a_good_run_shows_it():
    """Otherwise it may be the worst form of the failure, as in "0 of 16 actors left"."""
    cases = [case(item, DROPPED.format(item * 7)) for item in (1, 2, 3)]
    candidate = found(cases)
    assert re.search(candidate.match["line"]["regex"], DROPPED.format(0))
    assert "{value_1|...} requests dropped" in candidate.said
    shown = found(cases, others(OTHER, good=(DROPPED.format(0),))).match["line"]["regex"]
    assert [bool(re.search(shown, DROPPED.format(count))) for count in (12, 0)] == [True, False]


LANES = "2026-03-11 10:31:12,104 ERROR depot port trained with {} of 9 lanes of the owner\n"


def test_all_of_them_is_health_only_where_a_good_run_shows_it():
    """A share of the whole may be the total failure, as in "8 of 8 members silent"."""
    cases = [case(item, LANES.format(item)) for item in (1, 2, 3)]
    assert "not_line" not in found(cases).match["line"]
    values = found(cases, others(OTHER, good=(LANES.format(9),))).match["line"]
    assert [bool(re.search(values["not_line"], LANES.format(count))) for count in (9, 4)] == [True, False]
    assert refused(cases, others(OTHER, good=(LANES.format(8),))) == "no_support"  # nor does a part tell them apart


def test_the_pattern_reaches_what_the_title_tells():
    """Each value of the line is captured and told, with its unit; the line may end where a program wraps it, and nowhere else."""
    text = "[rank1]: fatal: depot table is full: {0} of {0} seats taken within {1} s, reader of part {2} turned away for good\n"
    candidate = found([case(item, text.format(item * 8, item, item * 9)) for item in (1, 2, 3)])
    regex = candidate.match["line"]["regex"]
    assert re.search(regex, text.format(64, 12, 71)).groupdict() == {
        "value_1": "64", "value_2": "64", "value_3": "12", "value_4": "s", "value_5": "71",
    }  # fmt: skip
    start = "depot table is full: 64 of 64 seats taken within 12 ms"
    assert re.search(regex, f"{start}, reader of").group("value_4") == "ms"
    assert [re.search(regex, f"{start}{more}") for more in ("", ", evicting idle ones", ", reader of all")] == [
        None
    ] * 3
    assert candidate.said == (
        "depot table is full: {value_1|...} of {value_2|...} seats taken within {value_3|...} {value_4|...}"
        "[?, reader of part {value_5} turned away for good]"
    )


def test_a_rank_that_a_line_only_names_is_not_its_speaker():
    """The rule must not accuse it."""
    text = "[rank1]: fatal: ledger order of part {0} differs from that on rank {1}\n"
    regex = found([case(item, text.format(item, item * 3)) for item in (1, 2, 3)]).match["line"]["regex"]
    assert "rank" not in re.search(regex, text.format(4, 0)).groupdict()


def test_an_exception_that_only_passes_a_failure_on_gives_way_to_the_error_before():
    """As where a call into native code returned nothing, and the native part said why."""
    text = (
        "[2026-03-11 10:31:12.104] [depot] [error] depot arena fragmented: {0} MiB wanted, largest hole has {1} MiB\n"
        'Traceback (most recent call last):\n  File "/opt/job/train.py", line 10, in main\n    take()\n'
        "RuntimeError: native call returned null\n"
    )
    cases = [
        case(item, text.format(item * 99, item), decisive="RuntimeError: native call returned null")
        for item in (1, 2, 3)
    ]
    assert "fragmented" in found(cases).match["line"]["regex"]


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("[rank1]: fatal: depot table refused: {0} of {0} seats taken, client {1} turned away\n", "beyond the limit"),
        ("[rank1]: fatal: ledger sum of part {0} differs from the neighbour's {1}\n", "Which of the two"),
    ],
)
def test_other_reasons_that_the_line_suggests_are_asked_about(text, asked):
    """A number beyond the limit that the line names, and a second party."""
    questions = found([case(item, text.format(item * 8, item * 8 + 2)) for item in (1, 2, 3)]).questions
    assert [asked in question for question in questions[:1]] == [True]


def test_what_nobody_said_is_asked():
    """The texts of the rule contain no filler for it."""
    assert found(leases(1, 2)).questions == (
        "What caused it? The close-outs name the class only.",
        "What should a person do? No close-out says what was done.",
    )
    told = [replace(item, note="the owner had moved", action="restarted the owner") for item in leases(1, 2)]
    assert found(told).questions == ()


@pytest.mark.parametrize("between", [9, 70])
def test_a_field_is_captured_where_every_record_has_it(between):
    """Whatever stands between it and the message."""
    text = '{{"msg":"shelf was pulled while labels were printing","level":"error","ts":"{pad}","boxes":{0}}}\n'
    cases = [case(item, text.format(item * 7, pad="2" * between)) for item in (1, 2, 3)]
    regex = found(cases).match["line"]["regex"]
    assert re.search(regex, text.format(35, pad="1" * between)).group("boxes") == "35"


def test_a_field_too_far_behind_is_left_out():
    """A clause that is never shown tells a reviewer nothing."""
    text = '{{"msg":"shelf was pulled while labels were printing","level":"error","note":"{pad}","boxes":{0}}}\n'
    candidate = found([case(item, text.format(item * 7, pad="x y " * 60)) for item in (1, 2, 3)])
    assert "boxes" not in candidate.match["line"]["regex"] + candidate.said
