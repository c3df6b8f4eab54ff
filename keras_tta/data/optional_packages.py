"""Packages that one function needs, and the rest of keras_tta does not."""

import importlib
from types import ModuleType


def import_optional(package: str, extra: str, purpose: str) -> ModuleType:
    """Import a package, or say which extra of ours installs it.

    Args:
        package: the name that it is imported by.
        extra: the extra of keras_tta that installs it.
        purpose: what needs the package, the start of the error's sentence.

    Raises:
        ImportError: the package cannot be imported.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(
            f"{purpose} needs the package {package}. In a checkout of keras_tta: "
            f'pip install ".[{extra}]"'
        ) from error
