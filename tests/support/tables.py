"""Small tables to train on."""

import random


def make_csv(n_rows: int = 120, seed: int = 0) -> str:
    """A small table with numbers, categories, gaps, and a number `y` to learn."""
    rng = random.Random(seed)
    lines = ["size,colour,weight,y,label"]
    for _ in range(n_rows):
        size, weight = rng.uniform(0, 10), rng.gauss(5, 2)
        colour = rng.choice(["red", "green", "blue"])
        y = 2 * size - weight + (3 if colour == "red" else 0) + rng.gauss(0, 0.1)
        shown = "" if rng.random() < 0.1 else f"{weight:.4f}"
        label = "high" if y > 5 else "low"
        lines.append(f"{size:.4f},{colour},{shown},{y:.4f},{label}")
    return "\n".join(lines) + "\n"
