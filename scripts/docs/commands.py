"""reference/commands.md: every command with its options, from Typer."""

import re
from typing import Any

import typer

from app.cli.application import cli
from scripts.docs.text import WARNING, code, table


def write() -> str:
    lines = ["# Commands", "", WARNING, ""]
    lines += [
        "What they have in common, and the exit codes, is in [the command](../cli.md).",
        "",
    ]
    for path, command in _walk("lometab", typer.main.get_command(cli)):
        lines += _describe(path, command)
    return "\n".join(lines)


def _walk(path: str, command: Any) -> list[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        return [(path, command)]
    found: list[tuple[str, Any]] = []
    if command.invoke_without_command:
        found.append((path, command))
    for name, each in command.commands.items():
        if not each.hidden:
            found += _walk(f"{path} {name}", each)
    return found


def _describe(path: str, command: Any) -> list[str]:
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option"]
    metavars = " ".join((each.metavar or each.name.upper()) for each in arguments)
    lines = [f"## `{path}`", "", _clean(command.help or ""), ""]
    lines += ["```text", f"{path} {metavars} [OPTIONS]".replace("  ", " "), "```", ""]
    rows = [(code(each.metavar or each.name), each.help or "") for each in arguments]
    rows += [
        (", ".join(code(o) for o in each.opts), _clean(_help(each)))
        for each in options
        if each.name != "help"
    ]
    return lines + (table(("argument or option", "meaning"), rows) if rows else [])


def _help(option: Any) -> str:
    text = option.help or ""
    shown = [option.envvar] if isinstance(option.envvar, str) else option.envvar or []
    text += "".join(f" (`{name}`)" for name in shown)
    if option.required:
        return f"{text} Required."
    is_shown = option.default not in (None, False, "", []) and option.show_default
    return f"{text} Default: `{option.default}`." if is_shown else text


def _clean(text: str) -> str:
    """Without Rich's markup and the marks of paragraphs."""
    return re.sub(r"\[/?(?:bold|dim|green|red|yellow|cyan)\]|\x08\n?", "", text).strip()
