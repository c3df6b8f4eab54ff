"""Training on packed rows, which hold several sequences."""

from keras_tta.visibility import SameSegment


def training_backbone(backbone, packed):
    """The backbone, or for packed rows its sibling whose sequences do not mix."""
    if not packed:
        return backbone
    return backbone.with_visibility(backbone.visibility & SameSegment())
