"""The command `lometab`, and `python -m lometab`.

The command is a part of the service, whose packages `app`, `worker` and `migrations`
have names that many people use. So an installation has them in a folder of its own,
`lometab/_service`, and only the service's processes look there, before anywhere else.
In a checkout they lie beside `lometab`.
"""

import sys
from importlib import import_module
from pathlib import Path

from lometab.errors import MissingPackage


def find_service() -> Path:
    """The folder that holds `app`, `worker` and `migrations`."""
    here = Path(__file__).resolve().parent
    installed = here / "_service"
    return installed if installed.is_dir() else here.parent


def main() -> None:
    sys.path.insert(0, str(find_service()))
    from lometab.extras import naming_extras

    try:
        with naming_extras():
            import_module("app.cli").main()
    except MissingPackage as error:
        sys.exit(f"lometab: {error}")


if __name__ == "__main__":
    main()
