"""Every command in a real terminal, to be looked at.

    python scripts/session.py [--width 80]

Types each command into a pane of tmux, waits for its end, and writes what stood on the
screen to build/session-80.txt. Nothing is asserted but that no command hangs, none
shows a traceback, and each ends with the exit code that it should: how it looks is for
people to judge.
"""

import argparse
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
EXAMPLE = ROOT / "examples" / "wine_quality.csv"
WINE = "wine.csv"
N_ROWS = 600
"""Of the example: how it looks, not how well it learns, is to be seen."""
HEIGHT = 60
SMALL = "--preset fast --set k=4 --set max_epochs=3"
TRAIN = f"lometab train {WINE} -t quality"

# A command, and the exit code that it should end with.
LOCAL = [
    ("lometab --version", 0),
    ("lometab --help", 0),
    (f"lometab profile {WINE}", 0),
    ("lometab keys list", 0),
    ("lometab doctor", 0),
    (f"{TRAIN} {SMALL} --name wine", 0),
    (f"lometab train kinds.csv -t kind {SMALL} --name kind", 0),
    ("lometab config | head -12", 0),
    ("lometab config --changed", 0),
    ("lometab open --show", 0),
    ("lometab backup kept.db", 0),
    ("lometab restore kept.db --data-dir other", 0),
    ("lometab models --data-dir other", 0),
]
SERVED = [
    (f"{TRAIN} {SMALL} --name wine --tag demo", 0),
    (f"{TRAIN} {SMALL} --detach", 0),
    ("lometab jobs watch $(newest train)", 0),
    ("lometab jobs", 0),
    ("lometab models", 0),
    ("lometab report kind@1", 0),
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
    (f"lometab predict wine@1 {WINE} --job -o by-job.parquet", 0),
    (f"lometab predict wine@1 {WINE} --skip --detach", 0),
    ("lometab jobs --kind predict", 0),
    ("lometab jobs show $(newest predict)", 0),
    ("lometab jobs download $(newest predict) -o later.csv", 0),
    ("lometab jobs faults $(newest predict)", 0),
    ("lometab jobs cancel $(newest predict)", 1),
    ("lometab webhooks", 0),
    ("lometab webhooks create https://hooks.example.com/lometab", 0),
    ("lometab webhooks", 0),
    ("lometab webhooks update $(hook) --event monitor.alarm --off", 0),
    ("lometab webhooks rotate $(hook)", 0),
    ("lometab webhooks deliveries $(hook)", 0),
    ("lometab webhooks delete $(hook)", 0),
    ("lometab datasets upload answers.csv", 0),
    ("lometab datasets delete $(newest_dataset)", 0),
    ("lometab datasets --json | head -5", 0),
    ("lometab blobs list", 0),
    ("lometab blobs clean --dry-run", 0),
    ("lometab train --help", 0),
    ("lometab predict --help", 0),
    ("lometab serve --help", 0),
    ("lometab jobs --help", 0),
    ("lometab jobs watch --help", 0),
]
MISTAKES = [
    ("lometab trian", 2),
    ("lometab train nowhere.csv -t y", 2),
    (f"lometab train {WINE} -t qualty", 2),
    (f"{TRAIN} --set rnk=8", 2),
    (f"{TRAIN} --budget soon", 2),
    (f"{TRAIN} --preset fst", 2),
    ("head -c 5000 /dev/urandom > odd.csv; lometab profile odd.csv", 2),
    ("lometab predict wine@1 odd.csv", 2),
    (f"lometab predict wine@1 {WINE} -o answers.xlsx", 2),
    ("lometab predict odd.csv odd.csv", 2),
    ("lometab jobs --url http://127.0.0.1:9 show job_0", 2),
    ("lometab webhooks create http://127.0.0.1/hook", 2),
    ("lometab webhooks show wh_0", 5),
    ("lometab dashboard --data-dir nowhere", 2),
    ("lometab blobs list --data-dir nowhere", 2),
    ("lometab jobs download $(newest train)", 2),
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
    ("lometab keys rotate $(lometab keys list --json | grep -om1 'key_\\w*')", 0),
    ("lometab keys revoke $(lometab keys list --json | grep -om1 'key_\\w*')", 0),
    ("lometab keys list", 0),
]


class Terminal:
    """A pane of a tmux server of our own."""

    def __init__(self, folder: Path, width: int) -> None:
        self.socket = str(folder / "tmux")
        python = shlex.quote(sys.executable)
        (folder / "rc").write_text(
            f'lometab() {{ {python} -m lometab "$@"; }}\n'
            "newest() { lometab jobs --kind $1 -n 1 --json | grep -om1 'job_\\w*'; }\n"
            "newest_dataset() { lometab datasets -n 1 --json | grep -om1 'ds_\\w*'; }\n"
            "hook() { lometab webhooks --json | grep -om1 'wh_\\w*'; }\n"
            f"PS1='[$?]$ '\ncd {shlex.quote(str(folder))}\n"
        )
        size = ("-x", str(width), "-y", str(HEIGHT))
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
        """What is on the screen, line by line as it is seen, and lines that have left
        it."""
        return self.tmux("capture-pane", "-p", "-S", str(-n_before))

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


def play(terminal: Terminal, commands: list[tuple[str, int]], shown: list[str]) -> int:
    """How many of them did not end as they should."""
    n_wrong = 0
    for command, expected in commands:
        terminal.type(command)
        screen, code = terminal.wait_for_end()
        is_right = code == expected and "Traceback" not in screen
        n_wrong += not is_right
        shown.append(screen)
        mark = "" if is_right else f"  WRONG: {expected} is expected"
        print(f"{code} {command}{mark}", flush=True)  # noqa: T201
    return n_wrong


LONG = f"{TRAIN} --preset fast --set k=4 --set max_epochs=5000 --set patience=null"


def interrupt_once(terminal: Terminal) -> str:
    """Ctrl-C in a training: the best epoch is kept."""
    terminal.type(LONG)
    terminal.wait_for(r"epoch \d\d", 300)
    terminal.press("C-c")
    screen, code = terminal.wait_for_end()
    assert code == 0 and re.search(r"stopped early\s+yes", screen), screen
    return screen


def interrupt_twice(terminal: Terminal) -> str:
    """Again while it stops: nothing is kept."""
    terminal.type(LONG)
    terminal.wait_for(r"epoch \d\d", 300)
    terminal.press("C-c")
    terminal.wait_for("Ctrl-C again", 60)
    terminal.press("C-c")
    screen, code = terminal.wait_for_end()
    assert code == 130 and "is cancelled" in screen, screen
    return screen


def _cut_example(folder: Path) -> None:
    """Its first rows, and the same with two classes in place of the quality."""
    head, *rows = EXAMPLE.read_text(encoding="utf-8").splitlines()[: N_ROWS + 1]
    (folder / WINE).write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    kinds = [f"{row[:-1]}{'good' if int(row[-1]) > 5 else 'plain'}" for row in rows]
    head = head.replace("quality", "kind")
    (folder / "kinds.csv").write_text("\n".join([head, *kinds]) + "\n", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=110)
    width = parser.parse_args().width
    target = ROOT / "build" / f"session-{width}.txt"
    if shutil.which("tmux") is None:
        raise SystemExit("there is no tmux on this machine")
    with tempfile.TemporaryDirectory(prefix="lometab-session-") as name:
        folder = Path(name)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("LOMETAB_")}
        os.environ.clear()
        os.environ.update(kept, LOMETAB_DATA_DIR=str(folder / "data"))
        os.environ["PYTHONPATH"] = str(ROOT)
        _cut_example(folder)
        terminal = Terminal(folder, width)
        shown: list[str] = []
        try:
            n_wrong = play(terminal, LOCAL, shown)
            log = folder / "serve.log"
            log.touch()
            terminal.type("lometab serve --port 0 > serve.log 2>&1 &")
            while not (found := re.search(r"http://[\d.]+:(\d+)", log.read_text())):
                time.sleep(0.2)
            terminal.type(f"export LOMETAB_URL={found[0]} TAKEN={found[1]}")
            n_wrong += play(terminal, SERVED, shown)
            shown += [interrupt_once(terminal), interrupt_twice(terminal)]
            n_wrong += play(terminal, [*MISTAKES, *KEYS], shown)
            terminal.type("kill %1; wait")
            terminal.wait_for_end()
            shown.append(log.read_text())
        finally:
            terminal.tmux("kill-server")
            line = "\n" + "=" * width + "\n"
            target.parent.mkdir(exist_ok=True)
            target.write_text(line.join(shown) + "\n", encoding="utf-8")
            print(f"wrote {target}")  # noqa: T201
    if n_wrong:
        raise SystemExit(f"{n_wrong} commands did not end as they should")


if __name__ == "__main__":
    main()
