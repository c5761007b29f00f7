"""The routes and their bodies, by resource. A route translates and nothing else."""

from app.api.application import make_api
from app.api.neighbours import serve as serve_neighbour

__all__ = ["make_api", "serve_neighbour"]
