"""How large the tensors are that a computation makes."""

import keras

from tests.leakage.gradients import jax_weight_gradients, weight_gradients


def largest_tensor(function, weights, head):
    """Elements of the largest tensor in `function()` and its gradients.

    Every tensor is looked at on JAX and PyTorch; on TensorFlow, whose graphs tell less,
    the logits that `head` makes.
    """
    sizes = []
    logits_of = head._logits

    def spy(*args):
        logits = logits_of(*args)
        sizes.append(logits.shape.num_elements())
        return logits

    if keras.backend.backend() == "jax":
        sizes += _sizes_in_jax(function, weights)
    elif keras.backend.backend() == "torch":
        with _sizes_in_torch(sizes):
            weight_gradients(function, weights)
    else:
        head._logits = spy
        weight_gradients(function, weights)
        del head._logits
    return max(sizes)


def _sizes_in_jax(function, weights):
    import jax

    def equations(jaxpr):
        for equation in jaxpr.eqns:
            yield equation
            for leaf in jax.tree.leaves(list(equation.params.values())):
                inner = getattr(leaf, "jaxpr", leaf)
                if hasattr(inner, "eqns"):
                    yield from equations(inner)

    jaxpr = jax.make_jaxpr(lambda: jax_weight_gradients(function, weights))()
    return [out.aval.size for e in equations(jaxpr.jaxpr) for out in e.outvars]


def _sizes_in_torch(sizes):
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                # Not `numel`: an expanded view holds no more than what it views.
                storage = result.untyped_storage().nbytes()
                sizes.append(storage // result.element_size())
            return result

    return Sizes()
