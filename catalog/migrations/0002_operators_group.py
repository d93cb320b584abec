"""The group "operators": whoever is in it curates the catalog and stops sessions.

What an administrator gives or takes from the group afterwards stays as it is: this runs once.
"""

from typing import Any

from django.contrib.auth.management import create_permissions
from django.db import migrations

GROUP = "operators"
EVERYTHING = ("add", "change", "delete", "view")
GRANTED: dict[str, dict[str, tuple[str, ...]]] = {
    "catalog": {
        "app": EVERYTHING,
        "terms": EVERYTHING,
        "baseimage": EVERYTHING,
        "baseimagetag": EVERYTHING,
    },
    "runner_sessions": {"session": ("view", "stop")},
}


def make_group(apps: Any, schema_editor: Any) -> None:
    """Make the group with its permissions; an existing one only gains."""
    using = schema_editor.connection.alias
    Group = apps.get_model("auth", "Group")
    Permission = apps.get_model("auth", "Permission")
    permissions = []
    for app_label, models in GRANTED.items():
        _make_permissions(apps, app_label, using)
        for model, verbs in models.items():
            rows = Permission.objects.using(using).filter(
                content_type__app_label=app_label,
                content_type__model=model,
                codename__in=[f"{verb}_{model}" for verb in verbs],
            )
            permissions.extend(rows)
    group, _ = Group.objects.using(using).get_or_create(name=GROUP)
    group.permissions.add(*permissions)


def _make_permissions(apps: Any, app_label: str, using: str) -> None:
    """Make an app's permissions now: Django does only once all migrations have run."""
    app_config = apps.get_app_config(app_label)
    # What Django looks at to know whether an app has models; those of migrations leave it out.
    app_config.models_module = True
    create_permissions(app_config, verbosity=0, using=using, apps=apps)
    app_config.models_module = None


class Migration(migrations.Migration):
    dependencies = [
        ("catalog", "0001_initial"),
        ("runner_sessions", "0004_admin_indexes"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]
    operations = [migrations.RunPython(make_group, migrations.RunPython.noop)]
