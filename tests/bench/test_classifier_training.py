"""The classifier's trainer: repeatable, rare classes count more, thresholds come from other folds than they are tried on."""

from __future__ import annotations

import numpy as np
import yaml

from bench.catalogue.linear_model import Examples, Sparse, fit
from bench.catalogue.train import FOLDS, PRIOR, SHARED, SINGLE, VICTIM, Judged, nested
from bench.catalogue.training_rows import HERE, Row, concept_rows, interpreter, lifted, packages, sites, without_place
from kb.classifier.model import SCALE
from kb.classifier.traits import RANKS, ErrorText, stem
from tests.support.paths import ROOT

ROWS = 40
TWO = Examples(
    tuple(("word loss", f"word w{at % 3}") if at % 2 else ("word path",) for at in range(ROWS)),
    tuple("numbers" if at % 2 else "files" for at in range(ROWS)),
    (1.0,) * ROWS,
    ("p",) * ROWS,
)


def test_training_twice_gives_the_same_weights_and_they_separate_the_classes() -> None:
    """Words that only one class has decide for it."""
    first, second = fit(TWO, seed=1), fit(TWO, seed=1)
    assert (first.weights == second.weights).all()
    assert (first.bias == second.bias).all()
    scores = first.scores([("word loss",), ("word path",)])
    assert [first.classes[at] for at in scores.argmax(axis=1)] == ["numbers", "files"]


def test_sums_of_sparse_rows_are_those_of_dense_ones() -> None:
    """Also of rows without any known trait, which count for the size."""
    vocabulary = {"a": 0, "b": 1, "c": 2}
    rows = (("a", "c"), ("x",), (), ("b", "c", "x", "y"))
    weights = np.arange(6, dtype=np.float32).reshape(3, 2)
    sparse, batch = Sparse.of(rows, vocabulary), np.array([3, 1, 0, 2])
    _, columns = sparse.of_rows(batch)
    dense = [
        SCALE
        / max(1, len(rows[at])) ** 0.5
        * sum((weights[vocabulary[t]] for t in rows[at] if t in vocabulary), np.zeros(2))
        for at in batch
    ]
    assert np.allclose(dense, sparse.sums(weights, batch, columns))


def test_rows_of_rare_classes_count_more_and_the_sum_stays() -> None:
    """A class of one row in ten is raised, the other lowered."""
    rows = [Row(ErrorText(), "rare" if at == 9 else "common", 1.0, "p") for at in range(10)]
    worth = [row.weight for row in lifted(rows)]
    assert worth[9] > 1 > worth[0]
    assert np.isclose(sum(worth), 10)


def test_the_threshold_of_a_fold_does_not_see_that_fold() -> None:
    """A fold in which sure answers are wrong lowers the share of right ones; its own threshold would have hidden it."""
    sure, truth = np.tile([2.0, 0.0], (FOLDS * 20, 1)), ["a"] * (FOLDS * 20)
    fold = np.repeat(np.arange(FOLDS), 20)
    truth[:20] = ["b"] * 20
    judged = Judged(sure, ("a", "b"), tuple(truth), fold, np.ones(len(fold), bool))
    answered, right = nested(judged, 0.89)
    assert right < 0.89
    assert answered > 0


def test_the_priors_cover_what_other_ranks_do_and_name_classes_of_faults() -> None:
    """Each value that the facts can give has weights, and no class is misspelt."""
    faults = (ROOT / "rules" / "faults.yaml").read_text("utf-8")
    assert set(RANKS) == set(PRIOR)
    assert all(f"id: {name}\n" in faults for name in (*SHARED, *SINGLE, *VICTIM))


def test_types_and_what_the_interpreter_raises_have_classes_of_faults() -> None:
    """A misspelt class would be one more that the classifier tells apart."""
    faults = (ROOT / "rules" / "faults.yaml").read_text("utf-8")
    rows = list(interpreter())
    assert {row.group for row in rows} == {"interpreter", "types"}
    assert all(f"id: {name}\n" in faults for name in {row.label for row in rows})


def test_what_python_raises_while_a_package_is_imported_is_a_dependency() -> None:
    """Only what is a bug of the code elsewhere; a missing file stays one."""
    rows = [row for row in interpreter() if row.error.importing]
    assert {row.label for row in rows} == {"dependency"}
    assert "AttributeError" in {row.error.type for row in rows}
    assert "FileNotFoundError" not in {row.error.type for row in rows}


def test_concepts_are_found_by_any_form_of_their_words() -> None:
    """The rows have stems, so that every form of a word finds them."""
    concepts = concept_rows()
    assert "an allocation" in concepts[stem("allocated")]
    assert concepts[stem("tokenizers")] == concepts[stem("tokenizer")]


def test_a_package_has_one_kind() -> None:
    """The table has no name twice, and each site of a package of Python has the kind of its first folder."""
    named = yaml.safe_load((HERE / "areas.yaml").read_text("utf-8"))["packages"]
    assert sum(map(len, named.values())) == len(packages())
    row = Row(ErrorText(path="torch/a.py", package="base"), "code_bug", 1.0, "p")
    assert without_place(row).error.package == ""
    assert {row.error.package for row in sites() if row.group in ("slurm", "nccl")} == {""}
    assert {row.error.package for row in sites() if row.error.path.startswith("verl/")} == {"application"}
