"""What operators curate, in the Django admin: apps, usage terms and base images."""

from catalog.admin.apps import AppAdmin
from catalog.admin.images import BaseImageAdmin, BaseImageTagAdmin
from catalog.admin.terms import TermsAdmin

__all__ = ["AppAdmin", "BaseImageAdmin", "BaseImageTagAdmin", "TermsAdmin"]
