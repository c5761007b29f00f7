"""What is old goes, as the settings of each workspace say."""

from app.retention.sweeping import sweep

__all__ = ["sweep"]
