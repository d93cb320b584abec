"""A form that notices what somebody else has saved since it was opened.

Whoever saves a page that is old by now would undo, without a word, what they never saw: an app that
was switched off meanwhile would be offered again.
"""

import hashlib
import json
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.db.models import Model

if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[Any]
else:
    # Django's class takes its type parameter in the stubs only.
    _ModelForm = forms.ModelForm

SAVED_MEANWHILE = (
    "Somebody has saved this entry since you opened it, with another {fields}. Save again to have"
    " it as it stands here, or open the page anew."
)


class SeenField(forms.CharField):
    """A mark of what the row said when the page was made; of no interest to people."""

    widget = forms.HiddenInput

    def has_changed(self, _initial: Any, _data: Any) -> bool:
        """Return False: it is no change of the entry, and not in its history."""
        return False

    def bound_data(self, _data: Any, initial: Any) -> Any:
        """Return the mark of now: whoever has been told of a change may save over it."""
        return initial


class NoticesOthers(_ModelForm):
    """A form of an entry; a form that was sent without the mark is taken as it is."""

    seen = SeenField(required=False, max_length=64)

    # The columns that the form writes.
    seen_columns: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.instance.pk is not None:
            self.initial["seen"] = self._mark(self.instance)

    def notice_others(self, stored: Model | None) -> None:
        """Refuse to overwrite what the row says now, if that is not what the page showed."""
        seen: str = self.cleaned_data.get("seen", "")
        if stored is None or not seen or seen == self._mark(stored):
            return
        other = [
            str(self[name].label).lower()
            for name in self.seen_columns
            if name in self.cleaned_data and getattr(stored, name) != self.cleaned_data[name]
        ]
        if other:
            self.add_error(None, SAVED_MEANWHILE.format(fields=", ".join(other)))

    def _mark(self, row: Model) -> str:
        values = json.dumps([getattr(row, name) for name in self.seen_columns])
        return hashlib.sha256(values.encode()).hexdigest()
