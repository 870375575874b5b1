"""Sites of C, C++, CUDA, Go, Rust and shell sources, read by a tolerant tokenizer.

It knows comments, strings and brackets, and the names of the macros and functions that report errors; no grammar, no
preprocessor. What it cannot read it leaves out.
"""

# ruff: noqa: C901 - a call is passed over for many reasons

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bench.catalogue.site_facts import Site, hole, hole_kind
from kb.classifier.words import CODE, telling

Places = list[tuple[int, str]]  # positions and the names of the functions that begin there


@dataclass(frozen=True, slots=True)
class Caller:
    """Names of macros or functions that report an error, and how their calls are read.

    Attributes:
        name: A pattern for the name.
        kind: The site's kind.
        exception: The type that the caller raises; "name" is the macro's own name, "first" its first argument.
        skip: Arguments before those that make up the message.
        stream: Whether the message follows the call, behind "<<".
    """

    name: str
    kind: str
    exception: str = "name"
    skip: int = 0
    stream: bool = False


# The first that matches the whole name counts.
C_CALLERS: Final = (
    # PyTorch and its kin
    Caller(r"TORCH_CHECK_INDEX|CHECK_INDEX_ERROR", "check", "IndexError", 1),
    Caller(r"TORCH_CHECK_VALUE", "check", "ValueError", 1),
    Caller(r"TORCH_CHECK_TYPE", "check", "TypeError", 1),
    Caller(r"TORCH_CHECK_NOT_IMPLEMENTED", "check", "NotImplementedError", 1),
    Caller(r"TORCH_CHECK_LINALG", "check", "LinAlgError", 1),
    Caller(r"(?:TORCH|NPU)_CHECK_WITH(?:_MSG)?", "check", "first", 2),
    Caller(r"TORCH_CHECK(?:_IF_NOT_ON_CUDA|_ARG)?|AT_ASSERTM|XLA_CHECK", "check", "RuntimeError", 1),
    Caller(r"TORCH_INTERNAL_ASSERT(?:_DEBUG_ONLY)?", "assert", "RuntimeError", 1),
    Caller(r"C10_THROW_ERROR", "throw", "first", 1),
    Caller(r"AT_ERROR", "throw", "RuntimeError"),
    Caller(r"(?:NPU|OPS|ACL)_?CHECK_?ERROR\w*", "check", "RuntimeError", 1),
    Caller(r"ASCEND_LOGE|NPU_LOGE|TORCH_NPU_LOGE|LOGE", "error", ""),
    Caller(r"XLA_ERROR|TF_LOG", "error", "", stream=True),
    Caller(r"(?:C10D|TORCH)_(?:THROW|ERROR)\w*", "error", "name"),
    # collectives and networks
    Caller(r"WARN", "error", ""),
    Caller(r"NCCL_OFI_WARN|NCCL_OFI_ERR", "error", ""),
    Caller(r"ERROR|ncclSetLastError|rcclWarn", "error", ""),
    Caller(r"GLOO_ENFORCE_\w+", "check", "EnforceNotMet", 2),
    Caller(r"GLOO_ENFORCE", "check", "EnforceNotMet", 1),
    Caller(r"GLOO_THROW_IO_EXCEPTION", "throw", "IoException"),
    Caller(r"GLOO_THROW_INVALID_OPERATION_EXCEPTION", "throw", "InvalidOperationException"),
    Caller(r"GLOO_THROW|GLOO_ERROR", "throw", "Exception"),
    Caller(r"MAKE_SOCKET_EXCEPTION|GLOO_SYSCALL_\w+", "throw", "IoException"),
    Caller(r"(?:ucs|uct|ucp|ucm|ucc|tl|cl|mc|ec)_fatal", "fatal", ""),
    Caller(r"ucs_error|ucs_log_fatal_error|ucm_error|ucc_error|mc_error", "error", ""),
    Caller(r"(?:tl|cl|base|ucp|uct)_error|ucs_diag", "error", "", 1),
    Caller(r"UCS_\w*LOG_ERR\w*", "error", ""),
    Caller(r"(?:FI_WARN|FI_WARN_ONCE|FI_WARN_SPARSE|FI_LOG)", "error", "", 2),
    Caller(r"(?:EFA_WARN|VRB_WARN|RXR_WARN|OFI_WARN|CXIP_WARN|VRB_WARN_ERRNO|EFA_WARN_FQ)", "error", "", 1),
    Caller(r"(?:CXIP_WARN|RXM_WARN_ERR|PSM2_ERR|OFI_\w+_ERR)", "error", ""),
    Caller(r"(?:verbs|mlx[45]|bnxt|efa|hns_roce_u?|irdma|rdma)_?err(?:_datapath)?", "error", "", 1),
    # schedulers, containers and drivers
    Caller(r"slurm_(?:error|spank_log)|spank_err", "error", ""),
    Caller(r"fatal|fatal_abort|log_fatal", "fatal", ""),
    Caller(r"error|slurm_seterrno_ret|error_in_daemon|print_error", "error", ""),
    Caller(r"NV_PRINTF|nv_printf|NV_DEV_PRINTF|NV_PRINTF_EX", "error", "", 1),
    Caller(r"nvErrorLog\w*|nvswitch_\w*print\w*", "error", "", 2),
    Caller(r"opal_output|PMIX_OUTPUT|opal_output_verbose", "error", "", 1),
    Caller(r"(?:opal|orte|pmix)_show_help", "error", "", 1),
    # TensorFlow, XLA, glog, Ray, Transformer Engine
    Caller(r"(?:absl::|errors::|tsl::errors::|tensorflow::errors::)?(?:Aborted|AlreadyExists|Cancelled|DataLoss|DeadlineExceeded"
           r"|FailedPrecondition|Internal|InvalidArgument|NotFound|OutOfRange|PermissionDenied|ResourceExhausted|Unauthenticated"
           r"|Unavailable|Unimplemented|Unknown)(?:Error)?(?:StrCat)?", "throw", "name"),
    Caller(r"MakeCoordinationError|CoordinationError", "throw", "name"),
    Caller(r"(?:RAY_)?LOG", "error", "first", 1, stream=True),
    Caller(r"(?:RAY_)?CHECK(?:_[A-Z]{2}|_OK|_NOTNULL)?", "check", "name", 9, stream=True),
    Caller(r"TF_RET_CHECK|RET_CHECK", "check", "name", 9, stream=True),
    Caller(r"NVTE_CHECK", "check", "RuntimeError", 1),
    Caller(r"NVTE_ERROR", "throw", "RuntimeError"),
    Caller(r"MS_LOG|MS_EXCEPTION", "error", "first", 1, stream=True),
)  # fmt: skip
STATUS: Final = re.compile(
    r"\b(nccl(?:System|Internal|Remote|UnhandledCuda|InvalidUsage|InvalidArgument)\w*|UCS_ERR_\w+|-?FI_E\w+|ESLURM\w+|-E[A-Z]{2,})\b"
)
CONTROL: Final = frozenset(
    {"if", "for", "while", "switch", "catch", "return", "sizeof", "do", "else", "defined", "alignas", "decltype"}
)
NO_ERROR: Final = re.compile(
    r"LEVEL_(?:INFO|NOTICE|WARNING|SILENT)|NV_DBG_(?:INFO|SETUP|WARNINGS)|FI_LOG_(?:INFO|DEBUG|TRACE)|^\s*(?:INFO|WARNING|DEBUG)\b"
)


def c_sites(source: str, path: str) -> Iterator[Site]:
    """The sites of a C, C++ or CUDA source.

    Args:
        source: The text of the file.
        path: Its path in the project.

    Yields:
        Sites without project and area.
    """
    text = without_comments(source)
    bare = without_strings(text)
    functions = _functions(bare)
    starts = _line_starts(text)
    for match in re.finditer(r"(?<![\w#.>])(throw\s+)?((?:\w+::)*[A-Za-z_]\w*)\s*([({])", bare):
        thrown, name, bracket = match.groups()
        caller = None if thrown else _caller(name.removeprefix("c10::"))
        if not thrown and (caller is None or bracket == "{"):
            continue
        line_head = bare[bare.rfind("\n", 0, match.start()) + 1 : match.start()]
        if line_head.lstrip().startswith("#"):
            continue
        open_at = match.end() - 1
        close = closing(bare, open_at)
        if close is None or close - open_at > 4000:
            continue
        arguments = _split(text[open_at + 1 : close], bare[open_at + 1 : close])
        if thrown:
            kind, exception, parts = "throw", name.rpartition("::")[2], arguments
        else:
            assert caller is not None
            if bare[close + 1 : close + 3].lstrip().startswith("{") and caller.kind != "check":
                continue  # a definition
            kind = caller.kind
            exception, parts = _named(caller, name, arguments), arguments[caller.skip :]
            if caller.stream:
                end = bare.find(";", close)
                parts = _shifts(text[close + 1 : end], bare[close + 1 : end]) if 0 < end < close + 1500 else []
                if exception in {"INFO", "WARNING", "DEBUG", "LogLevel::INFO", "DFATAL", "kInfo"}:
                    continue
                if exception in {"FATAL", "QFATAL", "EXCEPTION"}:
                    kind = "fatal"
                exception = "" if exception.isupper() and kind != "check" else exception
            if NO_ERROR.search(" ".join(arguments[: caller.skip])):
                continue
        message = _message(parts)
        words, holes, codes = telling(message)
        if len(words) < 2:
            continue
        after = (
            ";".join(re.split(r"[{}]", bare[close + 1 : close + 160])[0].split(";")[:3])
            if kind in {"error", "fatal"}
            else ""
        )
        beside = tuple(
            dict.fromkeys([*codes, *STATUS.findall(after), *CODE.findall(" ".join(parts) if thrown else "")])
        )[:4]
        guard = " ".join(arguments[: caller.skip])[:160] if caller and caller.skip < 9 else ""
        yield Site(
            "", path, _enclosing(functions, match.start()), _line(starts, match.start()), kind, exception, words, holes, beside,
            (), "c", "", message[:240], guard,
        )  # fmt: skip


def go_sites(source: str, path: str) -> Iterator[Site]:
    """The sites of a Go source: errors made, klog, logrus and log calls, and events recorded."""
    text = without_comments(source, raw="`")
    bare = without_strings(text, raw="`")
    functions = [(m.start(), m.group(1)) for m in re.finditer(r"(?m)^func (?:\([^)]*\) )?(\w+)", bare)]
    starts = _line_starts(text)
    pattern = (
        r"\b((?:fmt\.Errorf|errors\.(?:New|Errorf|Wrapf?)|status\.Errorf?|field\.(?:Invalid|Forbidden|Required)|"
        r"(?:klog|logger|log|logrus|glog|\w*[lL]og(?:ger)?(?:\(\))?)\.(?:V\(\d\)\.)?(?:Errorf?|ErrorS|Fatalf?|Fatalln|Exitf?)|"
        r"\w*[rR]ecorder\.(?:Eventf?|AnnotatedEventf|WithLogger\(\w+\)\.Eventf?)|panic))\("
    )
    for match in re.finditer(pattern, bare):
        close = closing(bare, match.end() - 1)
        if close is None or close - match.end() > 2500:
            continue
        parts = _split(text[match.end() : close], bare[match.end() : close])
        name = match.group(1)
        last = name.rpartition(".")[2]
        exception, kind = "", "error"
        if "vent" in last:
            kind = "event"
            if not any("Warning" in part for part in parts[:4]):
                continue
            exception = next((p.rpartition(".")[2].strip('" ') for p in parts[2:4] if "Warning" not in p), "")
            parts = parts[3:]
        elif last.startswith(("Fatal", "Exit")) or last == "panic":
            kind = "fatal"
        elif name.startswith(("fmt", "errors", "status", "field")):
            kind = "raise"
        message = _message([p for p in parts if '"' in p or "`" in p][:1])
        words, holes, codes = telling(message)
        if len(words) < 2:
            continue
        yield Site(
            "", path, _enclosing(functions, match.start()), _line(starts, match.start()), kind, exception, words, holes, codes,
            (), "go", "", message[:240], "",
        )  # fmt: skip


def rust_sites(source: str, path: str) -> Iterator[Site]:
    """The sites of a Rust source: messages of error types, Python exceptions made, panics."""
    text = without_comments(source, raw=None)
    text = text.split("#[cfg(test)]")[0]
    functions = [(m.start(), m.group(1)) for m in re.finditer(r"\bfn (\w+)", text)]
    starts = _line_starts(text)
    pattern = (
        r"(#\[error\(|panic!\(|bail!\(|write!\(\s*\w+,\s*|(\w*(?:Error|Exception)\w*)::(?:py_)?new_err\(\s*(?:format!\()?|"
        r'(\w*Error(?:::\w+)?)\(\s*(?:format!\(\s*)?|Err\(\s*|\.expect\(|Error::from\(|\bformat!\(\s*)\s*"((?:[^"\\]|\\.)*)"'
    )
    for match in re.finditer(pattern, text):
        message = _rust_holes(re.sub(r"\\\s*\n\s*", " ", match.group(4)))
        words, holes, codes = telling(message)
        if len(words) < 2:
            continue
        kind = "fatal" if match.group(1).startswith(("panic", ".expect")) else "raise"
        yield Site(
            "", path, _enclosing(functions, match.start()), _line(starts, match.start()), kind,
            match.group(2) or match.group(3) or "", words, holes, codes, (), "rust", "", message[:240], "",
        )  # fmt: skip


def shell_sites(source: str, path: str) -> Iterator[Site]:
    """The sites of a shell script: calls of error functions, and echo to standard error before an exit."""
    functions = [(m.start(), m.group(1)) for m in re.finditer(r"(?m)^(?:function )?([\w:]+)\s*\(\)", source)]
    starts = _line_starts(source)
    pattern = (
        r"(?m)(?<![\w:])((?:common::|log::|ksh::)?(?:err|error|fatal|die|warn|log_error|throw))\s+(?:-\S+ )*([\"'])((?:(?!\2).)+)\2|"
        r"(echo|printf)\s+(?:-\S+ )*([\"'])((?:(?!\5).)+)\5[^\n]*>&2[^\n]*\n?\s*exit"
    )
    for match in re.finditer(pattern, source):
        message = match.group(3) or match.group(6) or ""
        name = match.group(1) or ""
        if name.endswith("warn"):
            continue
        message = re.sub(r"\$\{?(\w+)[^}\s]*\}?|\$\([^)]*\)", lambda m: hole(hole_kind(m.group(1) or "")), message)
        words, holes, codes = telling(_printf(message))
        if len(words) < 2:
            continue
        yield Site(
            "", path, _enclosing(functions, match.start()), _line(starts, match.start()), "error" if "err" in name else "fatal", "",
            words, holes, codes, (), "shell", "", message[:240], "",
        )  # fmt: skip


def without_comments(text: str, raw: str | None = "") -> str:
    """The text with its comments blanked out; strings and positions stay.

    Args:
        text: A source.
        raw: A quote of strings without escapes, as Go's backquote; None where a single quote opens no character (Rust).
    """
    quotes = (
        r'"(?:[^"\\\n]|\\.)*"'
        + ("" if raw is None else r"|'(?:[^'\\\n]|\\.){1,4}'")
        + (rf"|{raw}[^{raw}]*{raw}" if raw else "")
    )
    return re.sub(
        rf"({quotes})|//[^\n]*|/\*.*?\*/",
        lambda match: match.group(1) or re.sub(r"[^\n]", " ", match.group()),
        text,
        flags=re.DOTALL,
    )


def without_strings(text: str, raw: str = "") -> str:
    """The text with the contents of its strings blanked out; positions stay."""
    quotes = r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.){1,4}\'' + (rf"|{raw}[^{raw}]*{raw}" if raw else "")
    return re.sub(quotes, lambda m: m.group()[0] + re.sub(r"[^\n]", "_", m.group()[1:-1]) + m.group()[-1], text)


def closing(bare: str, open_at: int) -> int | None:
    """Where the bracket at a position closes; None for a text that ends before."""
    depth = 0
    for match in re.compile(r"[(){}\[\]]").finditer(bare, open_at):
        depth += 1 if match.group() in "({[" else -1
        if depth == 0:
            return match.start()
    return None


def _caller(name: str) -> Caller | None:
    for caller, pattern in _PATTERNS:
        if pattern.fullmatch(name):
            return caller
    return None


_PATTERNS: Final = tuple((caller, re.compile(caller.name)) for caller in C_CALLERS)


def _named(caller: Caller, name: str, arguments: list[str]) -> str:
    """The exception of a call: the caller's, its own name, or its first argument."""
    if caller.exception == "first":
        return (arguments[0] if arguments else "").strip().rpartition("::")[2]
    return name.rpartition("::")[2] if caller.exception == "name" else caller.exception


def _split(text: str, bare: str) -> list[str]:
    """The arguments of a call."""
    parts: list[str] = []
    depth, begin = 0, 0
    for match in re.finditer(r"[(){}\[\],]", bare):
        if match.group() == ",":
            if depth == 0:
                parts.append(text[begin : match.start()])
                begin = match.end()
        else:
            depth += 1 if match.group() in "({[" else -1
    parts.append(text[begin:])
    return [part.strip() for part in parts]


def _shifts(text: str, bare: str) -> list[str]:
    """The operands of a chain of <<."""
    ends = [match.span() for match in re.finditer(r"<<", bare)]
    if not ends:
        return []
    stops = [begin for begin, _ in ends[1:]] + [len(text)]
    return [text[end:stop].strip() for (_, end), stop in zip(ends, stops, strict=True)]


def _message(parts: list[str]) -> str:
    """The message that literals and expressions make up, holes marked."""
    out: list[str] = []
    for part in parts:
        literals = re.findall(r'"((?:[^"\\\n]|\\.)*)"|`([^`]*)`', part)
        if literals:
            out.append(_printf("".join(a or b for a, b in literals)))
        elif part and (not out or not out[-1].startswith("{<")):
            out.append(hole(hole_kind(part)))
    printf = next((place for place, text in enumerate(out) if "{<" in text and len(text) > 12), None)
    if printf == 0:
        out = [text for place, text in enumerate(out) if place == 0 or not text.startswith("{<")]
    return " ".join(out)


def _printf(text: str) -> str:
    """A text with its printf holes marked."""

    def mark(match: re.Match[str]) -> str:
        return hole(
            {"s": "value", "v": "value", "w": "error", "q": "name", "m": "error", "p": "value"}.get(
                match.group(1), "number"
            )
        )

    return re.sub(
        r"%[-+# 0]*[\d*]*(?:\.[\d*]+)?[hlzjtq]*([diouxXeEfFgGcspvqwmTt])", mark, re.sub(r"\\[nrt]", " ", text)
    ).replace('\\"', '"')


def _rust_holes(text: str) -> str:
    return re.sub(
        r"\{([^{}]*)\}",
        lambda match: hole(hole_kind(match.group(1).split(":")[0]) if match.group(1) else "value"),
        text,
    )


def _functions(bare: str) -> Places:
    """Where the bodies of functions begin: braces with a name and brackets before them, outside of other functions."""
    found: Places = []
    scopes: list[bool] = []  # whether each open brace is of a namespace or a class
    begin = 0
    for match in re.finditer(r"[;{}]|(?m:^[ \t]*#.*$)", bare):
        mark = match.group()
        if mark == "{":
            header = bare[begin : match.start()][-900:]
            names = re.finditer(r"((?:\w+::)*~?[A-Za-z_]\w*)\s*\(", header)
            named = next((name for name in names if not re.fullmatch(r"[A-Z_0-9]+", name.group(1))), None)
            if all(scopes) and named and named.group(1) not in CONTROL and "=" not in header[: named.start()]:
                found.append((match.start() - len(header.lstrip()), named.group(1).replace("::", ".")))
                scopes.append(False)
            else:
                scopes.append(all(scopes) and not named)
        elif mark == "}" and scopes:
            if False in scopes and bare[match.start() - 1 : match.start()] in {"", "\n"}:
                del scopes[scopes.index(False) :]  # the end of a function, whatever the branches of #if have opened
            else:
                scopes.pop()
        begin = match.end()
    return found


def _enclosing(functions: Places, place: int) -> str:
    """The last function that begins before a place."""
    at = bisect.bisect_right([begin for begin, _ in functions], place)
    return functions[at - 1][1] if at else ""


def _line_starts(text: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer("\n", text))]


def _line(starts: list[int], place: int) -> int:
    return bisect.bisect_right(starts, place)
