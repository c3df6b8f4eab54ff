"""Checks of arguments, worded alike everywhere.

The owner of an argument is the object that is constructed, or the name of a function.
"""

from numbers import Integral, Real


def check_positive_integers(owner, **arguments):
    """Raise unless every argument is a positive integer."""
    for name, value in arguments.items():
        if isinstance(value, bool) or not hasattr(value, "__index__") or value < 1:
            raise ValueError(
                f"`{name}` of {_name(owner)} must be a positive integer. "
                f"Received: {name}={value!r}"
            )


def check_positive(owner, **arguments):
    """Raise unless every argument is a number above 0."""
    for name, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, Real) or not value > 0:
            raise ValueError(
                f"`{name}` of {_name(owner)} must be a number above 0. "
                f"Received: {name}={value!r}"
            )


def check_not_negative(owner, **arguments):
    """Raise unless every argument is a finite number from 0 up."""
    for name, value in arguments.items():
        if not isinstance(value, Real) or not 0 <= value < float("inf"):
            raise ValueError(
                f"`{name}` of {_name(owner)} must be a number from 0 up. "
                f"Received: {name}={value!r}"
            )


def check_fraction(owner, **arguments):
    """Raise unless every argument lies in [0, 1)."""
    for name, value in arguments.items():
        if not isinstance(value, Real) or not 0 <= value < 1:
            raise ValueError(
                f"`{name}` of {_name(owner)} must be a share from 0 up to, but "
                f"not including, 1. Received: {name}={value!r}"
            )


def check_token_ids(owner, vocabulary_size, **arguments):
    """Raise unless every argument is a token id, or a collection of them."""
    for name, value in arguments.items():
        ids = [value] if isinstance(value, (Integral, float)) else value
        try:
            known = all(
                isinstance(i, Integral) and 0 <= i < vocabulary_size for i in ids
            )
        except TypeError:
            known = False
        if not known:
            raise ValueError(
                f"`{name}` of {_name(owner)} must be token ids, integers "
                f"from 0 to {vocabulary_size - 1}. Received: {name}={value!r}"
            )


def check_one_of(owner, choices, **arguments):
    """Raise unless every argument is one of `choices`."""
    for name, value in arguments.items():
        if value not in choices:
            raise ValueError(
                f"`{name}` of {_name(owner)} must be one of "
                f"{', '.join(map(repr, choices))}. Received: {name}={value!r}"
            )


def check_heads(hidden_dim, num_heads):
    """Raise unless the width of a model divides into heads."""
    if hidden_dim % num_heads:
        raise ValueError(
            "`hidden_dim` must be a multiple of `num_heads`. "
            f"Received: hidden_dim={hidden_dim}, num_heads={num_heads}"
        )


def check_initializer_name(kernel_initializer):
    """Raise unless an initializer is given by its name, which a preset can hold."""
    if not isinstance(kernel_initializer, str):
        raise ValueError(
            "`kernel_initializer` of a backbone must be the name of a Keras "
            'initializer, such as "lecun_normal", or "bert". '
            f"Received: kernel_initializer={kernel_initializer!r}"
        )


def _name(owner):
    return owner if isinstance(owner, str) else type(owner).__name__
