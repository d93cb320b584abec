"""The project: everything that knows neither sessions nor apps."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("telorunner")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"
