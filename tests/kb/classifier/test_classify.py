"""The classifier: it names the class of errors of kinds that it knows, says why, and abstains on the rest."""

from __future__ import annotations

import pytest

from kb.classifier.classify import Around, classify, error_text, model
from kb.classifier.model import FORMAT, WeightsError, parse
from kb.classifier.traits import MOST_TRAITS, OWN, RANKS, in_words, stem, traits

SITE = "/opt/venv/lib/python3.12/site-packages"


@pytest.mark.parametrize(
    ("kind", "message", "frames", "fault"),
    [
        ("KeyError", "'labels_b'", "/srv/exp/step.py:40 in run", "code_bug"),
        ("TypeError", "step() got an unexpected keyword argument 'config'", "/srv/exp/step.py:40 in run", "code_bug"),
        ("ModuleNotFoundError", "No module named 'nvcomp'", "", "dependency"),
        ("OSError", "sound backend library not found", f"/srv/a.py:3 in <module>\n{SITE}/soundthing/core.py:7 in <module>", "dependency"),
        ("ClassCastException", "class A cannot be cast to class B", "", "code_bug"),
        ("NumberFormatException", "For input string: x", "", "config_error"),
        ("InductorError", "an exception occurred in a subprocess", "", "gpu_library"),
        ("HTTPError", "404 Client Error: Not Found for url: https://files.example.org/a.json", "", "config_error"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: '/cfg/a.yaml'", "/srv/run.py:3 in main", "config_error"),
        ("RuntimeError", "expected a tensor of shape (4, 8) but got dtype int32", "", "shape_or_dtype"),
        ("ValueError", "the checkpoint lacks the weights of two layers", f"{SITE}/torch/distributed/checkpoint/state_dict.py:10 in load", "checkpoint_load"),
        ("ValueError", "parallel size must be a multiple of the world size", f"{SITE}/megatron/training/arguments.py:9 in validate_args", "config_error"),
    ],
)  # fmt: skip
def test_errors_of_known_kinds_get_their_class(kind: str, message: str, frames: str, fault: str) -> None:
    """The answer names the class, is as sure as the threshold asks, and lists the traits that decided."""
    answer = classify(kind, message, frames)
    assert answer is not None
    assert answer.fault == fault
    assert answer.probability >= model().least
    assert answer.traits


@pytest.mark.parametrize("message", ["", "zyxw vutsr qponm", "Übertragungsende erreicht 终止", "\x00\x01\x02"])
def test_an_error_that_says_nothing_gets_no_class(message: str) -> None:
    """Neither an unknown type nor unknown words are enough."""
    assert classify("Qwertz", message) is None


@pytest.mark.parametrize("kind", ["RuntimeError", "ValueError", "Exception"])
def test_a_bare_catch_all_type_gets_no_class(kind: str) -> None:
    """Interleaved output leaves the type of an exception on a line of its own."""
    assert classify(kind, "") is None


def test_frames_of_a_catch_all_type_without_message_tell_something() -> None:
    """A value that the run's own code refused is its own."""
    answer = classify("ValueError", "", "/home/u/fit.py:10 in <module>\n/home/u/fit.py:7 in step")
    assert answer is not None
    assert answer.fault == "code_bug"


@pytest.mark.parametrize(
    "message",
    ["[Errno 2] Aucun fichier ou dossier de ce type: 'a.yaml'", "[Errno 2] 没有那个文件或目录: 'a.yaml'"],
)
def test_a_translated_message_is_classified_by_its_type(message: str) -> None:
    """The type of the exception and its error number are the same in every language."""
    answer = classify("FileNotFoundError", message, "/srv/run.py:3 in main")
    assert answer is not None
    assert answer.fault == "config_error"


def test_values_of_the_run_are_not_read_as_words() -> None:
    """A quoted name or a path does not change the class, whatever it is called."""
    areas = model().areas
    plain = error_text(areas, "KeyError", "'x'")
    assert error_text(areas, "KeyError", "'checkpoint_dataset_config'") == plain
    assert "checkpoint" not in " ".join(error_text(areas, "OSError", "cannot read /data/checkpoint/a.pt").words)


def test_a_place_in_a_library_has_an_area_and_one_in_the_run_has_none() -> None:
    """The innermost frame decides; below the run's own code, the library that called it is kept as well."""
    areas = model().areas
    inside = error_text(
        areas, "ValueError", "no", f"/srv/a.py:1 in main\n{SITE}/torch/utils/data/dataloader.py:7 in __init__"
    )
    assert (inside.path, inside.area, inside.function) == ("torch/utils/data/dataloader.py", "data", "__init__")
    own = error_text(
        areas, "ValueError", "no", f"{SITE}/torch/utils/data/dataloader.py:7 in _next\n/srv/a.py:1 in collate"
    )
    assert (own.path, own.area, own.above) == ("a.py", OWN, "data")
    assert areas.place(f"{SITE}/sapling/x.py")[1] == "library"
    assert areas.place("/usr/lib/python3.11/json/decoder.py")[1] == "standard"


IMPORT = "/srv/a.py:1 in <module>"


@pytest.mark.parametrize(
    ("frames", "importing"),
    [
        (f"{IMPORT}\n{SITE}/soundthing/core.py:7 in <module>", True),
        (f"{IMPORT}\n{SITE}/soundthing/core.py:7 in <module>\n{SITE}/optable/registry.py:60 in register", True),
        (f"/srv/a.py:4 in main\n{SITE}/soundthing/core.py:7 in <module>", True),
        (f"{IMPORT}\n{SITE}/optable/registry.py:60 in register", False),
        (f"/opt/lib/python3.12/runpy.py:86 in _run_code\n{SITE}/tunekit/cli.py:4 in <module>\n{SITE}/tunekit/cli.py:77 in main", False),
        (f"{IMPORT}\n{SITE}/tunekit/plugins.py:4 in <module>\n/srv/plugin.py:9 in <module>", False),
    ],
)  # fmt: skip
def test_an_error_while_a_package_is_imported_is_marked(frames: str, importing: bool) -> None:
    """Not where the package is the program, and not where it imports or calls code of the run."""
    error = error_text(model().areas, "RuntimeError", "scan is registered twice", frames)
    assert error.importing is importing
    assert ("during the import of a package" in traits(error)) is importing


def test_a_place_where_a_runtime_raises_everything_tells_nothing() -> None:
    """Errors of TensorFlow's operations all come from the same frame; only what they say and who called is kept."""
    frames = f"/srv/a.py:1 in restore\n{SITE}/tensorflow/python/eager/execute.py:54 in quick_execute"
    error = error_text(model().areas, "InvalidArgumentError", "no such tensor", frames)
    assert (error.path, error.function, error.area, error.above) == ("", "", "", "")
    assert error.callers == ("restore", "quick_execute")


def test_a_huge_error_has_few_traits() -> None:
    """A message of a megabyte, frames of any number and names of any length are cut."""
    frames = "\n".join(f"/srv/{'d' * 300}/f{n}.py:{n} in {'call' * 40}" for n in range(20_000))
    error = error_text(model().areas, "E" * 5000, "word " * 200_000 + "'" * 100_000, frames)
    assert len(traits(error)) <= MOST_TRAITS


def test_the_same_error_gives_the_same_answer() -> None:
    """The classifier keeps nothing between two errors."""
    classify.cache_clear()
    first = classify("IndexError", "list index out of range", "/srv/a.py:3 in f")
    classify("ValueError", "the dataset is empty")
    classify.cache_clear()
    assert classify("IndexError", "list index out of range", "/srv/a.py:3 in f") == first


@pytest.mark.parametrize(("weight", "second"), [(20, "b"), (40, "")])
def test_the_second_class_is_told_where_it_is_not_much_rarer(weight: int, second: str) -> None:
    """At odds of 2.7 to 1, not at 7.4 to 1."""
    lines = ("number\tunit\t0.05", "number\tsharpness\t1", "number\tleast\t0.4", "class\taa\ta\t0", "class\tab\tb\t0")
    known = parse("\n".join((FORMAT, *lines, f"word x\taa{weight}")))
    answer = known.best(("word x", *["word y"] * 15))  # 16 traits, so that each counts as its weight says
    assert answer is not None
    assert (answer.fault, answer.second) == ("a", second)


def test_an_error_that_says_what_is_missing_has_no_second_class() -> None:
    """Its own wording leads to the place; any other type may have one."""
    named = classify("KeyError", "'labels_b'", "/srv/exp/step.py:40 in run")
    assert named is not None
    assert named.second == ""


def test_the_kind_of_package_is_that_of_the_place_that_raised_the_error() -> None:
    """By its first folder; the run's own code and packages that the table lacks have none."""
    areas = model().areas
    assert (
        error_text(areas, "ValueError", "no", f"{SITE}/megatron/training/arguments.py:9 in f").package == "application"
    )
    assert error_text(areas, "ValueError", "no", f"{SITE}/torch/serialization.py:9 in f").package == "base"
    assert error_text(areas, "ValueError", "no", f"{SITE}/sapling/x.py:9 in f").package == ""
    assert error_text(areas, "ValueError", "no", "/srv/torch.py:9 in f").package == ""
    told = traits(error_text(areas, "ValueError", "no", f"{SITE}/trl/trainer/x.py:9 in f"))
    assert {"package trainer", "package trainer, type ValueError"} <= set(told)


def chance(fault: str, around: Around) -> float:
    """The probability of a class for an error of the run's own code whose message fits several."""
    error = error_text(model().areas, "ValueError", "the value must not be empty", "/srv/a.py:3 in f", around)
    return model().probabilities(traits(error, model().concepts))[fault]


def test_ranks_that_fail_alike_speak_for_what_they_share() -> None:
    """All have the same settings; one rank alone has its own samples, and one that fails last lost the others."""
    assert chance("config_error", Around(ranks="alike")) > chance("config_error", Around())
    assert chance("config_error", Around()) > chance("config_error", Around(ranks="alone"))
    assert chance("data_error", Around(ranks="first")) > chance("data_error", Around(ranks="alike"))
    assert chance("peer_failure", Around(ranks="lost")) > chance("peer_failure", Around())


def test_frames_tell_the_stage_before_the_log_does() -> None:
    """The innermost of the last frames that shows one; without any, the stage that the log states."""
    areas = model().areas
    frames = "/srv/a.py:1 in train\n/srv/a.py:9 in save_checkpoint\n/srv/b.py:2 in g"
    assert error_text(areas, "E", "", frames, Around("iterating")).stage == "saving"
    assert error_text(areas, "E", "", "/srv/a.py:1 in f", Around("iterating")).stage == "iterating"
    assert error_text(areas, "E", "", "", Around("iterating")).stage == "iterating"
    outer = "/srv/a.py:1 in save_checkpoint\n" + "\n".join(f"/srv/b.py:{at} in g" for at in range(6))
    assert error_text(areas, "E", "", outer).stage == ""


def test_forms_of_a_word_have_one_stem() -> None:
    """Whatever their endings."""
    assert len({stem(word) for word in ("require", "requires", "required", "requiring")}) == 1
    assert len({stem(word) for word in ("clip", "clips", "clipped", "clipping")}) == 1
    assert stem("device") == stem("devices")


def test_a_message_is_read_by_what_it_speaks_of() -> None:
    """Concepts alone and in twos, parameters by their last part, and words in twos."""
    error = error_text(model().areas, "ValueError", "micro_batch_size must be positive")
    found = traits(error, model().concepts)
    assert {"about a number out of bounds", "about parallel sizes", "parameter size"} <= set(found)
    assert "about a number out of bounds, parallel sizes" in found
    assert f"words {stem('must')} {stem('positive')}" in found


def test_every_value_of_the_other_ranks_has_weights() -> None:
    """The shipped weights know what the facts can say."""
    assert all(f"ranks {told}" in model().weights for told in RANKS)


def test_probabilities_sum_to_one() -> None:
    """Over all classes, also for traits that nobody knows."""
    for given in (("word checkpoint", "area checkpoint"), ("word nobody knows",), ()):
        assert sum(model().probabilities(given).values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "text", ["", "signalbox.classifier/9\n", f"{FORMAT}\nnumber\tunit\tx\n", f"{FORMAT}\nclass\taa\n", f"{FORMAT}\n"]
)
def test_damaged_weights_are_refused(text: str) -> None:
    """With an error that says what the text is not."""
    with pytest.raises(WeightsError, match="not a classifier"):
        parse(text)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (("in type error", "word argument", "type TypeError"), 'type TypeError, the word "argument"'),
        (("word out", "word memori", "code errno 12"), 'code errno 12, the words "out", "memori"'),
        (("area own, type KeyError", "during load"), "raised in the run's own code, during load"),
        (
            ("below checkpoint", "area storage", "words file directory", "word file"),
            'the word "file"',
        ),  # a line must show it
        (("in function read",), ""),
        (("words not divis", "word size"), 'the words "not divis", "size"'),
        (("about a device, a tensor", "stage data_load, type E"), "about a device and a tensor, stage data load"),
        (("ranks alike", "parameter size"), "raised by every rank, a parameter named *size"),
    ],
)
def test_traits_are_told_in_words(found, told):
    """Parts of names are left out, and the words of a message stand together."""
    assert in_words(found) == told
