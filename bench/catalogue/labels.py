"""Joins the labels of two readers into labels.tsv, and says how far they agree.

    python bench/catalogue/labels.py LABELS                      # agreement, and LABELS/differences.tsv for a third reader
    python bench/catalogue/labels.py LABELS --batches BATCHES    # differences with the rows of the sites
    python bench/catalogue/labels.py LABELS --write              # also labels.tsv, once the third has decided all differences

LABELS holds readerA-NN.tsv and readerB-NN.tsv ("id<TAB>class" a line) and, after the third reader, readerC*.tsv for the
differences and for corrections. A class is one of rules/faults.yaml, or "none" where the site does not tell.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

HERE: Final = Path(__file__).parent
NONE: Final = "none"


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two readers agree on the sites that both have labelled.

    Attributes:
        sites: Sites with two labels.
        same: Of these, how many have equal labels.
        kappa: Cohen's kappa over all classes: 1 is full agreement, 0 what chance gives.
    """

    sites: int
    same: int
    kappa: float

    @property
    def percent(self) -> float:
        """The share of equal labels, in percent; 0 without sites."""
        return 100 * self.same / self.sites if self.sites else 0.0


def read_labels(files: list[Path], classes: set[str], known: set[str]) -> dict[str, str]:
    """The labels of a reader.

    Args:
        files: Files of "id<TAB>class" lines; a header "id<TAB>class" is passed over.
        classes: The allowed classes.
        known: The ids of the catalogue.

    Raises:
        ValueError: Lines that are no label, unknown ids or classes, or two different labels of a site; all of them are named.
    """
    labels: dict[str, str] = {}
    faults: list[str] = []
    for file in files:
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
            fields = [field.strip() for field in line.split("\t")]
            if not line.strip() or fields[:2] == ["id", "class"]:
                continue
            place = f"{file.name}:{number}"
            if len(fields) != 2:
                faults.append(f"{place}: expected id<TAB>class")
            elif fields[0] not in known:
                faults.append(f"{place}: no site {fields[0]}")
            elif fields[1] not in classes:
                faults.append(f"{place}: no class {fields[1]}")
            elif labels.setdefault(fields[0], fields[1]) != fields[1]:
                faults.append(f"{place}: a second label for {fields[0]}")
    if faults:
        raise ValueError("\n".join(faults))
    return labels


def agreement(first: Mapping[str, str], second: Mapping[str, str]) -> Agreement:
    """How far two readers agree, over the sites that both have."""
    both = sorted(first.keys() & second.keys())
    same = sum(first[site] == second[site] for site in both)
    ours, theirs = (Counter(labels[site] for site in both) for labels in (first, second))
    if not both:
        return Agreement(0, 0, 0.0)
    chance = sum(ours[name] * theirs[name] for name in ours) / len(both) ** 2
    kappa = 1.0 if chance == 1 else (same / len(both) - chance) / (1 - chance)
    return Agreement(len(both), same, kappa)


def per_class(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, Agreement]:
    """The agreement of each class: is it this class or another?"""
    both = first.keys() & second.keys()
    found: dict[str, Agreement] = {}
    for name in sorted({labels[site] for labels in (first, second) for site in both}):
        pair = [{site: name if labels[site] == name else "" for site in both} for labels in (first, second)]
        either = [site for site in both if pair[0][site] or pair[1][site]]
        same = sum(pair[0][site] == pair[1][site] for site in either)
        found[name] = Agreement(len(either), same, agreement(*pair).kappa)
    return found


def differences(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The sites on which the readers differ, with both labels."""
    return {
        site: (first[site], second[site])
        for site in sorted(first.keys() & second.keys())
        if first[site] != second[site]
    }


def settled(
    first: Mapping[str, str], second: Mapping[str, str], third: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """The final labels, and the sites that still need the third reader, who may also correct what the two agree on."""
    final: dict[str, str] = {}
    for site in first.keys() & second.keys():
        label = third.get(site, first[site] if first[site] == second[site] else None)
        if label is not None:
            final[site] = label
    return final, [site for site in differences(first, second) if site not in third]


def main() -> None:
    """Join."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", type=Path)
    parser.add_argument("--batches", type=Path)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    document = yaml.safe_load((HERE.parent.parent / "rules" / "faults.yaml").read_text("utf-8"))
    classes = {fault["id"] for fault in document["faults"]} - {"unknown", "healthy"} | {NONE}
    lines = (HERE / "sites.tsv").read_text("utf-8").splitlines()[1:]
    known = {line.split("\t", 1)[0] for line in lines}
    try:
        first, second, third = (
            read_labels(sorted(args.labels.glob(f"reader{name}*.tsv")), classes, known) for name in "ABC"
        )
    except ValueError as error:
        sys.exit(str(error))
    overall = agreement(first, second)
    print(f"reader A {len(first)}, reader B {len(second)}, both {overall.sites} of {len(known)} sites")
    print(f"agreement {overall.percent:.1f} %, Cohen's kappa {overall.kappa:.3f}")
    print(f"{'class':22} {'either':>6} {'both':>6} {'%':>6} {'kappa':>6}")
    for name, one in per_class(first, second).items():
        print(f"{name:22} {one.sites:6} {one.same:6} {one.percent:6.1f} {one.kappa:6.2f}")
    pairs = Counter(tuple(sorted(pair)) for pair in differences(first, second).values())
    for pair, count in pairs.most_common(12):
        print(f"mixed up {count:4} times: {pair[0]}, {pair[1]}")
    rows: dict[str, str] = {}
    for file in sorted(args.batches.glob("*.tsv")) if args.batches else []:
        rows |= dict(line.split("\t", 1) for line in file.read_text("utf-8").splitlines()[1:])
    listed = [
        f"{site}\t{a}\t{b}\t{rows.get(site, '')}".rstrip("\t") for site, (a, b) in differences(first, second).items()
    ]
    (args.labels / "differences.tsv").write_text("\n".join(["id\treaderA\treaderB", *listed]) + "\n", "utf-8")
    final, missing = settled(first, second, third)
    print(
        f"{len(listed)} differences, {len(missing)} of them not decided, {len(known) - len(final)} sites without a label"
    )
    if args.write:
        if missing:
            sys.exit("labels.tsv is not written: the third reader has not decided all differences")
        body = [f"{site}\t{label}\t{'third' if site in third else 'both'}" for site, label in sorted(final.items())]
        (HERE / "labels.tsv").write_text("\n".join(["id\tclass\tdecided", *body]) + "\n", "utf-8")


if __name__ == "__main__":
    main()
