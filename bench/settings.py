"""Django's settings of the process under measure: the product's, and the bare view beside it."""

# The bench measures what the product's settings make of it.
from telorunner.settings import *  # noqa: F403
from telorunner.settings import INSTALLED_APPS as _INSTALLED_APPS

INSTALLED_APPS = [*_INSTALLED_APPS, "bench"]
ROOT_URLCONF = "bench.urls"
