"""The texts of a learned rule, from the event and from what people said; nothing that the incidents do not show."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kb.learning.regex_generalisation import Piece

LONGEST_TITLE = 80
_SPLIT = re.compile(r"(?<=[.;!?])\s+|\s*[;\n]\s*")
_HANGING = re.compile(r"(?: (?:after|at|by|during|for|from|in|of|on|to|with)(?: (?:N|\.\.\.))?)+$")  # ends no title
_NUMBER_WORDS = {
    "number": "N",
    "unit": "",
    "pci": "a device",
    "path": "a file",
    "url": "a URL",
    "name": "...",
    "maybe_name": "...",
    "quoted": "...",
    "time": "a time",
}
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
}  # fmt: skip
# words of what was done → the action of rules/actions.yaml; the first that fits counts
_ACTIONS: Sequence[tuple[str, str]] = (
    (r"\b(?:node|host|machine|server)s?\b.*\b(?:out of|from) the cluster|\bcordon|\bdrain(?:ed)?\b.*\breboot|\breboot\w*\b.*\b(?:node|host|machine)", "drain_and_reboot"),
    (r"\b(?:replac|exclud|swap|bann|barr)\w*\b.*\b(?:node|host|machine)", "exclude_node_job"),
    (r"\breset\w*\b.*\bgpus?\b", "reset_gpu"),
    (r"\b(?:ticket|vendor|rma|support)\b", "hardware_ticket"),
    (r"\bquota\b|\bfree[ds]?\b.*\b(?:space|disk)|\b(?:delet|remov|clean)\w*\b.*\b(?:checkpoints?|files|space)", "free_space"),
    (r"\b(?:credential|permission|certificate|password|secret|(?:api|ssh) key|(?:access|hub|api|auth\w*) token|login)s?\b", "fix_access"),
    (r"\b(?:rebuild|rebuilt|regenerat|re-generat|repair|re-?download|re-?shard|re-?token)\w*", "fix_data"),
    (r"\b(?:re)?start\w*\b(?!.*\b(?:job|run|training|process\w*)\b).*\w{4}", "restart_service"),
    (r"\b(?:ulimit|limit|memlock|shm)\b", "raise_limit"),
    (r"\b(?:install|pin|upgrad|downgrad|reinstall)\w*\b|\b(?:image|container|package|driver|version)s?\b", "fix_environment"),
    (r"\b(?:shard|sample|dataset|data|manifest|index|ledger|file)s?\b", "fix_data"),
    (r"\b(?:config\w*|setting|flag|option|parameter|batch size|timeout)s?\b", "change_config"),
    (r"\b(?:patch|bug|code|commit|revert)\w*\b", "fix_code"),
    (r"\b(?:checkpoint|resum\w+)\b", "restart_from_checkpoint"),
    (r"\b(?:resubmit|requeue|rerun|restart)\w*\b.*\b(?:job|run|training)\b|\b(?:resubmit|requeu)\w*", "resubmit"),
    (r"\bwait\w*\b", "wait"),
    (r"\b(?:switch|cable|fabric|network)\b", "network_ticket"),
    (r"\b(?:storage|mount|file ?system|bucket|lustre|nfs|gpfs)\b", "storage_ticket"),
)  # fmt: skip
OTHER_ACTION = "platform_ticket"


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the remedy: an action of rules/actions.yaml and what to do."""

    action: str
    text: str


def sentence_of(pieces: Iterable[Piece], exception: str = "") -> str:
    """What the incidents have in common as a title: variables become words such as N; empty without a word."""
    parts: list[str] = []
    for piece in pieces:
        token = piece.token
        if token is None:
            parts.append(" ... ")
        elif token.kind == "varying":
            parts.append(_NUMBER_WORDS.get(token.form, "..."))
        elif token.kind == "number":
            parts.append("N")
        else:
            parts.append(token.text if token.kind != "sign" or " " <= token.text <= "~" else "")
    text = " ".join("".join(parts).split()).strip(" .,;:!-…'\"")
    text = _HANGING.sub("", text).strip(" .,;:!-…'\"")
    text = re.sub(r"[{}\[\]<>`]", "", text)
    if not re.search(r"[A-Za-z]{3}", text):
        return exception
    return _cut(f"{exception}: {text}" if exception else text)


def _cut(text: str) -> str:
    """A title within its length, cut at the end of a clause or else of a word."""
    if len(text) <= LONGEST_TITLE:
        return text
    head = text[: LONGEST_TITLE + 1]
    ends = [hit.start() for hit in re.finditer(r"[,;:.](?=\s)", head)]
    return head[: ends[-1]] if ends and ends[-1] > LONGEST_TITLE // 2 else head.rpartition(" ")[0].rstrip(" ,;:-(")


def steps_of(actions: Iterable[str], known: Collection[str]) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """The steps that people took, as advice in their words, and the sentences that say something else.

    `known`: the actions that exist.
    """
    found: dict[str, Step] = {}
    other: list[str] = []
    for text in actions:
        for part in _SPLIT.split(text):
            told = imperative(part)
            if told:
                found.setdefault(told.lower(), Step(_action(part, known), told))
            elif len(part.strip(" .;,")) > 2:
                other.append(part.strip(" ;,"))
    return tuple(found.values()), tuple(dict.fromkeys(other))


def imperative(text: str) -> str:
    """A sentence about what somebody did as advice, with a full stop; empty if it does not begin with such a verb."""
    plain = re.sub(
        r"^(?:I|we|he|she|they|and|then|also)\s+(?:then\s+|also\s+)?", "", text.strip(" .;,"), flags=re.IGNORECASE
    )
    first, _, rest = plain.partition(" ")
    verb = _DONE.get(first.lower()) or (first.lower() if first.lower() in _DONE.values() else None)
    if verb is None:
        return ""
    plain = f"{verb} {rest}".rstrip()
    plain = re.sub(r"(\band|\bthen|,) ([\w-]+)", lambda hit: f"{hit[1]} {_DONE.get(hit[2].lower(), hit[2])}", plain)
    return f"{plain[:1].upper()}{plain[1:]}."


def _action(text: str, known: Collection[str]) -> str:
    low = text.lower()
    return next((action for words, action in _ACTIONS if action in known and re.search(words, low)), OTHER_ACTION)
