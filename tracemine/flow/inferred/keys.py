"""What tensors look like, as numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from tracemine.ops.infer import TensorSpec


def key_of(spec: TensorSpec) -> Hashable:
    """Return what two views of the same elements have in common: strides of axes of length 1 mean nothing."""
    return (spec.dtype, *loose_key_of(spec))


def loose_key_of(spec: TensorSpec) -> tuple[Hashable, Hashable]:
    """Return the same without the dtype, which profilers do not record of a list's members."""
    steps = None
    if spec.strides is not None:
        steps = tuple(step for size, step in zip(spec.shape, spec.strides, strict=True) if size != 1)
    return (spec.shape, steps)


class Keys:
    """Numbers for what tensors look like: equal ones for equal shape, dtype and strides; others without the dtype."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._loose: dict[Hashable, int] = {}
        self.loose_of: list[int] = []  # by number
        self.dtype_of: list[str | None] = []
        self._shapes: dict[Hashable, int] = {}
        self.shape_of: list[int] = []  # a number for shape and dtype
        self.vague: list[bool] = []  # strides are not known
        self.spec_of: list[TensorSpec] = []  # one that looks so
        self._of_shape: defaultdict[int, list[int]] = defaultdict(list)
        self._perhaps_equal: list[list[int]] = []  # by number
        self._of_spec: dict[TensorSpec, int] = {}

    def __call__(self, spec: TensorSpec) -> int:
        found = self._of_spec.get(spec)
        if found is None:
            found = self._of_spec[spec] = self._number(spec)
        return found

    def _number(self, spec: TensorSpec) -> int:
        key = key_of(spec)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self._numbers)
            self.loose_of.append(self._loose.setdefault(loose_key_of(spec), len(self._loose)))
            self.dtype_of.append(spec.dtype)
            self.shape_of.append(self._shapes.setdefault((spec.dtype, spec.shape), len(self._shapes)))
            self.vague.append(spec.strides is None)
            self.spec_of.append(spec)
            others = self._of_shape[self.shape_of[-1]]
            perhaps = [other for other in others if self.vague[found] or self.vague[other]]
            for other in perhaps:
                self._perhaps_equal[other].append(found)
            self._perhaps_equal.append([found, *perhaps])
            others.append(found)
        return found

    def perhaps_equal(self, key: int) -> list[int]:
        """Itself, and others of its shape and dtype of which one has strides that are not known.

        >>> keys = Keys()
        >>> row, column, vague = (keys(TensorSpec((4, 2), "float32", strides)) for strides in ((2, 1), (1, 4), None))
        >>> keys.perhaps_equal(row), keys.perhaps_equal(vague)
        ([0, 2], [2, 0, 1])
        """
        return self._perhaps_equal[key]

    def of_shape(self, key: int) -> list[int]:
        """Return all of its shape and dtype."""
        return self._of_shape[self.shape_of[key]]
