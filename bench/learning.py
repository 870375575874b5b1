"""Measures learning from resolved incidents: removes signatures from the rules, mines and tests them again.

    python bench/learning.py [--l4-seeds 4] [--made-seeds 6] [--benchmark DIR] [--keep DIR] [--verbose] [--json]

A signature is a kind of failure for which the base has rules. These rules are removed; three incidents are diagnosed
without them and stored as by the product (distinct lines, redacted); the miner gets these with their close-outs, and as
background the stored incidents of all other kinds and good runs. The proposed rule is added to the base and tested by
the engine on held-out whole incidents: of the same kind with other seeds, of the same signature from other sources
(found by the same pattern of the base), of all other kinds, and on healthy runs. Everything except the recordings is
generated from seeds.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench" / "l4set")]

import yaml  # noqa: E402 - the paths are set above

from bench import healthy, incidents  # noqa: E402
from bot.authoring.stats import costs  # noqa: E402
from bot.diagnosis.comparison import compared  # noqa: E402
from bot.diagnosis.evidence import from_bundle, from_paths  # noqa: E402
from bot.diagnosis.observations import observed  # noqa: E402
from bot.diagnosis.replay_text import replay_text  # noqa: E402
from bot.learning.drafts.cases import logs_of  # noqa: E402
from bot.learning.drafts.rule_folder import DraftFolder, draft  # noqa: E402
from bot.rulebase.loader import Knowledge, default_folder, engine, knowledge, read_files  # noqa: E402
from bot.runtime.redaction import redact_bytes  # noqa: E402
from kb.diagnosis.engine import diagnose  # noqa: E402
from kb.diagnosis.findings import find  # noqa: E402
from kb.facts.evidence import Evidence  # noqa: E402
from kb.facts.history import History  # noqa: E402
from kb.facts.job_facts import Facts  # noqa: E402
from kb.learning.cases import Candidate, Case, Observation, Refusal  # noqa: E402
from kb.learning.existing_rules import decisive_line  # noqa: E402
from kb.learning.miner import mine  # noqa: E402
from kb.learning.negative_corpus import Background, background, negative_text  # noqa: E402
from kb.rulebase.rulebook import load  # noqa: E402
from kb.scanning.plan_builder import plan  # noqa: E402

GIVEN = 3  # incidents of a signature
GOOD = 1_000_000  # numbers of good runs begin here
JOBS = 2
LEARNED = ("made", "l4set", "lab")  # sources with several incidents of a kind

# Kinds of bench/l4set → the classes that a person may close them as. Kinds that only a missing line or a slower step tells are
# excluded, and so are recordings: each is one run, the same for every seed.
_L4 = """
aicore:gpu_fault bad-sample:data_error checkpoint-shape:checkpoint_load
checkpoint-shard-lost:checkpoint_load,data_error,storage_io commit-reset:checkpoint_save,storage_io
config-key:config_error cublas:gpu_library,gpu_fault,cuda_memory_access cuda-oom:cuda_oom
data-not-mounted:data_error,storage_io device-assert:device_assert disk-readonly:host_hardware,storage_io
dns-down:external_network drained:preempted driver-too-old:driver_mismatch ecc:gpu_memory_ecc
ecc-contained:gpu_memory_ecc eval-key:code_bug file-removed:data_error,checkpoint_load gpu-missing:cuda_init
gpu-off-bus:gpu_fell_off_bus gsp:gpu_firmware hbm-multibit:gpu_memory_ecc hccl-init:nccl_bootstrap
hccl-slow-link:rdma_link,network_congestion host-oom:host_oom ib-absent:nccl_bootstrap,rdma_setup
ib-flapping:rdma_link ib-port-down:rdma_link last-batch:shape_or_dtype,code_bug late-node:rendezvous
loader-stuck:dataloader_fault,storage_io loss-scale:loss_not_finite machine-check:host_hardware maintenance:preempted
memlock:rdma_setup nccl-mixed:nccl_bootstrap no-module:dependency no-permission:access_denied,storage_io
node-heartbeat:node_lost npu-hang:gpu_fault npu-occupied:cuda_init npu-oom:cuda_oom npu-port-down:rdma_link
nvlink:nvlink_fault peermem:rdma_setup port-taken:port_in_use qp-error:rdma_link quota:disk_full
registry:rendezvous,container_start resolve:rendezvous,external_network roce-cqe:rdma_link save-no-space:disk_full
save-timeouts:storage_io,checkpoint_save scheduler-lost:node_lost sdc-nan:silent_corruption,loss_not_finite
segfault:segfault shm-small:shm_exhausted stale-handle:storage_io store-unavailable:external_network,storage_io
thermal-stop:gpu_thermal_power token-expired:access_denied,external_network too-many-files:resource_limit
toolkit-mismatch:driver_mismatch,dependency vocab-file:data_error,checkpoint_load
worker-killed:host_oom,dataloader_fault world-indivisible:config_error wrong-interface:nccl_bootstrap
"""
L4: Mapping[str, str] = dict(row.split(":") for row in _L4.split())


# --- incidents ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Incident:
    """A whole incident on disk. `faults`: the accepted classes, the closed one first; none for a healthy run."""

    number: int
    source: str
    kind: str
    path: Path
    faults: tuple[str, ...]
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Filed:
    """The unchanged base's answer to an incident: rules for a true fault, patterns hit, first answer, text."""

    rules: tuple[str, ...]
    patterns: tuple[str, ...]
    first: str | None
    replay: bytes
    stage: str | None
    observed: tuple[Observation, ...] = ()


@dataclass(frozen=True, slots=True)
class Signature:
    """A kind of failure: its removed rules, the incidents for the miner, and the held-out ones."""

    source: str
    kind: str
    fault: str
    gone: frozenset[str]
    patterns: frozenset[str]
    given: tuple[Incident, ...]
    kept: tuple[Incident, ...]

    @property
    def name(self) -> str:
        """Its name in tables."""
        return f"{self.source}/{self.kind}"


def made(seeds: int, folder: Path) -> Iterator[tuple[str, str, Path, tuple[str, ...], tuple[str, ...]]]:
    """Yield the incidents of bench/incidents.py."""
    for seed in range(1, seeds + 1):
        for number, kind in enumerate(incidents.KINDS):
            path = folder / "made" / str(seed) / kind
            truth = incidents.make(kind, number, seed, path)
            yield "made", kind, path, (truth.fault, *truth.accept), tuple(truth.nodes)


def l4_like(seeds: int, folder: Path) -> Iterator[tuple[str, str, Path, tuple[str, ...], tuple[str, ...]]]:
    """Yield the incidents of bench/l4set, and its healthy runs."""
    from build import build  # noqa: PLC0415 - a script beside this one

    for seed in range(1, seeds + 1):
        out = folder / "l4set" / str(seed)
        if not (out / "truth.json").exists():
            build(out, seed, 100, 10, "small", JOBS)
        for name, item in json.loads((out / "truth.json").read_text())["cases"].items():
            path = out / "cases" / name
            if item.get("fault") is None:
                yield "l4set", "healthy", path, (), ()
            elif item["fault"] in L4 and any(event["kind"] == "line" for event in item["events"]):
                yield "l4set", item["fault"], path, tuple(L4[item["fault"]].split(",")), tuple(item["nodes"])


def recorded(folder: Path) -> Iterator[tuple[str, str, Path, tuple[str, ...], tuple[str, ...]]]:
    """Yield the recordings of the lab."""
    for path in sorted((ROOT / "tests" / "bundles").iterdir()):
        case = yaml.safe_load((path / "case.yaml").read_text()) if (path / "case.yaml").exists() else {}
        named = case.get("fault") or case.get("label")
        faults = (named, *case.get("also", ())) if named and named != "healthy" else ()
        yield "lab", faults[0] if faults else "healthy", path, faults, ()
    del folder


def benchmark(folder: Path) -> Iterator[tuple[str, str, Path, tuple[str, ...], tuple[str, ...]]]:
    """Real cases, each by its class."""
    for path in sorted((folder / "cases").iterdir()) if (folder / "cases").is_dir() else ():
        case = yaml.safe_load((path / "case.yaml").read_text())
        faults = (case["label"], *case.get("accept", ())) if case["label"] != "healthy" else ()
        yield "benchmark", case["label"], path, faults, ()


def healthy_runs(folder: Path) -> Iterator[tuple[str, str, Path, tuple[str, ...], tuple[str, ...]]]:
    """Noisy healthy logs (bench/healthy.py)."""
    (folder / "healthy").mkdir(parents=True, exist_ok=True)
    for number in range(100):
        yield "healthy", "healthy", healthy.write(healthy.make(1, number), folder / "healthy"), (), ()


def evidence_of(known: Knowledge, path: Path) -> Evidence:
    """Return the evidence of a bundle, or of a log alone."""
    return from_bundle(known, path, workers=1) if path.is_dir() else from_paths(known, [path], workers=1)


def without(evidence: Evidence, gone: frozenset[str]) -> Evidence:
    """Return the evidence as if the base never had these rules."""
    streams = tuple(
        replace(stream, hits={key: hits for key, hits in stream.hits.items() if key.partition("#")[0] not in gone})
        for stream in evidence.streams
    )
    return replace(evidence, streams=streams)


# --- the unchanged base -----------------------------------------------------------------------------------------------

_known: Knowledge | None = None
_background: Background | None = None
_base: dict[str, str] = {}


def _begin() -> None:
    global _known, _base  # noqa: PLW0603 - a worker process has one, made once
    _known = knowledge()
    _base = read_files(default_folder())[0]


def _file(incident: Incident) -> Filed:
    assert _known is not None
    evidence = evidence_of(_known, incident.path)
    report = diagnose(evidence, _known.rulebook)
    rules = tuple(dict.fromkeys(found.rule for found in report.diagnoses if found.fault in incident.faults))
    hits = tuple(sorted({key for stream in evidence.streams for key in stream.hits if key.partition("#")[0] in rules}))
    first = report.diagnoses[0].fault if report.diagnoses else None
    return Filed(rules, hits, first, replay_text(evidence), report.progress.stage, observed(evidence))


def _case(incident: Incident, gone: frozenset[str], known: Knowledge) -> Case:
    """Return an incident as stored by a base without the removed rules."""
    evidence = without(evidence_of(known, incident.path), gone)
    book = replace(known.rulebook, rules=tuple(rule for rule in known.rulebook.rules if rule.id not in gone))
    report = diagnose(evidence, book)
    if report.verdict == "no_match" or (report.diagnoses and all(found.band == "weak" for found in report.diagnoses)):
        report = compared(report, evidence, incident.path, workers=1)
    return Case(
        incident.number,
        fault=incident.faults[0] if incident.faults else None,
        texts=logs_of(replay_text(evidence)),
        names=frozenset(name.lower() for name in incident.nodes),
        told=tuple(event.evidence.text for event in report.indicators.events if event.evidence is not None),
        decisive=decisive_line(evidence, book),
        observed=observed(evidence),
        stage=report.progress.stage,
    )


# --- mining ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mined:
    """The miner's result for a signature, from so many incidents."""

    signature: Signature
    given: int
    result: Candidate | Refusal
    folder: DraftFolder | None = None
    planted: tuple[int, list[str]] = (0, [])


def _begin_mining(filed: Mapping[int, tuple[Incident, Filed]], good: Mapping[int, Mapping[str, str]]) -> None:
    global _background  # noqa: PLW0603 - a worker process has one, made once
    _begin()
    others = [
        negative_text(
            number,
            item.faults[0] if item.faults else "healthy",
            logs_of(what.replay),
            stage=what.stage,
            observed=what.observed,
        )
        for number, (item, what) in sorted(filed.items())
    ]
    others += [negative_text(number, "healthy", texts) for number, texts in sorted(good.items())]
    _background = background(others)


def _mine(task: tuple[Signature, tuple[int, ...], bool]) -> list[Mined]:
    signature, counts, plant = task
    assert _known is not None
    assert _background is not None
    cases = [_case(incident, signature.gone, _known) for incident in signature.given]
    book = replace(
        _known.rulebook, rules=tuple(rule for rule in _known.rulebook.rules if rule.id not in signature.gone)
    )
    known = replace(_known, rulebook=book)
    found = []
    for count in counts:
        result = mine(cases[:count], _background, book)
        made = None
        if isinstance(result, Candidate):
            texts = {case.id: case.texts for case in cases}
            made = draft(result, texts, known, _base, names=[name for case in cases for name in case.names])
        sow = count == GIVEN and plant
        planted = _planted(cases, result, known, signature.name) if isinstance(result, Candidate) and sow else (0, [])
        found.append(Mined(signature, count, result, made, planted))
    return found


def good_runs(folder: Path) -> dict[int, dict[str, str]]:
    """Return the ends of good runs of the miner's jobs, as much as is stored of an incident."""
    found = {}
    for number, path in enumerate(sorted(folder.glob("l4set/*/cases/*/baseline"))[::7]):
        found[GOOD + number] = {
            str(item.relative_to(path)): item.read_text("utf-8", "replace")[-60_000:]
            for item in sorted(path.rglob("*"))
            if item.is_file()
        }
    for number in range(80):  # with another seed than those used for testing
        found[2 * GOOD + number] = {name: text[-60_000:] for name, text in healthy.make(2, number).files.items()}
    return found


# --- trying ------------------------------------------------------------------------------------------------------------


def learned_id(index: int) -> str:
    """Return the id under which a learned rule is tested; several signatures may yield the same name."""
    return f"learned-{index}"


def with_learned(mined: Sequence[Mined]) -> Knowledge:
    """Return the base with the learned rules, as if merged and active."""
    files = dict(read_files(default_folder())[0])
    for index, item in enumerate(mined):
        if item.folder is None:
            continue
        text = item.folder.files[f"{item.folder.folder}/rule.yaml"].decode()
        values = {**yaml.safe_load(text), "id": learned_id(index), "status": "experimental"}
        files[f"{item.folder.candidate.family}/{learned_id(index)}/rule.yaml"] = yaml.safe_dump(values, sort_keys=False)
    loaded = load(files)
    if loaded.faults:
        raise ValueError(f"a learned rule does not load: {loaded.faults[0]}")
    made = plan(loaded.rulebook)
    return Knowledge(loaded.rulebook, made, engine()(made.patterns).dump())


def _begin_trying(known: Knowledge) -> None:
    global _known  # noqa: PLW0603 - a worker process has one, made once
    _known = known


def _try(path: Path) -> tuple[tuple[str, ...], str | None]:
    """Return the learned rules that fire on an incident, and the first answer with all rules from three incidents."""
    assert _known is not None
    evidence = evidence_of(_known, path)
    heard = find(_known.rulebook, Facts(evidence), History()).findings
    spoke = tuple(sorted({finding.rule.id for finding in heard if finding.rule.id.startswith("learned-")}))
    report = diagnose(evidence, _known.rulebook) if spoke else None
    return spoke, report.diagnoses[0].fault if report is not None and report.diagnoses else None


# --- figures -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tally:
    """Counts for one source and one number of incidents."""

    signatures: int = 0
    refused: int = 0
    found: int = 0
    of: int = 0
    each: list[float] = field(default_factory=list)
    elsewhere: Counter[str] = field(default_factory=Counter)
    elsewhere_of: Counter[str] = field(default_factory=Counter)
    right: int = 0
    wrong: int = 0
    clean: int = 0

    def row(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        return {
            "signatures": self.signatures,
            "no candidate": self.refused,
            "recall": round(self.found / max(1, self.of), 4),
            "recall, mean of signatures": round(sum(self.each) / max(1, len(self.each)), 4),
            "n": self.of,
            "elsewhere": {
                name: f"{self.elsewhere[name]} of {count}" for name, count in sorted(self.elsewhere_of.items())
            },
            "precision on others": round(self.right / max(1, self.right + self.wrong), 4),
            "spoke": self.right + self.wrong,
            "on clean runs": self.clean,
        }


def tallied(
    mined: Sequence[Mined], spoke: Mapping[int, tuple[str, ...]], all_: Mapping[int, tuple[Incident, Filed]]
) -> dict[tuple[str, int], Tally]:
    """Return figures by source and number of incidents. Incidents from which a rule was learned do not count for it."""
    found: dict[tuple[str, int], Tally] = defaultdict(Tally)
    speaking: dict[str, set[int]] = defaultdict(set)
    for number, rules in spoke.items():
        for rule in rules:
            speaking[rule].add(number)
    for index, item in enumerate(mined):
        signature = item.signature
        tally = found[signature.source, item.given]
        tally.signatures += 1
        tally.refused += isinstance(item.result, Refusal)
        hits = speaking[learned_id(index)] - {given.number for given in signature.given}
        own = {kept.number for kept in signature.kept}
        tally.found += len(hits & own)
        tally.of += len(own)
        tally.each.append(len(hits & own) / len(own))
        for number, (other, filed) in all_.items():
            foreign = (
                other.source != signature.source
                and signature.fault in other.faults
                and signature.patterns & set(filed.patterns)
            )
            if foreign and isinstance(item.result, Candidate):
                tally.elsewhere_of[other.source] += 1
                tally.elsewhere[other.source] += number in hits
        for number in hits:
            faults = all_[number][0].faults
            tally.clean += not faults
            tally.right += signature.fault in faults
            tally.wrong += bool(faults) and signature.fault not in faults
    return dict(found)


def signatures(filed: Mapping[int, tuple[Incident, Filed]]) -> list[Signature]:
    """Return the kinds known to the base with incidents to learn from and to test."""
    kinds: dict[tuple[str, str], list[tuple[Incident, Filed]]] = defaultdict(list)
    for pair, what in filed.values():
        if pair.faults and pair.source in LEARNED:
            kinds[pair.source, pair.kind].append((pair, what))
    found = []
    for (source, kind), group in sorted(kinds.items()):
        given, kept = group[:GIVEN], group[GIVEN:]
        known = [what for _, what in given if what.rules]
        fault = given[0][0].faults[0]
        if len(given) == GIVEN and kept and len(known) > 1 and fault != "code_bug":
            gone = frozenset(rule for _, what in group for rule in what.rules)
            patterns = frozenset(key for what in known for key in what.patterns)
            found.append(
                Signature(
                    source,
                    kind,
                    fault,
                    gone,
                    patterns,
                    tuple(incident for incident, _ in given),
                    tuple(incident for incident, _ in kept),
                )
            )
    return found


def _pool(begin: Callable[..., None], *given: object) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(JOBS, initializer=begin, initargs=given)


def plain_bugs(filed: Mapping[int, tuple[Incident, Filed]]) -> list[Signature]:
    """Return incidents caused by bugs of the run's own code; the miner must propose nothing."""
    return [
        Signature(
            pair.source,
            f"{pair.kind} {pair.path.name}",
            "code_bug",
            frozenset(what.rules),
            frozenset(),
            (pair,),
            (pair,),
        )
        for pair, what in filed.values()
        if pair.faults[:1] == ("code_bug",)
    ]


# --- planted secrets --------------------------------------------------------------------------------------------------

PLANTED = 200


def _letters(chance: Random, count: int) -> str:
    return "".join(chance.choice("ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789") for _ in range(count))


def _name(chance: Random) -> str:
    return "".join(
        chance.choice(part)
        for part in ("bdfgklmnprstvz", "aeiou", "bdgklmnprstvz", "aeiou", "klmnprstx", "aeiou", "dfgkmnr")
    )


_FORMS: tuple[tuple[str, Callable[[Random], str]], ...] = (
    ("password={}", lambda chance: _letters(chance, 14)),
    ("token: hf_{}", lambda chance: _letters(chance, 34)),
    ("owner {}@research.example-lab.org", _name),
    ("on host {}", _name),
    ("({}.corp.example-site.net)", lambda chance: f"{_name(chance)}{chance.randrange(100)}"),
    ("peer 10.{}", lambda chance: f"{chance.randrange(256)}.{chance.randrange(256)}.{chance.randrange(1, 255)}"),
    ("file=/home/{}/runs/out.pt", _name),
    ("asked by {}", lambda chance: _name(chance).capitalize()),
    ("AWS_SECRET_ACCESS_KEY={}", lambda chance: _letters(chance, 40)),
    ("[{}-gpu-0417]", _name),
)


def _sown(case: Case, lines: Sequence[str], secrets: Sequence[tuple[str, str]]) -> Case:
    """Return the case with secrets planted on its decisive lines, before and after their text, and right below them."""
    texts = dict(case.texts)
    told = list(lines)
    for index, (form, secret) in enumerate(secrets):
        text = form.format(secret)
        source = next((name for name, whole in texts.items() if any(line in whole for line in told)), None)
        if source is None:
            break
        target = next(line for line in told if line in texts[source])
        changed = (f"{target}\n{text} of the run", f"{text} {target}", f"{target} {text}")[index % 3]
        texts[source] = texts[source].replace(target, changed, 1)
        told = [changed if line == target and index % 3 else line for line in told]
    said = f"{secrets[7][1]} swapped the cable of {secrets[3][1]}, password={secrets[0][1]}"
    # incidents are filed with their secrets masked
    masked = {name: redact_bytes(whole.encode(), emails=True).decode() for name, whole in texts.items()}
    return replace(case, texts=masked, note=said)


def _planted(cases: Sequence[Case], plain: Candidate, known: Knowledge, seed: str) -> tuple[int, list[str]]:
    """Return the number of planted secrets in the incidents, and those found in the proposed rule folder."""
    assert _background is not None
    chance = Random(f"planted {seed}")
    secrets = [(form, make(chance)) for form, make in _FORMS]
    sown = [
        _sown(case, [line for own in plain.lines.get(case.id, {}).values() for line in own], secrets) for case in cases
    ]
    result = mine(sown, _background, known.rulebook)
    if isinstance(result, Refusal):
        return 0, []
    folder = draft(result, {case.id: case.texts for case in sown}, known, _base)
    written = "\n".join([*folder.files, *(data.decode("utf-8", "replace") for data in folder.files.values())]).lower()
    return len(secrets), [f"{seed}: {form.format(secret)}" for form, secret in secrets if secret.lower() in written]


# --- the command -------------------------------------------------------------------------------------------------------


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return all figures."""
    rows = [
        *made(options.made_seeds, folder),
        *l4_like(options.l4_seeds, folder),
        *recorded(folder),
        *benchmark(options.benchmark),
        *healthy_runs(folder),
    ]
    rows = [row for row in rows if re.search(options.only, row[1])]
    all_ = [Incident(number, *row) for number, row in enumerate(rows, start=1)]
    with _pool(_begin) as pool:
        filed = {item.number: (item, what) for item, what in zip(all_, pool.map(_file, all_, chunksize=4), strict=True)}
    wanted = signatures(filed)
    given = {incident.number for signature in wanted for incident in signature.given}
    first = {item.number for group in _kinds(all_).values() for item in group[:GIVEN]}
    known = {
        number: filed[number] for number in filed if number in given | first and filed[number][0].source in LEARNED
    }
    bugs = plain_bugs(filed)
    with _pool(_begin_mining, known, good_runs(folder)) as pool:
        sowing = PLANTED // len(_FORMS) * 5 // 4  # some yield no candidate
        tasks = [
            (item, (GIVEN, 1), index * sowing // len(wanted) != (index - 1) * sowing // len(wanted))
            for index, item in enumerate(wanted)
        ]
        mined = [item for found in pool.map(_mine, tasks) for item in found]
        bugged = [item for found in pool.map(_mine, [(bug, (1,), False) for bug in bugs]) for item in found]
    book = with_learned(mined)
    with _pool(_begin_trying, book) as pool:
        tried = dict(
            zip(
                [incident.number for incident in all_],
                pool.map(_try, [incident.path for incident in all_], chunksize=4),
                strict=True,
            )
        )
    tallies = tallied(mined, {number: spoke for number, (spoke, _) in tried.items()}, filed)
    return {
        "incidents": len(all_),
        "signatures": len(wanted),
        "figures": {f"{source}, {count} given": tally.row() for (source, count), tally in sorted(tallies.items())},
        "all, 3 given": _summed(tallies, GIVEN),
        "all, 1 given": _summed(tallies, 1),
        "plain code bugs": {
            "incidents": len(bugged),
            "candidates": sum(isinstance(item.result, Candidate) for item in bugged),
        },
        "folders": {
            "written": sum(item.folder is not None for item in mined),
            "not lint-clean": sum(bool(item.folder.missing) for item in mined if item.folder is not None),
            "regexes refused": sum(
                "regex" in text for item in mined if item.folder is not None for text in item.folder.missing
            ),
        },
        "cost": _costs(book, folder),
        "planted": {
            "planted": sum(item.planted[0] for item in mined),
            "reached a folder": sum(len(item.planted[1]) for item in mined),
            "which": [leak for item in mined for leak in item.planted[1]][:10],
        },
        "each": [_told(index, item, tried, filed) for index, item in enumerate(mined)],
    }


def _kinds(all_: Sequence[Incident]) -> dict[tuple[str, str], list[Incident]]:
    found: dict[tuple[str, str], list[Incident]] = defaultdict(list)
    for incident in all_:
        found[incident.source, incident.kind].append(incident)
    return found


def _summed(tallies: Mapping[tuple[str, int], Tally], given: int) -> dict[str, Any]:
    total = Tally()
    for (_, count), item in tallies.items():
        if count == given:
            total.signatures += item.signatures
            total.refused += item.refused
            total.found += item.found
            total.of += item.of
            total.each += item.each
            total.elsewhere.update(item.elsewhere)
            total.elsewhere_of.update(item.elsewhere_of)
            total.right += item.right
            total.wrong += item.wrong
            total.clean += item.clean
    return total.row()


def _costs(book: Knowledge, folder: Path) -> dict[str, Any]:
    """Return lines of healthy logs that the engine checks for learned rules, in addition to those of the base."""
    found, size = costs(book, [folder / "healthy"])
    base = sorted(item.asked for item in found if not item.rule.startswith("learned-"))
    own = [item.asked for item in found if item.rule.startswith("learned-")]
    bound = base[int(0.95 * (len(base) - 1))]
    return {
        "MB": round(size / 1e6, 1),
        "base, 95th percentile": bound,
        "learned, most": max(own, default=0),
        "above": sum(item > bound for item in own),
    }


def _told(
    index: int,
    item: Mined,
    tried: Mapping[int, tuple[tuple[str, ...], str | None]],
    filed: Mapping[int, tuple[Incident, Filed]],
) -> dict[str, Any]:
    signature = item.signature
    hits = {number for number, (spoke, _) in tried.items() if learned_id(index) in spoke} - {
        given.number for given in signature.given
    }
    own = {kept.number for kept in signature.kept}
    wrong = [
        f"{filed[number][0].source}/{filed[number][0].kind}"
        for number in sorted(hits)
        if signature.fault not in filed[number][0].faults
    ]
    told = {
        "signature": signature.name,
        "given": item.given,
        "fault": signature.fault,
        "found": f"{len(hits & own)} of {len(own)}",
        "wrong": wrong,
    }
    if isinstance(item.result, Refusal):
        return {**told, "refused": item.result.code}
    return {
        **told,
        "match": dict(item.result.match),
        "when": item.result.when,
        "missing": list(item.folder.missing) if item.folder else [],
    }


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--l4-seeds", type=int, default=4)
    parser.add_argument("--made-seeds", type=int, default=6)
    parser.add_argument("--benchmark", type=Path, default=ROOT.parent / "shared" / "benchmark")
    parser.add_argument("--only", default="", help="a regex: kinds of incidents, for a quick look")
    parser.add_argument("--keep", type=Path, help="folder for the incidents, used again where they are there")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="learning-") as scratch:
        figures = run(options, options.keep or Path(scratch))
    each = figures.pop("each")
    if options.json:
        print(json.dumps({**figures, "each": each}, indent=1))
        return 0
    print(yaml.safe_dump(figures, sort_keys=False, width=140))
    for value in (
        each
        if options.verbose
        else [row for row in each if row["given"] == GIVEN and (row["wrong"] or "refused" in row)]
    ):
        print(json.dumps(value))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
