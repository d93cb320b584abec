"""The forms of usage terms: what is wrong, in words for the person at the form."""

from typing import TYPE_CHECKING, ClassVar

from django import forms

from catalog import actions
from catalog.models import Terms
from telorunner.values import terms

if TYPE_CHECKING:
    _TermsForm = forms.ModelForm[Terms]
else:
    # Django's class takes its type parameter in the stubs only.
    _TermsForm = forms.ModelForm


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
        max_length=terms.MAX_VERSION_LENGTH,
        help_text="Of a changed text; left empty, it is derived. An unchanged text keeps its own.",
    )
    version_field = "new_version"

    class Meta:
        model = Terms
        fields: ClassVar = ("title", "body")

    def check(self, body: str, version: str) -> None:
        """Refuse what cannot be saved."""
        actions.check_edit(self.instance.pk, body, version)
