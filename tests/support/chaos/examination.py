"""What is stored is examined, after all that was cut off is cleared away."""

import subprocess
import sys

from tests.support.stacks import Stack

CLEAR = """
from app.storage import orphans, scratch
orphans.remove_orphans(min_age=0)
scratch.remove_abandoned(scratch.find_base(), min_age=0)
"""


class NotWell(Exception):
    """`lometab doctor --deep` found faults."""


def run_doctor(stack: Stack) -> tuple[int, str]:
    """The exit code of `lometab doctor --deep`, and what it prints.

    Orphans of any age count, once the janitor was here: nothing may be under way.
    """
    subprocess.run([sys.executable, "-c", CLEAR], env=stack.environment, check=True)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "app.cli", "doctor", "--deep"),
            *("--orphan-seconds", "0"),
        ],
        env=stack.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.returncode, done.stdout


def examine(stack: Stack) -> None:
    """Raise unless all is well."""
    code, printed = run_doctor(stack)
    if code:
        raise NotWell(printed)
