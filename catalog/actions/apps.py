"""What operators may do with apps."""

from collections.abc import Iterable

from django.db import transaction
from django.views.decorators.debug import sensitive_variables

from catalog import variables
from catalog.actions.refusal import ChangeRefused
from catalog.models import App, Revision

APP_IS_GONE = "Somebody has deleted this app meanwhile."
APP_IS_MANAGED = (
    "{name} is managed by the environment of the runner: change RUNNER_APPS and restart the runner."
)
# What an operator says of an app, beside its variables.
APP_FIELDS = (
    "name",
    "title",
    "description",
    "image",
    "pull_policy",
    "port",
    "allow_root",
    "enabled",
    "position",
)


@sensitive_variables()
def save_app(app: App, change: variables.EnvChange = variables.NO_CHANGE) -> None:
    """Write an app and its variables; the values that are kept are sealed with the newest key.

    Raises:
        ChangeRefused: The environment manages it, it is gone, or a variable cannot be used.
    """
    with transaction.atomic():
        stored = check_app(app.pk)
        env = stored.env if stored else {}
        if problems := variables.problems(env, change):
            raise ChangeRefused(" ".join(problems), field="variables")
        app.env = variables.applied(env, change)
        # What the environment has under a new name is found when the runner starts.
        app.shadows_environment = bool(
            stored and stored.shadows_environment and stored.name == app.name
        )
        # NB: of a row that is there only what is edited: the form read the rest a while ago.
        app.save(update_fields=[*APP_FIELDS, "env", "shadows_environment"] if stored else None)


def check_app(app_id: int | None) -> App | None:
    """Return an app as it is now, None for a new one; the caller holds the transaction.

    Raises:
        ChangeRefused: The environment manages it, or it is gone.
    """
    # NB: first, so that nobody changes the row between this and the caller's writing it.
    Revision.rise()
    if app_id is None:
        return None
    stored = App.objects.filter(pk=app_id).first()
    if stored is None:
        raise ChangeRefused(APP_IS_GONE)
    if stored.is_from_environment:
        raise ChangeRefused(APP_IS_MANAGED.format(name=stored.name))
    return stored


def delete_app(app_id: int) -> None:
    """Delete an app; its sessions go on, and keep its name.

    Raises:
        ChangeRefused: The environment manages it.
    """
    with transaction.atomic():
        Revision.rise()
        # NB: with its row locked, a create that has its session's row, which names this one, is
        # waited for, and the update that takes the name's reference away finds it.
        app = App.objects.select_for_update().filter(pk=app_id).first()
        if app is None:
            return
        if app.is_from_environment:
            raise ChangeRefused(APP_IS_MANAGED.format(name=app.name))
        app.delete()


def set_apps_enabled(app_ids: Iterable[int], *, is_enabled: bool) -> list[App]:
    """Offer apps, or offer them no more; return those that were not so already.

    What runs goes on.

    Raises:
        ChangeRefused: The environment manages one of them; none was changed.
    """
    with transaction.atomic():
        Revision.rise()
        apps = App.objects.filter(pk__in=list(app_ids))
        if managed := apps.filter(is_from_environment=True).first():
            raise ChangeRefused(APP_IS_MANAGED.format(name=managed.name))
        rows = apps.filter(enabled=not is_enabled)
        changed = list(rows)
        rows.update(enabled=is_enabled)
    return changed
