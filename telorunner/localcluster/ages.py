"""How old things are, in kubectl's short form. Pure but for the time that it is."""

import time
from datetime import UTC, datetime


def age(text: str | None) -> str:
    """Return how long ago a time was, in kubectl's short form."""
    if not text:
        return "<unknown>"
    moment = datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)
    seconds = max(0, int(time.time() - moment.timestamp()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    return f"{days}d{hours % 24}h" if days < 8 and hours % 24 else f"{days}d"
