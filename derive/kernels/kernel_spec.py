"""A fused kernel of torch as data: an equation, and the call that computes it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from derive.algebra import expr as ex
from derive.algebra.functions import FUNCTIONS, POWERS
from derive.algebra.poly import (
    ZERO,
    FactoredSum,
    Poly,
    Term,
    add,
    as_atom,
    as_poly,
    make_term,
    mul,
    poly,
    power,
    sum_over,
)
from derive.budget import tick
from derive.calculus.alpha_renaming import canonical
from derive.calculus.build_lets import flatten_operation
from derive.calculus.guard_insertion import make_safe
from derive.calculus.lets import Find, Lets
from derive.notation.operation import Operation
from derive.program.torch_ir import (
    Attribute,
    Binary,
    Code,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Name,
    Unary,
    replaced,
)

# -------------------------------------------------------------------------------------- instantiate
# Replace atoms of flat expressions by sums, and restore the flat form.

Replacement = Callable[[ex.Expr], Poly | None]
"""The replacement of an access or a parameter; None if it stays."""


def instantiate_atoms(e: ex.Expr, become: Replacement) -> ex.Expr:
    """e with accesses and parameters replaced; the replacements contain no bound index of e."""
    tick()
    match e:
        case ex.Access() | ex.Param():
            found = become(e)
            return e if found is None else found
        case Poly(terms):
            made = [_instantiate_term(t, become) for t in terms]
            if all(p.terms == (t,) for p, t in zip(made, terms, strict=True)):
                return e
            return add(ZERO, *made)
        case ex.Pow(base, ex.Num(exponent)):
            new = instantiate_atoms(base, become)
            return e if new is base else as_atom(power(as_poly(new), exponent))
        case FactoredSum(body):
            new = instantiate_atoms(body, become)
            if isinstance(new, Poly) and len(new.terms) > 1 and not ex.tensors(new):
                return FactoredSum(new)
            return new
        case ex.Guard(condition, position, elsewhere):
            parts = instantiate_atoms(condition, become), instantiate_atoms(position, become)
            return ex.Guard(parts[0], as_atom(as_poly(parts[1])), elsewhere)
    whole: ex.Expr = e.map(lambda part: instantiate_atoms(part, become))
    return whole


def _instantiate_term(t: Term, become: Replacement) -> Poly:
    made = [(f, instantiate_atoms(f, become)) for f in t.factors]
    changed = [as_poly(new) for f, new in made if new is not f]
    if not changed:
        return Poly((t,))
    rest = make_term(t.coef, (), [f for f, new in made if new is f])
    return sum_over(mul(poly([rest]), *changed), t.binders)


def expand_names(p: Poly, find: Find, known: dict[ex.Access, Poly] | None = None) -> Poly:
    """p with all names expanded for which ``find`` returns a plain definition, recursively.

    ``known`` memoizes the expansion of accesses, for the same ``find``.
    """
    if all(find(name) is None for name in ex.tensors(p)):
        return p
    seen = {} if known is None else known

    def become(e: ex.Expr) -> Poly | None:
        if not isinstance(e, ex.Access):
            return None
        if e not in seen:
            let = find(e.tensor)
            if let is None:
                return None
            seen[e] = expand_names(let.body_at(e.positions), find, seen)
        return seen[e]

    return as_poly(instantiate_atoms(p, become))


def most_terms(p: Poly, find: Find) -> int:
    """An upper bound of the terms of any sum in p after expanding the names that ``find`` knows."""
    known: dict[str, int] = {}
    most = 0

    def of(e: ex.Expr) -> int:
        nonlocal most
        match e:
            case ex.Access(name):
                let = find(name)
                if let is None:
                    return 1
                if name not in known:
                    known[name] = of(let.body)
                return known[name]
            case Poly(terms):
                n = min(sum(prod(map(of, t.factors)) for t in terms), _MANY)
                most = max(most, n)
                return n
            case ex.Pow(ex.Access() as base, ex.Num(exponent)):
                n = of(base)
                whole = exponent.denominator == 1 and exponent > 0
                return int(min(n**exponent, _MANY)) if whole else 1
        for part in e.parts():
            of(part)
        return 1

    of(p)
    return most


_MANY = 10**6


# -------------------------------------------------------------------------------------- kernel spec

Axes = tuple[ex.Index, ...]


@ex.node
class Kernel(ex.Expr):
    """The result of a kernel applied to these arguments, in the order of its equation.

    ``along`` are the indices that the kernel sums over: it reads its arguments at all of their
    values. ``binders`` are those of them that the result lacks.
    """

    name: str
    args: tuple[ex.Expr, ...]
    along: tuple[ex.Index, ...] = ()
    binders: tuple[ex.Index, ...] = ()

    def bound(self) -> tuple[ex.Index, ...]:
        return self.binders


@ex.node
class KernelResult(ex.Expr):
    """One result of a kernel that has several.

    ``axes`` are those of its first argument, in order, ``along`` the ones that the kernel sums
    over; ``binders`` are those that this result lacks. ``others`` are the names of the other
    results.
    """

    name: str
    number: int
    args: tuple[ex.Expr, ...]
    axes: tuple[ex.Index, ...]
    along: tuple[ex.Index, ...]
    binders: tuple[ex.Index, ...] = ()
    others: tuple[ex.Expr, ...] = ()

    def bound(self) -> tuple[ex.Index, ...]:
        return self.binders


@ex.node
class AttentionResult(ex.Expr):
    """One result of an attention kernel.

    ``batch`` are the indices for the letter b of its equation, and ``ends`` those for i, j, d and
    e; ``binders`` are those of them that this result lacks. ``others`` are the names of the other
    results.
    """

    name: str
    number: int
    args: tuple[ex.Expr, ...]
    batch: tuple[ex.Index, ...]
    ends: tuple[ex.Index, ...]
    binders: tuple[ex.Index, ...]
    others: tuple[ex.Expr, ...] = ()

    def bound(self) -> tuple[ex.Index, ...]:
        return self.binders

    @property
    def home(self) -> Mapping[str, tuple[ex.Index, ...]]:
        """The indices for each letter of the equation."""
        ends = zip("ijde", self.ends, strict=True)
        return {"b": self.batch} | {letter: (i,) for letter, i in ends}


@dataclass(frozen=True)
class KernelSpec:
    """A kernel: its equation in the notation of specs, and its Python call.

    The equation names all axes that the kernel sums over, and the call uses their letters as
    positions of axes; the kernel maps over any other axes. A ``cotangent`` is the argument that the
    result is linear in, which may be a product or a sum; a kernel with one is for the backward. If
    the parameters violate ``domain``, a condition, the kernel raises an error or computes something
    else.
    """

    name: str
    equation: str
    call: str
    cotangent: str = ""
    domain: str = ""
    statistics: tuple[str, ...] = ()
    """The arguments that are results of another kernel, in the format of that kernel."""
    smooth: bool = False
    """True if torch differentiates the call itself, in every order and mode."""

    @cached_property
    def operation(self) -> Operation:
        """The parsed equation."""
        from derive.notation.text_form import operation_of

        return operation_of(self.equation)

    @property
    def states(self) -> str:
        """The equation in one line."""
        lines = self.equation.splitlines()
        return "; ".join(line for line in lines if not line.startswith("op "))

    @cached_property
    def functions(self) -> frozenset[str]:
        """The functions that the equation calls, which also occur in its flat form."""
        words = re.findall(r"\w+(?=\()", self.equation)
        return frozenset(word for word in words if word in FUNCTIONS and word not in POWERS)

    @cached_property
    def condition(self) -> ex.Expr | None:
        """The domain, over the parameters of the equation."""
        if not self.domain:
            return None
        from derive.notation.text_form import operation_of

        numbers = ", ".join(f"{p.name}=1.0" for p in self.operation.parameters)
        (read,) = operation_of(f"op domain(x; {numbers})\ny = where({self.domain}, x, 0)").equations
        assert isinstance(read.body, ex.Where)
        return read.body.condition

    @cached_property
    def along(self) -> tuple[ex.Index, ...]:
        """The indices of the first result, all of which the kernel sums over."""
        op = self.operation
        output = next(e for e in op.equations if e.name == op.outputs[0])
        return tuple(i for i in output.axes if isinstance(i, ex.Index))

    @cached_property
    def lengths(self) -> Mapping[ex.Index, int]:
        """The indices of fixed size in the equation, with that size."""
        sizes = {e.name: e.size.value for e in self.operation.extents if isinstance(e.size, ex.Num)}
        axes = dict.fromkeys(i for t in self.operation.inputs for i in t.axes)
        own = (i for i in axes if isinstance(i, ex.Index) and i.extent in sizes)
        return {i: int(sizes[i.extent]) for i in own}

    @cached_property
    def places(self) -> tuple[ex.Index, ...]:
        """The indices whose letters the call uses as positions of axes."""
        return tuple(dict.fromkeys((*self.along, *self.lengths)))

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """The names of the equation's inputs and parameters."""
        op = self.operation
        return tuple(x.name for x in (*op.inputs, *op.parameters))

    @cached_property
    def _read(self) -> tuple[Mapping[str, tuple[Poly, Axes]], Mapping[str, str]]:
        op, display_names = canonical(self.operation)
        lets: Lets = flatten_operation(op, display_names)
        make_safe(lets, frozenset(op.outputs))
        bodies = {n: expand_names(lets[n].body, lets.definition) for n in op.outputs}
        parts = {display_names[n]: (body, lets[n].formals) for n, body in bodies.items()}
        return parts, display_names

    @property
    def parts(self) -> Mapping[str, tuple[Poly, Axes]]:
        """The flat form and the indices of each result."""
        return self._read[0]

    @property
    def body(self) -> Poly:
        """The flat form of the equation."""
        return next(iter(self.parts.values()))[0]

    @cached_property
    def bare(self) -> Poly:
        """The flat form for the cotangent 1."""
        name = self.canonical.get(self.cotangent)
        parts = (
            (t, [f for f in t.factors if getattr(f, "tensor", "") != name]) for t in self.body.terms
        )
        return poly(make_term(t.coef, t.binders, factors) for t, factors in parts)

    @property
    def names(self) -> Mapping[str, str]:
        """Map the canonical names of the flat form to the equation's names."""
        return self._read[1]

    @cached_property
    def canonical(self) -> Mapping[str, str]:
        """Map the equation's names to the canonical names of the flat form."""
        return {said: name for name, said in self.names.items()}

    @property
    def formals(self) -> tuple[ex.Index, ...]:
        """The indices of the flat form."""
        return next(iter(self.parts.values()))[1]

    def code(self, arguments: Mapping[str, Code]) -> Code:
        """The call of these arguments."""
        new: dict[Code, Code] = {Name(name): code for name, code in arguments.items()}
        return replaced(_parse_call(ast.parse(self.call, mode="eval").body), new)


_MODULES = ("torch", "rt")


def _parse_call(e: ast.expr) -> Code:
    match e:
        case ast.Name(id):
            return Name(id)
        case ast.Attribute(obj, name):
            return Attribute(_parse_call(obj), name)
        case ast.Constant(str(value)):
            return Literal(f'"{value}"')
        case ast.Constant() | ast.UnaryOp(operand=ast.Constant()):
            return Literal(ast.unparse(e))
        case ast.UnaryOp(ast.USub(), operand):
            return Unary("-", _parse_call(operand))
        case ast.BinOp(left, ast.Div(), right):
            return Binary("/", _parse_call(left), _parse_call(right))
        case ast.Call(ast.Attribute(ast.Name(obj), name), args, keywords) if obj not in _MODULES:
            return MethodCall(Name(obj), name, (*map(_parse_call, args), *map(_keyword, keywords)))
        case ast.Call(ast.Attribute(ast.Call() as obj, name), args):
            return MethodCall(_parse_call(obj), name, tuple(map(_parse_call, args)))
        case ast.Call(func, args, keywords):
            every = (*map(_parse_call, args), *map(_keyword, keywords))
            return FunctionCall(ast.unparse(func), every)
    raise TypeError(f"no code for {ast.unparse(e)}")


def _keyword(k: ast.keyword) -> Code:
    assert k.arg is not None
    return Keyword(k.arg, _parse_call(k.value))


# ------------------------------------------------------------------------------------ applicability
# Kernels that are valid only for some parameters, with the equation as fallback.


def where_it_is(row: KernelSpec, given: Mapping[str, Poly]) -> ex.Expr | None:
    """The kernel of these arguments, with the equation as fallback; None if it never applies."""
    kernel = Kernel(row.name, tuple(given[name] for name in row.arguments))
    if row.condition is None:
        return kernel
    condition = instantiate_atoms(
        row.condition, lambda e: given[e.name] if isinstance(e, ex.Param) else None
    )
    holds = _compare_numbers(condition)
    if holds is not None:
        return kernel if holds else None

    def become(e: ex.Expr) -> Poly | None:
        name = e.tensor if isinstance(e, ex.Access) else getattr(e, "name", "")
        return None if isinstance(e, ex.Index) else given.get(row.names.get(name, ""))

    return ex.Where(condition, kernel, instantiate_atoms(row.body, become))


def _compare_numbers(condition: ex.Expr) -> bool | None:
    """Whether a comparison of numbers holds; None unless both sides are known."""
    if not isinstance(condition, ex.Rel):
        return None
    sides = [as_poly(side).terms for side in (condition.left, condition.right)]
    if any(t.factors for terms in sides for t in terms):
        return None
    left, right = (sum(t.coef for t in terms) for terms in sides)
    return bool(ex.RELATIONS[condition.op](left, right))
