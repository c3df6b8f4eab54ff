"""How the weights of our models are split where one device does not hold them all."""

import keras


def get_layout_map(
    device_mesh, model_parallel_dim_name="model", data_parallel_dim_name="batch"
):
    """Which weights are split over which axis of a mesh of devices.

    Attention and feed-forward blocks are split by heads and by intermediate units, so
    that devices meet once a block; the token table and the scores of a head by tokens;
    all else is on every device. Optimizer variables follow their weights. The number of
    devices on the axis must divide heads, widths and vocabulary.

    Args:
        device_mesh: a `keras.distribution.DeviceMesh`.
        model_parallel_dim_name: the axis that splits weights. Defaults to `"model"`.
        data_parallel_dim_name: the axis that splits batches, and no weight. Defaults to
            `"batch"`.

    Returns:
        A `keras.distribution.LayoutMap`, also for the heads of pretraining.

    Raises:
        ValueError: if the mesh has no such axes.

    Example:
    ```python
    import keras
    from keras_tta.models import TTABackbone

    devices = ["gpu:0", "gpu:1"]
    mesh = keras.distribution.DeviceMesh((1, 2), ("batch", "model"), devices)
    layout_map = TTABackbone.get_layout_map(mesh)
    table = "tta_backbone/embeddings/token_embedding/embeddings"
    assert layout_map[table].axes == ("model", None)
    ```
    """
    for name in (model_parallel_dim_name, data_parallel_dim_name):
        if name not in device_mesh.axis_names:
            raise ValueError(
                f"The mesh has no axis {name!r}. "
                f"Received: axis_names={tuple(device_mesh.axis_names)}"
            )
    layout_map = keras.distribution.LayoutMap(device_mesh)
    by_output, by_input = (None, model_parallel_dim_name), (model_parallel_dim_name,)
    layout_map[".*token_embedding/(own_)?embeddings"] = (model_parallel_dim_name, None)
    layout_map["encoder/.*(query|key_value|intermediate)/kernel"] = by_output
    layout_map["encoder/.*(query|key_value|intermediate)/bias"] = by_input
    layout_map["encoder/.*output/kernel"] = (model_parallel_dim_name, None)
    layout_map[".*_head/bias"] = by_input
    return layout_map
