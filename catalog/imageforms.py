"""The form of a base image: what is wrong, in words for the person at the form."""

from typing import TYPE_CHECKING, ClassVar

from django import forms
from django.core.exceptions import ValidationError

from catalog import standing
from catalog.models import BaseImage
from telorunner.values.image import parse_image

if TYPE_CHECKING:
    _BaseImageForm = forms.ModelForm[BaseImage]
else:
    # Django's class takes its type parameter in the stubs only.
    _BaseImageForm = forms.ModelForm

NO_IMAGE = "This must be an image reference such as registry.example/team/telo:1.2 ({problem})."
IS_THERE = "The list has this image already, as {reference}."
IS_DEFAULT = "This is the image of RUNNER_IMAGE, {reference}, which is offered first anyway."


class BaseImageForm(_BaseImageForm):
    """An entry of the operator's own."""

    class Meta:
        model = BaseImage
        fields = ("reference", "position", "enabled")
        widgets: ClassVar = {
            "reference": forms.TextInput(attrs={"class": "vTextField", "size": 60}),
        }

    def clean_reference(self) -> str:
        """Return the reference; it names an image, and none that another entry names."""
        text: str = self.cleaned_data["reference"]
        try:
            reference = parse_image(text)
        except ValueError as exc:
            raise ValidationError(NO_IMAGE.format(problem=exc)) from exc
        if same := standing.same_image(reference, except_id=self.instance.pk):
            sentence = IS_DEFAULT if same.is_from_environment else IS_THERE
            raise ValidationError(sentence.format(reference=same.reference))
        return text
