"""The changes that make mutants: one small change each, as a mistake or a removed rule would be.

Texts are left alone except in comparisons, and so are annotations, decorators, the fields of
dataclasses, docstrings and what an error says.
``and`` is not replaced by ``or``: the tests that notice each operand notice that too.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeVar

__all__ = ["Mutant", "mutants"]


class Mutant(NamedTuple):
    line: int
    scope: str
    """The class and function that it is in; "" for the module."""
    change: str
    run: range
    """The lines of its statement: tests that run none of them cannot notice it."""


_Node = TypeVar("_Node", bound=ast.AST)
_Item = TypeVar("_Item")
#: A replacement of a node, and how a report says it.
_Change = tuple[ast.AST, str]

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATIONS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}  # fmt: skip
_FUNCTIONS: Final = {"all": "any", "any": "all", "min": "max", "max": "min"}
_NORMALISERS: Final = {"lower", "upper", "casefold", "strip", "lstrip", "rstrip"}
_UNCHANGED: Final = {"annotation", "returns", "decorator_list"}
_DECLARATIONS: Final = {"__all__", "__slots__"}


def mutants(tree: ast.Module) -> Iterator[Mutant]:
    """Every mutant of a module. While one is given, the tree is that mutant; afterwards it is as before."""
    yield from _within(tree, (), range(0))


def _within(parent: ast.AST, scope: tuple[str, ...], run: range) -> Iterator[Mutant]:
    if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        scope = (*scope, parent.name)
    for field, value in ast.iter_fields(parent):
        if field in _UNCHANGED:
            continue
        children = value if isinstance(value, list) else [value]
        for index, child in enumerate(children):
            if not isinstance(child, ast.AST) or _is_left_alone(child):
                continue
            lines = _lines_of(child) or run
            for changed, text in _changes(child, scope):
                with_it = [*children[:index], changed, *children[index + 1 :]] if isinstance(value, list) else changed
                setattr(parent, field, with_it)
                line = getattr(child, "lineno", lines.start)
                yield Mutant(line, ".".join(scope), text, lines)
                setattr(parent, field, value)
            if not isinstance(child, ast.Raise):
                yield from _within(child, scope, lines)


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Name) and node.targets[0].id in _DECLARATIONS
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "field"
    return isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom | ast.arg)


def _lines_of(node: ast.AST) -> range | None:
    """The lines of a simple statement, or of the head of a compound one."""
    if isinstance(node, ast.ExceptHandler):
        return range(node.lineno, node.lineno + 1)
    if not isinstance(node, ast.stmt):
        return None
    body = getattr(node, "body", None)
    end = max(node.lineno + 1, body[0].lineno) if body else (node.end_lineno or node.lineno) + 1
    return range(node.lineno, end)


def _changes(node: ast.AST, scope: tuple[str, ...]) -> Iterator[_Change]:
    match node:
        case ast.If() | ast.While():
            for value in (True, False) if isinstance(node, ast.If) else (False,):
                yield _with(node, test=ast.Constant(value)), f"condition {_text(node.test)} is {value}"
        case ast.ExceptHandler(type=ast.expr() as caught):
            yield from _of_handler(node, caught)
        case ast.comprehension():
            for index, condition in enumerate(node.ifs):
                yield _with(node, ifs=_without(node.ifs, index)), f"dropped: if {_text(condition)}"
        case ast.stmt():
            yield from _of_statement(node, scope)
        case ast.expr():
            for changed in _of_expression(node):
                yield changed, f"{_text(node)}  ->  {_text(changed)}"


def _of_handler(node: ast.ExceptHandler, caught: ast.expr) -> Iterator[_Change]:
    yield _with(node, type=ast.Tuple([], ast.Load())), f"dropped: except {_text(caught)}"
    if isinstance(caught, ast.Tuple):
        for index, each in enumerate(caught.elts):
            smaller = ast.Tuple(_without(caught.elts, index), ast.Load())
            yield _with(node, type=smaller), f"dropped: except {_text(each)}"


def _of_statement(node: ast.stmt, scope: tuple[str, ...]) -> Iterator[_Change]:
    dropped = f"dropped: {_text(node)}"
    match node:
        case ast.Return(value=ast.expr()) if not isinstance(node.value, ast.Constant):
            yield ast.Return(ast.Constant(None)), f"{_text(node)}  ->  return None"
        case ast.Expr(value=ast.Call() | ast.Await() | ast.Yield()) | ast.Raise() | ast.AugAssign() | ast.Delete():
            yield ast.Pass(), dropped
        case ast.Break() | ast.Continue():
            yield ast.Pass(), dropped
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) if scope[-1:] != ("__init__",):
            yield ast.Pass(), dropped


def _of_expression(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare():
            yield from _of_comparison(node)
        case ast.BoolOp():
            for index in range(len(node.values)):
                rest = _without(node.values, index)
                yield rest[0] if len(rest) == 1 else _with(node, values=rest)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.IfExp():
            yield node.body
            yield node.orelse
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=(int() | float()) as value):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.BinOp() if type(node.op) in _OPERATIONS:
            yield _with(node, op=_OPERATIONS[type(node.op)]())
        case ast.Set():
            for index in range(len(node.elts)):
                yield _with(node, elts=_without(node.elts, index) or [ast.Constant(None)])
        case ast.Dict():
            for index in range(len(node.keys)):
                yield _with(node, keys=_without(node.keys, index), values=_without(node.values, index))
        case ast.Call(func=ast.Name(id=name)) if name in _FUNCTIONS:
            yield _with(node, func=ast.Name(_FUNCTIONS[name], ast.Load()))
        case ast.Call(func=ast.Attribute(value=receiver, attr=name), args=[], keywords=[]) if name in _NORMALISERS:
            yield receiver


def _of_comparison(node: ast.Compare) -> Iterator[ast.expr]:
    for index, operator in enumerate(node.ops):
        swapped = _COMPARISONS[type(operator)]()
        yield _with(node, ops=[*node.ops[:index], swapped, *node.ops[index + 1 :]])
    operands = [node.left, *node.comparators]
    for index, operand in enumerate(operands):
        for other in _of_operand(operand):
            changed = [*operands[:index], other, *operands[index + 1 :]]
            yield _with(node, left=changed[0], comparators=changed[1:])


def _of_operand(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Constant(value=str(text)):
            yield ast.Constant(text + "x")
        case ast.Constant(value=bytes(text)):
            yield ast.Constant(text + b"x")
        case ast.Tuple():
            for index in range(len(node.elts)):
                yield _with(node, elts=_without(node.elts, index))


def _with(node: _Node, **fields: object) -> _Node:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _without(items: list[_Item], index: int) -> list[_Item]:
    return items[:index] + items[index + 1 :]


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:120]
