"""Write the names of settings into the chart's schema, so that it refuses others.

    python -m scripts.write_chart_settings

Not among them is what the chart or an image decides for each container.
"""

import re
from pathlib import Path

from app.settings import Settings

SCHEMA = (
    Path(__file__).parents[1] / "deploy" / "helm" / "lometab" / "values.schema.json"
)
DECIDED = {
    *("database_url", "database_password_file", "broker_url", "broker_password_file"),
    *("host", "port", "metrics_host", "metrics_port", "metrics_dir"),
    *("data_dir", "worker_queue", "exit_with_parent"),
}


def list_names() -> list[str]:
    names = sorted(Settings.model_fields.keys() - DECIDED)
    return [f"LOMETAB_{name.upper()}" for name in names]


def write_names(schema: str) -> str:
    """The schema with the names as they are now."""
    lines = ",\n".join(f'          "{name}"' for name in list_names())
    old, new = r'"enum": \[\s*"LOMETAB_[^\]]*\]', f'"enum": [\n{lines}\n        ]'
    written, n = re.subn(old, new, schema)
    if n != 1:
        raise ValueError(f"one list of settings is needed, however: {n}")
    return written


if __name__ == "__main__":
    SCHEMA.write_text(write_names(SCHEMA.read_text()))
