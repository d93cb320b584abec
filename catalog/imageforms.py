"""The form of a base image: what is wrong, in words for the person at the form."""

from typing import TYPE_CHECKING, ClassVar

from django import forms

from catalog import actions
from catalog.models import BaseImage

if TYPE_CHECKING:
    _BaseImageForm = forms.ModelForm[BaseImage]
else:
    # Django's class takes its type parameter in the stubs only.
    _BaseImageForm = forms.ModelForm


class BaseImageForm(_BaseImageForm):
    """An entry of the operator's own."""

    class Meta:
        model = BaseImage
        fields = actions.IMAGE_FIELDS
        widgets: ClassVar = {
            "reference": forms.TextInput(attrs={"class": "vTextField", "size": 60}),
        }

    def clean(self) -> None:
        """Ask whether the entry may be saved, with what the rows say now."""
        super().clean()
        if "reference" not in self.cleaned_data:
            return
        try:
            actions.check_base_image(self.instance.pk, self.cleaned_data["reference"])
        except actions.ChangeRefused as exc:
            self.add_error(exc.field or None, exc.message)
