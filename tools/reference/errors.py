"""Errors: how each name looks on every protocol, and what the code refuses by rule, read from its syntax trees."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tools.reference.markdown import cell, code, head, table, wrapped

from holdfast.api.error_codes import ERROR_CODES

SOURCE: Final = Path(__file__).parent.parent.parent / "src" / "holdfast"
ABOUT: Final = """\
An error has a name, the rule that it follows, a message and a hint, the same on every protocol. *Refused*:
nothing changed. *Unavailable*: the outcome is not known or cannot be had now, ask again with the same id.
*Corrupt*: what is stored contradicts itself. Exit codes are those of the command line."""
BY_RULE: Final = """\
What the code says by rule; `…` stands for what the occasion puts there. The rules are in
[docs/spec](../spec/README.md)."""
RAISED: Final = {
    "Unavailable": "Unavailable",
    "AccessDenied": "Unavailable",
    "Fenced": "Unavailable",
    "Corrupt": "Corrupt",
}


class Told(NamedTuple):
    """One error that the code can tell."""

    rule: str
    name: str
    message: str
    hint: str


def page() -> str:
    rows = (
        (code(name), str(each.rpc), str(each.http), code(each.grpc), str(each.exit))
        for name, each in ERROR_CODES.items()
    )
    parts = [head("Errors", ABOUT), table(("name", "JSON-RPC", "HTTP", "gRPC", "exit code"), rows)]
    parts.append(f"## By rule\n\n{wrapped(BY_RULE)}\n")
    by_rule: defaultdict[str, set[Told]] = defaultdict(set)
    for told in all_told():
        by_rule[told.rule].add(told)
    for rule, several in sorted(by_rule.items()):
        lines = sorted((code(each.name), each.message, each.hint) for each in several)
        parts.append(f"### {rule}\n\n{table(('name', 'message', 'hint'), lines)}")
    return "\n".join(parts)


def all_told() -> Iterator[Told]:
    """Errors whose rule and message stand in the code as texts."""
    for path in sorted(SOURCE.rglob("*.py")):
        source = path.read_text("utf-8")
        if not any(f"{kind}(" in source for kind in ("Refused", *RAISED)):
            continue
        tree = ast.parse(source)
        texts = _constants(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield from _told(node.func.id, node, texts)


def _told(kind: str, call: ast.Call, texts: dict[str, str]) -> Iterator[Told]:
    if kind != "Refused" and kind not in RAISED:
        return
    given = {keyword.arg: keyword.value for keyword in call.keywords} | dict(
        zip(("rule", "message", "hint", "name"), call.args, strict=False)
    )
    rule, message = (_text(given.get(each), texts) for each in ("rule", "message"))
    if not rule or not message.strip("… ") or "…" in rule:
        return
    name = RAISED.get(kind) or _text(given.get("name"), texts) or "Refused"
    yield Told(rule, name if name in ERROR_CODES else "Refused", cell(message), cell(_text(given.get("hint"), texts)))


def _constants(tree: ast.Module) -> dict[str, str]:
    """Texts that a module gives a name."""
    found = {}
    for node in tree.body:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        value = getattr(node, "value", None)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            found.update({each.id: value.value for each in targets if isinstance(each, ast.Name)})
    return found


def _text(node: ast.expr | None, texts: dict[str, str]) -> str:
    """A text as the code has it, with … for what is put into it."""
    if node is None:
        return ""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Name):
        return texts.get(node.id, "…")
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(each, texts) if isinstance(each, ast.Constant) else "…" for each in node.values)
    return "…"
