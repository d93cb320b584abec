"""What operators may do with the catalog, and what the web side notes in it.

Views, admin and commands decide nothing about its rows: they call these. Each change is one
transaction, and the row of `Revision` makes operators who act at once wait for each other: whoever
checks before writing raises it first. What the environment manages is refused here, whatever a
form says. Asking for the tags to be fetched changes nothing that operators curate: it is
`catalog.refreshrow.ask`.
"""

from catalog.actions.apps import (
    APP_FIELDS,
    APP_IS_MANAGED,
    check_app,
    delete_app,
    save_app,
    set_apps_enabled,
)
from catalog.actions.images import (
    IMAGE_FIELDS,
    IMAGE_IS_MANAGED,
    check_base_image,
    delete_base_image,
    save_base_image,
    set_tags_hidden,
)
from catalog.actions.refusal import ChangeRefused
from catalog.actions.terms import (
    TERMS_ARE_OLD,
    check_edit,
    check_terms,
    count_acceptance,
    delete_terms,
    edit_terms,
    make_terms_current,
    publish_terms,
    withdraw_terms,
)

__all__ = [
    "APP_FIELDS",
    "APP_IS_MANAGED",
    "IMAGE_FIELDS",
    "IMAGE_IS_MANAGED",
    "TERMS_ARE_OLD",
    "ChangeRefused",
    "check_app",
    "check_base_image",
    "check_edit",
    "check_terms",
    "count_acceptance",
    "delete_app",
    "delete_base_image",
    "delete_terms",
    "edit_terms",
    "make_terms_current",
    "publish_terms",
    "save_app",
    "save_base_image",
    "set_apps_enabled",
    "set_tags_hidden",
    "withdraw_terms",
]
