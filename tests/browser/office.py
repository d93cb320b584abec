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


def make_operator(environment: Mapping[str, str]) -> None:
    """Make a user who is in the operators' group and has no other right."""
    script = _MAKE_OPERATOR.format(name=OPERATOR, password=PASSWORD, group=GROUP)
    manage(environment, "shell", "-c", script)
