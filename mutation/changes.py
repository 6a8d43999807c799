"""The mistakes that can be made in a source: one operator, constant, argument or statement at a time.

A mistake replaces one piece of text, so everything else in the file stays as it was written. Messages, docstrings,
annotations and imports are left alone: they are read by people, not by tests.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

OPERATORS = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.Pow: "*", ast.FloorDiv: "/", ast.Mod: "*",
    ast.BitAnd: "|", ast.BitOr: "&", ast.MatMult: "*",
}  # fmt: skip
COMPARISONS = {
    ast.Lt: ("<=", ">="), ast.LtE: ("<", ">"), ast.Gt: (">=", "<="), ast.GtE: (">", "<"), ast.Eq: ("!=",),
    ast.NotEq: ("==",), ast.Is: ("is not",), ast.IsNot: ("is",), ast.In: ("not in",), ast.NotIn: ("in",),
}  # fmt: skip
NAMES = {
    "min": "max", "amin": "amax", "argmin": "argmax", "minimum": "maximum", "sum": "mean", "zeros": "ones",
    "zeros_like": "ones_like", "floor": "ceil", "sin": "cos", "exp": "expm1", "log": "log1p", "any": "all",
    "rand": "randn", "logsumexp": "sum", "median": "mean", "sqrt": "square", "cumsum": "cumprod",
}  # fmt: skip
NAMES |= {new: old for old, new in NAMES.items() if new not in NAMES}
DROPPED_CALLS = {
    "detach", "clone", "abs", "square", "clamp", "clamp_", "exp", "log", "sqrt", "double", "float", "diff", "t",
    "requires_grad_", "masked_fill", "nan_to_num", "flip", "copy", "eval", "sort", "tanh", "round", "expm1", "log1p",
    "neg",
}  # fmt: skip
MODULES = {"torch", "math", "np", "copy"}  # whose functions are no methods: without them nothing would run
COMMUTATIVE = {"max", "min", "maximum", "minimum", "logaddexp", "isclose", "allclose", "hypot"}
UNREAD = (ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Raise, ast.Assert)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    Args:
        file: of the project, with slashes.
        function: qualified name of the function that it is in; empty at the level of the module.
        line: where the changed text starts.
        kind: of mistake.
        before: the changed lines as they were, joined and stripped.
        after: the changed lines with the mistake.
        source: the whole file with the mistake.
    """

    file: str
    function: str
    line: int
    kind: str
    before: str
    after: str
    source: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What identifies a mistake although lines above it may come and go."""
        return self.file, self.function, self.before, self.after

    @property
    def row(self) -> dict[str, str | int]:
        """What the results say about it."""
        return {name: getattr(self, name) for name in ("file", "function", "line", "kind", "before", "after")}


def mutants_of(file: str, source: str) -> list[Mutant]:
    """All mistakes of one file, in the order of the text; those that look alike come once."""
    edits = _cpp_edits(source) if file.endswith((".cpp", ".h")) else _python_edits(source)
    found: dict[tuple[str, ...], Mutant] = {}
    for start, end, new, kind, function in sorted(edits):
        mutated = source[:start] + new + source[end:]
        first = source.rfind("\n", 0, start) + 1
        last = (source.find("\n", end) + len(source) + 1) % (len(source) + 1)  # the end of the file if there is none
        before, after = source[first:last], mutated[first : last + len(new) - (end - start)]
        line = source.count("\n", 0, start) + 1
        mutant = Mutant(file, function, line, kind, _one_line(before), _one_line(after), mutated)
        if mutant.before != mutant.after:
            found.setdefault(mutant.key, mutant)
    return list(found.values())


def _one_line(text: str) -> str:
    return " ".join(text.split())


Edit = tuple[int, int, str, str, str]  # start, end, new text, kind, function


def _python_edits(source: str) -> Iterator[Edit]:
    starts = [0]
    for text in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(text.encode()))
    encoded = source.encode()

    def offset(line: int, column: int) -> int:  # ast counts bytes
        return len(encoded[: starts[line - 1] + column].decode())

    def span(node: ast.AST) -> tuple[int, int]:
        return offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)

    def text(node: ast.AST) -> str:
        start, end = span(node)
        return source[start:end]

    def between(left: ast.AST, right: ast.AST, new: str, kind: str, function: str) -> Edit:
        """Replace the operator between two operands, which is all that stands there but for brackets and space."""
        start, end = span(left)[1], span(right)[0]
        found = re.search(r"(\*\*|//|[-+*/%&|@]|[<>=!]=?|not\s+in|is\s+not|is|in|and|or)", source[start:end])
        return start + found.start(), start + found.end(), new, kind, function

    def of(node: ast.AST, function: str) -> Iterator[Edit]:
        yield from _of_expression(node, function, span, text, between)
        yield from _of_statement(node, function, span, text)

    def walk(node: ast.AST, scope: tuple[str, ...], function: str) -> Iterator[Edit]:
        for child in _children(node):
            if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
                inner = (*scope, child.name)
                name = function if isinstance(child, ast.ClassDef) else ".".join(inner)
                below = inner if isinstance(child, ast.ClassDef) else (*inner, "<locals>")
                yield from walk(child, below, name)
            elif isinstance(child, ast.Raise):
                yield (*span(child), "pass", "dropped raise", function)
            elif not isinstance(child, UNREAD):
                yield from of(child, function)
                yield from walk(child, scope, function)

    yield from walk(ast.parse(source), (), "")


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes below that run: no annotations, decorators or docstrings."""
    unread: list[ast.AST | None] = [getattr(node, "annotation", None), getattr(node, "returns", None)]
    unread += getattr(node, "decorator_list", [])
    body = getattr(node, "body", None)
    if isinstance(body, list) and body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        unread.append(body[0])
    if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "__all__" for t in node.targets):
        return
    yield from (child for child in ast.iter_child_nodes(node) if child not in unread)


def _of_expression(node, function, span, text, between) -> Iterator[Edit]:
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS and not isinstance(left, ast.JoinedStr):
            yield between(left, right, OPERATORS[type(op)], "operator", function)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            for new in COMPARISONS[type(op)]:
                yield between(left, right, new, "comparison", function)
        case ast.BoolOp(op=op, values=[left, right, *_]):
            yield between(left, right, "or" if isinstance(op, ast.And) else "and", "and/or", function)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield (*span(node), text(operand), "sign or not", function)
        case ast.Constant(value=bool(value)):
            yield (*span(node), str(not value), "constant", function)
        case ast.Constant(value=int(value)):
            yield (*span(node), str(value + 1), "constant", function)
        case ast.Constant(value=float(value)):
            yield (*span(node), repr(value * 2 if value else 1.0), "constant", function)
        case ast.IfExp(body=body, orelse=orelse):
            yield (*span(node), text(body), "condition", function)
            yield (*span(node), text(orelse), "condition", function)
        case ast.Call():
            yield from _of_call(node, function, span, text)


def _of_call(node: ast.Call, function: str, span, text) -> Iterator[Edit]:
    args, called = node.args, node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    if len(args) > 1 and name not in {"option", *COMMUTATIVE} and not any(isinstance(a, ast.Starred) for a in args[:2]):
        swapped = f"{text(args[1])}, {text(args[0])}"
        yield span(args[0])[0], span(args[1])[1], swapped, "swapped arguments", function
    for keyword in node.keywords:
        if keyword.arg and keyword.arg not in {"strict", "stacklevel", "help", "device"}:
            start, end = span(keyword)
            whole_start, whole = span(node)[0], text(node)
            rest = whole[end - whole_start :]
            comma = re.match(r"\s*,\s*", rest)
            yield start, end + (comma.end() if comma else 0), "", "dropped argument", function
    if name in NAMES:
        end = span(called)[1]
        yield end - len(name), end, NAMES[name], "function", function
    if isinstance(called, ast.Attribute) and name in DROPPED_CALLS and getattr(called.value, "id", "") not in MODULES:
        before_the_dot = text(node)[: span(called)[1] - len(name) - span(node)[0]].rstrip().removesuffix(".")
        yield (*span(node), before_the_dot, "dropped call", function)  # with the brackets around it


def _of_statement(node, function, span, text) -> Iterator[Edit]:
    match node:
        case ast.If(test=test):
            yield (*span(test), "True", "condition", function)
            yield (*span(test), "False", "condition", function)
        case ast.Expr(value=ast.Call()):
            yield (*span(node), "pass", "dropped statement", function)
        case ast.AugAssign(op=op, value=value):
            yield (*span(node), "pass", "dropped statement", function)
            if type(op) in OPERATORS:
                new = f"{text(node.target)} {OPERATORS[type(op)]}= {text(value)}"
                yield (*span(node), new, "operator", function)
        case ast.Assign(targets=[target], value=value):
            again = isinstance(target, ast.Name) and any(getattr(n, "id", "") == target.id for n in ast.walk(value))
            if again or (function and isinstance(target, (ast.Attribute, ast.Subscript))):
                yield (*span(node), "pass", "dropped statement", function)
        case ast.Continue() | ast.Break():
            yield (*span(node), "pass", "dropped statement", function)


CPP = (
    (r"(?<=[\w\])] )\+(?= [\w(])", "-", "operator"), (r"(?<=[\w\])] )-(?= [\w(])", "+", "operator"),
    (r"(?<=[\w\])] )\*(?= [\w(])", "/", "operator"), (r"(?<=[\w\])] )/(?= [\w(])", "*", "operator"),
    (r"(?<= )\+=(?= )", "-=", "operator"), (r"(?<= )-=(?= )", "+=", "operator"),
    (r"(?<= )<(?= )", "<=", "comparison"), (r"(?<= )>(?= )", ">=", "comparison"),
    (r"(?<= )==(?= )", "!=", "comparison"), (r"(?<= )&&(?= )", "||", "and/or"), (r"(?<= )\|\|(?= )", "&&", "and/or"),
    (r"\bstd::max\b", "std::min", "function"), (r"\bstd::min\b", "std::max", "function"),
    (r"(?<![\w.])[0-9]+(?![\w.])", lambda m: str(int(m) + 1), "constant"),
    (r"(?<![\w.])[0-9]+\.[0-9]*(?=f?\b)", lambda m: repr(2 * float(m) or 1.0), "constant"),
    (r"(?<=\()-(?=\w)|(?<== )-(?=\w)|(?<=return )-(?=\w)", "", "sign or not"),
)  # fmt: skip
CPP_STATEMENT = r"^[ \t]+[\w\[\]. >-]+ [-+*]?= [^;{}]+;$"


def _cpp_edits(source: str) -> Iterator[Edit]:
    """The same for C++, line by line: comments and what the preprocessor reads are left alone."""
    for found in re.finditer(r"^(?!\s*(//|#|/\*|\*|template|static_assert)).*$", source, re.MULTILINE):
        code = found.group().split("//")[0].rstrip()
        if re.search(r"aligned|alignas|vector_size|using ", code):
            continue
        for pattern, new, kind in CPP:
            for hit in re.finditer(pattern, code):
                text = new(hit.group()) if callable(new) else new
                yield found.start() + hit.start(), found.start() + hit.end(), text, kind, ""
        if re.search(CPP_STATEMENT, code) and not re.search(r"\b(int|auto|const|float|long|bool|size_t|for)\b", code):
            yield found.start(), found.start() + len(code), ";", "dropped statement", ""
