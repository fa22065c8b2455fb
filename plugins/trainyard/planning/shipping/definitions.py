"""Find which names a module defines and which modules it imports, without executing it."""

from __future__ import annotations

import ast
import symtable
from importlib.util import decode_source

_DYNAMIC = frozenset({"globals", "exec", "vars", "locals"})
"""Functions that may define names which the compiler cannot see."""


def defined_names(source: bytes) -> set[str] | None:
    """Return the names that a module defines at its top level.

    Returns:
        The names; None where only executing the module shows them: it has `from x import *` or a `__getattr__`, defines
        names by a computed name, passes its own name to code that may, or is not valid in this version of Python.
    """
    try:
        text = decode_source(source)
        tree, table = ast.parse(text), symtable.symtable(text, "module", "exec")
    except (SyntaxError, ValueError):
        return None
    names = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    names |= _global_names(table)
    return None if "__getattr__" in names or _is_dynamic(tree) else names


def imported_modules(source: bytes, package: str) -> set[str]:
    """Return the modules that a module imports, also in its functions. A module that is not valid imports none.

    `from a import b` imports `a.b` or a name of `a`: both are returned.

    Args:
        source: The module's text.
        package: The name of its package, for relative imports.
    """
    try:
        tree = ast.parse(decode_source(source))
    except (SyntaxError, ValueError):
        return set()
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: -node.level + 1 or None] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            modules |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return modules


def _global_names(table: symtable.SymbolTable) -> set[str]:
    """Return the names that functions assign by `global`."""
    names: set[str] = set()
    for child in table.get_children():
        names |= {s.get_name() for s in child.get_symbols() if s.is_declared_global() and s.is_assigned()}
        names |= _global_names(child)
    return names


def _is_dynamic(tree: ast.AST) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _DYNAMIC:
            return True
        if any(map(_is_own_name, ast.iter_child_nodes(node))) and not _is_harmless(node):
            return True
    return False


def _called_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _is_own_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "__name__"


def _is_harmless(use: ast.AST) -> bool:
    """Return whether a use of the module's own name is a comparison, or the name of a logger: of no way to itself."""
    return isinstance(use, ast.Compare) or (isinstance(use, ast.Call) and _called_name(use) == "getLogger")
