"""The forms of the admin: apps and usage terms.

They say what is wrong in words for the person at the form; what may be done is decided by
`catalog.actions`, which the forms ask while the view's transaction is open.
"""

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.views.decorators.debug import sensitive_variables

from catalog import actions, variables
from catalog.envfield import EnvField, TypedEnv
from catalog.models import App, Terms
from telorunner.values import terms
from telorunner.values.dns import is_dns_label
from telorunner.values.image import parse_image

if TYPE_CHECKING:
    _AppForm = forms.ModelForm[App]
    _TermsForm = forms.ModelForm[Terms]
else:
    # Django's class takes its type parameter in the stubs only.
    _AppForm = _TermsForm = forms.ModelForm

MAX_PORT = 65_535

NAME_PROBLEM = (
    "The name must be a lower-case DNS label: letters, digits and “-”, at most 63, first and last"
    " no “-”."
)
NAME_IS_TAKEN = "There is an app of this name already."
PORT_PROBLEM = "The port must be a number from 1 to 65535, or empty."
RETYPE = "Typed values are not sent back: type those of {names} again."


class AppForm(_AppForm):
    """An app and its variables."""

    port = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_PORT,
        widget=forms.NumberInput(attrs={"class": "vIntegerField"}),
        help_text="Where it serves as an agent of watch sessions, 1 to 65535. Empty: it is none.",
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
            listed = ", ".join(sorted(filter(None, names))) or "the new variables"
            self.add_error("variables", RETYPE.format(names=listed))


class PublishTermsForm(_TermsForm):
    """A text that becomes the current terms."""

    body = forms.CharField(
        # NB: white space is part of the text, which the version is derived from. Its length is the
        # action's to check, in the characters that are kept.
        strip=False,
        widget=forms.Textarea(attrs={"rows": 25, "class": "vLargeTextField"}),
        help_text="Markdown. HTML in it is shown as text; images are not shown.",
    )

    # What the refusals of `catalog.actions` call the version.
    version_field: ClassVar[str] = "version"

    class Meta:
        model = Terms
        fields: ClassVar = ("title", "body", "version")

    def clean_body(self) -> str:
        """Take the line ends that a browser sends back to what was typed."""
        return terms.normalise(self.cleaned_data["body"])

    def clean(self) -> None:
        """Ask whether the text may be published, with what the rows say now."""
        super().clean()
        if not {"body", self.version_field} <= self.cleaned_data.keys():
            return
        try:
            self.check(self.cleaned_data["body"], self.cleaned_data[self.version_field])
        except actions.ChangeRefused as exc:
            field = self.version_field if exc.field == "version" else exc.field
            self.add_error(field or None, exc.message)

    def check(self, body: str, version: str) -> None:
        """Refuse what cannot be published."""
        actions.check_terms(body, version)

    def validate_unique(self) -> None:
        """Leave it to the action: a version that is there may become current again."""


class EditTermsForm(PublishTermsForm):
    """The current terms: a changed text becomes a new version."""

    new_version = forms.CharField(
        required=False,
        max_length=64,
        help_text="Of a changed text; left empty, it is derived. An unchanged text keeps its own.",
    )
    version_field = "new_version"

    class Meta:
        model = Terms
        fields: ClassVar = ("title", "body")

    def check(self, body: str, version: str) -> None:
        """Refuse what cannot be saved."""
        actions.check_edit(self.instance.pk, body, version)


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]
