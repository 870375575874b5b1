"""Measures which secrets pass the masks at the places where text leaves, and which harmless strings are masked.

    python bench/leaks.py --set DIR [--forms forms.jsonl] [--show 20]

DIR has `forms.jsonl` (objects with `id`, `kind`, `text`, `secrets`), `wrap.py` (`WRAPPINGS[name](text, secrets)`
returns the wrapped text and what to look for, `leaked(text, looked_for)`), and `harmless.jsonl` (objects with `line`
and the harmless `string` in it). Real material stays outside the repository, and no token, real or made up, is kept in
it. Each wrapped form goes through five places: the mask itself, a saved bundle, the JSON of a report, the database with
everything in it unpacked, and the message and the file for Slack.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sqlite3
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import zstandard

from bot.collection.bundle_writer import BundleWriter
from bot.diagnosis.diagnose import DiagnosisResult
from bot.diagnosis.line_numbers import resolve
from bot.render.report_json import dumps
from bot.render.terminal import plain
from bot.render.text_page import Reading
from bot.runtime.redaction import redact
from bot.slack.messages.answer import answer_message
from bot.slack.messages.card import Card
from bot.store.incidents import IncidentStore
from kb.model import Gap
from kb.report import Diagnosis, EvidenceItem, RemedyStep, Report, Suspect, Versions

PLACES = ("mask", "bundle", "json", "database", "slack")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class WrappedForm:
    """A secret in one of its wrappings, and the texts that must not leak."""

    id: str
    kind: str
    wrapping: str
    text: str
    secrets: Sequence[str]


def main() -> int:
    """Print the leaks by place, wrapping and kind, and the harmless strings that are masked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", type=Path, required=True, help="the folder of the set")
    parser.add_argument("--forms", default="forms.jsonl", help="its file of forms")
    parser.add_argument("--show", type=int, default=0, help="list so many leaks and masked strings")
    options = parser.parse_args()
    wrap = _module(options.set / "wrap.py")
    forms = list(_forms(wrap, options.set / options.forms))
    leaks = _leaks(wrap, forms)
    for place in PLACES:
        missed = [form for form in forms if place in leaks[form.id, form.wrapping]]
        by = Counter(form.wrapping for form in missed)
        print(f"{place:9} {len(missed):5} of {len(forms)} leak ({len(missed) / len(forms):.2%})  {dict(by) or ''}")
    anywhere = [form for form in forms if leaks[form.id, form.wrapping]]
    kinds = len({form.id for form in anywhere})
    print(f"{'anywhere':9} {len(anywhere):5} of {len(forms)} leak ({len(anywhere) / len(forms):.2%}), {kinds} forms")
    for form in anywhere[: options.show]:
        places = ",".join(sorted(leaks[form.id, form.wrapping]))
        print(f"  {form.id} {form.kind} {form.wrapping} {places}: {redact(form.text)[:400]!r}")
    _harmless(options.set / "harmless.jsonl", options.show)
    return 0


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("leaks_wrap", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _forms(wrap: ModuleType, path: Path) -> Iterator[WrappedForm]:
    for line in path.read_text("utf-8").splitlines():
        form = json.loads(line)
        for name, wrapping in wrap.WRAPPINGS.items():
            text, secrets = wrapping(form["text"], form["secrets"])
            if secrets:
                yield WrappedForm(form["id"], form["kind"], name, text, secrets)


def _leaks(wrap: ModuleType, forms: Sequence[WrappedForm]) -> Mapping[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    with tempfile.TemporaryDirectory() as scratch:
        copied = _bundle(Path(scratch) / "bundle", forms)
        with IncidentStore(f"sqlite:///{scratch}/signalbox.db") as store:
            for number, form in enumerate(forms):
                answer = DiagnosisResult(resolve(_report(number, form.text), None), {})
                outputs = {
                    "mask": redact(form.text),
                    "bundle": copied[number],
                    "json": _texts(json.loads(dumps(answer.report))),
                    "slack": _slack(answer.report),
                }
                store.add(dumps(answer.report), answer.report, redact(form.text).encode(), "bundle", NOW)
                found[form.id, form.wrapping] |= {
                    place for place, text in outputs.items() if wrap.leaked(text, form.secrets)
                }
        for number, text in _rows(f"{scratch}/signalbox.db"):
            form = forms[number]
            if wrap.leaked(text, form.secrets):
                found[form.id, form.wrapping].add("database")
    return found


def _bundle(folder: Path, forms: Sequence[WrappedForm]) -> list[str]:
    """Return the secrets as logs of a bundle: each in its own log, and all together in one large log."""
    writer = BundleWriter(folder, 1 << 30)
    spool = writer.share("logs", 1 << 30)
    between = b"".join(b"2026-05-11 04:17:22,318 INFO step %d | loss 2.114\n" % step for step in range(4))
    whole, places = b"", []
    for number, form in enumerate(forms):
        line = form.text.encode("utf-8", "replace")
        spool.append(f"logs/{number}.log", line + b"\n")
        places.append((len(whole), len(whole) + len(line)))
        whole += line + b"\n" + between
    spool.append("logs/whole.log", whole)
    large = (folder / "logs/whole.log").read_bytes()
    return [
        (folder / f"logs/{number}.log").read_text("utf-8") + "\n" + large[start:end].decode()
        for number, (start, end) in enumerate(places)
    ]


def _report(number: int, text: str) -> Report:
    """Return a report with a text in every place for external text."""
    item = EvidenceItem("e1", "line", "logs/rank-0.log", text)
    diagnosis = Diagnosis(
        rank=1, fault="cuda_oom", rule="cuda-out-of-memory", rule_version=1, title="Out of memory", summary=text, confidence=0.9,
        band="likely", role="root_cause", reasons=(text,), suspects=(Suspect("node", node="n1", why=text),), evidence=(item,),
        remediation=(RemedyStep("inspect", "look", text, command=text),),
    )  # fmt: skip
    versions = Versions("1", "1", "d", "c")
    gaps = (Gap("unreadable", "logs", text),)
    return Report(f"r{number}", "f", "fault", "failed", text, versions, diagnoses=(diagnosis,), gaps=gaps)


def _texts(body: Any) -> str:
    """Return all strings of a JSON value, on separate lines."""
    if isinstance(body, str):
        return body
    inner = body.values() if isinstance(body, dict) else body if isinstance(body, list) else ()
    return "\n".join(_texts(item) for item in inner)


def _slack(report: Report) -> str:
    message = answer_message(report, Card(handle="h", number=1))
    return f"{message.text}\n{_texts(list(message.blocks))}\n{redact(plain(report, 100, Reading(verbose=True)))}"


def _rows(path: str) -> Iterator[tuple[int, str]]:
    """Return all columns of each incident as one text, decompressed."""
    with sqlite3.connect(path) as base:
        for number, *columns in base.execute(
            "SELECT CAST(SUBSTR(report_id, 2) AS INTEGER), incident.*, report.json_zstd, replay.text_zstd FROM incident"
            " JOIN report ON report.incident_id = incident.id JOIN replay ON replay.incident_id = incident.id"
        ):
            told = [
                _texts(json.loads(zstandard.decompress(columns[-2]))),
                zstandard.decompress(columns[-1]).decode(),
                *(item for item in columns if isinstance(item, str)),
            ]
            yield number, "\n".join(told)


def _harmless(path: Path, show: int) -> None:
    masked, total = [], 0
    for text in path.read_text("utf-8").splitlines():
        case = json.loads(text)
        total += 1
        begin = case["line"].find(case["string"])
        if redact(case["line"])[begin : begin + len(case["string"])] != case["string"]:
            masked.append(case)
    print(
        f"harmless  {len(masked):5} of {total} masked ({len(masked) / total:.2%})  {dict(Counter(c['kind'] for c in masked))}"
    )
    for case in masked[:show]:
        print(f"  {case['kind']} {case['string']!r}: {redact(case['line'])[:300]!r}")


if __name__ == "__main__":
    raise SystemExit(main())
