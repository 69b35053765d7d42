"""Find the hand-written backwards of a file, each with its forward.

They are those of subclasses of ``torch.autograd.Function``, and of custom operators.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

# -------------------------------------------------------------------------------------------- names
# Resolve the names of a file to dotted names, by its imports and plain assignments.

STARRED = {"torch.autograd": ("Function",), "torch.autograd.function": ("Function",)}
"""Names that ``from MODULE import *`` binds, as far as rules need them."""


@dataclass
class ModuleAliases:
    """Maps ``np`` to ``numpy``; a name with two meanings in one file has none."""

    meant: dict[str, str] = field(default_factory=dict)
    unclear: set[str] = field(default_factory=set)

    def bind(self, name: str, dotted: str) -> None:
        if self.meant.setdefault(name, dotted) != dotted:
            self.unclear.add(name)

    def dotted(self, node: ast.AST) -> str:
        """Return ``torch.exp`` for ``F.exp``, if F is torch; '' for a name without import."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id in self.unclear:
            return ""
        head = self.meant.get(node.id)
        return ".".join([head, *reversed(parts)]) if head else ""


def names_of(tree: ast.Module) -> ModuleAliases:
    """Return the names that a file imports, anywhere in it."""
    names = ModuleAliases()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                head = alias.name.split(".")[0]
                names.bind(alias.asname or head, alias.name if alias.asname else head)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                if alias.name == "*":
                    for name in STARRED.get(module, ()):
                        names.bind(name, f"{module}.{name}")
                else:
                    names.bind(alias.asname or alias.name, f"{module}.{alias.name}")
    for statement in tree.body:  # Function = torch.autograd.Function
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, dotted = statement.targets[0], names.dotted(statement.value)
            if isinstance(target, ast.Name) and dotted.startswith("torch."):
                names.bind(target.id, dotted)
    return names


# ---------------------------------------------------------------------------------------- functions

BASES = {
    "torch.autograd.Function",
    "torch.autograd.function.Function",
    "torch.autograd.function.InplaceFunction",
}
ONCE = {"torch.autograd.function.once_differentiable"}
PLAIN = {
    "staticmethod",
    "custom_fwd",
    "custom_bwd",
    "autocast_custom_fwd",
    "autocast_custom_bwd",
    "ensure_contiguous",
    "input_guard",
    "contiguous",
    "no_grad",
    "once_differentiable",
    "disable",
    "override",
}
"""Decorators, by their last name, that keep the arguments and the result of a method."""
COPYING = {"ensure_contiguous", "input_guard", "contiguous"}
"""Decorators that make the arguments contiguous."""


@dataclass(frozen=True)
class FunctionMethod:
    """A method of a Function; ``owner`` is the class that defines it."""

    node: ast.FunctionDef
    owner: str
    decorators: tuple[str, ...]

    @property
    def parameters(self) -> list[str]:
        arguments = self.node.args
        return [a.arg for a in (*arguments.posonlyargs, *arguments.args)]

    @property
    def star(self) -> str | None:
        return self.node.args.vararg.arg if self.node.args.vararg else None

    @property
    def plain(self) -> bool:
        """True if no decorator may change what the method takes or returns."""
        return all(name.rpartition(".")[2] in PLAIN for name in self.decorators)

    @property
    def ctx(self) -> str:
        return self.parameters[0] if self.parameters else ""


@dataclass(frozen=True)
class FunctionClass:
    """A subclass of ``torch.autograd.Function`` with a backward, or a custom operator with one."""

    name: str
    forward: FunctionMethod
    backward: FunctionMethod
    setup: FunctionMethod | None

    @property
    def once(self) -> bool:
        """True if backward is marked ``once_differentiable``."""
        found = (name.rpartition(".")[2] for name in self.backward.decorators)
        return "once_differentiable" in found

    @property
    def inputs(self) -> list[str]:
        """The parameters of forward without ctx."""
        return self.forward.parameters[0 if self.setup else 1 :]

    @property
    def cotangents(self) -> list[str]:
        """The parameters of backward without ctx."""
        return self.backward.parameters[1:]


def functions_of(tree: ast.Module, names: ModuleAliases) -> tuple[list[FunctionClass], int]:
    """Return the Functions that have a forward and a backward, and the number of all Functions."""
    classes = {n.name: n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)}
    found, count = [], 0
    for node in (n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)):
        line = _class_chain(node, classes, names)
        count += bool(line)
        forward, backward, setup = (
            _method(line, name, names) for name in ("forward", "backward", "setup_context")
        )
        if isinstance(forward, FunctionMethod) and isinstance(backward, FunctionMethod):
            if setup is None or isinstance(setup, FunctionMethod):
                found.append(FunctionClass(node.name, forward, backward, setup))
    operators = list(_operators(tree, names))
    return [*found, *operators], count + len(operators)


_NO_SETUP = ast.parse("def setup_context(ctx, inputs, output): pass").body[0]


def _operators(tree: ast.Module, names: ModuleAliases) -> Iterator[FunctionClass]:
    """Yield the operators of ``torch.library.custom_op`` for which a backward is registered."""
    defined = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    operators: dict[str, ast.FunctionDef] = {}
    for node in defined.values():
        for made in (d for d in node.decorator_list if isinstance(d, ast.Call)):
            if _decorator(made, names).endswith("custom_op"):
                operators |= {node.name: node, **{_key(a): node for a in made.args[:1]}}
    for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "register_autograd":
            continue
        is_method = names.dotted(call.func) != "torch.library.register_autograd"
        named = {k.arg: k.value for k in call.keywords}
        given = [*([call.func.value] if is_method else []), *call.args, named.get("backward"), None]
        forward, backward = operators.get(_key(given[0])), defined.get(_key(given[1]))
        kept = named.get("setup_context")
        setup = _NO_SETUP if kept is None else defined.get(_key(kept))
        if forward and backward and isinstance(setup, ast.FunctionDef):
            if len(setup.args.args) == 3:
                methods = (FunctionMethod(f, forward.name, ()) for f in (forward, backward, setup))
                yield FunctionClass(forward.name, *methods)


def _key(node: ast.AST | None) -> str:
    """Return the name or the text that a node is."""
    return str(getattr(node, "id", getattr(node, "value", "")))


def _class_chain(
    node: ast.ClassDef, classes: dict[str, ast.ClassDef], names: ModuleAliases
) -> list[ast.ClassDef]:
    """Return the class and its bases in this file up to Function; none for any other class."""
    line = [node]
    while len(line[-1].bases) == 1:
        (base,) = line[-1].bases
        if names.dotted(base) in BASES:
            return line
        parent = classes.get(base.id) if isinstance(base, ast.Name) else None
        if parent is None or parent in line:
            break
        line.append(parent)
    return []


def _method(
    line: list[ast.ClassDef], name: str, names: ModuleAliases
) -> FunctionMethod | bool | None:
    """Return the method of this name; True if the name is bound to anything but a ``def``."""
    for owner in line:
        for statement in reversed(owner.body):
            if isinstance(statement, ast.FunctionDef) and statement.name == name:
                decorators = tuple(_decorator(d, names) for d in statement.decorator_list)
                return FunctionMethod(statement, owner.name, decorators)
            names_in = (n for n in ast.walk(statement) if isinstance(n, ast.Name))
            bound = {n.id for n in names_in if isinstance(n.ctx, ast.Store)}
            defined = {n.name for n in ast.walk(statement) if isinstance(n, ast.FunctionDef)}
            if name in bound | defined and not isinstance(statement, ast.FunctionDef):
                return True
    return None


def _decorator(node: ast.expr, names: ModuleAliases) -> str:
    """The dotted name of a decorator, by its import or as written."""
    if isinstance(node, ast.Call):
        node = node.func
    return names.dotted(node) or ast.unparse(node)
