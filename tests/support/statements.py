"""What a summary says, held against the numbers of the reports that it names."""

from typing import Any

from lometab.evaluation.summary import number, percent


def look_up(reports: dict[str, Any], path: str) -> Any:
    """What stands at a place such as `report.naive.0.column`."""
    found: Any = reports
    for part in path.split("."):
        found = found[int(part)] if isinstance(found, list) else found[part]
    return found


def check_statements(reports: dict[str, Any]) -> list[str]:
    """Every field that a sentence names is there, and every single number of it stands
    in the text; what the sentences are about."""
    for sentence in reports["report"]["summary"]:
        text = sentence["text"]
        assert text.endswith(".") and sentence["fields"], text
        if sentence["about"] == "naive":
            check_verdict(text, reports["report"])
        for path in sentence["fields"]:
            value = look_up(reports, path)
            if sentence["about"] != "next":
                check_value(text, path, value, reports)
    return [each["about"] for each in reports["report"]["summary"]]


def check_verdict(text: str, report: dict[str, Any]) -> None:
    """By the error that the sentence is about, not by the share that is right."""
    name = "mae" if report["task"] == "regression" else "nll"
    own = report["scores"]["test"]["ensemble"][name]
    gain = 1 - own / min(guess["scores"][name] for guess in report["naive"])
    verdict = f", {percent(gain)} less." if gain > 0 else ", no better than that."
    assert text.endswith(verdict), text


def check_value(text: str, path: str, value: Any, reports: dict[str, Any]) -> None:
    if isinstance(value, str):
        is_word = path.endswith("regime")  # said in other words
        is_quoted = repr(value) in text or value.rstrip(".") in text
        assert is_word or is_quoted, (text, path)
    elif isinstance(value, int):
        assert str(value) in text, (text, path)
    elif isinstance(value, float):
        shown = [percent(value), number(value)]
        shown += [percent(gain) for gain in find_gains(path, reports)]
        is_named = path.endswith("columns.0.mean")  # by the column alone
        assert is_named or any(each in text for each in shown), (text, path, shown)


def find_gains(path: str, reports: dict[str, Any]) -> list[float]:
    """Ratios that a sentence makes of two numbers."""
    parts = reports["report"]["decomposition"]
    if "decomposition" in path:
        return [1 - parts["ensemble_error"] / parts["member_error"]]
    return []
