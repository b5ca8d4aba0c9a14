"""From source text to guarded code: checks, RestrictedPython's transformer with our rewrites, and ``compile``.

RestrictedPython refuses by name and by kind of node, and routes attributes, items and iteration through hooks. On
top of it this pass puts a step at the head of each loop, function and comprehension, sends arithmetic and
comparisons that could grow through the hooks of ``guards.py``, and rewrites what RestrictedPython refuses though
it does no harm: augmented assignment to items and attributes, annotations, ``nonlocal``.

Everything here runs in a worker: compiling hostile source can exhaust or crash the process that does it.
"""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, NamedTuple, NoReturn

from RestrictedPython.transformer import INSPECT_ATTRIBUTES, RestrictingNodeTransformer

from .bounds import (
    BUILTINS,
    COUNT_BITS,
    SMALL_BITS,
    bindings_of,
    combined,
    known_in_comprehension,
    known_names,
    literal_bits,
    native_iterable,
)
from .guards import READABLE_NAMES, SPECIAL_METHODS, private
from .meter import METER, PROGRAM
from .scope import CONSTRUCTORS, WITHHELD_NAMES

_MAX_NODES = 20_000
_MAX_DEPTH = 200
_MAX_BLOCKS = 18
_MAX_FINALLY = 4
_MAX_COMPREHENSIONS = 8


class Rejected(Exception):
    """The source is not run; ``args`` are (status, kind, message) of the answer."""


class Program(NamedTuple):
    """A compiled program."""

    code: CodeType
    plain: bool
    """Whether nothing in it can outlive the call: no functions, classes or generators."""
    shows: bool = False
    """Whether the value of ``code`` is to be shown as that of a final expression."""


_BINARY: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("_add_", "_iadd_"),
    ast.Sub: ("_sub_", "_isub_"),
    ast.Mult: ("_mul_", "_imul_"),
    ast.Div: ("_div_", "_idiv_"),
    ast.FloorDiv: ("_floordiv_", "_ifloordiv_"),
    ast.Mod: ("_mod_", "_imod_"),
    ast.Pow: ("_pow_", "_ipow_"),
    ast.LShift: ("_lshift_", "_ilshift_"),
    ast.RShift: ("_rshift_", "_irshift_"),
    ast.BitOr: ("_or_", "_ior_"),
    ast.BitAnd: ("_and_", "_iand_"),
    ast.BitXor: ("_xor_", "_ixor_"),
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "_eq_",
    ast.NotEq: "_ne_",
    ast.Lt: "_lt_",
    ast.LtE: "_le_",
    ast.Gt: "_gt_",
    ast.GtE: "_ge_",
    ast.In: "_in_",
    ast.NotIn: "_notin_",
}
_BLOCKS = (ast.For, ast.While, ast.Try, ast.With, ast.FunctionDef, ast.ClassDef)
_SILENT: tuple[type[ast.AST], ...] = (ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)
# What fields of a node hold beside lists and nodes that say something by themselves.
_INERT: frozenset[type] = frozenset(
    [type(None), str, int, *(kind for base in _SILENT for kind in base.__subclasses__())]
)
_LOAD = ast.Load()
_BODY = frozenset({"body"})
_TARGET = frozenset({"target", "body"})
_NODES_OF_ATTRIBUTE = 4  # as which finding one counts besides
_NODES_PER_STEP_SHIFT = 4  # sixteen nodes are some five operations without a charge of their own
_HASH_BITS = 61  # integers of fewer bits do not collide, see HASH_MODULUS
_TRUSTED = BUILTINS | CONSTRUCTORS.keys()
# Longer programs are compiled without what is known of their numbers: finding it out takes its time.
_MOST_STUDIED = 4000


def _literal_bits(node: ast.expr) -> int | None:
    """Bound on the bits of an expression of integer literals that may be evaluated natively; None if it is not one."""
    if type(node) is ast.Constant:
        value = node.value
        if type(value) is int:
            return value.bit_length()
        return 1 if type(value) is float or type(value) is bool else None
    if type(node) is ast.UnaryOp and type(node.op) is not ast.Not:
        return _literal_bits(node.operand)
    if type(node) is ast.BinOp and type(node.op) in (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod):
        left, right = _literal_bits(node.left), _literal_bits(node.right)
        if left is None or right is None:
            return None
        bits = left + right if type(node.op) is ast.Mult else max(left, right) + 1
        return bits if bits <= SMALL_BITS else None
    return None


def _number(node: ast.expr) -> bool:
    """Whether ``node`` is a literal that anything can be compared with at once."""
    if type(node) is ast.UnaryOp:
        node = node.operand
    return type(node) is ast.Constant and type(node.value) in (int, float, bool, type(None))


def _parameters(arguments: ast.arguments) -> frozenset[str]:
    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return frozenset(argument.arg for argument in given if argument is not None)


def _bound_from_elsewhere(source: str, tree: ast.Module) -> frozenset[str]:
    """Names that some scope binds for another."""
    if "global" not in source and "nonlocal" not in source:
        return frozenset()
    statements = [node for node in ast.walk(tree) if isinstance(node, (ast.Global, ast.Nonlocal))]
    return frozenset(name for statement in statements for name in statement.names)


def _annotated_names(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Names that a class body annotates, in order, and which have a special annotation of dataclasses.

    This is all that is kept of annotations: those of class variables are left out.
    """
    for statement in node.body:
        if type(statement) is ast.AnnAssign and type(statement.target) is ast.Name:
            head: ast.expr = statement.annotation
            if type(head) is ast.Subscript:
                head = head.value
            name = head.attr if type(head) is ast.Attribute else head.id if type(head) is ast.Name else ""
            if type(head) is ast.Constant and type(head.value) is str:
                name = head.value.partition("[")[0].rpartition(".")[2]
            if name != "ClassVar":
                yield statement.target.id, name if name in ("InitVar", "KW_ONLY") else ""


def _named_abc(node: ast.expr) -> bool:
    """Whether the metaclass of a class is called ABCMeta: that of abc is a base class here."""
    return (node.attr if type(node) is ast.Attribute else node.id if type(node) is ast.Name else "") == "ABCMeta"


class GuestPolicy(RestrictingNodeTransformer):
    """RestrictedPython's transformer with steps, size checks and the everyday Python that it leaves out."""

    def __init__(
        self, echo: bool = False, own: frozenset[str] = frozenset(), unsure: frozenset[str] | None = None
    ) -> None:
        super().__init__([], [], {})
        self._echo = echo
        self._assume = unsure is not None  # that built-in names mean the built-ins, and numbers are what they seem
        self._unsure = unsure or frozenset()  # names that some scope binds for another
        self._known: dict[str, int] = {}  # bits of the known names of the scope, see bounds.py
        self._nodes = self._depth = self._blocks = self._finally = self._comprehensions = 0
        self._apart = 0  # nodes so far that are charged for elsewhere than in the body they stand in, see _own
        self._stored: set[str] = set(own)
        self._module_names: set[str] = set()
        self._withheld: list[tuple[ast.AST, str]] = []
        self._functions = 0
        self._loops = self._lambdas = False
        self._bound_to_module = False  # whether something is in it that means another thing in a function
        self.plain = True

    @property
    def mistaken(self) -> bool:
        """Whether a name that was taken for a built-in function is one of the program's own."""
        return self._assume and not _TRUSTED.isdisjoint(self._stored)

    # -- traversal: caps first, and no time spent on nodes that say nothing

    def visit(self, node: Any) -> Any:
        self._nodes += 1
        self._depth += 1
        if self._nodes > _MAX_NODES or self._depth > _MAX_DEPTH:
            self._too_large(node)
        kind = node.__class__
        result = (_VISITORS.get(kind) or _find_visitor(kind))(self, node)
        self._depth -= 1
        return result

    def _too_large(self, node: Any) -> NoReturn:
        if self._nodes > _MAX_NODES:
            raise Rejected("limit", "source", f"more than {_MAX_NODES} syntax nodes")
        line = getattr(node, "lineno", 0)
        raise Rejected("limit", "source", f"line {line}: nested more than {_MAX_DEPTH} deep")

    def visit_block(self, node: Any, visitor: Callable[[GuestPolicy, Any], Any]) -> Any:
        """Visit a compound statement."""
        self._blocks += 1
        if self._blocks > _MAX_BLOCKS:
            raise Rejected("limit", "source", f"line {node.lineno}: more than {_MAX_BLOCKS} nested blocks")
        result = visitor(self, node)
        self._blocks -= 1
        return result

    def node_contents_visit(self, node: Any) -> Any:
        for field in node._fields:
            content = getattr(node, field, None)
            kind = content.__class__
            if kind is list:
                self._visit_list(content)
            elif kind not in _INERT and isinstance(content, ast.AST):
                setattr(node, field, self.visit(content))
        return node

    def _visit_list(self, content: Any) -> None:
        if not content:
            return
        result: list[Any] = []
        for item in content:
            kind = item.__class__
            if kind not in _INERT and isinstance(item, ast.AST):
                item = self.visit(item)
                if item.__class__ is list:
                    result.extend(item)
                    continue
            result.append(item)
        content[:] = result

    def _visit_fields(self, node: Any, inside: frozenset[str], known: dict[str, int] | None = None) -> int:
        """Visit the contents of a node, the fields ``inside`` where ``known`` are the known names (None: the same).

        Returns how many nodes of theirs are run each time that the fields ``inside`` are; they are charged for there.
        """
        outside, own = self._known, 0
        for field in node._fields:
            content = getattr(node, field, None)
            within = field in inside
            self._known = known if within and known is not None else outside
            begun = self._nodes, self._apart
            if content.__class__ is list:
                self._visit_list(content)
            elif isinstance(content, ast.AST):
                setattr(node, field, self.visit(content))
            if within:
                own += self._own(begun)
        self._known = outside
        return own

    # -- what a turn costs: one step, and more for a long body, whose operators and attributes have no other charge

    def _own(self, begun: tuple[int, int]) -> int:
        """Nodes visited since there were ``begun`` of them, but for those charged for elsewhere; now these are too."""
        nodes, apart = begun
        visited = self._nodes - nodes
        own = visited - (self._apart - apart)
        self._apart = apart + visited
        return own

    def _turn(self, own: int, at: Any) -> ast.Call:
        """A call that charges for a turn of ``own`` nodes."""
        more = own >> _NODES_PER_STEP_SHIFT
        return self._call("_steps_", [self._constant(more, at)], at) if more else self._call("_step_", [], at)

    def _turn_statement(self, own: int, at: Any) -> ast.Expr:
        return ast.Expr(self._turn(own, at), lineno=at.lineno, col_offset=at.col_offset)

    # -- what is known of numbers

    def _bits(self, node: Any) -> int | None:
        """Bits of the value of a node that has been visited; None if it is not known to be a small number."""
        kind = type(node)
        if kind is ast.Constant:
            return literal_bits(node)
        if kind is ast.Name:
            return self._known.get(node.id)
        bits: int | None = getattr(node, "bits", None)
        return bits

    def _combined(self, op: ast.operator, left: Any, right: Any) -> int | None:
        """Bits of an operation on nodes that have been visited; None if it needs its guard."""
        left_bits = self._bits(left) if self._assume else None
        right_bits = None if left_bits is None else self._bits(right)
        return None if left_bits is None or right_bits is None else combined(op, left_bits, right_bits, right)

    # -- small parts of new code

    def _name(self, name: str, at: Any, ctx: ast.expr_context | None = None) -> ast.Name:
        return ast.Name(name, ctx or _LOAD, lineno=at.lineno, col_offset=at.col_offset)

    def _call(self, hook: str, arguments: list[ast.expr], at: Any) -> ast.Call:
        line, column = at.lineno, at.col_offset
        name = ast.Name(hook, _LOAD, lineno=line, col_offset=column)
        return ast.Call(name, arguments, [], lineno=line, col_offset=column)

    def _constant(self, value: Any, at: Any) -> ast.Constant:
        return ast.Constant(value, lineno=at.lineno, col_offset=at.col_offset)

    def _statement(self, hook: str, at: Any) -> ast.Expr:
        return ast.Expr(self._call(hook, [], at), lineno=at.lineno, col_offset=at.col_offset)

    def _assign(self, target: ast.expr, value: ast.expr, at: Any) -> ast.Assign:
        return ast.Assign([target], value, lineno=at.lineno, col_offset=at.col_offset)

    # -- names

    def check_name(self, node: Any, name: str | None, allow_magic_methods: bool = False) -> None:
        if name is None:
            return
        if name.startswith("_") and name != "_":
            if private(name) or (allow_magic_methods and name in SPECIAL_METHODS and node.col_offset != 0):
                return
            self.error(node, f'the name "{name[:60]}" starts with "_", which is reserved')
        elif name.endswith("__roles__"):
            self.error(node, f'the name "{name[:60]}" is reserved')

    def visit_Name(self, node: ast.Name) -> Any:
        name = node.id
        if type(node.ctx) is ast.Load:
            if name == "__name__":
                return self._constant("__main__", node)
            if name in WITHHELD_NAMES:
                self._withheld.append((node, name))
                return node
        else:
            self._stored.add(name)
            if type(node.ctx) is ast.Del:
                self._outside_functions()
        if name.startswith("_") or name.endswith("__roles__"):
            self.check_name(node, name)
        return node

    def compile(self, tree: ast.Module) -> CodeType:
        """The code of a program that was visited and accepted."""
        if not self._assume or not self._loops or self._bound_to_module:
            return compile(tree, PROGRAM, "exec", dont_inherit=True)
        # A function of no arguments, run in the program's globals: there CPython finds names several times faster.
        names = sorted(self._module_names)
        declared: list[ast.stmt] = [ast.Global(names, lineno=1, col_offset=0)] if names else []
        arguments = ast.arguments([], [], None, [], [], None, [])
        wrapper = ast.FunctionDef(_WRAPPER, arguments, [*declared, *tree.body], [], None, None, lineno=1, col_offset=0)
        wrapper.type_params = []  # type: ignore[attr-defined]  # a field from Python 3.12 on
        code = compile(ast.Module([wrapper], []), PROGRAM, "exec", dont_inherit=True)
        (inner,) = (constant for constant in code.co_consts if isinstance(constant, CodeType))
        return _unwrapped(inner) if self._lambdas else inner

    def visit_Module(self, node: ast.Module) -> Any:
        if self._assume:
            bindings = bindings_of(node.body)
            self._module_names = set(bindings)
            self._known = known_names(bindings, {}, self._unsure)
        node = self.node_contents_visit(node)
        for use, name in self._withheld:
            if name not in self._stored:
                self.error(use, f"{name} is not available")
        if self._echo and node.body and type(node.body[-1]) is ast.Expr:
            last = node.body[-1]
            last.value = self._call("_echo_", [last.value], last)
        return node

    def _outside_functions(self) -> None:
        """Called for what is an error, or means something else, outside of functions."""
        if not self._functions:
            self._bound_to_module = True

    def visit_Return(self, node: ast.Return) -> Any:
        self._outside_functions()
        return self.node_contents_visit(node)

    def visit_Yield(self, node: ast.Yield) -> Any:
        self._outside_functions()
        return self.node_contents_visit(node)

    def visit_Global(self, node: ast.Global) -> Any:
        self._outside_functions()
        for name in node.names:
            self.check_name(node, name)
        return node

    def visit_Nonlocal(self, node: ast.Nonlocal) -> Any:
        self._outside_functions()
        for name in node.names:
            self.check_name(node, name)
        return node

    # -- attributes and items

    def _check_attribute(self, node: ast.Attribute) -> None:
        name = node.attr
        if name.startswith("_") and name != "_" and not private(name) and not self._may_read(node):
            self.error(node, f'the attribute "{name[:60]}" starts with "_"')
        elif name.endswith("__roles__") or name in INSPECT_ATTRIBUTES:
            self.error(node, f'the attribute "{name[:60]}" is reserved')

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        name = node.attr
        holder = node.value
        if name == "__name__" and type(holder) is ast.Attribute and holder.attr == "__class__":
            # The one use of __class__ that everyday code has.
            value: Any = self._call("_class_", [self.visit(holder.value)], holder)
        else:
            value = self.visit(holder)
        self._check_attribute(node)
        if type(node.ctx) is ast.Load:
            self._apart -= _NODES_OF_ATTRIBUTE
            return self._call("_getattr_", [value, self._constant(name, node)], node)
        node.value = self._call("_write_", [value], node)
        return node

    def _may_read(self, node: ast.Attribute) -> bool:
        """The attributes of everyday code: ``type(x).__name__``, ``p._asdict``, and ``super().__init__``."""
        if type(node.ctx) is not ast.Load:
            return False
        if node.attr in READABLE_NAMES:
            return True
        value = node.value
        plain_super = type(value) is ast.Call and type(value.func) is ast.Name and value.func.id == "super"
        return node.attr in ("__init__", "__post_init__") and plain_super

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        value = self.visit(node.value)
        if type(node.ctx) is ast.Load:
            return self._call("_getitem_", [value, self.visit(node.slice)], node)
        if type(node.slice) is ast.Slice:
            node.value = self._call("_slices_", [value], node)
            node.slice = self.node_contents_visit(node.slice)
        else:
            node.value = self._call("_delete_" if type(node.ctx) is ast.Del else "_write_", [value], node)
            node.slice = self._item_key(self.visit(node.slice))
        return node

    def visit_Slice(self, node: ast.Slice) -> Any:
        self.node_contents_visit(node)
        bounds = [self._constant(None, node) if part is None else part for part in (node.lower, node.upper, node.step)]
        return self._call("_slice_", bounds, node)

    def _item_key(self, key: ast.expr) -> ast.expr:
        return key if self._plain_key(key) else self._call("_itemkey_", [key], key)

    def _small_number(self, node: ast.expr) -> bool:
        """Whether a node that has been visited is known to be a number that is its own hash, or a float."""
        bits = self._bits(node) if self._assume else None
        return bits is not None and bits < _HASH_BITS

    def _plain_key(self, key: ast.expr) -> bool:
        """Whether a key needs no check: a short literal, or a number that is known to be small."""
        return self._small_number(key) or (
            type(key) is ast.Constant
            and type(key.value) in (str, int, float, bool)
            and (type(key.value) is not int or key.value.bit_length() < 61)
        )

    def _checked_key(self, key: ast.expr) -> ast.expr:
        return key if self._plain_key(key) else self._call("_key_", [key], key)

    def visit_Set(self, node: ast.Set) -> Any:
        starred = [type(item) is ast.Starred for item in node.elts]
        self.node_contents_visit(node)
        for index, item in enumerate(node.elts):
            if starred[index]:
                # The items of a starred operand are keys too: go through a guarded set.
                item.value = self._call("_set_", [item.value], item)  # type: ignore[attr-defined]
            else:
                node.elts[index] = self._checked_key(item)
        return node

    def visit_Dict(self, node: ast.Dict) -> Any:
        for index, (key, value) in enumerate(zip(node.keys, node.values, strict=True)):
            if key is None:
                node.values[index] = self._call("_doublestar_", [self.visit(value)], value)
            else:
                node.keys[index] = self._checked_key(self.visit(key))
                node.values[index] = self.visit(value)
        return node

    def visit_Starred(self, node: ast.Starred) -> Any:
        self.node_contents_visit(node)
        if type(node.ctx) is ast.Load:
            node.value = self._call("_star_", [node.value], node)
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        self.node_contents_visit(node)
        for keyword in node.keywords:
            if keyword.arg is None:
                keyword.value = self._call("_doublestar_", [keyword.value], node)
            else:
                self.check_name(node, keyword.arg)
        if self._assume and type(node.func) is ast.Name:
            name = node.func.id
            if name in ("len", "ord"):
                node.bits = COUNT_BITS  # type: ignore[attr-defined]
            elif name in CONSTRUCTORS:
                node.func.id = CONSTRUCTORS[name]
        return node

    # -- operators

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        if _literal_bits(node) is not None:
            self._nodes += 2
            return node
        hook = _BINARY.get(type(node.op), ("", ""))[0]
        node.left, node.right = self.visit(node.left), self.visit(node.right)
        if not hook:
            return node
        bits = self._combined(node.op, node.left, node.right)
        if bits is not None:
            node.bits = bits  # type: ignore[attr-defined]
            return node
        return self._call(hook, [node.left, node.right], node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if _literal_bits(node) is not None:
            return node
        node.operand = self.visit(node.operand)
        bits = self._bits(node.operand) if self._assume else None
        if bits is not None and type(node.op) is not ast.Not:
            node.bits = bits + 1  # type: ignore[attr-defined]
            return node
        hook = {ast.USub: "_neg_", ast.UAdd: "_pos_", ast.Invert: "_invert_"}.get(type(node.op))
        return node if hook is None else self._call(hook, [node.operand], node)

    def visit_Compare(self, node: ast.Compare) -> Any:
        easy = [_number(node.left)] + [_number(item) for item in node.comparators]
        node.left = self.visit(node.left)
        node.comparators = [self.visit(item) for item in node.comparators]
        if self._assume:
            operands = (node.left, *node.comparators)
            easy = [literal or self._bits(operand) is not None for literal, operand in zip(easy, operands, strict=True)]
        if all(type(op) in (ast.Is, ast.IsNot) for op in node.ops):
            return node
        if len(node.ops) > 1:
            if not easy[0]:
                node.left = self._call("_operand_", [node.left], node)
            node.comparators = [
                item if is_easy else self._call("_operand_", [item], node)
                for item, is_easy in zip(node.comparators, easy[1:], strict=True)
            ]
            return node
        op, right = node.ops[0], node.comparators[0]
        if type(op) not in (ast.In, ast.NotIn) and any(easy):
            return node
        return self._call(_COMPARE[type(op)], [node.left, right], node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> Any:
        spec = self.visit(node.format_spec) if node.format_spec is not None else self._constant("", node)
        arguments = [self.visit(node.value), self._constant(node.conversion, node), spec]
        return ast.FormattedValue(
            self._call("_format_", arguments, node), -1, None, lineno=node.lineno, col_offset=node.col_offset
        )

    def visit_Constant(self, node: ast.Constant) -> Any:
        return node

    # -- assignments

    def _shape(self, target: ast.Tuple) -> tuple[Any, ...]:
        """Which of several targets are themselves several, from the end after a starred one."""
        shape = []
        starred = False
        for index, item in enumerate(target.elts):
            if type(item) is ast.Starred:
                starred = True
            elif type(item) is ast.Tuple:
                shape.append((index - len(target.elts) if starred else index, self._shape(item)))
        return tuple(shape)

    def visit_List(self, node: ast.List) -> Any:
        if type(node.ctx) is ast.Load:
            return self.node_contents_visit(node)
        # As targets, lists and tuples mean the same.
        return self.visit(ast.Tuple(node.elts, node.ctx, lineno=node.lineno, col_offset=node.col_offset))

    def _unpacking(self, target: ast.Tuple, value: ast.expr) -> ast.expr:
        return self._call("_unpack_", [value, self._constant(self._shape(target), target)], target)

    def visit_Assign(self, node: ast.Assign) -> Any:
        node.value = self.visit(node.value)
        node.targets = [self.visit(target) for target in node.targets]
        if not any(type(target) is ast.Tuple for target in node.targets):
            return node
        value, statements = node.value, []
        if len(node.targets) > 1:
            temporary = self.gen_tmp_name()
            statements.append(self._assign(self._name(temporary, node, ast.Store()), value, node))
        for target in node.targets:
            if len(node.targets) > 1:
                value = self._name(temporary, node)
            if type(target) is ast.Tuple:
                value = self._unpacking(target, value)
            statements.append(self._assign(target, value, node))
        return statements

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        # Annotations are never evaluated: nothing here reads them, and strings among them would be code.
        target = self.visit(node.target)
        if node.value is None:
            position = {"lineno": node.lineno, "col_offset": node.col_offset}
            if type(target) is not ast.Name:
                return ast.Expr(target.value, **position)
            if not node.simple:
                return ast.Pass(**position)
            # Never run: it makes the name local, as the annotation does.
            never = self._assign(target, self._constant(None, node), node)
            return ast.If(self._constant(False, node), [never], [], **position)
        return self._assign(target, self.visit(node.value), node)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        hooks = _BINARY.get(type(node.op))
        if hooks is None:
            self.not_allowed(node)
            return node
        target = node.target
        if isinstance(target, ast.Name):
            self.visit(target)
            node.value = self.visit(node.value)
            if self._combined(node.op, target, node.value) is not None:
                return node
            call = self._call(hooks[1], [self._name(target.id, node), node.value], node)
            return self._assign(target, call, node)
        statements: list[ast.stmt] = []
        holder = self._keep(target.value, statements, node)
        read, store = self._read_and_store(target, holder, statements)
        call = self._call(hooks[1], [read, self.visit(node.value)], node)
        statements.append(self._assign(store, call, node))
        return statements

    def _read_and_store(
        self, target: ast.Attribute | ast.Subscript, holder: Callable[[], ast.expr], statements: list[ast.stmt]
    ) -> tuple[ast.expr, ast.expr]:
        """An attribute or item of ``holder``, once to be read and once to be written, its key evaluated once."""
        position = {"lineno": target.lineno, "col_offset": target.col_offset}
        place = self._call("_write_", [holder()], target)
        if type(target) is ast.Attribute:
            self._check_attribute(target)
            read = self._call("_getattr_", [holder(), self._constant(target.attr, target)], target)
            return read, ast.Attribute(place, target.attr, ast.Store(), **position)
        assert isinstance(target, ast.Subscript)
        key = self._keep(target.slice, statements, target)
        read = self._call("_getitem_", [holder(), key()], target)
        return read, ast.Subscript(place, self._item_key(key()), ast.Store(), **position)

    def _keep(self, value: ast.expr, statements: list[ast.stmt], at: Any) -> Callable[[], ast.expr]:
        """Evaluate ``value`` once, into a name that programs cannot write; returns how to read it."""
        if type(value) is ast.Constant:
            return lambda: value
        temporary = self.gen_tmp_name()
        statements.append(self._assign(self._name(temporary, at, ast.Store()), self.visit(value), at))
        return lambda: self._name(temporary, at)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        return self.node_contents_visit(node)

    # -- control flow

    def _iterated(self, node: Any, native: bool) -> None:
        """Guard what a ``for`` or a comprehension iterates over, unless it needs none."""
        target = node.target
        hook, arguments = "_getiter_", [node.iter]
        if type(target) is ast.Tuple:
            shape = self._shape(target)
            if shape or any(type(item) is ast.Starred for item in target.elts):
                hook, arguments = "_unpackiter_", [node.iter, self._constant(shape, node.iter)]
        if not native or hook == "_unpackiter_":
            node.iter = self._call(hook, arguments, node.iter)

    def _native(self, iterable: ast.expr) -> bool:
        """Whether what is iterated over needs no guard; to be asked before it is visited."""
        return self._assume and native_iterable(iterable)

    def visit_For(self, node: ast.For) -> Any:
        native = self._native(node.iter)
        self._loops = self._loops or not self._functions
        own = self._visit_fields(node, _TARGET)
        self._iterated(node, native)
        node.body.insert(0, self._turn_statement(own, node))
        return node

    def visit_While(self, node: ast.While) -> Any:
        self._loops = self._loops or not self._functions
        begun = self._nodes, self._apart
        node.test = self.visit(node.test)
        test = self._own(begun)
        self._apart -= test  # which is run once more than the body
        begun = self._nodes, self._apart
        self._visit_list(node.body)
        own = self._own(begun)
        self._visit_list(node.orelse)
        node.body.insert(0, self._turn_statement(test + own, node))
        return node

    def _comprehension(self, node: Any, key: str = "") -> Any:
        """A comprehension; ``key`` is the field that makes a key, if one does."""
        self._comprehensions += 1
        if self._comprehensions > _MAX_COMPREHENSIONS:
            raise Rejected("limit", "source", f"line {node.lineno}: comprehensions nested too deeply")
        outside = self._known
        inside = known_in_comprehension(node.generators, outside) if self._assume else outside
        self._known = inside
        begun = self._nodes, self._apart
        for field in node._fields[:-1]:
            content = self.visit(getattr(node, field))
            setattr(node, field, self._checked_key(content) if field == key else content)
        own = self._own(begun)
        natives = [self._native(generator.iter) for generator in node.generators]
        parts = [
            self._generator(generator, inside if index else outside) for index, generator in enumerate(node.generators)
        ]
        self._apart -= parts[0][0]  # the first iterable is evaluated outside, once
        lazy = type(node) is ast.GeneratorExp
        for generator, native, (evaluated, turn) in zip(
            reversed(node.generators), reversed(natives), reversed(parts), strict=True
        ):
            # In each turn, its conditions and the next iterable, or what is made of it all.
            self._count_turns(generator, native, lazy, turn + own)
            own = evaluated
        self._known = outside
        self._comprehensions -= 1
        return node

    def _generator(self, node: ast.comprehension, known: dict[str, int]) -> tuple[int, int]:
        """One ``for`` of a comprehension, its iterable evaluated where ``known`` are the known names.

        Returns how many nodes of its own the iterable has, and the rest.
        """
        begun = self._nodes, self._apart
        self._nodes += 1
        if node.is_async:
            self.error(node.iter, "async comprehensions")
        node.target = self.visit(node.target)
        turn = self._own(begun)
        inside, self._known = self._known, known
        begun = self._nodes, self._apart
        node.iter = self.visit(node.iter)
        evaluated = self._own(begun)
        self._known = inside
        begun = self._nodes, self._apart
        self._visit_list(node.ifs)
        return evaluated, turn + self._own(begun)

    def _count_turns(self, node: ast.comprehension, native: bool, lazy: bool, own: int) -> None:
        """Guard the iterable of one ``for`` of a comprehension, and charge for its turns of ``own`` nodes each."""
        if lazy or type(node.target) is ast.Tuple:
            self._iterated(node, native)
            node.ifs.insert(0, self._turn(own, node.iter))
            return
        more = own >> _NODES_PER_STEP_SHIFT
        weight = [self._constant(more, node.iter)] if more else []
        node.iter = self._call("_turns_", [node.iter, *weight], node.iter)

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        return self._comprehension(node)

    def visit_SetComp(self, node: ast.SetComp) -> Any:
        return self._comprehension(node, key="elt")

    def visit_DictComp(self, node: ast.DictComp) -> Any:
        return self._comprehension(node, key="key")

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> Any:
        self.plain = False
        return self._comprehension(node)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> Any:
        self._outside_functions()
        self.node_contents_visit(node)
        node.value = self._call("_delegate_", [node.value], node)
        return node

    def visit_Raise(self, node: ast.Raise) -> Any:
        self.node_contents_visit(node)
        if node.exc is not None:
            node.exc = self._call("_raise_", [node.exc], node)
        return node

    def visit_Try(self, node: ast.Try) -> Any:
        if not node.finalbody:
            return self.node_contents_visit(node)
        # The compiler copies a finally block for each way out of the try: nested ones grow exponentially.
        self._finally += 1
        if self._finally > _MAX_FINALLY:
            raise Rejected("limit", "source", f"line {node.lineno}: more than {_MAX_FINALLY} nested finally blocks")
        self.node_contents_visit(node)
        self._finally -= 1
        node.finalbody.insert(0, self._statement("_caught_", node))
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> Any:
        if node.name is not None:
            self.check_name(node, node.name)
            self._stored.add(node.name)
        self.node_contents_visit(node)
        if node.type is not None:
            node.type = self._call("_kinds_", [node.type], node.type)
        node.body.insert(0, self._statement("_caught_", node))
        return node

    def visit_With(self, node: ast.With) -> Any:
        self.node_contents_visit(node)
        for item in node.items:
            item.context_expr = self._call("_with_", [item.context_expr], node)
        return node

    # -- functions, classes, imports

    def visit_arguments(self, node: ast.arguments) -> Any:
        for argument in node.posonlyargs + node.args + node.kwonlyargs + [node.vararg, node.kwarg]:
            if argument is not None:
                argument.annotation = None
                self.check_name(argument, argument.arg)
                self._stored.add(argument.arg)
        return self.node_contents_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        self.plain = False
        self.check_name(node, node.name, allow_magic_methods=True)
        self._stored.add(node.name)
        node.returns = None
        known: dict[str, int] = {}
        if self._assume:
            known = known_names(bindings_of(node.body), self._known, self._unsure | _parameters(node.args))
        self._functions += 1
        own = self._visit_fields(node, _BODY, known)
        self._functions -= 1
        node.body.insert(0, self._turn_statement(own, node))
        return node

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        self.plain = False
        parameters = _parameters(node.args)
        known = {name: bits for name, bits in self._known.items() if name not in parameters}
        self._lambdas = True
        self._functions += 1
        own = self._visit_fields(node, _BODY, known)
        self._functions -= 1
        body = node.body
        node.body = ast.BoolOp(ast.And(), [self._turn(own, body), body], lineno=body.lineno, col_offset=body.col_offset)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        self.plain = False
        self.check_name(node, node.name)
        self._stored.add(node.name)
        if [keyword.arg for keyword in node.keywords] == ["metaclass"] and _named_abc(node.keywords[0].value):
            node.bases.append(node.keywords.pop().value)
        if node.keywords:
            self.error(node, "keywords in a class statement")
        annotated = tuple(_annotated_names(node))
        self._apart -= self._visit_fields(node, _BODY, {})  # which are run where the class stands
        if annotated:
            target = self._name("_annotated_", node, ast.Store())
            node.body.insert(0, self._assign(target, self._constant(annotated, node), node))
        node.keywords = [ast.keyword("metaclass", self._name("__metaclass__", node), lineno=node.lineno, col_offset=0)]
        return node

    def visit_Import(self, node: ast.Import) -> Any:
        statements = []
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self._imported(node, alias, name)
            bound = alias.name if alias.asname else name
            call = self._call("_import_", [self._constant(alias.name, node), self._constant(bound, node)], node)
            statements.append(self._assign(self._name(name, node, ast.Store()), call, node))
        return statements

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        if node.module == "__future__" and not node.level:
            return ast.Pass(lineno=node.lineno, col_offset=node.col_offset)
        if node.level or node.module is None:
            self.error(node, "relative imports")
            return node
        statements = []
        for alias in node.names:
            if alias.name == "*":
                self.error(node, 'imports of "*"')
                continue
            name = alias.asname or alias.name
            self._imported(node, alias, name)
            arguments: list[ast.expr] = [self._constant(node.module, node), self._constant(alias.name, node)]
            call = self._call("_import_from_", arguments, node)
            statements.append(self._assign(self._name(name, node, ast.Store()), call, node))
        return statements

    def _imported(self, node: ast.stmt, alias: ast.alias, name: str) -> None:
        if getattr(node, "is_lazy", 0):
            self.error(node, "lazy imports")
        for part in (*alias.name.split("."), name):
            self.check_name(node, part)
            if private(part):
                self.error(node, f'the name "{part[:60]}" starts with "_"')
        self._stored.add(name)


_WRAPPER = "_program_"


def _unwrapped(code: CodeType) -> CodeType:
    """The code with its functions named as if nothing were around them: their names stand in messages."""
    constants = tuple(_unwrapped(part) if isinstance(part, CodeType) else part for part in code.co_consts)
    return code.replace(co_consts=constants, co_qualname=code.co_qualname.removeprefix(f"{_WRAPPER}.<locals>."))


_VISITORS: dict[type, Callable[[GuestPolicy, Any], Any]] = {}
"""By kind of node, filled as kinds are met."""


def _find_visitor(kind: type) -> Callable[[GuestPolicy, Any], Any]:
    visitor: Callable[[GuestPolicy, Any], Any]
    visitor = getattr(GuestPolicy, f"visit_{kind.__name__}", GuestPolicy.generic_visit)
    if issubclass(kind, _BLOCKS):
        inner = visitor

        def visitor(policy: GuestPolicy, node: Any) -> Any:
            return policy.visit_block(node, inner)

    _VISITORS[kind] = visitor
    return visitor


# ------------------------------------------------------------------ compilation


def _syntax_error(error: SyntaxError) -> Rejected:
    reason = error.msg or "invalid syntax"
    if reason.startswith("invalid character '") and unicodedata.normalize("NFKC", reason[19:20]) == "_":
        return Rejected("refused", "PolicyError", f"line {error.lineno or 1}: a character that stands for '_'")
    return Rejected("error", type(error).__name__, f"line {error.lineno or 1}: {reason}")


def _parse(source: str) -> ast.Module:
    """Parse, with every way in which that can fail turned into an answer."""
    try:
        return ast.parse(source, PROGRAM)
    except SyntaxError as error:
        raise _syntax_error(error) from None
    except (UnicodeError, ValueError) as error:
        raise Rejected("error", "SyntaxError", f"line 1: {str(error)[:200]}") from None
    except (RecursionError, MemoryError):
        raise Rejected("limit", "source", "nested too deeply for the parser") from None


# Operators without powers, brackets and short numbers: nothing to judge in it, and no value of over SMALL_BITS bits.
_ARITHMETIC = re.compile(r"(?! )(?!.*\*\*)[-+*/%().0-9 ]{1,100}")


def _compile_arithmetic(source: str, echo: bool) -> Program | None:
    """What policies write most, at a third of the cost: an expression of literals. None if it is something else."""
    if _ARITHMETIC.fullmatch(source) is None:
        return None
    try:
        code = compile(source, PROGRAM, "eval", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    return Program(code, plain=True, shows=echo)


def compile_program(
    source: str, source_chars: int, echo: bool, own: frozenset[str] = frozenset(), fresh: bool = False
) -> Program:
    """Compile ``source`` for a worker, a final expression echoed if ``echo``.

    ``own`` are names in scope that hide a built-in which programs may not use; ``fresh``: no names are in scope but the
    built-in ones, nor will another program see what this one leaves, so that its text tells all about its names.

    Raises Rejected with the answer if it is malformed, forbidden or too large.
    """
    if len(source) > source_chars:
        raise Rejected("limit", "source", f"{len(source)} characters of source (at most {source_chars})")
    arithmetic = _compile_arithmetic(source, echo)
    if arithmetic is not None:
        return arithmetic
    tree = _parse(source)
    try:
        studied = fresh and len(source) <= _MOST_STUDIED and ":=" not in source and METER.integer_bits >= SMALL_BITS
        policy = GuestPolicy(echo, own, _bound_from_elsewhere(source, tree) if studied else None)
        tree = policy.visit(tree)
        if policy.mistaken:
            policy = GuestPolicy(echo, own)
            tree = policy.visit(_parse(source))
        if policy.errors:
            raise Rejected("refused", "PolicyError", "l" + policy.errors[0][1:])
        code = policy.compile(tree)
    except SyntaxError as error:
        raise _syntax_error(error) from None
    except (UnicodeError, ValueError) as error:
        raise Rejected("error", "SyntaxError", f"line 1: {str(error)[:200]}") from None
    except (RecursionError, MemoryError, OverflowError):
        raise Rejected("limit", "source", "nested too deeply for the compiler") from None
    return Program(code, policy.plain)
