"""Django's settings, made of the runner's configuration. Importing them changes nothing.

Raises ConfigError at import where a variable cannot be used; `manage.py` turns that into one line.
"""

import secrets

from telorunner import __version__, conf, datadir
from telorunner.database import settings as database

RUNNER = conf.load()

# Without a key of its own or a generated one (serve and migrate make it), one for this process.
SECRET_KEY = (
    RUNNER.secret_key or datadir.read_secret_key(RUNNER.data_dir) or secrets.token_urlsafe(48)
)
SECRET_KEY_FALLBACKS = list(RUNNER.secret_key_fallbacks)
DEBUG = RUNNER.debug
ALLOWED_HOSTS = list(RUNNER.allowed_hosts)
CSRF_TRUSTED_ORIGINS = list(RUNNER.csrf_trusted_origins)

INSTALLED_APPS = [
    "telorunner",
    "telorunner.apps.ConsoleConfig",
    "telorunner.apps.UsersConfig",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "channels",
    "catalog.apps.CatalogConfig",
    "sessions.apps.SessionsConfig",
]
MIDDLEWARE = [
    "telorunner.middleware.Security",
    "telorunner.middleware.Session",
    "telorunner.middleware.Common",
    "telorunner.middleware.CsrfView",
    "telorunner.middleware.Authentication",
    "telorunner.middleware.Messages",
    "telorunner.middleware.XFrameOptions",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

ROOT_URLCONF = "telorunner.urls"
ASGI_APPLICATION = "telorunner.asgi.application"
DATABASES = {"default": database.configure(RUNNER.database_url, RUNNER.data_dir)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
FORMAT_MODULE_PATH = ["telorunner.formats"]
STATIC_URL = "/static/"
# Static files are served out of the installed packages: nothing has to be collected.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False
# Who may read them from elsewhere is said by `telorunner.cors`, as for every answer.
WHITENOISE_ALLOW_ALL_ORIGINS = False

# The server refuses larger bodies before Django sees them; whole bodies stay in memory, so that no
# environment value is spooled to a disk.
DATA_UPLOAD_MAX_MEMORY_SIZE = RUNNER.max_bundle_bytes + 1
FILE_UPLOAD_MAX_MEMORY_SIZE = RUNNER.max_bundle_bytes + 1

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": [],
    "DEFAULT_PARSER_CLASSES": [],
    "DEFAULT_RENDERER_CLASSES": ["telorunner.drf.OrjsonRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "telorunner.drf.AlwaysJson",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "telorunner.drf.exception_handler",
    # OPTIONS would answer with class names and docstrings.
    "DEFAULT_METADATA_CLASS": None,
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "OAS_VERSION": "3.1.0",
    "TITLE": "telorunner",
    "VERSION": __version__,
    "SCHEMA_PATH_PREFIX": "/v1",
    "POSTPROCESSING_HOOKS": ["telorunner.openapi.complete"],
}

# TLS ends in front of the runner. Where every origin that the admin is used from is https, cookies
# are kept to it; on a plain localhost a Secure cookie would break the login.
_IS_BEHIND_TLS = bool(CSRF_TRUSTED_ORIGINS) and all(
    origin.startswith("https://") for origin in CSRF_TRUSTED_ORIGINS
)
SESSION_COOKIE_SECURE = _IS_BEHIND_TLS
CSRF_COOKIE_SECURE = _IS_BEHIND_TLS
SILENCED_SYSTEM_CHECKS = [
    # Django looks for its own classes by name; telorunner.middleware has them, derived.
    "security.W001",
    "security.W002",
    "security.W003",
    # Secure cookies: see above.
    "security.W010",
]

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": "telorunner.logformat.LineFormatter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": RUNNER.log_level.upper()},
    "loggers": {
        # Django would add handlers of its own.
        "django": {"handlers": [], "propagate": True},
        # Every 4xx would be a warning: a client's mistake is not the operator's business.
        "django.request": {"level": "ERROR"},
        # So would a Host that none can have be an error, with a page of traceback.
        "django.security.DisallowedHost": {"level": "CRITICAL"},
        # The same of a question to a list of the admin that somebody wrote into its address.
        "django.security.DisallowedModelAdminLookup": {"level": "CRITICAL"},
        # Statements with their values are never logged.
        "django.db.backends": {"level": "INFO"},
        "asyncio": {"level": "WARNING"},
        "daphne": {"level": "WARNING"},
        # What a bad client provokes is logged there as a warning.
        "twisted": {"level": "ERROR"},
        # Bodies of requests to the cluster, secrets included, are never logged.
        "kubernetes": {"level": "INFO"},
        "httpx": {"level": "WARNING"},
        # A line for each rule at each line of a text: megabytes for a preview of terms.
        "markdown_it": {"level": "INFO"},
        "aiohttp": {"level": "INFO"},
    },
}
