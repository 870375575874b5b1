"""Sites of Python sources, read from the syntax tree: nothing is imported or run."""

# ruff: noqa: C901, PLR0911, PLR0912, PLR0917 - a walk has a branch for each kind of node, and carries where it is

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from typing import Final

from bench.catalogue.site_facts import Site, hole, hole_kind
from kb.classifier.words import telling

LOG_KINDS: Final = {"error": "error", "exception": "error", "critical": "fatal", "fatal": "fatal"}
LOG_OWNERS: Final = (
    "log",
    "logger",
    "logging",
    "_log",
    "_logger",
    "log_rank_0",
    "absl_logging",
    "rank_zero",
    "eval_logger",
    "logs",
)
WARNERS: Final = frozenset({"warning", "warn", "warning_once", "print", "print_rank_0", "rank_zero_warn"})
EXITS: Final = frozenset({"exit", "_exit", "abort", "quit", "kill"})
# Types that carry control flow, not an error
QUIET: Final = frozenset(
    {"StopIteration", "StopAsyncIteration", "GeneratorExit", "NotImplemented", "SkipTest", "Exit", "_StopLoop"}
)
CHECKS: Final = {
    "_check": "RuntimeError",
    "_check_value": "ValueError",
    "_check_index": "IndexError",
    "_check_type": "TypeError",
    "_check_not_implemented": "NotImplementedError",
    "_check_with": "RuntimeError",
}
UNSUPPORTED: Final = ("unimplemented", "unimplemented_v2")


def python_sites(source: str, path: str) -> Iterator[Site]:
    """The sites of a module.

    Args:
        source: The text of the module.
        path: Its path in the project.

    Yields:
        Sites without project and area. Nothing for text that does not parse.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    yield from _Reader(path).module(tree)


class _Reader:
    """A walk over one module that knows the enclosing functions, handlers and local messages."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.strings: dict[str, ast.expr] = {}  # texts that names of this function or module hold

    def module(self, tree: ast.Module) -> Iterator[Site]:
        """All sites of a module."""
        yield from self._block(tree.body, "", (), "")

    def _block(self, body: list[ast.stmt], function: str, handles: tuple[str, ...], guard: str) -> Iterator[Site]:
        for place, statement in enumerate(body):
            yield from self._statement(statement, body[place + 1 :], function, handles, guard)

    def _statement(
        self, statement: ast.stmt, rest: list[ast.stmt], function: str, handles: tuple[str, ...], guard: str
    ) -> Iterator[Site]:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                before = self.strings
                self.strings = dict(before)
                yield from self._block(statement.body, f"{function}.{statement.name}".lstrip("."), (), "")
                self.strings = before
            case ast.If():
                test = ast.unparse(statement.test)[:160]
                yield from self._block(statement.body, function, handles, test)
                yield from self._block(statement.orelse, function, handles, f"not ({test})")
            case ast.Try() | ast.TryStar():
                yield from self._block(statement.body, function, handles, guard)
                for handler in statement.handlers:
                    caught = _types(handler.type)
                    yield from self._block(handler.body, function, caught, f"except {', '.join(caught)}")
                yield from self._block(statement.orelse + statement.finalbody, function, handles, guard)
            case ast.For() | ast.AsyncFor() | ast.While():
                yield from self._block(statement.body + statement.orelse, function, handles, guard)
            case ast.With() | ast.AsyncWith():
                yield from self._block(statement.body, function, handles, guard)
            case ast.Match():
                for case in statement.cases:
                    yield from self._block(case.body, function, handles, guard)
            case ast.Raise():
                yield from self._raise(statement, function, handles, guard)
            case ast.Assert() if statement.msg is not None:
                text = self._text(statement.msg)
                yield from self._site(
                    statement, "assert", "AssertionError", text, function, handles, ast.unparse(statement.test)[:160]
                )
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.strings[name] = value
            case ast.AugAssign(target=ast.Name(id=name), value=value) if name in self.strings:
                self.strings[name] = ast.BinOp(self.strings[name], ast.Add(), value)
            case ast.Expr(value=ast.Call() as call):
                yield from self._call(call, rest, function, handles, guard)
            case _:
                pass

    def _raise(self, statement: ast.Raise, function: str, handles: tuple[str, ...], guard: str) -> Iterator[Site]:
        raised = statement.exc
        if (
            isinstance(raised, ast.Call)
            and isinstance(raised.func, ast.Attribute)
            and raised.func.attr == "with_traceback"
        ):
            raised = raised.func.value
        if isinstance(raised, ast.Call):
            name = _last(raised.func)
            texts = [self._text(argument) for argument in [*raised.args, *(k.value for k in raised.keywords)]]
            text = " ".join(part for part in texts if part)
        elif isinstance(raised, ast.Name | ast.Attribute):
            name, text = _last(raised), ""
        else:
            return
        if name[:1].islower() and not name.endswith(("error", "Error", "exception")):
            return  # a variable, or a function that makes an exception
        if name not in QUIET:
            yield from self._site(statement, "raise", name, text, function, handles, guard)

    def _call(
        self, call: ast.Call, rest: list[ast.stmt], function: str, handles: tuple[str, ...], guard: str
    ) -> Iterator[Site]:
        name = _last(call.func)
        owner = _last(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        first = call.args[0] if call.args else None
        if name in LOG_KINDS and any(part in owner.lower() for part in LOG_OWNERS):
            yield from self._site(call, LOG_KINDS[name], "", self._text(first), function, handles, guard)
        elif name in CHECKS and owner == "torch":
            text = self._text(call.args[-1]) if len(call.args) > 1 else ""
            yield from self._site(
                call,
                "check",
                CHECKS[name],
                text,
                function,
                handles,
                ast.unparse(call.args[0])[:160] if first else guard,
            )
        elif name in UNSUPPORTED:
            text = " ".join(
                self._text(k.value) for k in call.keywords if k.arg in {"gb_type", "explanation"}
            ) or self._text(first)
            yield from self._site(call, "raise", "Unsupported", text, function, handles, guard)
        elif name in EXITS and owner in {"sys", "os", ""} and first is not None:
            yield from self._site(call, "abort", name, self._text(first), function, handles, guard)
        elif name == "error" and "parser" in owner:
            yield from self._site(call, "abort", "ArgumentParser.error", self._text(first), function, handles, guard)
        elif name in WARNERS and first is not None and any(_leaves(following) for following in rest[:2]):
            yield from self._site(call, "warning", "", self._text(first), function, handles, guard)

    def _site(
        self,
        node: ast.stmt | ast.expr,
        kind: str,
        exception: str,
        text: str,
        function: str,
        handles: tuple[str, ...],
        guard: str,
    ) -> Iterator[Site]:
        words, holes, codes = telling(text)
        if (kind != "raise" and len(words) < 2) or (kind == "raise" and not words and exception in PLAIN):
            return
        yield Site(
            "",
            self.path,
            function,
            node.lineno,
            kind,
            exception,
            words,
            holes,
            codes,
            handles,
            "python",
            "",
            text[:240],
            guard,
        )

    def _text(self, node: ast.expr | None, depth: int = 0) -> str:
        """The text of an expression, its holes marked; empty for what holds none."""
        if depth > 6:
            return ""
        match node:
            case ast.Constant(value=str() as text):
                return _percent(text)
            case ast.JoinedStr():
                return "".join(
                    str(part.value) if isinstance(part, ast.Constant) else hole(hole_kind(ast.unparse(part.value)))
                    for part in node.values
                    if isinstance(part, ast.Constant | ast.FormattedValue)
                )
            case ast.BinOp(op=ast.Add()):
                return self._text(node.left, depth + 1) + (self._text(node.right, depth + 1) or hole("value"))
            case ast.BinOp(op=ast.Mod()):
                return self._text(node.left, depth + 1)
            case ast.Call(func=ast.Attribute(attr="format", value=value)):
                return _braces(self._text(value, depth + 1))
            case ast.Call(
                func=ast.Attribute(attr="join", value=ast.Constant()),
                args=[ast.List(elts=parts) | ast.Tuple(elts=parts)],
            ):
                return " ".join(self._text(part, depth + 1) for part in parts)
            case ast.Call(args=[inner, *_]) if _last(node.func) in {
                "str",
                "dedent",
                "fill",
                "cleandoc",
                "_",
                "colored",
            }:
                return self._text(inner, depth + 1)
            case ast.Call(func=ast.Attribute(attr="strip" | "dedent", value=value)):
                return self._text(value, depth + 1)
            case ast.Lambda(body=body):
                return self._text(body, depth + 1)
            case ast.IfExp(body=body):
                return self._text(body, depth + 1)
            case ast.Name(id=name) if name in self.strings:
                return self._text(self.strings[name], depth + 1)
            case _:
                return ""


PLAIN: Final = frozenset({
    "Exception", "RuntimeError", "ValueError", "TypeError", "KeyError", "IndexError", "AttributeError", "NotImplementedError",
    "AssertionError", "OSError", "IOError", "ImportError", "SystemExit", "KeyboardInterrupt", "NameError", "BaseException",
    "UserError", "SystemError", "TimeoutError", "FileNotFoundError", "EOFError",
})  # fmt: skip


def _percent(text: str) -> str:
    """A text with its printf holes marked."""

    def mark(match: re.Match[str]) -> str:
        named = match.group(1)
        return hole(hole_kind(named[1:-1])) if named else hole("number" if match.group(2) in "dixXfFeEgGu" else "value")

    return re.sub(r"%(\(\w+\))?[-+# 0]*[\d*]*(?:\.[\d*]+)?[hlzjt]*([diouxXeEfFgGcrsap])(?![a-z]{2})", mark, text)


def _braces(text: str) -> str:
    """A text with the holes of str.format marked."""
    return re.sub(
        r"\{(?!<)([^{}<]*)\}",
        lambda match: hole(hole_kind(match.group(1).split(":")[0].split("!")[0]) if match.group(1) else "value"),
        text,
    )


def _last(node: ast.expr) -> str:
    """The last name of a dotted expression."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Call):
        return _last(node.func)
    return ""


def _types(node: ast.expr | None) -> tuple[str, ...]:
    """The exception types that a handler names."""
    if node is None:
        return ("BaseException",)
    nodes = node.elts if isinstance(node, ast.Tuple) else [node]
    return tuple(name for name in (_last(each) for each in nodes) if name)


def _leaves(statement: ast.stmt) -> bool:
    """Whether a statement ends the process or the function by an exception."""
    if isinstance(statement, ast.Raise):
        return True
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and _last(statement.value.func) in EXITS
    )
