"""Every command in a real terminal, to be looked at.

    python scripts/session.py [FILE]

Types each command into a pane of tmux, waits for its end, and writes what stood on the
screen to FILE (build/session.txt). Nothing is asserted but that no command hangs, none
shows a traceback, and each ends with the exit code that it should: how it looks is for
people to judge.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WINE = ROOT / "examples" / "wine_quality.csv"
WIDTH, HEIGHT = 110, 60
SMALL = "--preset fast --set k=4 --set max_epochs=3"
TRAIN = f"lometab train {WINE} -t quality"

# A command, and the exit code that it should end with.
LOCAL = [
    ("lometab --version", 0),
    ("lometab --help", 0),
    (f"lometab profile {WINE}", 0),
    (f"{TRAIN} {SMALL} --name wine", 0),
    ("lometab doctor", 0),
    ("lometab config | head -12", 0),
    ("lometab keys list", 0),
    ("lometab open --show", 0),
]
SERVED = [
    (f"{TRAIN} {SMALL} --name wine --tag demo", 0),
    (f"{TRAIN} {SMALL} --detach", 0),
    ("lometab jobs", 0),
    ("lometab models", 0),
    ("lometab models show wine@1", 0),
    ("lometab models alias wine@1 champion", 0),
    ("lometab models promote wine@1", 0),
    ("lometab report wine@champion", 0),
    ("lometab compare wine@1 wine@2", 0),
    ("lometab models export wine@1 -o wine.onnx", 0),
    (f"lometab predict wine@1 {WINE} -o answers.csv && head -2 answers.csv", 0),
    (f"lometab predict wine.onnx {WINE} | head -3", 0),
    ("lometab datasets", 0),
    (f"lometab sweep {WINE} -t quality {SMALL} --grid rank=1,2", 0),
    (f"lometab tune {WINE} -t quality {SMALL} --trials 2", 0),
    ("lometab models prune", 0),
]
MISTAKES = [
    ("lometab trian", 2),
    ("lometab train nowhere.csv -t y", 2),
    (f"lometab train {WINE} -t qualty", 2),
    (f"{TRAIN} --set rnk=8", 2),
    (f"{TRAIN} --budget soon", 2),
    ("lometab report job_0", 5),
    ("lometab predict mdl_0 answers.csv", 5),
    ("lometab jobs --url http://127.0.0.1:9", 3),
    ("LOMETAB_MAX_ROWS=many lometab api", 2),
    ("LOMETAB_DATABSE_URL=x lometab config | head -3", 0),
    ("LOMETAB_DATABASE_URL=postgresql+psycopg://127.0.0.1:9/x lometab migrate", 3),
    ("lometab serve --port $TAKEN", 3),
]
KEYS = [
    ("lometab keys create me --scope read --expires 90d", 0),
    ("lometab keys list", 0),
]


class Terminal:
    """A pane of a tmux server of our own."""

    def __init__(self, folder: Path) -> None:
        self.socket = str(folder / "tmux")
        python = shlex.quote(sys.executable)
        (folder / "rc").write_text(
            f'lometab() {{ {python} -m lometab "$@"; }}\n'
            f"PS1='[$?]$ '\ncd {shlex.quote(str(folder))}\n"
        )
        size = ("-x", str(WIDTH), "-y", str(HEIGHT))
        shell = f"bash --noprofile --rcfile {shlex.quote(str(folder / 'rc'))}"
        self.tmux("-f", "/dev/null", "new-session", "-d", *size, shell)
        self.tmux("set-option", "-g", "history-limit", "5000")

    def tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", self.socket, *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def read(self, *, n_before: int = 400) -> str:
        """What is on the screen, and lines that have left it."""
        return self.tmux("capture-pane", "-p", "-J", "-S", str(-n_before))

    def type(self, command: str) -> None:
        self.press("clear", "Enter")
        self.wait_for(r"\A\[0\]\$\s*\Z", 60, n_before=0)
        self.tmux("clear-history")
        self.tmux("send-keys", "-l", command)
        self.press("Enter")

    def wait_for(self, pattern: str, seconds: float, *, n_before: int = 400) -> str:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            screen = self.read(n_before=n_before)
            if re.search(pattern, screen):
                return screen
            time.sleep(0.2)
        raise SystemExit(f"nothing came of it:\n{self.read()}")

    def wait_for_end(self, seconds: float = 600) -> tuple[str, int]:
        """When the prompt is there again, which tells the exit code."""
        screen = self.wait_for(r"\n\[\d+\]\$\s*\Z", seconds)
        prompt = screen.rstrip().rpartition("\n")[2]
        return screen.rstrip(), int(prompt.strip("[]$ "))


def play(terminal: Terminal, commands: list[tuple[str, int]]) -> list[str]:
    shown = []
    for command, expected in commands:
        terminal.type(command)
        screen, code = terminal.wait_for_end()
        print(f"{code} {command}", flush=True)  # noqa: T201
        shown.append(screen)
        assert code == expected, f"expected {expected}:\n{screen}"
        assert "Traceback" not in screen, screen
    return shown


def interrupt(terminal: Terminal) -> str:
    """Ctrl-C in a training: the best epoch is kept."""
    terminal.type(f"{TRAIN} --preset fast --set k=4 --set max_epochs=5000")
    terminal.wait_for(r"epoch \d\d", 300)
    terminal.press("C-c")
    screen, code = terminal.wait_for_end()
    assert code == 0 and "stopped early" in screen, screen
    return screen


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "session.txt"
    if shutil.which("tmux") is None:
        raise SystemExit("there is no tmux on this machine")
    with tempfile.TemporaryDirectory(prefix="lometab-session-") as name:
        folder = Path(name)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("LOMETAB_")}
        os.environ.clear()
        os.environ.update(kept, LOMETAB_DATA_DIR=str(folder / "data"))
        os.environ["PYTHONPATH"] = str(ROOT)
        terminal = Terminal(folder)
        try:
            shown = play(terminal, LOCAL)
            log = folder / "serve.log"
            log.touch()
            terminal.type("lometab serve --port 0 > serve.log 2>&1 &")
            while not (found := re.search(r"http://[\d.]+:(\d+)", log.read_text())):
                time.sleep(0.2)
            terminal.type(f"export LOMETAB_URL={found[0]} TAKEN={found[1]}")
            shown += play(terminal, SERVED)
            shown.append(interrupt(terminal))
            shown += play(terminal, [*MISTAKES, *KEYS])
            terminal.type("kill %1; wait")
            terminal.wait_for_end()
            shown.append(log.read_text())
        finally:
            terminal.tmux("kill-server")
    target.parent.mkdir(exist_ok=True)
    target.write_text(("\n" + "=" * WIDTH + "\n").join(shown) + "\n", encoding="utf-8")
    print(f"wrote {target}")  # noqa: T201


if __name__ == "__main__":
    main()
