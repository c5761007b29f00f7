"""reference/settings.md: every setting of the service, from its class."""

from typing import Any

from app.settings import PER_WORKSPACE, Settings
from scripts.docs.text import WARNING, code, table


def write() -> str:
    lines = ["# Settings", "", WARNING, ""]
    lines += [
        "The service reads environment variables. A name that starts with `LOMETAB_` "
        "and is no setting is warned of at the start, with the nearest known name. "
        "`lometab config` shows every setting, its value and where the value comes "
        "from. What each limit means for a request is in `GET /limits`.",
        "",
    ]
    fields = Settings.model_fields.items()
    lines += table(
        ("variable", "default", "meaning"),
        ((_variable(n), _default(n, f), f.description or "") for n, f in fields),
    )
    chosen = ", ".join(code(name) for name in PER_WORKSPACE)
    lines += [f"A workspace can have its own {chosen} (`LOMETAB_WORKSPACES`).", ""]
    lines += [
        "The command and the client read two more: `LOMETAB_URL`, the address of a "
        "service, and `LOMETAB_KEY`, the key for it.",
        "",
    ]
    return "\n".join(lines)


def _variable(name: str) -> str:
    return code(f"LOMETAB_{name.upper()}")


def _default(name: str, field: Any) -> str:
    if name == "data_dir":
        return "the user's data directory"
    value = field.get_default(call_default_factory=True)
    if value is None or value == "" or value == [] or value == {}:
        return "none"
    if isinstance(value, list):
        return code(",".join(map(str, value)))
    if isinstance(value, bool):
        return code(str(value).lower())
    return code(value)
