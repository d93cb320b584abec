"""The form of a base image: what is wrong, in words for the person at the form."""

from typing import ClassVar

from django import forms

from catalog import actions
from catalog.forms.seen import NoticesOthers
from catalog.models import BaseImage


class BaseImageForm(NoticesOthers):
    """An entry of the operator's own."""

    seen_columns = actions.IMAGE_FIELDS

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
            stored = actions.check_base_image(self.instance.pk, self.cleaned_data["reference"])
        except actions.ChangeRefused as exc:
            self.add_error(exc.field or None, exc.message)
        else:
            self.notice_others(stored)
