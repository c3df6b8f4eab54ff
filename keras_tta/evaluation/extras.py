"""Packages that only evaluation needs."""

import importlib


def evaluation_package(name):
    """A package of the `evaluation` extra; the error says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(
            f"This evaluation needs the package {package}: "
            'pip install "keras-tta[evaluation]"'
        ) from error
