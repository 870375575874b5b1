"""The traits of an error that the classifier weighs: words, type, place, chain. Each is a short text that people can read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

from kb.classifier.words import telling
from kb.regex.lazy import lazy_compile

MOST_WORDS = 24  # of a message; a site of the catalogue has at most 12
MOST_TRAITS = 240  # of an error, whatever it says
OWN = "own"  # area of the run's own code
_PARTS = lazy_compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_COMPOUND = lazy_compile(r"[_.\-/:+]+")
_PARAMETER = lazy_compile(r"--|\w_\w")  # a word that names an option or a parameter
_VALUE = lazy_compile(
    r"""(?<!\w)'(?!(?:NoneType|str|int|float|bool|list|dict|tuple|bytes|Tensor|function|module)')[^'\n]{0,200}'(?!\w)"""
    r"""|"[^"\n]{0,200}"|(?<![\w./-])/(?!dev/|proc/)[\w.@+-]{1,100}(?:/[\w.@+-]{1,100}){1,30}/?"""
)
_ENDINGS = ("ations", "ation", "ings", "ing", "ied", "ies", "ed", "es", "s", "ly")
_SHORTEST = 4  # letters that a stem keeps
_SHORTEST_WITH_E = 5
# What the functions above the error do, as their names say it. The innermost frame alone does not say it.
_DOING = frozenset(
    {
        "backward", "barrier", "broadcast", "build", "cast", "checkpoint", "collate", "compile", "config", "dataloader", "dataset", "decode",
        "download", "encode", "eval", "evaluate", "fetch", "forward", "gather", "getitem", "group", "import", "init", "iter", "launch", "load",
        "next", "optimizer", "parse", "pretrained", "process", "read", "reduce", "rendezvous", "restore", "resume", "save", "setup", "state",
        "step", "tokenize", "tokenizer", "train", "validate", "write",
    }
)  # fmt: skip


_NO_CONCEPTS: Mapping[str, Sequence[str]] = MappingProxyType({})
# What the other ranks did, as a reader is told it. `alike`: all raised the same; `first`: others failed later, with something else;
# `lost`: others failed before; `alone`: no other rank reports an error; `on`: others made further steps.
RANKS: Mapping[str, str] = MappingProxyType(
    {
        "alike": "raised by every rank",
        "first": "raised before other ranks failed",
        "lost": "raised after other ranks failed",
        "alone": "raised by one rank alone",
        "on": "raised by one rank while others continued",
    }
)


@dataclass(frozen=True, slots=True)
class ErrorText:
    """What was read of an error.

    `type`: class of the exception without its module; `path`: the file that raised it, from the root of its package, and
    `function` in it, without its class, which a traceback does not show; `area`: of that file (kb.classifier.areas), `OWN` for the run's own code, empty if there is no place;
    `above`: area of the innermost library frame above the run's own code; `callers`: the functions above;
    `handled`: types of the exceptions from which it followed; `stage`: of the run when it was raised, in the words of
    kb.model.Stage, and `ranks`: what the other ranks did, one of `RANKS`. Both are empty where that is not known.
    `importing`: an installed package raised it while it was imported. `package`: the kind of package that raised it, as
    `packages` of bench/catalogue/areas.yaml has it; empty if that is not known.
    """

    type: str = ""
    words: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    path: str = ""
    function: str = ""
    area: str = ""
    above: str = ""
    callers: tuple[str, ...] = ()
    handled: tuple[str, ...] = ()
    stage: str = ""
    ranks: str = ""
    importing: bool = False
    package: str = ""


def said(message: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the telling words and the codes of a message as it was logged.

    Quoted values and paths are left out: they are the run's own names, not the words of the program.
    """
    words, _, codes = telling(_VALUE.sub(" ", message), MOST_WORDS)
    return words, codes


def stem(word: str) -> str:
    """Return a word without its ending, the same for all its forms: "mapped" and "mapping" give "map"."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST:
            word = word[: -len(ending)]
            break
    if len(word) >= _SHORTEST_WITH_E and word.endswith("e"):
        word = word[:-1]
    return word[:-1] if len(word) >= _SHORTEST and word[-1] == word[-2] and word[-1].isalpha() else word


def traits(error: ErrorText, concepts: Mapping[str, Sequence[str]] = _NO_CONCEPTS) -> tuple[str, ...]:
    """Return the traits of an error, each once, at most `MOST_TRAITS`. `concepts`: stem of a word → what it speaks of."""
    return tuple(dict.fromkeys(_traits(error, concepts)))[:MOST_TRAITS]


def in_words(found: Sequence[str]) -> str:
    """Return traits for a reader: `type TypeError, the words "keyword", "argument"`. Traits of parts of a name are left out.

    The words lack their endings, as the model knows them. Other pairs of words need not stand together in the message.
    """
    told = dict.fromkeys(part for trait in found if (part := _in_words(trait)))
    words = [f'"{trait.partition(" ")[2]}"' for trait in found if trait.startswith(("word ", "words not "))]
    if words:
        told[f"the {'word' if len(words) == 1 else 'words'} {', '.join(words)}"] = None
    return ", ".join(told)


def _in_words(trait: str) -> str:
    """Return a trait that is not a word as a noun; empty for a word, and for a part of a name."""
    kind, _, rest = trait.partition(" ")
    if kind in ("type", "code", "folder", "file", "function", "after", "during"):
        return trait
    first = rest.partition(",")[0]  # a library's area is the model's own idea of it, which no line shows
    told = {
        "about": f"about {rest.replace(', ', ' and ')}",
        "parameter": f"a parameter named *{rest}" if rest else "a parameter",
        "stage": f"stage {first.replace('_', ' ')}",
        "ranks": RANKS.get(rest, ""),
        "area": "raised in the run's own code" if first == OWN else "",
    }
    return told.get(kind, "")


def _traits(error: ErrorText, concepts: Mapping[str, Sequence[str]]) -> Iterator[str]:
    if error.type:
        yield f"type {error.type}"
        yield from (f"in type {part}" for part in _parts(error.type))
    yield from (f"code {code}" for code in error.codes)
    yield from (f"after {name}" for name in error.handled)
    yield from _of_words(error.words)
    yield from _of_place(error)
    if error.area:
        yield f"area {error.area}"
        yield f"area {error.area}, type {error.type}"
        yield from (f"area {error.area}, word {stem(word)}" for word in error.words)
    if error.package:
        yield f"package {error.package}"
        yield f"package {error.package}, type {error.type}"
        yield f"package {error.package}, area {error.area}"
    if error.above:
        yield f"below {error.above}"
    doing = {part for name in error.callers for part in _parts(name)} & _DOING
    yield from (f"during {part}" for part in sorted(doing))
    yield from _of_circumstances(error)
    yield from _of_concepts(error.words, concepts)


def _of_circumstances(error: ErrorText) -> Iterator[str]:
    if error.stage:
        yield f"stage {error.stage}"
        yield f"stage {error.stage}, type {error.type}"
    if error.ranks:
        yield f"ranks {error.ranks}"
    if error.importing:
        yield "during the import of a package"


def _of_concepts(words: Sequence[str], concepts: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield what a message speaks of, and each two of these things."""
    stems = {stem(part) for word in words for part in (word, *_COMPOUND.split(word)) if part}
    found = sorted({concept for each in stems for concept in concepts.get(each, ())})
    yield from (f"about {concept}" for concept in found)
    yield from (f"about {one}, {other}" for at, one in enumerate(found) for other in found[at + 1 :])


def _of_words(words: Sequence[str]) -> Iterator[str]:
    stems = [stem(word) for word in words]
    yield from (f"word {each}" for each in stems)
    yield from (f"words {one} {other}" for one, other in pairwise(stems))
    for word in words:
        pieces = _COMPOUND.split(word)
        if len(pieces) > 1:
            yield from (f"word {stem(piece)}" for piece in pieces if len(piece) > 1)
        if _PARAMETER.search(word):
            yield "parameter "
            yield f"parameter {pieces[-1]}"


def _of_place(error: ErrorText) -> Iterator[str]:
    if error.path:
        *folders, name = error.path.rpartition(".")[0].split("/") if "." in error.path else error.path.split("/")
        yield from (f"folder {part.lower()}" for folder in folders for part in _COMPOUND.split(folder) if part)
        yield from (f"file {part}" for part in dict.fromkeys((*_COMPOUND.split(name.lower()), *_parts(name))) if part)
    if error.function:
        yield f"function {error.function.lower()}"
        yield from (f"in function {stem(part)}" for part in _parts(error.function))


def _parts(name: str) -> list[str]:
    """Return the parts of a name in camel case or with underscores, in lower case."""
    return [part.lower() for part in _PARTS.findall(name) if len(part) > 1]
