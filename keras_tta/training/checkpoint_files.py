"""Checkpoints on disk: written beside, synced, renamed, and compared when read.

A checkpoint is a folder `step-<number>` of `.safetensors` files, `training.json` and
`SHA256SUMS`, which `sha256sum --check` understands.
"""

import json
import re
import shutil
import warnings
from pathlib import Path

import safetensors.numpy

from keras_tta.files import NEW, OLD, replace_folder, sha256

STATE = "training.json"
SUMS = "SHA256SUMS"
DAMAGED = "damaged-"
_NAME = re.compile(r"step-\d{10,}")


class CheckpointError(RuntimeError):
    """A checkpoint that could not be written, or must not be used; says why.

    Example:
    ```python
    import keras_tta

    assert issubclass(keras_tta.training.CheckpointError, RuntimeError)
    ```
    """


class CheckpointFolder:
    """The checkpoints of one training.

    Args:
        path: the folder that holds them. Made by `prepare()`.
    """

    def __init__(self, path):
        self.path = Path(path)

    def prepare(self):
        """Make the folder, and clear away what an interrupted writing has left.

        Raises:
            CheckpointError: if nothing can be written there. Better now than later.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for left in self.path.glob(f"{NEW}*"):
                shutil.rmtree(left)
            for left in self.path.glob(f"{OLD}*"):
                name = self.path / left.name.removeprefix(OLD)
                shutil.rmtree(left) if name.exists() else left.rename(name)
            probe = self.path / f"{NEW}probe"
            probe.mkdir()
            probe.rmdir()
        except OSError as error:
            raise CheckpointError(
                f"Checkpoints cannot be written to {self.path}: {error}. Give "
                "`TrainingCheckpoint` a folder that can be written to."
            ) from error

    def steps(self):
        """Steps of the complete checkpoints, in order."""
        names = (path.name for path in self.path.glob("step-*"))
        return sorted(int(name[5:]) for name in names if _NAME.fullmatch(name))

    def at(self, step):
        """The path of the checkpoint of a step."""
        return self.path / f"step-{step:010d}"

    def write(self, step, arrays, state):
        """Write a checkpoint, completely or not at all.

        Args:
            step: int.
            arrays: dict from the name of a file to a dict of NumPy arrays by name.
            state: what `training.json` is to say.

        Raises:
            CheckpointError: if writing fails. All other checkpoints are unharmed.
        """
        target = self.at(step)
        new = target.with_name(NEW + target.name)
        try:
            new.mkdir()
            for name, tensors in arrays.items():
                safetensors.numpy.save_file(tensors, new / f"{name}.safetensors")
            text = json.dumps(state, indent=1)
            (new / STATE).write_text(text, encoding="utf-8")
            sums = [f"{sha256(path)}  {path.name}\n" for path in sorted(new.iterdir())]
            (new / SUMS).write_text("".join(sums), encoding="utf-8")
            replace_folder(new, target)
        except (OSError, safetensors.SafetensorError) as error:
            shutil.rmtree(new, ignore_errors=True)
            steps = [other for other in self.steps() if other != step]
            last = f"that of step {steps[-1]}" if steps else "none: this is the first"
            raise CheckpointError(
                f"The checkpoint of step {step} could not be written to {self.path}: "
                f"{error}. The last complete one is {last}. Mend the cause, such as a "
                "full disk, and run the same command to go on from there."
            ) from error

    def read(self, step):
        """The arrays and the state of a checkpoint, if it is as it was written.

        Raises:
            CheckpointError: if a file is missing or differs from what was written.
        """
        path = self.at(step)
        try:
            lines = (path / SUMS).read_text(encoding="utf-8").splitlines()
            sums = {name: digest for digest, name in (line.split() for line in lines)}
            if STATE not in sums:
                raise CheckpointError(f"{SUMS} does not name {STATE}")
            for name, digest in sums.items():
                if sha256(path / name) != digest:
                    raise CheckpointError(f"{name} is not as it was written")
            state = json.loads((path / STATE).read_text(encoding="utf-8"))
            arrays = {}
            for name in sums:
                if name.endswith(".safetensors"):
                    tensors = safetensors.numpy.load_file(path / name)
                    # The file has an order of its own.
                    kind = name.removesuffix(".safetensors")
                    arrays[kind] = dict(sorted(tensors.items()))
        except (CheckpointError, OSError, ValueError) as error:
            raise CheckpointError(f"{path} is damaged: {error}") from error
        return arrays, state

    def read_newest(self, below=None, set_aside=True):
        """Step, arrays and state of the newest sound checkpoint; None if there is none.

        A damaged one is passed over.

        Args:
            below: int. Take those of earlier steps only.
            set_aside: bool. Whether a damaged one is renamed, with a warning.

        Raises:
            CheckpointError: if there are checkpoints, and every one is damaged.
        """
        problems = []
        for step in reversed(self.steps()):
            if below is not None and step >= below:
                continue
            try:
                return step, *self.read(step)
            except CheckpointError as error:
                problems.append(str(error))
            if not set_aside:
                continue
            path = self.at(step)
            aside = path.with_name(DAMAGED + path.name)
            if aside.exists():
                shutil.rmtree(aside)
            path.rename(aside)
            warnings.warn(
                f"{problems[-1]}. It is set aside as {aside.name}, and the one before "
                "it is used.",
                stacklevel=2,
            )
        if problems:
            raise CheckpointError(
                f"Every checkpoint in {self.path} is damaged, the last in that "
                f"{problems[-1]}. To begin anew, remove the folder."
            )
        return None

    def prune(self, keep, also=None):
        """Remove all but the last `keep` checkpoints and that of step `also`."""
        for step in self.steps()[:-keep]:
            if step != also:
                # Half a removal must not look like a checkpoint.
                path = self.at(step)
                removed = path.rename(path.with_name(NEW + path.name))
                shutil.rmtree(removed, ignore_errors=True)
