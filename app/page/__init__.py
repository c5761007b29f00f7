"""The web page: plain files that use the public endpoints, and nothing else."""

from app.page.routes import router

__all__ = ["router"]
