"""`make docs`: what the repository keeps of generated text, then the site.

The site is built from `build/docs-pages` into `docs/site`; a warning is an error.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "build" / "docs-pages"
SITE = ROOT / "docs" / "site"
BUILT = "docs-site"
"""Where the generator writes, beside the pages; then the site is moved."""


def write_kept() -> None:
    """docs/errors.md, and the figures of the README."""
    from app.errors import document
    from scripts.docs.figures import README, write_readme

    (ROOT / "docs" / "errors.md").write_text(document(), encoding="utf-8")
    README.write_text(
        write_readme(README.read_text(encoding="utf-8")), encoding="utf-8"
    )


def build(pages: Path = PAGES, site: Path = SITE) -> None:
    """Raises `SystemExit` with what Zensical has found."""
    from scripts.docs.pages import assemble

    assemble(pages)
    config = _configure(pages)
    options = ("--strict", "--clean", "--config-file", str(config))
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", *options],
        env={**os.environ, "NO_COLOR": "1"},
        cwd=config.parent,
        capture_output=True,
        text=True,
    )
    said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    if done.returncode or "Warning:" in said:
        sys.exit(said)
    built = pages.parent / BUILT
    for name in ("sitemap.xml", "404.html"):  # of a host that we do not have
        (built / name).unlink(missing_ok=True)
    shutil.rmtree(site, ignore_errors=True)
    shutil.move(built, site)


def _configure(pages: Path) -> Path:
    """zensical.toml beside the pages: it builds nowhere but below its own folder."""
    text = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    text = text.replace('"build/docs-pages"', f'"{pages.name}"')
    text = text.replace('"docs/site"', f'"{BUILT}"')
    shutil.rmtree(pages.parent / BUILT, ignore_errors=True)
    config = pages.parent / f"{pages.name}.toml"
    config.write_text(text, encoding="utf-8")
    return config


if __name__ == "__main__":
    write_kept()
    build()
    sys.stdout.write(
        f"{SITE.relative_to(ROOT)}: open index.html, or /help of a service\n"
    )
