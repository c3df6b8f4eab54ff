"""A look at what a masker does, in the terminal."""

import numpy as np

NOTHING = -1  # stands where a dense view predicts nothing


def preview(
    masker, token_ids, padding_mask=None, key=None, decode=str, console=None, **inputs
):
    """Prints rows before and after a masker: the text, what is read, what is predicted.

    Tokens chosen for prediction stand out, and in sequences of an encoder and decoder,
    what is not part of the text.

    Args:
        masker: any `Masker`.
        token_ids: int (B, T), or one row (T,).
        padding_mask: bool or int of the same shape; all tokens are real by default.
        key: a seed or a pair (seed, step), as for `masker.numpy`.
        decode: from a token id to its text, such as the `id_to_token` of a Hugging Face
            tokenizer. Defaults to the id itself.
        console: a `rich.console.Console`; a new one by default.
        **inputs: what else the masker reads, such as `word_ids`.

    Example:
    ```python
    import numpy as np
    from keras_tta.layers.corruption import SpanCorruption, preview

    words = "Thank you for inviting me to your party last week .".split()
    preview(
        SpanCorruption(200, noise_density=0.3),
        np.arange(10, 10 + len(words)),
        decode=lambda i: words[i - 10] if i < 100 else ["</s>", f"<{199 - i}>"][i > 1],
    )
    ```
    """
    from rich.console import Console
    from rich.table import Table

    token_ids = np.atleast_2d(token_ids)
    real = np.ones(token_ids.shape, bool)
    if padding_mask is not None:
        real = np.atleast_2d(padding_mask) != 0
    inputs = {name: np.atleast_2d(value) for name, value in inputs.items()}
    batch = masker.numpy(token_ids, real, key=key, **inputs)

    table = Table(title=type(masker).__name__, show_header=False, show_lines=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for row, ids in enumerate(token_ids):
        text = ids[real[row]]
        outputs = {name: array[row] for name, array in batch.items()}
        read, labels = _sides(outputs, text, real[row])
        table.add_row("text", _line(text, np.zeros(len(text), bool), decode))
        table.add_row("reads", _line(*read, decode))
        table.add_row("predicts", _line(*labels, decode), end_section=True)
    (console or Console()).print(table)


def _sides(outputs, text, real):
    """What is read and what is predicted, each as ids and which of them stand out."""
    if "encoder_token_ids" in outputs:
        read = outputs["encoder_token_ids"][outputs["encoder_padding_mask"]]
        labels = outputs["labels"][outputs["sample_weight"] == 1]
        return (read, ~np.isin(read, text)), (labels, ~np.isin(labels, text))
    chosen = outputs["dense_sample_weight"][real] == 1
    labels = np.where(chosen, text, NOTHING)
    return (outputs["token_ids"][real], chosen), (labels, chosen)


def _line(ids, marked, decode):
    from rich.text import Text

    line = Text()
    for token_id, mark in zip(ids.tolist(), marked.tolist(), strict=True):
        token = "·" if token_id == NOTHING else str(decode(token_id))
        line.append(token, "bold cyan" if mark else None).append(" ")
    return line
