"""The one row that the bare view writes."""

from django.db import models


class Row(models.Model):
    """A row as small as a session's is without its bundle."""

    text = models.TextField()

    class Meta:
        app_label = "bench"

    def __str__(self) -> str:
        return str(self.pk)
