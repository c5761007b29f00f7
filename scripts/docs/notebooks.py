"""Notebooks: run by `make notebooks`, and shown as pages of the site."""

import base64
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "notebooks"


def to_markdown(path: Path, pictures: Path) -> str:
    """A notebook as a page; its pictures go into a folder beside it."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    parts: list[str] = []
    for i, cell in enumerate(notebook["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for j, output in enumerate(cell["outputs"]):
            parts.append(_show(output, pictures, f"{path.stem}-{i}-{j}.png"))
    return "\n\n".join(part for part in parts if part) + "\n"


def _show(output: dict[str, Any], pictures: Path, name: str) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    data = output.get("data", {})
    if "image/png" in data:
        pictures.mkdir(parents=True, exist_ok=True)
        (pictures / name).write_bytes(base64.b64decode("".join(data["image/png"])))
        return f"![What the code above draws]({pictures.name}/{name})"
    text = "".join(data.get("text/plain", "")).rstrip()
    return f"```text\n{text}\n```" if text else ""


def shrink(picture: str) -> str:
    """The same picture with 32 colours: a notebook is a file of a repository."""
    from PIL import Image

    small = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        image.convert("RGB").quantize(32).save(small, "png", optimize=True)
    return base64.b64encode(small.getvalue()).decode()


def run(path: Path) -> None:
    """Run a notebook from its first cell to its last, and keep what came out."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=900, kernel_name="python3").execute(cwd=str(ROOT))
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", []):
            output.get("metadata", {}).clear()
            if "text" in output:
                output["text"] = re.sub(r"\x1b\[[0-9;]*m", "", output["text"])
            if "image/png" in output.get("data", {}):
                output["data"]["image/png"] = shrink(output["data"]["image/png"])
    notebook.metadata = {"language_info": {"name": "python"}}
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for each in sorted(FOLDER.glob("*.ipynb")):
        sys.stdout.write(f"{each.relative_to(ROOT)}\n")
        run(each)
