"""Times as the pages of sessions and of base images have them: `2026-01-31 09:30:00 UTC`.

Source: https://docs.djangoproject.com/en/5.2/topics/i18n/formatting/#creating-custom-format-files
"""

DATE_FORMAT = "Y-m-d"
TIME_FORMAT = "H:i:s"
# NB: settings.TIME_ZONE is UTC, so that all times are shown in it.
DATETIME_FORMAT = r"Y-m-d H:i:s \U\T\C"
SHORT_DATE_FORMAT = DATE_FORMAT
SHORT_DATETIME_FORMAT = DATETIME_FORMAT
