"""The telling words, holes and codes of an error message. The catalogue of error sites is written with the same ones."""

from __future__ import annotations

import re
from typing import Final

from kb.regex.lazy import lazy_compile

MOST_WORDS: Final = 12  # of a site in the catalogue
HOLE: Final = lazy_compile(r"\{<(\w+)>\}")  # how an extractor marks a placeholder
# What a message of the C library or the system names: they decide more than any other word.
CODE: Final = lazy_compile(
    r"\b(E(?:ACCES|ADDRINUSE|AGAIN|BUSY|CONNREFUSED|CONNRESET|CONNABORTED|DQUOT|EXIST|FAULT|HOSTUNREACH|INTR|INVAL|IO|ISDIR|"
    r"MFILE|NETDOWN|NETUNREACH|NFILE|NOBUFS|NODEV|NOENT|NOMEM|NOSPC|NOSYS|NOTCONN|NOTSUP|OPNOTSUPP|PERM|PIPE|PROTO|REMOTEIO|"
    r"ROFS|STALE|TIMEDOUT)|SIG(?:ABRT|BUS|CHLD|FPE|HUP|ILL|INT|KILL|PIPE|QUIT|SEGV|TERM|USR1|USR2)|"
    r"nccl(?:UnhandledCuda|System|Internal|Remote|Invalid)\w+|cudaError[A-Z]\w+|"
    r"(?:CUDA_ERROR|CUBLAS_STATUS|CUDNN_STATUS|IBV_WC|IBV_EVENT|HCCL_E|ACL_ERROR|UCS_ERR|FI_E)_?[A-Z]\w+|"
    r"(?:DEADLINE_EXCEEDED|UNAVAILABLE|RESOURCE_EXHAUSTED|FAILED_PRECONDITION|INVALID_ARGUMENT|UNAUTHENTICATED|PERMISSION_DENIED|"
    r"ALREADY_EXISTS|NOT_FOUND|UNIMPLEMENTED|OUT_OF_RANGE|DATA_LOSS)|(?<![\d.])(?:40[0134589]|429|50[0234])(?![\d.]))"
)
# Words that only hold a sentence together. "not", "no", "must" and "only" turn its meaning, so they stay.
FILLERS: Final = frozenset(
    {
        "a", "an", "the", "this", "that", "these", "those", "it", "its", "itself", "is", "are", "was",
        "were", "be", "been", "being", "am", "of", "to", "in", "on", "at", "by", "for", "with", "from",
        "into", "onto", "as", "and", "or", "if", "so", "then", "than", "you", "your", "we", "our", "us",
        "they", "their", "them", "he", "i", "has", "have", "had", "having", "do", "does", "did", "done",
        "will", "would", "shall", "should", "can", "could", "may", "might", "please", "also", "however",
        "there", "here", "which", "who", "whom", "whose", "what", "when", "where", "while", "how", "why",
        "because", "since", "such", "via", "per", "etc", "e.g", "i.e", "eg", "ie", "s", "t", "d", "ll",
        "re", "ve",
    }
)  # fmt: skip
WORD: Final = lazy_compile(
    r"[A-Za-z_][A-Za-z0-9_]*(?:[.\-/:+][A-Za-z0-9_]+)*|--?[a-z][a-z0-9_\-]+|/dev/[a-z]+|/proc(?:/\w+)*"
)
# as in "doesn't"
NEGATION: Final = lazy_compile(
    r"\b(?:ca|wo|does|do|did|is|are|was|were|has|have|had|could|should|would|must)n['\u2019]t\b", re.IGNORECASE
)
ESCAPE: Final = lazy_compile(r"\x1b\[[0-9;]*m|\\[nrt]")


def telling(message: str, most: int = MOST_WORDS) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the telling words of a message, the kinds of its holes and the codes that it names.

    The words are in lower case and in order, at most `most`. `message`: the text, with its holes marked if it is a
    template.
    """
    holes = tuple(HOLE.findall(message))[:6]
    plain = ESCAPE.sub(" ", HOLE.sub(" ", message))
    codes = tuple(dict.fromkeys(CODE.findall(plain)))
    words: list[str] = []
    for match in WORD.finditer(NEGATION.sub(" not ", plain)):
        word = match.group().lower().strip(".:-") if not match.group().startswith("-") else match.group().lower()
        if (
            word in FILLERS
            or (len(word) == 1 and not word.isdigit())
            or (words and words[-1] == word)
            or len(word) > 48
        ):
            continue
        words.append(word)
    return tuple(words[:most]), holes, codes
