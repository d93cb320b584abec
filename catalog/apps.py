"""Django's registration of the catalog app."""

from django.apps import AppConfig


class CatalogConfig(AppConfig):
    """What operators curate: apps, usage terms and base images."""

    name = "catalog"
    verbose_name = "Catalog"
    default_auto_field = "django.db.models.BigAutoField"
