"""What there is before an operator's day begins: an account, an app's image, some tags."""

from collections.abc import Mapping

from tests.evidence import manage

OPERATOR = "olga"
PASSWORD = "a-long-password"
GROUP = "operators"
APP_IMAGE = "registry.example/team/greeter:1.0"
# What that image runs here: it says who greets, and stays.
APP_COMMAND = ("sh", "-c", 'echo "Greetings of ${#GREETER} letters"; exec sleep 600')
TAGS = ("1.3.0", "1.3.0-slim", "1.2.0", "1.3.0-rc.1", "latest", "sha-0a1b2c3d")

_MAKE_OPERATOR = """
from django.contrib.auth.models import Group, User
user = User.objects.create_user({name!r}, password={password!r}, is_staff=True)
user.groups.add(Group.objects.get(name={group!r}))
"""

# Names as long as people give them, without a space to break them at.
LONG_APP = "an-application-whose-name-is-as-long-as-a-dns-label-may-be-63ch"
LONG_IMAGE = (
    "registry.internal.example:5000/platform/department-of-code/greeter:2026.11.30-build.4711"
)
LONG_VARIABLE = "THE_NAME_OF_A_VARIABLE_THAT_SAYS_ALL_OF_WHAT_IT_IS_FOR_AND_WHO_NEEDS_IT"
_FILL = """
from catalog import actions
from catalog.models import App, BaseImage
from catalog.variables import EnvChange
app = App(name={app!r}, title="An application with a sentence for a title", image={image!r})
actions.save_app(app, EnvChange({{{variable!r}: "value"}}, frozenset()))
actions.save_base_image(BaseImage(reference={image!r}))
body = "# Be kind\\n\\n1. One\\n\\n> Two\\n\\n```\\n" + "a line of code " * 20 + "\\n```\\n"
actions.publish_terms("Usage agreement", "An older text.", "")
actions.publish_terms("Usage agreement", body, "")
"""


def fill_catalog(environment: Mapping[str, str]) -> None:
    """Put an app, a base image and two versions of terms into the catalog, with long names."""
    script = _FILL.format(app=LONG_APP, image=LONG_IMAGE, variable=LONG_VARIABLE)
    manage(environment, "shell", "-c", script)


def make_operator(environment: Mapping[str, str]) -> None:
    """Make a user who is in the operators' group and has no other right."""
    script = _MAKE_OPERATOR.format(name=OPERATOR, password=PASSWORD, group=GROUP)
    manage(environment, "shell", "-c", script)
