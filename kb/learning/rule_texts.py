"""The sentences of a learned rule, made from the event and from people's close-outs. They say nothing that the incidents do not show."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kb.learning.clauses import is_none_of, is_part
from kb.learning.tokenizer import VERSION, Piece

LONGEST_TITLE = 80
_SPLIT = re.compile(r"(?<=[.;!?])\s+|\s*[;\n]\s*")
_HANGING = re.compile(
    r"(?: (?:after|and|as|at|because|but|by|during|for|from|has|holds|in|is|of|on|than|that|the|to|while|with))+$"
)  # ends no title
_VALUE_LAST = re.compile(r"(?:,|:) [A-Z](?: of [A-Z])?$")  # behind the clause that says what is wrong
_ERRNO = re.compile(r"^Errno (\w{1,5}) ([A-Za-z][\w /'-]{2,60})$")
_NUMBER_WORDS = {
    "pci": "a device",
    "path": "a file",
    "url": "a URL",
    "time": "a time",
}
_NUMBERS, _NAMES = "NMKL", "XYZ"  # a letter for each value of a title, so that one is not taken for another
# what people write that they did → the imperative
_DONE: Mapping[str, str] = {
    "allowed": "allow", "cancelled": "cancel", "canceled": "cancel", "converted": "convert", "copied": "copy", "dropped": "drop",
    "granted": "grant", "killed": "kill", "ported": "port", "published": "publish", "put": "put", "re-encoded": "re-encode",
    "re-tokenised": "re-tokenise", "re-tokenized": "re-tokenize", "relaunched": "relaunch", "reran": "rerun", "revoked": "revoke",
    "synced": "sync", "took": "take", "turned": "turn", "unset": "unset", "went": "go", "added": "add", "asked": "ask", "bumped": "raise", "changed": "change", "cleaned": "clean", "cleared": "clear", "cordoned": "cordon",
    "corrected": "correct", "deleted": "delete", "disabled": "disable", "downgraded": "downgrade", "drained": "drain", "enabled": "enable",
    "excluded": "exclude", "extended": "extend", "fixed": "fix", "freed": "free", "increased": "increase", "installed": "install",
    "lifted": "lift", "lowered": "lower", "mounted": "mount", "moved": "move", "opened": "open", "patched": "patch", "pinned": "pin",
    "raised": "raise", "rebooted": "reboot", "rebuilt": "rebuild", "reduced": "reduce", "re-generated": "regenerate", "regenerated": "regenerate",
    "reinstalled": "reinstall", "released": "release", "reloaded": "reload", "remounted": "remount", "removed": "remove", "renewed": "renew",
    "repaired": "repair", "replaced": "replace", "requeued": "requeue", "reseated": "reseat", "reset": "reset", "restarted": "restart",
    "restored": "restore", "resubmitted": "resubmit", "resumed": "resume", "reverted": "revert", "rolled": "roll", "rotated": "rotate",
    "set": "set", "skipped": "skip", "started": "start", "stopped": "stop", "swapped": "swap", "switched": "switch", "unlocked": "unlock",
    "unmounted": "unmount", "updated": "update", "upgraded": "upgrade", "waited": "wait",
    "brought": "bring", "built": "build", "cut": "cut", "drew": "draw", "gave": "give", "kept": "keep", "let": "let", "made": "make",
    "have": "have", "ran": "run", "re-ran": "re-run", "rewrote": "rewrite", "sent": "send", "shut": "shut", "split": "split",
    "spread": "spread", "threw": "throw", "told": "tell", "undid": "undo", "wrote": "write",
}  # fmt: skip
_HAD_DONE = re.compile(
    r"^[Hh]ad ((?:a|an|the|its|their|our|all|both) .{1,60}\b\w+(?:ed|ilt|ung)\b)"
)  # by somebody else
_LATER: Mapping[str, str] = {"had": "have", "got": "get", "did": "do", "found": "find"}  # such only behind another verb
# past tenses that tell what happened, not what somebody did
_HAPPENED = frozenset(
    """
    appeared based belonged caused confirmed contained crashed depended died existed expired failed happened hoped learned
    looked needed noticed observed occurred realised realized related resolved resulted seemed suspected tried used wanted
    worked
    """.split()  # noqa: SIM905 - a list would take a page
)
# an action in the past tense with its object, and no state of the object
_DID = re.compile(
    rf"(?i)^(?:(?:I|we|he|she|they|and|then|also) )*(?!(?:{'|'.join(sorted(_HAPPENED))}) )[a-z-]{{3,}}ed (?:up |out |off |back )?"
    r"(?:the|a|an|all|both|its|our|their|each|every)\b(?!.*\b(?:was|were|is|are|had|has)\b)"
)
# a clause of time behind a past tense, which advice tells in the present
_ONCE = re.compile(r"\b(until|till|once|as soon as|when) ([^,;.]*?)(\w+) (had|was|were)\b")
_ONCE_DONE = re.compile(
    r"\b(until|till|once) ((?:the|a|an|its|all|our|their) (?:[a-z-]+ ){0,3}?)(?!(?:has|have|had|is|are|was|were) )([a-z-]+) (ended|finished|completed|stopped|recovered|returned)(?=[,;.]|$| and\b)"
)
_PRESENT = {"had": ("has", "have"), "was": ("is", "are"), "were": ("are", "are")}
_SECOND = re.compile(r"(\band|\bthen|,) ([\w-]+)")
# a step about the job behind one about its surroundings, which has an action of its own
_OF_JOB = re.compile(
    r"(?:,? (?:and|then|and then)|,) (?=(?:re(?:started|submitted|queued|launched|ran|run)|resumed)\b(?! (?:it|them|the|its|all|both)\b(?! (?:job|run|training))))",
    re.IGNORECASE,
)
_PREFIXES = ("re", "un", "de", "over", "pre")
_DETERMINERS = frozenset(
    {"a", "an", "the", "its", "their", "our", "his", "her", "all", "both", "each", "every", "this", "that", "and", "to"}
)
# what the owner of a run sets for it
_SETTINGS = (
    r"(?-i:\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b)|\benvironment variable|\bjob (?:script|file)\b|\b(?:templates?|prompts?|stop tokens?|seeds?|bucketing|hyperparameters?"
    r"|learning rate|warm-?up|retries|arena|pool size|batch(?:es)? sizes?|micro-?batch\w*|sequence length|precision|plan|recipe|curriculum"
    r"|schedule|interval|truncat\w*|buffers?|queue depth|prefetch\w*|parallel\w*|mesh|layout|offload\w*"
    r"|number of (?:workers|readers|writers|threads|ranks|processes|shards))\b"
    r"|\b(?:each|every|per) (?:rank|process|worker|reader|run|job)\b|\b(?:save|checkpoint|evaluate|log)\b.*\b(?:less|more) often\b|\bpin\b.*\b(?:cores?|job|run|readers?|workers?|threads?)\b"
)
# words of what was done → the action of rules/actions.yaml; the first that fits counts
_ACTIONS: Sequence[tuple[str, str]] = (
    (r"\b(?:node|host|machine|server)s?\b.*\b(?:out of|from) the cluster|\bcordon|\bdrain(?:ed)?\b.*\breboot|\breboot\w*\b.*\b(?:node|host|machine)", "drain_and_reboot"),
    (r"\bfirmware\b|\bflash\b", "hardware_ticket"),
    (r"\bclear\w*\b.*\bcaches?\b", "fix_environment"),
    (r"^\W*wait\b", "wait"),
    (r"\bfilter\w*", "fix_data"),
    (r"\b(?:shared memory|/dev/shm)\b", "raise_limit"),
    (r"\b(?:convert|reshard)\w*\b.*\b(?:checkpoint|shard|data|file)", "fix_data"),
    (r"\breseat\w*\b(?!.*\b(?:cable|transceiver|optic|connector))", "hardware_ticket"),
    (r"\breseat\b|\b(?:cable|transceiver|optic|connector)s?\b", "network_ticket"),
    (r"\b(?:replac|exclud|swap|bann|barr)\w*\b.*\b(?:node|host|machine)", "exclude_node_job"),
    (r"\breplac\w*\b.*\b(?:gpu|accelerator|fan|card|dimm|nic|board|tray|psu|power supply|drive|cpu|memory)s?\b|\b(?:gpu|accelerator|fan|card|dimm|nic|board|tray|psu|drive|cpu)s? replaced\b", "hardware_ticket"),
    (r"\bdrain\b.*\b(?:node|host|machine)", "exclude_node_cluster"),
    (r"\breset\w*\b.*\bgpus?\b", "reset_gpu"),
    (r"\b(?:ticket|vendor|rma|support)\b", "hardware_ticket"),
    (_SETTINGS, "change_config"),
    (r"^\W*(?:moved?|requeue\w*)\b.*\b(?:queue|partition|priority)\b", "resubmit"),
    (r"\bstorage class", "platform_ticket"),
    (r"\b(?:disk|storage|bucket|user|project|inode)\w*\b.*\bquota\b|\bquota\b.*\b(?:disk|storage|bucket|inode)|\bfree[ds]?\b.*\b(?:space|disk)|\b(?:delet|remov|clean|purg)\w*\b.*\b(?:checkpoints?|files|space|scratch|dumps|logs|leftovers?|disk)", "free_space"),
    (r"\bmount\w*\b.*\b(?:bundles?|certificates?|authorit(?:y|ies)|ca)\b|\b(?:certificate|bundle|authorit(?:y|ies))\b.*\bimage\b|\b(?:ca|trust|certificate|authorit(?:y|ies)) (?:bundle|store)s?\b", "fix_environment"),
    (r"\b(?:credential|permission|certificate|password|secret|key|(?:access|hub|api|auth\w*) token|login|role|grant|delegation|policy|policie)s?\b|\brights\b|\bright (?:to|again)\b", "fix_access"),
    (r"(?<!the )(?<!a )\b(?:regenerat|re-generat|repair|re-?download|re-?shard|re-?token)\w*|(?<!the )(?<!a )\b(?:rebuild|rebuilt|re-?copy|re-?export)\b(?!.*\b(?:image|plugins?|plugin tree|packages?|librar\w+|wheels?|extensions?|container|bundle|kernels?|binar\w+)\b)", "fix_data"),
    (r"\b(?:re)?(?:start|deploy)(?:ed)?\b (?:it\b|(?:the|a|its|our|all|every|both|this|that)\b(?!.*\b(?:job|run|training|process\w*)\b))", "restart_service"),
    (r"\b(?:ulimit|limit|memlock|shm)\b", "raise_limit"),
    (r"\b(?:install|upgrad|downgrad|reinstall)\w*\b|\bpin\w*\b.*\d|\b(?:container|package|driver|version|librar(?:y|ie)|plugin|wheel|wheelhouse|toolchain|compiler|extension|binar(?:y|ie))s?\b|\bimage\b", "fix_environment"),
    (r"\b(?:shard|sample|dataset|data|manifest|index|ledger|file)s?\b", "fix_data"),
    (r"\b(?:config\w*|setting|flag|option|parameter|batch size|timeout)s?\b", "change_config"),
    (r"^\W*(?:un)?set\b.*(?:=|\bto\b|\bback\b)", "change_config"),
    (r"\b(?:patch|bug|code|commit|revert)\w*\b", "fix_code"),
    (r"\b(?:restart|rerun|continu|go)\w*\b.*\bcheckpoint|\bresum\w+\b", "restart_from_checkpoint"),
    (r"\b(?:resubmit|requeu|relaunch)\w*|\b(?:restart|rerun)\w*\b.*\b(?:job|run|training)\b|^\W*restart (?:with|under|using|without)\b", "resubmit"),
    (r"\bwait\w*\b", "wait"),
    (r"(?<!^)\bswitch(?:es)?\b|\b(?:cable|fabric|network)\b", "network_ticket"),
    (r"\b(?:storage|mount|file ?system|bucket|lustre|nfs|gpfs)\b", "storage_ticket"),
)  # fmt: skip
OTHER_ACTION = "platform_ticket"


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the remedy: an action of rules/actions.yaml and what to do."""

    action: str
    text: str


def sentence_of(pieces: Iterable[Piece], exception: str = "") -> str:
    """A title made of what the incidents have in common, with letters or words for variables; empty if they share no word."""
    parts: list[str] = []
    told = list(pieces)
    letters = _Letters()
    for index, piece in enumerate(told):
        token, after = piece.token, told[index + 1].token if index + 1 < len(told) else None
        if token is not None and token.form == "pci" and after is not None and after.text == ":":
            parts = parts[:-1] if parts[-1:] == [" "] else parts
            continue  # a device named before what it reports
        parts.append(_said(told, index, parts, letters))
    text = re.sub(r" (?=[,;:])", "", " ".join("".join(parts).split())).strip(" .,;:!-…'\"")
    text = _HANGING.sub("", _VALUE_LAST.sub("", text)).strip(" .,;:!-…'\"")
    text = _ERRNO.sub(r"\2 (errno \1)", re.sub(r"[{}\[\]<>`]", "", text.replace(" on ... ", " on a node ")))
    if not re.search(r"[A-Za-z]{3}", text):
        return exception
    whole = f"{exception}: {text}" if exception else text
    return whole if len(whole) <= LONGEST_TITLE else _cut(text)


@dataclass(slots=True)
class _Letters:
    """The letters that a title has used for its numbers and names."""

    numbers: int = 0
    names: int = 0

    def number(self) -> str:
        self.numbers += 1
        return _NUMBERS[(self.numbers - 1) % len(_NUMBERS)]

    def name(self) -> str:
        self.names += 1
        return _NAMES[(self.names - 1) % len(_NAMES)]


def _said(told: Sequence[Piece], index: int, parts: Sequence[str], letters: _Letters) -> str:
    """What a title says for a piece."""
    piece = told[index]
    token = piece.token
    if token is None:
        return " ... "
    if token.kind == "word" and VERSION.fullmatch(token.text):
        return letters.name()
    if token.kind == "varying":
        if token.form == "unit":
            return token.text if piece.fixed else ""
        return _NUMBER_WORDS.get(token.form) or letters.name()
    if token.kind == "number":
        kept = piece.fixed and (is_part(told, index) or list(parts[-2:]) == ["Errno", " "])
        return token.text if kept or is_none_of(told, index) else letters.number()
    return token.text if token.kind != "sign" or " " <= token.text <= "~" else ""


def _cut(text: str) -> str:
    """A title within its length, cut at the end of a clause or else of a word."""
    if len(text) <= LONGEST_TITLE:
        return text
    head = text[: LONGEST_TITLE + 1]
    ends = [hit.start() for hit in re.finditer(r"[,;:.](?=\s)| (?=(?:but|and|while|because|so|which) )", head)]
    short = head[: ends[-1]] if ends and ends[-1] > LONGEST_TITLE // 3 else head.rpartition(" ")[0]
    return _HANGING.sub("", short.rstrip(" ,;:-("))


def sentences(text: str) -> tuple[str, ...]:
    """Split a person's text into sentences and clauses."""
    return tuple(part.strip() for part in _SPLIT.split(text) if part.strip())


def steps_of(
    actions: Iterable[str], known: Collection[str], words: Collection[str] = ()
) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """The steps that people took, as advice in their words, and the sentences that say something else.

    `known`: the actions that exist; `words`: those of the language, in which the verbs of regular past tenses are looked up.
    """
    found: dict[str, Step] = {}
    other: list[str] = []
    for text in actions:
        for part in (own for sentence in sentences(text) for own in _OF_JOB.split(sentence)):
            told = imperative(part, words)
            if told:
                found.setdefault(told.lower(), Step(_action(told, known), told))
            elif _DID.match(part) and not _describes(part.partition(" ")[2], words):
                did = f"{part.strip(' .;,')}."  # what somebody did with a verb that no list has: never a cause
                found.setdefault(did.lower(), Step(_action(did, known), f"{did[:1].upper()}{did[1:]}"))
            elif len(part.strip(" .;,")) > 2:
                other.append(part.strip(" ;,"))
    if not found and other:  # what people wrote they did, as it is, rather than a step that nobody took
        first = other.pop(0)
        found[first] = Step(_action(first, known), f"{first[:1].upper()}{first[1:].rstrip('.')}.")
    return tuple(found.values()), tuple(dict.fromkeys(other))


def imperative(text: str, words: Collection[str] = ()) -> str:
    """A sentence about what somebody did as advice, with a full stop; empty if it does not begin with such a verb."""
    plain = re.sub(
        r"^(?:I|we|he|she|they|and|then|also)\s+(?:then\s+|also\s+)?", "", text.strip(" .;,"), flags=re.IGNORECASE
    )
    plain = _HAD_DONE.sub(r"have \1", plain)
    first, _, rest = plain.partition(" ")
    verb = _verb(first, words) or (first.lower() if first.lower() in _DONE.values() else None)
    if verb is None or _describes(rest, words):
        return ""
    plain = f"{verb} {rest}".rstrip()
    plain = _SECOND.sub(lambda hit: f"{hit[1]} {_LATER.get(hit[2], '') or _verb(hit[2], words) or hit[2]}", plain)
    return _in_present(f"{plain[:1].upper()}{plain[1:]}.")


def _in_present(advice: str) -> str:
    """Advice whose clauses of time are told in the present: "until it had finished" was right of what somebody did."""
    advice = _ONCE.sub(lambda hit: f"{hit[1]} {hit[2]}{hit[3]} {_PRESENT[hit[4]][_is_plural(hit[3])]}", advice)
    return _ONCE_DONE.sub(
        lambda hit: f"{hit[1]} {hit[2]}{hit[3]} {_PRESENT['had'][_is_plural(hit[3])]} {hit[4]}", advice
    )


def _is_plural(word: str) -> bool:
    return (word.endswith("s") and not word.endswith(("ss", "us", "is"))) or word in {"they", "both", "all"}


def _verb(word: str, words: Collection[str]) -> str | None:
    """The imperative of a past tense, as in "staged": stage; None for any other word."""
    low = word.lower()
    if low in _DONE or low in _HAPPENED or not low.endswith("ed") or len(low) < len("aided"):
        return _DONE.get(low)
    bare = low.removesuffix("ed")
    able = [
        low.removesuffix("d"),
        bare,
        f"{bare[:-1]}y" if bare.endswith("i") else "",
        bare[:-1] if bare[-1] == bare[-2] else "",
    ]
    return next((item for item in able if _is_verb(item, words)), None)


def _is_verb(word: str, words: Collection[str]) -> bool:
    """Whether the language has a word, also after a prefix: a list of words lacks most of those."""
    if word.endswith(("ise", "yse")) and _is_verb(f"{word[:-2]}ze", words):
        return True  # a list of words has one of the two spellings
    bare = next((word.removeprefix(item).lstrip("-") for item in _PREFIXES if word.startswith(item)), "")
    return bool(word) and (word in words or (len(bare) > 3 and bare in words))


def _describes(rest: str, words: Collection[str]) -> bool:
    """Whether what follows a participle is what happened to it, as in "Drained leaf excluded from the block"."""
    for word in rest.split()[:3]:
        if word.lower() in _DETERMINERS or word.endswith(","):
            return False
        if _verb(word, words) is not None:
            return True
    return False


def _action(text: str, known: Collection[str]) -> str:
    found = (action for words, action in _ACTIONS if action in known and re.search(words, text, re.IGNORECASE))
    return next(found, OTHER_ACTION)
