"""Measures rules learned from three incidents on a set that someone else made: the fourth incident, rewordings, near misses, good runs.

    python bench/learned.py SET [--given N] [--verbose]

SET is a file of JSON lines. Objects of type `failure`: id, fault, note, action, secrets, incidents (4 of file name → text), variations and
near (texts), good (2 of file name → text). Objects of type `nothing_shared`: id, fault, note, action, incidents (3); no rule is right for
them. Incidents are stored as by the product (distinct lines, redacted), mined with a background of all other failures' incidents and the
first good run of each, and the drafted rule is tested by itself with the engine. Every planted secret is looked for in all files of the
drafted folder. The set stays outside the repository.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import yaml  # noqa: E402 - the path is set above

from bot.diagnosis.evidence import from_paths  # noqa: E402
from bot.diagnosis.observations import observed  # noqa: E402
from bot.diagnosis.replay_text import replay_text  # noqa: E402
from bot.learning.drafts.anonymise import english  # noqa: E402
from bot.learning.drafts.cases import logs_of, parted  # noqa: E402
from bot.learning.drafts.rule_folder import DraftFolder, draft  # noqa: E402
from bot.learning.drafts.rule_logs import RuleTester  # noqa: E402
from bot.rulebase.loader import Knowledge, default_folder, knowledge, read_files  # noqa: E402
from kb.diagnosis.engine import diagnose  # noqa: E402
from kb.diagnosis.unknown import UNKNOWN  # noqa: E402
from kb.digest.statistics import wilson  # noqa: E402
from kb.learning.cases import Case, Refusal  # noqa: E402
from kb.learning.existing_rules import decisive_line  # noqa: E402
from kb.learning.miner import mine  # noqa: E402
from kb.learning.negative_corpus import NegativeText, background, negative_case, negative_text  # noqa: E402
from kb.learning.rule_texts import imperative  # noqa: E402

GIVEN = 3
WORD = re.compile(r"[A-Za-z][A-Za-z-]{2,}")
Streams = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Base:
    """The rule base: as knowledge, and its files."""

    known: Knowledge
    files: Mapping[str, str]


@dataclass(slots=True)
class Counts:
    """Hits and tries by figure, and what was found beside them."""

    hits: Counter[str] = field(default_factory=Counter)
    tries: Counter[str] = field(default_factory=Counter)
    leaks: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def add(self, name: str, right: bool) -> None:
        """Count one try."""
        self.tries[name] += 1
        self.hits[name] += right


def main() -> int:
    """Mine, test, and print the figures."""
    options = arguments()
    given: int = options.given
    objects = [json.loads(line) for line in options.set.read_text("utf-8").splitlines()]
    failures = [item for item in objects if item.get("type") == "failure"]
    known, base = knowledge(), read_files(default_folder())[0]
    cases = {item["id"]: stored(item, known) for item in failures}
    good = {
        item["id"]: negative_text(-number, "healthy", kept(item["good"][0], known))
        for number, item in enumerate(failures, start=1)
    }
    counts = Counts()
    for item in failures:
        others = [negative_case(case) for name, own in cases.items() if name != item["id"] for case in own[:given]]
        wrong = judge(
            item,
            failures,
            given=cases[item["id"]][:given],
            against=[*others, *good.values()],
            base=Base(known, base),
            counts=counts,
        )
        if options.verbose:
            print("\n".join(wrong))
    for item in objects:
        if item.get("type") == "nothing_shared":
            own = stored(item, known)
            others = [negative_case(case) for each in cases.values() for case in each[:given]]
            mined = mine(own, background([*others, *good.values()]), known.rulebook)
            counts.add("no proposal where nothing is shared", isinstance(mined, Refusal))
            if not isinstance(mined, Refusal) and options.verbose:
                print(f"{item['id']}: proposed {dict(mined.match)}")
    for name, tries in counts.tries.items():
        low, high = wilson(counts.hits[name], tries)
        print(
            f"{name:48} {counts.hits[name]:5} of {tries:5}  {counts.hits[name] / tries:6.1%}  ({low:.0%} to {high:.0%})"
        )
    print(f"{'planted secrets that leave':48} {len(counts.leaks):5}  {', '.join(sorted(set(counts.leaks))[:12])}")
    print(f"{'refused':48} {len(counts.refused):5}  {', '.join(counts.refused)}")
    return 0


def arguments() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", type=Path)
    parser.add_argument("--given", type=int, default=GIVEN, help="how many incidents of a failure are mined, 1 to 3")
    parser.add_argument("--verbose", action="store_true", help="print each rule, and what it gets wrong")
    return parser.parse_args()


def stored(item: Mapping[str, Any], known: Knowledge) -> list[Case]:
    """Return the incidents of an object as cases, as the store gives them to the miner."""
    return [_case(number, item, streams, known) for number, streams in enumerate(item["incidents"], start=1)]


def kept(streams: Streams, known: Knowledge) -> dict[str, str]:
    """Return what the store keeps of some logs."""
    with tempfile.TemporaryDirectory() as folder:
        return logs_of(replay_text(from_paths(known, _files(Path(folder), streams), workers=1)))


def _files(folder: Path, streams: Streams) -> list[Path]:
    for name, text in streams.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return [folder / name for name in streams]


def _case(number: int, item: Mapping[str, Any], streams: Streams, known: Knowledge) -> Case:
    with tempfile.TemporaryDirectory() as folder:
        evidence = from_paths(known, _files(Path(folder), streams), workers=1)
    report = diagnose(evidence, known.rulebook)
    unknown = [found for found in report.diagnoses if found.fault == UNKNOWN]
    nodes = {node for found in report.diagnoses for node in found.nodes}
    return Case(
        number,
        fault=item["fault"],
        note=item["note"],
        action=item["action"],
        texts=logs_of(replay_text(evidence)),
        names=frozenset(parted(nodes)),
        told=tuple(line.text for found in unknown for line in found.evidence),
        decisive=decisive_line(evidence, known.rulebook),
        observed=observed(evidence),
        stage=report.progress.stage,
    )


def judge(
    item: Mapping[str, Any],
    failures: list[dict[str, Any]],
    *,
    given: list[Case],
    against: list[NegativeText],
    base: Base,
    counts: Counts,
) -> list[str]:
    """Mine a failure, draft its rule, and test it on everything that was held out. Returns the rule and what is wrong."""
    mined = mine(given, background(against), base.known.rulebook)
    if isinstance(mined, Refusal):
        counts.refused.append(f"{item['id']} ({mined.code})")
        for name, texts in (("fourth incident", [1]), ("variations", item["variations"])):
            for _ in texts:
                counts.add(name, False)
        return [f"{item['id']}: refused"]
    names = [name for case in given for name in case.names]
    made = draft(mined, {case.id: case.texts for case in given}, base.known, base.files, names=names)
    tester = RuleTester(mined, made.files[f"{made.folder}/rule.yaml"].decode(), base.files)
    wrong = list(_tested(item, failures, tester, counts))
    whole = "\n".join([*made.files, *(data.decode("utf-8", "replace") for data in made.files.values()), made.said])
    leaks = [secret for secret in item["secrets"] if secret in whole]
    counts.leaks += leaks
    for word in sorted(_words(item)):
        right = any(
            form in made.said.lower() for form in {word, imperative(word, english()).lower().rstrip(".") or word}
        )
        counts.add("words of the close-out kept", right)
        if not right:
            wrong.append(f"word lost: {word}")
    return [*_shown(item, made), *(f"    ! {text}" for text in (*wrong, *(f"LEAK {leak}" for leak in leaks)))]


def _tested(
    item: Mapping[str, Any], failures: list[dict[str, Any]], tester: RuleTester, counts: Counts
) -> Iterator[str]:
    def speaks(streams: Streams) -> bool:
        return tester.speaks({name: text.encode("utf-8", "replace") for name, text in streams.items()})

    def tried(name: str, streams: Streams, *, wanted: bool, what: str) -> Iterator[str]:
        right = speaks(streams) is wanted
        counts.add(name, right)
        if not right:
            yield f"{name}: {what}"

    variations = zip(item["variations"], item["variation_forms"], strict=True)
    near = zip(item["near"], item["near_what"], strict=True)
    others = [other for other in failures if other["id"] != item["id"]]
    yield from tried("fourth incident", item["incidents"][GIVEN], wanted=True, what="")
    for text, form in variations:
        yield from tried("variations", {"rank-7.log": text}, wanted=True, what=form)
    for text, form in near:
        yield from tried("silent on near misses", {"rank-7.log": text}, wanted=False, what=form)
    for streams in [
        *(run for other in failures for run in other["good"]),
        *(other["incidents"][GIVEN] for other in others),
    ]:
        yield from tried("silent on good runs and other incidents", streams, wanted=False, what=str(list(streams)))


def _words(item: Mapping[str, Any]) -> set[str]:
    """The words of the close-out without secrets."""
    text = f"{item['note']} {item['action']}"
    for secret in sorted(item["secrets"], key=len, reverse=True):
        text = text.replace(secret, " ")
    return {word.lower() for word in WORD.findall(text)}


def _shown(item: Mapping[str, Any], made: DraftFolder) -> Iterator[str]:
    rule = yaml.safe_load(made.files[f"{made.folder}/rule.yaml"])
    yield f"{item['id']}: {rule['title']}\n    {json.dumps(rule['match'])}"
    yield f"    note: {item['note']}\n    did: {item['action']}\n    cause: {rule['cause']}"
    yield from (f"    {step['action']}: {step['text']}" for step in rule["remediation"])


if __name__ == "__main__":
    raise SystemExit(main())
