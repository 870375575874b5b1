"""Hostile regexes: what the loader and lint refuse, and what the rest costs on lines made to hang a backtracking engine.

Sources: public corpora of ReDoS, read from local git copies at fixed commits and sampled evenly (`CORPORA`), published
vulnerabilities, and generated families. Each regex is tried as `confirm` of a rule, where every construct is allowed,
and as its `regex`. Whatever loads is run as a diagnosis runs it, on lines of 16 KB and 100 KB, as bytes and as text. Ordinary regexes (the
shipped base, gitleaks, the grok patterns of Logstash) show what is refused wrongly. `--equal` compares the answers with
those of Python's `re`: every regex of the base on every example line and on random lines.

    python bench/hostile_patterns.py --corpora DIR     # DIR/owner+name/repo or DIR/owner+name: git copies
    python bench/hostile_patterns.py --equal
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import random
import re
import subprocess
import sys
import time
import warnings
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kb.regex.hazards import growth, hazards
from kb.regex.pattern import compiled
from kb.rulebase.checks import slow_regex, unsafe_regex, wrong_on_bytes, wrong_regex
from kb.rulebase.lint import _full_syntax
from kb.rulebase.patterns import scan_form
from kb.scanning.hit_collector import NEAR
from kb.scanning.matcher import HyperscanMatcher, ScanPattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

CORPORA = {
    "yetingli/ReDoS-Benchmarks": "f5b5094d835649e957bf3fec6b8bd4f6efdb35fc",
    "superhuman/rxxr2": "0eea5e9f0e0cde6c39e0fc12614f64edb6189cd5",
    "gitleaks/gitleaks": "b58d3f102cf3a2c84cb7f923d05c25c9b1aed84b",
    "logstash-plugins/logstash-patterns-core": "7f94275ec8212f7f0aa6eb4ac5dbf3d70cd05cac",
}
REGEXLIB = "regexlib/2021-5-15/regexlib_only_redos_true_s_2021_05_15_10_37_44.txt"
HOSTILE, ORDINARY = 500, 500
LINE, LONG = 16 * 1024, 100 * 1024
SLOW = 0.1  # seconds
LONGEST = 1000  # characters; the loader refuses longer ones unseen

# Published: the identifier, the regex, and what to repeat after which prefix.
PUBLISHED = [
    ("OWASP", r"(a+)+$", "", "a", "!"),
    ("OWASP", r"([a-zA-Z]+)*$", "", "a", "!"),
    ("OWASP", r"(a|aa)+$", "", "a", "!"),
    ("OWASP", r"(a|a?)+$", "", "a", "!"),
    ("OWASP", r"^(.*a){20}$", "", "a", "!"),
    ("OWASP", r"^(([a-z])+.)+[A-Z]([a-z])+$", "", "a", "!"),
    ("CVE-2020-8492", r"(?:.*,)*[ \t]*([^ \t]+)[ \t]+realm=([\"']?)([^\"']*)\2", "", ",", "x"),
    ("CVE-2020-7753", r"^\s*|\s*$", "x", " ", "x"),
    ("CVE-2020-28500", r"\s+$", "x", " ", "x"),
    ("CVE-2021-27290", r"^([a-z0-9]+)-([A-Za-z0-9+/=]{44,88})(\?[\x21-\x7E]*)*$", "a-" + "0" * 44, "?", "\x00"),
    ("CVE-2015-8315", r"^((?:\d+)?\.?\d+) *(ms|seconds?|minutes?|hours?|days?|years?)?$", "", "1", "x"),
    ("CVE-2017-16137", r"\s*\n\s*", "", " ", "x"),
    ("CVE-2017-15010", r"^(([^=;]+))\s*=\s*([^\n\r\x00]*)", "x", " ", "x"),
    ("CVE-2020-28469", r"(^|[^\\])([{\[]|\([^)]+$)", "", "(", ")"),
]


@dataclass(frozen=True)
class Hostile:
    """A regex, where it is from, and the lines made for it: prefix, repeated part, suffix."""

    source: str
    regex: str
    prefix: str
    pump: str
    suffix: str

    def line(self, size: int) -> str:
        """A line of about this many characters."""
        return self.prefix + self.pump * max(1, (size - len(self.prefix)) // max(1, len(self.pump))) + self.suffix


# -- gathering ---------------------------------------------------------------------------------------------------------


def read(corpora: Path, name: str, path: str) -> str:
    """A file of a corpus at its commit."""
    folder = corpora / name.replace("/", "+")
    folder = folder / "repo" if (folder / "repo").is_dir() else folder
    shown = subprocess.run(["git", "-C", folder, "show", f"{CORPORA[name]}:{path}"], capture_output=True, check=True)
    return shown.stdout.decode("utf-8", "replace")


def usable(regex: str) -> bool:
    """Whether it is a regex of Python's, short enough to be looked at."""
    return len(regex) <= LONGEST and not wrong_regex(regex) and not wrong_on_bytes(regex)


def of_regexlib(text: str) -> Iterator[Hostile]:
    """Regexes with the attack that its authors confirmed: `"prefix"+"pump"*n+"suffix"`."""
    for block in re.split(r"^\++$", text, flags=re.MULTILINE):
        lines = block.strip().split("\n")
        attack = next((line for line in lines if "AttackString:" in line), None)
        if attack is None or len(lines) < 3 or not usable(lines[1]):
            continue
        found = re.search(r'AttackString:"(.*)"\+"(.*)"\*\d+\+"(.*)"$', attack.strip())
        if found:
            prefix, pump, suffix = map(unescaped, found.groups())
            yield Hostile(f"ReDoS-Benchmarks regexlib {lines[0].strip()}", lines[1], prefix, pump, suffix)


def of_rxxr(text: str, corpus: str) -> Iterator[Hostile]:
    """Regexes that RXXR2 found exponential: INPUT, PREFIX, PUMPABLE, SUFFIX."""
    for block in re.split(r"^= \[", text, flags=re.MULTILINE):
        if "VULNERABLE: YES" not in block:
            continue
        parts = dict(re.findall(r"^(INPUT|PREFIX|PUMPABLE|SUFFIX): (.*)$", block, re.MULTILINE))
        parts["PUMPABLE"] = re.findall(r"^PUMPABLE: (.*)$", block, re.MULTILINE)[-1]
        regex = parts.get("INPUT", "")
        if regex.startswith("/") and (end := regex.rfind("/")) > 0:  # PCRE: /…/flags
            flags = "".join(sorted(set(regex[end + 1 :]) & set("ims")))
            regex = (f"(?{flags})" if flags else "") + regex[1:end].replace(r"\/", "/")
        if usable(regex) and parts["PUMPABLE"] not in ("", "YES"):
            texts = (unescaped(parts.get(name, "")) for name in ("PREFIX", "PUMPABLE", "SUFFIX"))
            yield Hostile(f"rxxr2 {corpus} [{block.partition(']')[0]}]", regex, *texts)


def unescaped(text: str) -> str:
    r"""Text with `\x0a` and the like."""
    try:
        return str(ast.literal_eval('"' + re.sub(r'(?<!\\)"', '\\"', text) + '"'))
    except (SyntaxError, ValueError):
        return text


def families() -> Iterator[Hostile]:
    """Shapes with every class, body, bound and end."""
    bodies = [("a", "a"), (r"\w", "a"), (r"[^,]", "a"), (".", "a"), (r"\s", " "), (r"\d", "1")]
    shapes = {
        "repeat in repeat": "(?:{c}+)+x",
        "overlapping alternatives": "(?:{c}|{c}{c})+x",
        "optional in repeat": "(?:{c}?{c})*x",
        "bounded in bounded": "(?:{c}{{1,50}}){{1,50}}x",
        "bounded in endless": "(?:{c}{{0,99}})*x",
        "optional chain": "{c}?" * 30 + "{c}" * 30 + "x",
        "adjacent repeats": "{c}*{c}*{c}*{c}*x",
        "separated repeats": "(?:{c}*-)?{c}*-?{c}*-?{c}*x",
        "counted": "{c}{{500,1000}}x",
        "counted twice": "(?:{c}{{30}}){{30}}x",
        "rounds of nothing": "(?:(?:{c}?){{25}})*x",
        "behind a look-ahead": "(?={c}*x)(?:{c}+)+y",
        "in a look-ahead": "(?!(?:{c}+)+x)y",
        "look-ahead in a repeat": "(?:(?=.*x){c})*y",
        "look-behind": "(?<!x)(?:{c}|{c}+)+y",
        "back reference": r"({c}+)\1+x",
        "two back references": r"({c}*)({c}*)\1\2x",
        "possessive outside": "(?:{c}+)++x",
        "lazy": "(?:{c}+?)+?x",
        "conditional": "(q)?(?:{c}+)*(?(1)y|x)",
    }
    for (name, shape), (body, pump) in itertools.product(shapes.items(), bodies):
        regex = shape.format(c=body)
        if usable(regex):
            yield Hostile(f"family: {name}", regex, "", pump, "!")


def spread(found: Sequence[Hostile], count: int) -> list[Hostile]:
    """So many of them, evenly, each regex once."""
    each = list({item.regex: item for item in found}.values())
    return [each[index * len(each) // count] for index in range(count)] if len(each) > count else each


def hostile(corpora: Path | None) -> list[Hostile]:
    """The hostile regexes."""
    own = [Hostile(*row) for row in PUBLISHED] + list(families())
    if corpora is None:
        return spread(own, HOSTILE)
    rxxr = list(of_rxxr(read(corpora, "superhuman/rxxr2", "data/validate/rxxr-snort-vulns.txt"), "snort"))
    rxxr += of_rxxr(read(corpora, "superhuman/rxxr2", "data/validate/rxxr-regexlib-vulns.txt"), "regexlib")
    own = spread([*own, *rxxr], len(own) + len(rxxr))
    known = {item.regex for item in own}
    benchmark = of_regexlib(read(corpora, "yetingli/ReDoS-Benchmarks", REGEXLIB))
    return [*own, *spread([item for item in benchmark if item.regex not in known], HOSTILE - len(own))][:HOSTILE]


def ordinary(corpora: Path | None) -> dict[str, list[str]]:
    """Ordinary regexes by source, each usable in Python."""
    base = [regex for regex, _ in of_base()]
    found = {"shipped base": base[:: max(1, len(base) // 150)][:150]}
    if corpora is not None:
        toml = read(corpora, "gitleaks/gitleaks", "config/gitleaks.toml")
        leaks = [item.replace("(?-i:", "(?:") for item in re.findall(r"^regex = '''(.*)'''$", toml, re.MULTILINE)]
        leaks = [item.replace("(?i)", "", 1) for item in leaks]
        found["gitleaks"] = [item for item in dict.fromkeys(leaks) if usable(item)][:200]
        grok = dict(
            line.split(" ", 1)
            for line in read(corpora, "logstash-plugins/logstash-patterns-core", "patterns/ecs-v1/grok-patterns").split(
                "\n"
            )
            if re.match(r"[A-Z0-9_]+ ", line)
        )
        for name in (
            "java",
            "httpd",
            "linux-syslog",
            "haproxy",
            "postgresql",
            "redis",
            "mongodb",
            "nagios",
            "firewalls",
        ):
            text = read(corpora, "logstash-plugins/logstash-patterns-core", f"patterns/ecs-v1/{name}")
            grok |= dict(line.split(" ", 1) for line in text.split("\n") if re.match(r"[A-Z0-9_]+ ", line))
        expanded = (expand(regex, grok) for regex in grok.values())
        room = ORDINARY - sum(map(len, found.values()))
        found["grok"] = [item for item in dict.fromkeys(expanded) if item and usable(item)][:room]
    return found


def expand(regex: str, grok: dict[str, str], depth: int = 0) -> str:
    """A grok pattern as a plain regex."""
    if depth > 12 or len(regex) > 20 * LONGEST:
        return ""
    whole = re.sub(r"%\{(\w+)(?::[^}]*)?\}", lambda hit: f"(?:{expand(grok.get(hit[1], 'x'), grok, depth + 1)})", regex)
    return re.sub(r"\(\?<(?![=!])[^>]*>", "(?:", whole)


def of_base() -> list[tuple[str, bool]]:
    """Every regex of the shipped base: (regex, ignore case)."""
    from bot.rulebase.loader import knowledge  # noqa: PLC0415

    patterns = [pattern for rule in knowledge().rulebook.rules for pattern in rule.patterns]
    found = [(pattern.regex, pattern.ignore_case) for pattern in patterns if pattern.regex]
    return found + [(regex, False) for pattern in patterns for _, regex in _full_syntax(pattern)]


# -- trying ------------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What became of a regex. `door`: "confirm" or "regex"; times in seconds; `grows`: of 100 KB to 16 KB."""

    source: str
    regex: str
    door: str
    result: str
    said: str = ""
    engine: str = ""
    short: float = 0.0
    long: float = 0.0

    @property
    def slow(self) -> bool:
        """Whether it takes more than 100 ms on 16 KB, or grows faster than the line beyond that."""
        return self.short > SLOW or (self.long > SLOW and self.long > 2 * LONG / LINE * self.short)


def timed(run: Callable[[], object]) -> float:
    """CPU seconds, the best of up to three."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
        if best > 4 * SLOW:
            break
    return best


def as_confirm(item: Hostile) -> Outcome:
    """As `confirm`, `not_line`, a test of exceptions or structures: every construct."""
    said = wrong_regex(item.regex) or slow_regex(item.regex)
    if said:
        return Outcome(item.source, item.regex, "confirm", "refused", said)
    warned = next(map(str, hazards(item.regex)), "")
    pattern, of_bytes = compiled(item.regex), compiled(item.regex.encode())
    times = []
    for size in (LINE, LONG):
        line = item.line(size)
        near = line.encode("utf-8", "replace")[:NEAR]
        of_text = timed(lambda line=line: pattern.finds(line, unknown=False))
        times.append(max(of_text, timed(lambda near=near: of_bytes.finds(near, unknown=False))))
    return Outcome(
        item.source, item.regex, "confirm", "reported" if warned else "accepted", warned, pattern.engine, *times
    )


def as_regex(item: Hostile) -> Outcome:
    """As `regex`: the pass over the log, and the line that it hits. A word before it makes it a pattern that the loader takes."""
    regex = f"marked (?:{item.regex.removeprefix('^')})"
    said = "; ".join(unsafe_regex(regex))
    if said:
        return Outcome(item.source, regex, "regex", "refused", said)
    warned = next(map(str, hazards(regex)), "")
    pattern = compiled(regex.encode())
    engine = HyperscanMatcher([ScanPattern(scan_form(regex).expression)])
    times = []
    for size in (LINE, LONG):
        line = b"marked " + item.line(size).encode("utf-8", "replace").replace(b"\n", b" ")
        scanned = timed(lambda line=line: engine.hits(line + b"\n"))
        times.append(scanned + timed(lambda line=line: pattern.finds(line, unknown=False)))
    result = "reported" if warned else "accepted"
    return Outcome(item.source, regex, "regex", result, warned, pattern.engine, *times)


def table(outcomes: Sequence[Outcome]) -> None:
    """Counts by door, and the slowest of what loads."""
    for door in ("confirm", "regex"):
        mine = [item for item in outcomes if item.door == door]
        counts = Counter(item.result for item in mine)
        loads = [item for item in mine if item.result != "refused"]
        print(
            f"as {door}: {len(mine)} hostile; refused on loading {counts['refused']}, reported by lint {counts['reported']},",
            end=" ",
        )
        print(f"accepted {counts['accepted']}")
        print(f"  engines of those that load: {dict(Counter(item.engine for item in loads))}")
        print(f"  accepted and slow: {sum(item.slow for item in loads if item.result == 'accepted')}; ", end="")
        print(f"loading and slow: {sum(item.slow for item in loads)}")
        for item in sorted(loads, key=lambda item: -item.short)[:3]:
            print(
                f"  {1e3 * item.short:7.1f} ms on 16 KB, {1e3 * item.long:7.1f} ms on 100 KB, {item.engine}: {item.regex[:70]!r}"
            )


# -- same answers ------------------------------------------------------------------------------------------------------


def equal(seed: int) -> int:
    """Compare matches and groups of every regex of the base with `re`, on example lines and random ones."""
    from bot.authoring import selftest  # noqa: PLC0415
    from bot.rulebase.loader import default_folder, knowledge  # noqa: PLC0415

    chance = random.Random(seed)
    tests = selftest.tests_of(default_folder(), knowledge().rulebook.rules)
    files = [test.path for test in tests if test.path.is_file()]
    files += [path for test in tests if test.path.is_dir() for path in test.path.rglob("*.log")]
    lines = list(
        dict.fromkeys(line for path in files for line in path.read_text("utf-8", "replace").split("\n") if line)
    )
    words = [word for line in lines for word in re.findall(r"\w+|\W", line)]
    odd = ["é", "中", "\u212a", "\u017f", "\u0663", "\u2003", "│", "\t", "\x1c", ""]
    lines += [
        "".join(chance.choices(words, k=12)) + chance.choice(odd) + chance.choice(words) for _ in range(len(lines) // 2)
    ]
    regexes = list(dict.fromkeys(of_base()))
    searches = different = 0
    for regex, ignore_case in regexes:
        plain, safe = re.compile(regex, re.IGNORECASE if ignore_case else 0), compiled(regex, ignore_case)
        own = chance.sample(lines, 600) + [line for line in lines if plain.search(line)][:200]
        raw, raw_safe = re.compile(regex.encode(), plain.flags & re.IGNORECASE), compiled(regex.encode(), ignore_case)
        for line in own:
            for one, other, text in ((plain, safe, line), (raw, raw_safe, line.encode())):
                searches += 1
                expected, found = one.search(text), other.search(text)
                same = (expected is None) == (found is None)
                if same and expected is not None and found is not None:
                    places = (expected.start(), expected.end(), expected.groupdict())
                    same = places == (found.start(), found.end(), found.groupdict())
                if not same:
                    different += 1
                    print(f"DIFFERENT: {regex!r} on {text!r}")
    print(
        f"{len(regexes)} regexes of the base, {len(lines)} lines, {searches} searches: {different} answers differ from `re`"
    )
    return different


def main() -> int:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpora", type=Path, help="folder of git copies")
    parser.add_argument("--equal", action="store_true", help="compare answers with Python's `re` only")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write every outcome to this file")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.equal:
        return int(equal(asked.seed) > 0)
    items = hostile(asked.corpora)
    print(
        f"{len(items)} hostile regexes: {dict(Counter(item.source.split(' ')[0].rstrip(':').partition('-')[0] for item in items))}"
    )
    outcomes = [outcome for item in items for outcome in (as_confirm(item), as_regex(item))]
    table(outcomes)
    for source, regexes in ordinary(asked.corpora).items():
        refused = [regex for regex in regexes if slow_regex(regex)]
        reported = [regex for regex in regexes if regex not in refused and hazards(regex)]
        exponents = Counter(growth(regex) for regex in regexes)
        clean = len(regexes) - len(refused) - len(reported)
        print(
            f"ordinary, {source}: {len(regexes)}; refused {len(refused)}, reported {len(reported)}, clean {clean}",
            end=" ",
        )
        print(f"({clean / max(1, len(regexes)):.1%}); exponents {dict(sorted(exponents.items(), key=str))}")
        for regex in refused[:5]:
            print(f"  refused: {regex[:100]!r}: {slow_regex(regex)[:100]}")
    if asked.json:
        asked.json.write_text(json.dumps([asdict(item) | {"slow": item.slow} for item in outcomes], indent=1), "utf-8")
    return int(any(item.slow for item in outcomes if item.result == "accepted"))


if __name__ == "__main__":
    sys.exit(main())
