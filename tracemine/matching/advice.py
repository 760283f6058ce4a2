"""Advice that depends on the trace: texts with conditions on facts, the first that fits counts. Data, in rule.toml."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from tracemine.host.uses import USES
from tracemine.ops.infer.library import OPERATIONS
from tracemine.rows.invariants import KINDS

Fact = bool | str | None  # None: not known; no condition holds of it
Facts = Mapping[str, Fact]

# Facts that a condition may ask for, and what they say; those whose values are texts, with the texts that can be.
FLAGS: Final = {
    "tensorflow": "TensorFlow launched it, not PyTorch: kernels are its own, and no operator is ATen's",
    "amd": "the GPU is AMD's: ROCm, HIP",
    "compiled": "torch.compile has compiled part of what was recorded",
    "unfused_backend": "torch.compile ran it in its graph, by a backend that makes no kernels of its own",
    "replayed": "part of what was recorded is a CUDA graph's",
    "graph_pieces": "a step replays more than two CUDA graphs",
    "no_torch": "nothing of PyTorch is in the profile: no operator, no kernel, no file",
    "blockers": "in the model something was recorded that a CUDA graph's capture does not allow: `{blockers}` names it",
    "repeated": "the outermost module runs several times a step",
    "derived_twice": "autograd differentiates what a backward pass computed (`create_graph=True`)",
    "uncached": "memory is freed nearly as often as allocated, all the time: the allocator's cache is off, or full",
    "no_fused_norm": "this torch, which a capture names, has no kernel of its own for `F.rms_norm`",
    "slow_norm": "PyTorch's own kernel for `F.rms_norm` takes clearly longer on these rows than one made for them",
    "offset_weight": "a number is added to the norm's weight before it is multiplied by",
    "fused_step": "the optimizer's class takes `fused=True` in the torch that a capture names, else in 2.3",
    "training": "a backward pass, or an optimizer's step, was recorded",
    "module": "it lies in a module",
    "backward": "it is part of a backward pass",
    "widened": "one kernel could do more than the pattern names: what is counted is all of it",
    "alike": "most of it lies in a loop of eight rounds or more of the same operators, none of which needs another",
    "rounds": "most of it follows waits of a loop that waits ten times or more in a step",
    "at_once": "most of it lies in a loop of eight rounds or more of the same operators, none of which needs another",
    "in_operator": "the host was inside the operator that is named, not before it",
    "new_shapes": "that operator had other shapes nearly each time",
    "computing_stream": "communication runs in order with other kernels, on their stream",
    "in_launch": "the host was inside the launch call",
}
TEXTS: Final = {
    "engine": ("what serves the model", ("vllm", "sglang")),
    "optimizer": ("class of the optimizer whose step it is: `{optimizer}` in the text names it", None),
    "forward_function": (
        "the function outside of every module whose backward pass it is: `{forward}` in the text names it",
        None,
    ),
    "recurrent": (
        "of gaps: the module whose cell, called once a position, most of them are of",
        ("GRU", "LSTM", "RNN"),
    ),
    "loop": ("what a loop over tensors does to each, as `sweep_kind` says it", ("zero", "norm", "average", "update")),
    "library": ("the library in whose files the line is", ("transformers", "diffusers")),
    "operation": ("the one operator that is named, without `aten::`", None),
    "call_class": ("what kind of a library's call all of it is, forward or backward", tuple(OPERATIONS.values())),
    "norm_order": (
        "how the norm and one residual sum follow each other, where nothing else is added to it",
        ("sum first", "norm first", "between norms"),
    ),
    "score_function": (
        "what attention does to its scores that `scaled_dot_product_attention` has no argument for",
        ("soft cap", "bias of queries", "other"),
    ),
    "use": ("of waits for the device, what most of the values that are fetched there are used for", USES),
    "invariant": ("what work gives that is the same in every step, as `invariant_kind` says it", KINDS),
}
PLACEHOLDER: Final = "{blockers}"
NAMED: Final = ("optimizer", "recurrent")  # `{optimizer}` in a text that asks for one of several classes
FORWARD: Final = "{forward}"  # in a text that asks that the function is known
# Texts that hold of all parts together or not at all: what fits one part would be wrong of another.
_OF_ALL: Final = frozenset({"call_class", "forward_function"})


class Advice(Struct, frozen=True):
    """A text, and what must hold for it: a flag, or one of several texts; of a text `True` asks that it is known."""

    when: Mapping[str, bool | tuple[str, ...]]
    text: str
    call: str | None = None  # None: as its rule says
    title: str | None = None  # likewise

    def fits(self, facts: Facts) -> bool:
        return all(_holds(facts.get(name), wanted) for name, wanted in self.when.items())


def _holds(fact: Fact, wanted: bool | tuple[str, ...]) -> bool:
    """Return whether a fact is as a condition wants it.

    >>> _holds("AdamW", ("Adam", "AdamW")), _holds("AdamW", True), _holds(None, False), _holds(None, ("Adam",))
    (True, True, True, False)
    """
    return bool(fact) is wanted if isinstance(wanted, bool) else fact in wanted


def fitting(advice: Sequence[Advice], facts: Facts) -> Advice | None:
    """Return the first that fits; None: the rule's own fix does.

    >>> fitting([Advice({"amd": True}, "HIP")], {"amd": None}) is None
    True
    """
    return next((one for one in advice if one.fits(facts)), None)


def advised(advice: Sequence[Advice], otherwise: str, facts: Facts, blockers: str = "") -> str:
    """Return the first text that fits, with the optimizer's class and what would break a CUDA graph's capture in it.

    >>> advised([Advice({"amd": True}, "HIP")], "CUDA {blockers}", {"amd": None}, "(x)")
    'CUDA (x)'
    """
    found = fitting(advice, facts)
    if found is None:
        return otherwise.replace(PLACEHOLDER, blockers)
    text = found.text
    for name in NAMED:
        if isinstance(found.when.get(name), tuple):  # so it is one of those, and no other text of the trace's
            text = text.replace(f"{{{name}}}", str(facts[name]))
    if found.when.get("forward_function") is True:  # a plain name: see findings/forwards.py
        text = text.replace(FORWARD, str(facts["forward_function"]))
    return text.replace(PLACEHOLDER, blockers)


def merged(facts: Iterable[Facts]) -> dict[str, Fact]:
    """Return the facts of several together: a flag holds where it does of any, a text is the first that is known.

    A text that has to hold of all is not known where they differ.

    >>> merged([{"backward": False, "optimizer": None}, {"backward": True, "optimizer": "SGD"}])
    {'backward': True, 'optimizer': 'SGD'}
    >>> merged([{"call_class": "product"}, {"call_class": "convolution"}])
    {'call_class': None}
    """
    found: dict[str, Fact] = {}
    for each in facts:
        for name, fact in each.items():
            known = found.get(name, fact)
            found[name] = (known if known == fact else None) if name in _OF_ALL else known or fact
    return found


def when_text(when: Mapping[str, bool | tuple[str, ...]]) -> str:
    """Return a condition for people.

    >>> when_text({"engine": ("vllm", "sglang"), "compiled": False})
    'engine is vllm or sglang, not compiled'
    """
    return ", ".join(
        (name if wanted else f"not {name}") if isinstance(wanted, bool) else f"{name} is {' or '.join(wanted)}"
        for name, wanted in when.items()
    )
