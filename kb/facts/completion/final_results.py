"""The end of a program that its last lines show by their results, without a word about the end.

A program states its final figures, tests the best model that it loads again, or says "Done." after its results, once: when
all of its work is behind it. What it prints in each epoch, fold or task looks alike, so a form that occurs twice proves
nothing. Whether steps follow is not tested here.
"""

from __future__ import annotations

from collections.abc import Sequence

from kb.facts.log.run_ends import COLOUR, EndLine, has_word, not_saved, save_lost
from kb.regex.lazy import lazy_compile

_CUT = 400  # characters of a line that are searched
_DONE_LONG = 40  # characters at most of a line that says no more than that the program is done
_RESULT_LINES = 4  # the last word of a program and what it says of its results
_FINAL_LINES = 12  # at the end of a log, in which final figures are looked for
_TEST_LINES = 30  # from the load of the best model to the last figures of its test
_AFTER_TEST = 6  # lines at the end of a log that have the figures of the test
_HEADER_LINES = 3  # from the header of the score over all folds to the score

_METRIC = (
    r"(?<![A-Za-z])(?:acc(?:uracy)?|loss|f1|auc|auroc|map|m?iou|dice|bleu|rouge\w{0,4}|ppl|perplexity|bpb|precision|recall|rmse|mse|mae|mape"
    r"|wer|cer|score|psnr|ssim|fid|mrr|ndcg|reward|return|results?|metrics)"
)
_DONE = lazy_compile(r"(?i)[\d\W]{0,30}(?:all )?(?:done|finished|completed)\W{0,4}")
_RESULT = lazy_compile(
    r"(?i)\b(?:all|final|results?|outputs?|models?|weights|predictions|reports?|summary|metrics)\b.{0,80}\b(?:saved|written|stored|exported)\b"
)
# the time of all the work, in a unit that no single step of a program takes
_ELAPSED = lazy_compile(
    r"(?i)\b(?:total|overall|whole|elapsed|training)\b.{0,30}?\d[\d.]{0,12}(?: ?(?:h|hrs?|hours?)\b|:\d\d:\d\d)"
)
_FINAL = lazy_compile(
    rf"(?i)(?:^|[\s\]|:>*#=-])final(?:[ _-]\w{{1,24}}){{0,5}}?[ _-]?{_METRIC}\w{{0,12}}\b[^\d\n]{{0,40}}[:=][^\d\n]{{0,30}}\d"
)
_OF_A_PART = lazy_compile(
    r"(?i)\b(?:epoch|fold|step|task|round|stage|phase|iter(?:ation)?|layer|trial|seed|client|if|when|until|would|will|expected|target)\b"
)
_LOADS = lazy_compile(
    r"(?i)\b(?:load(?:ed|ing)?|restor(?:ed|ing)) (?:the )?(?:best |saved |trained |final |last ){0,2}(?:model|checkpoint|weights)\b"
)
_TESTED = lazy_compile(
    rf"(?i)(?:^|[\W_])test(?:ing)?(?:[ _-]\w{{1,20}}){{0,3}}?[ _:|-]{{0,4}}\(?{_METRIC}\w{{0,12}}\b[^\d\n]{{0,12}}\d"
)
_TRAINED = lazy_compile(r"(?i)\b(?:epoch|step|iter(?:ation)?)\b\W{0,3}\d")
_OVER_FOLDS = lazy_compile(
    r"(?i)\W{0,12}(?:overall |mean |final )?(?:cv|oof|cross[- ]validation)(?: results?| scores?)?\W{0,40}"
)
_SCORE = lazy_compile(rf"(?i)\W{{0,8}}(?:\w{{1,16}}[ _-])?{_METRIC}\W{{1,4}}\d[\d.]{{0,20}}\W{{0,3}}")
_DIGITS = lazy_compile(r"-?\d[\d.e+-]*")
_DONE_WORDS = ("done", "finished", "completed")
_FOLD_WORDS = ("cv", "oof", "validation")


def last_results(lines: Sequence[tuple[int, str]]) -> EndLine | None:
    """Return the line that shows that the results of the whole run are known; None if no line does.

    `lines`: offset and text of the lines at the end of a log, in order.
    """
    said = [(offset, COLOUR.sub("", line[:_CUT]).strip()) for offset, line in lines if line.strip()]
    if not said:
        return None
    found = (
        _done_after_results(said)
        or _final_figures(said)
        or _best_model_tested(said)
        or _score_over_folds(said)
        or _test_table(said)
    )
    return None if found is None else EndLine("completed", *found)


def _done_after_results(said: Sequence[tuple[int, str]]) -> tuple[int, str] | None:
    """Return the last line, if it says no more than "Done." and one of the few lines before it tells of results or the whole time.

    The word alone ends a step of a program as often as the whole.
    """
    *before, last = said[-_RESULT_LINES:]
    if len(last[1]) > _DONE_LONG or not has_word(last[1], _DONE_WORDS) or _DONE.fullmatch(last[1]) is None:
        return None
    told = any(
        (_RESULT.search(line) and not save_lost(line) and not not_saved(line)) or _ELAPSED.search(line)
        for _, line in before
    )
    return last if told else None


def _final_figures(said: Sequence[tuple[int, str]]) -> tuple[int, str] | None:
    """Return the last line that names a figure as the final one, unless it is that of a part or such a line came before."""
    for offset, line in reversed(said[-_FINAL_LINES:]):
        if not has_word(line, ("final",)) or not _FINAL.search(line) or _OF_A_PART.search(line):
            continue
        return (offset, line) if _once(line, said) else None
    return None


def _best_model_tested(said: Sequence[tuple[int, str]]) -> tuple[int, str] | None:
    """Return the last figures of a test, if few lines follow and a model was loaded for it after the training."""
    tested = [
        place
        for place in range(max(0, len(said) - _AFTER_TEST), len(said))
        if has_word(said[place][1], ("test",)) and _TESTED.search(said[place][1])
    ]
    if not tested or any(_TRAINED.search(line) for _, line in said[tested[-1] + 1 :]):
        return None
    for place in range(tested[-1] - 1, max(-1, len(said) - _TEST_LINES), -1):
        line = said[place][1]
        if has_word(line, ("load", "restor")) and _LOADS.search(line):
            trained = any(_TRAINED.search(earlier) for _, earlier in said[:place])
            return said[tested[-1]] if trained and _once(line, said) else None
    return None


def _score_over_folds(said: Sequence[tuple[int, str]]) -> tuple[int, str] | None:
    """Return the last line, if it is a score under a header that names cross-validation."""
    above = [line for _, line in said[-1 - _HEADER_LINES : -1] if has_word(line, _FOLD_WORDS)]
    header = any(_OVER_FOLDS.fullmatch(line) for line in above)
    return said[-1] if header and _SCORE.fullmatch(said[-1][1]) else None


def _test_table(said: Sequence[tuple[int, str]]) -> tuple[int, str] | None:
    """Return the header of Lightning's table of a test among the last lines, unless it is printed more than once."""
    heads = (item for item in said[-_FINAL_LINES:] if "Test metric" in item[1] and "DataLoader" in item[1])
    head = next(heads, None)
    return head if head is not None and _once(head[1], said) else None


def _once(line: str, said: Sequence[tuple[int, str]]) -> bool:
    """Whether no other line has the form of this one."""
    form = _DIGITS.sub("#", line)
    return sum(_DIGITS.sub("#", other) == form for _, other in said) == 1
