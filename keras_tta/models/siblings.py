"""One set of layers under several visibility rules."""

from types import SimpleNamespace

from keras_tta.visibility import Visibility


class Siblings:
    """Mixed into a backbone, gives it siblings: its layers under other rules.

    The backbone's constructor takes `visibility` and `sibling`, a backbone whose layers
    it uses, and ends with `_join_family`. Its class says in `static_key_value`
    whether keys and values are static: only then does a rule that hides self do so at
    any depth.
    """

    def _join_family(self, sibling):
        # A plain object, lest Keras take the siblings for layers of this model.
        self._family = (
            SimpleNamespace(by_rule={}) if sibling is None else sibling._family
        )
        self._family.by_rule[self.visibility] = self

    def with_visibility(self, rule):
        """The same layers under another visibility rule.

        The sibling is made once for each rule: asked again for an equal rule, the same
        model comes back.

        Args:
            rule: a `keras_tta.visibility.Visibility`.

        Returns:
            A backbone of the same class that shares every weight with this one.

        Raises:
            ValueError: if `rule` is no visibility rule.
        """
        if not isinstance(rule, Visibility):
            raise ValueError(
                "`rule` must be a visibility rule, such as `keras_tta.visibility."
                f"NotSelf()`. Received: rule={rule!r}"
            )
        if rule not in self._family.by_rule:
            type(self)(**self._sibling_config(rule), sibling=self)
        return self._family.by_rule[rule]

    def _sibling_config(self, rule):
        """Arguments of a sibling. Whether its layers train is for them to say."""
        config = self.get_config()
        del config["name"], config["trainable"]
        return {**config, "visibility": rule, "dtype": self.dtype_policy}
