"""Django's own apps under the runner's names: its console, and who may use it."""

# NB: as modules, for Django takes a config that stands in here by its name for this package's own.
from django.contrib.admin import apps as admin_apps
from django.contrib.auth import apps as auth_apps


class ConsoleConfig(admin_apps.AdminConfig):
    """The admin, on a site of the runner's."""

    default = False
    default_site = "telorunner.adminsite.RunnerAdminSite"


class UsersConfig(auth_apps.AuthConfig):
    """Users and groups, which an operator looks for under that name."""

    default = False
    verbose_name = "Users"
