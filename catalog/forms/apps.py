"""The form of an app: what is wrong, in words for the person at the form."""

from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.views.decorators.debug import sensitive_variables

from catalog import actions, variables
from catalog.forms.env import EnvField, TypedEnv
from catalog.forms.seen import NoticesOthers
from catalog.models import App
from telorunner.conf.types import MAX_DESCRIPTION_LENGTH
from telorunner.values.dns import is_dns_label
from telorunner.values.image import parse_image
from telorunner.values.port import MAX_PORT

NAME_PROBLEM = (
    "The name must be a lower-case DNS label: letters, digits and “-”, at most 63, first and last"
    " no “-”."
)
DESCRIPTION_PROBLEM = f"The description must be at most {MAX_DESCRIPTION_LENGTH} characters long."
NAME_IS_TAKEN = "There is an app of this name already."
PORT_PROBLEM = f"The port must be a number from 1 to {MAX_PORT}, or empty."
RETYPE = "Typed values are not sent back: type those of {names} again."


class AppForm(NoticesOthers):
    """An app and its variables."""

    port = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_PORT,
        widget=forms.NumberInput(attrs={"class": "vIntegerField"}),
        help_text=f"Where it serves as an agent of watch sessions, 1 to {MAX_PORT}. Empty: none.",
        error_messages=dict.fromkeys(("invalid", "min_value", "max_value"), PORT_PROBLEM),
    )
    variables = EnvField(
        required=False,
        label="Environment variables",
        help_text=(
            "Values are secrets: they are kept encrypted and never shown. A field that is left"
            " empty keeps its value. To rename a variable, remove it and add it anew. They stand"
            " before what clients send under the same name."
        ),
    )

    seen_columns = actions.APP_FIELDS

    class Meta:
        model = App
        fields = actions.APP_FIELDS
        widgets: ClassVar = {
            "description": forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
            "image": forms.TextInput(attrs={"class": "vLargeTextField"}),
        }
        error_messages: ClassVar = {"name": {"unique": NAME_IS_TAKEN}}

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        env: Any = self.fields["variables"]
        env.set_stored(self.instance.env, variables.unreadable(self.instance.env))

    def clean_name(self) -> str:
        """Refuse what is no DNS label."""
        name: str = self.cleaned_data["name"]
        if not is_dns_label(name):
            raise ValidationError(NAME_PROBLEM)
        return name

    def clean_description(self) -> str:
        """Refuse more than clients are sent; a line ends as it was typed, not as browsers send."""
        text: str = self.cleaned_data["description"].replace("\r\n", "\n")
        if len(text) > MAX_DESCRIPTION_LENGTH:
            raise ValidationError(DESCRIPTION_PROBLEM)
        return text

    def clean_image(self) -> str:
        """Refuse what is no image reference."""
        image: str = self.cleaned_data["image"]
        try:
            parse_image(image)
        except ValueError as exc:
            raise ValidationError(f"{_capitalised(str(exc))}.") from exc
        return image

    @sensitive_variables()
    def clean(self) -> None:
        """Ask whether the app may be saved, with what its row says now."""
        super().clean()
        try:
            stored = actions.check_app(self.instance.pk)
        except actions.ChangeRefused as exc:
            raise ValidationError(exc.message) from exc
        self.notice_others(stored)
        change = self.cleaned_data.get("variables", variables.NO_CHANGE)
        if problems := variables.problems(stored.env if stored else {}, change):
            self.add_error("variables", problems)

    @sensitive_variables()
    def full_clean(self) -> None:
        """Validate; where anything is wrong, say which values have to be typed again."""
        super().full_clean()
        if not self.is_bound or not self.errors:
            return
        typed: TypedEnv = self["variables"].data
        names = [*typed.values, *(row.shown_name for row in typed.added if row.value)]
        if names:
            listed = ", ".join(sorted({*names} - {""})) or "the new variables"
            self.add_error("variables", RETYPE.format(names=listed))


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]
