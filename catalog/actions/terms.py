"""What operators may do with usage terms, and the count of who accepted them."""

from django.db import models, transaction
from django.db.models import F

from catalog.actions.refusal import ChangeRefused
from catalog.models import Revision, Terms
from telorunner.values import terms

TERMS_ARE_GONE = "Somebody has deleted this version meanwhile."
TERMS_ARE_MANAGED = (
    "The current terms are managed by the environment of the runner: change RUNNER_TERMS_FILE or"
    " RUNNER_TERMS_BODY and restart the runner."
)
VERSION_IS_MANAGED = (
    "Version {version} is managed by the environment of the runner, which makes it current when it"
    " starts and no other terms are."
)
TERMS_ARE_OLD = (
    "Version {version} is not current any more; only the current terms can be edited. To have this"
    " text back, make the version current again, or publish a new one."
)
BODY_IS_EMPTY = "The terms need a text."
VERSION_IS_TAKEN = "Version {version} is of another text: give another one."
DERIVED_IS_TAKEN = "Another text has the version {version}, which this one would get: give one."
TEXT_IS_UNCHANGED = "The text has not changed, and with it stays its version: leave this empty."
TERMS_ARE_CURRENT = "Version {version} is current: withdraw it, or publish another one first."
TERMS_HAVE_CHANGED = "Somebody has changed which terms are current meanwhile: look at them again."
TERMS_WERE_ACCEPTED = "Version {version} was accepted by clients, and is kept as what they read."


def publish_terms(title: str, body: str, version: str = "") -> Terms:
    """Make a text the current terms, and return its row; without a version one is derived.

    A version that is there already becomes current again if it is of the same text.

    Raises:
        ChangeRefused: The version is of another text or malformed, there is no text or too much
            of it, or the environment manages the current terms.
    """
    with transaction.atomic():
        check_terms(body, version)
        body = terms.normalise(body)
        version = version or terms.derive_version(body)
        row = Terms.objects.filter(version=version).first() or Terms(version=version, body=body)
        row.title = title
        _make_current(row)
    return row


def check_terms(body: str, version: str = "") -> None:
    """Refuse terms that cannot be published; the caller holds the transaction.

    Raises:
        ChangeRefused: As `publish_terms` says.
    """
    _hold_terms()
    if not body.strip():
        raise ChangeRefused(BODY_IS_EMPTY, field="body")
    if problem := terms.body_problem(body):
        raise ChangeRefused(f"The text {problem}.", field="body")
    if problem := terms.version_problem(version):
        raise ChangeRefused(f"The version {problem}.", field="version")
    wanted = version or terms.derive_version(body)
    taken = Terms.objects.filter(version=wanted).first()
    if taken is None:
        return
    if terms.normalise(taken.body) != terms.normalise(body):
        sentence = VERSION_IS_TAKEN if version else DERIVED_IS_TAKEN
        raise ChangeRefused(sentence.format(version=wanted), field="version")
    if taken.is_from_environment:
        raise ChangeRefused(VERSION_IS_MANAGED.format(version=wanted))


def edit_terms(terms_id: int, title: str, body: str, version: str = "") -> Terms:
    """Change the title of the current terms, or publish a changed text; return the current row.

    The row of the old text stays as it is.

    Raises:
        ChangeRefused: They are not current any more, or as `publish_terms` says.
    """
    with transaction.atomic():
        check_edit(terms_id, body, version)
        row = Terms.objects.get(pk=terms_id)
        if terms.normalise(row.body) != terms.normalise(body):
            return publish_terms(title, body, version)
        row.title = title
        # NB: without the number of acceptances, which a create may have raised since.
        row.save(update_fields=["title"])
    return row


def check_edit(terms_id: int, body: str, version: str = "") -> None:
    """Refuse an edit that cannot be made; the caller holds the transaction.

    Raises:
        ChangeRefused: As `edit_terms` says.
    """
    _hold_terms()
    row = _terms(terms_id)
    if not row.is_current:
        raise ChangeRefused(TERMS_ARE_OLD.format(version=row.version))
    if terms.normalise(row.body) != terms.normalise(body):
        check_terms(body, version)
    elif version and version != row.version:
        raise ChangeRefused(TEXT_IS_UNCHANGED, field="version")


def make_terms_current(terms_id: int) -> Terms:
    """Make a version current again.

    Raises:
        ChangeRefused: The environment manages it or the current one, or it is gone.
    """
    with transaction.atomic():
        _hold_terms()
        row = _terms(terms_id)
        if row.is_from_environment:
            raise ChangeRefused(VERSION_IS_MANAGED.format(version=row.version))
        _make_current(row)
    return row


def withdraw_terms(version: str) -> Terms:
    """Have no current terms, if those of this version are current; what was created goes on.

    Raises:
        ChangeRefused: The environment manages them, or others are current by now.
    """
    with transaction.atomic():
        _hold_terms()
        row = Terms.objects.filter(is_current=True, version=version).first()
        if row is None:
            raise ChangeRefused(TERMS_HAVE_CHANGED)
        row.is_current = False
        row.save(update_fields=["is_current"])
    return row


def delete_terms(terms_id: int) -> None:
    """Delete a version that nobody accepted.

    Raises:
        ChangeRefused: It is current, was accepted, or the environment manages it.
    """
    with transaction.atomic():
        Revision.rise()
        # NB: locked, so that no create counts an acceptance meanwhile.
        row = Terms.objects.select_for_update().filter(pk=terms_id).first()
        if row is None:
            return
        if row.is_from_environment:
            raise ChangeRefused(VERSION_IS_MANAGED.format(version=row.version))
        if row.is_current:
            raise ChangeRefused(TERMS_ARE_CURRENT.format(version=row.version))
        if row.accepted_count:
            raise ChangeRefused(TERMS_WERE_ACCEPTED.format(version=row.version))
        row.delete()


def count_acceptance(version: str) -> None:
    """Count a session that was created with a version accepted; in the transaction of the create.

    What is offered does not change by it: the number of `Revision` stays.
    """
    rows: models.QuerySet[Terms] = models.QuerySet(Terms)
    rows.filter(version=version).update(accepted_count=F("accepted_count") + 1)


def _hold_terms() -> None:
    """Make others who change the catalog wait; refuse where the environment has the terms."""
    Revision.rise()
    if Terms.objects.filter(is_current=True, is_from_environment=True).exists():
        raise ChangeRefused(TERMS_ARE_MANAGED)


def _terms(terms_id: int) -> Terms:
    row = Terms.objects.filter(pk=terms_id).first()
    if row is None:
        raise ChangeRefused(TERMS_ARE_GONE)
    return row


def _make_current(row: Terms) -> None:
    # NB: in this order; no two rows may be current even for a moment.
    Terms.objects.filter(is_current=True).exclude(pk=row.pk).update(is_current=False)
    row.is_current = True
    # NB: of a row that is there not the number of acceptances: a create may have raised it since.
    row.save(update_fields=["title", "is_current"] if row.pk else None)
