"""Resolve the names of a file to dotted names, by its imports and plain assignments."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

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
