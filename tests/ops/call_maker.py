"""Calls of torch operators on meta tensors, made up from the operators' own schemas and, by output rule, what fits."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import torch

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
DTYPES = (*FLOATS, torch.float32, torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64)
NUMBERS = (0, 2, -1, 1.5, 0.1, True)


class Maker:
    """Shapes, layouts and values drawn from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.dtype = self.random.choice(DTYPES)

    def floats(self) -> None:
        """From here on, tensors of one floating type."""
        self.dtype = self.random.choice(FLOATS)

    def size(self) -> int:
        return self.random.choice((0, 1, 1, 2, 3, 4, 5, 8)) if self.random.random() < 0.5 else self.random.randint(2, 7)

    def shape(self, least: int = 0, most: int = 5) -> tuple[int, ...]:
        return tuple(self.size() for _ in range(self.random.randint(least, most)))

    def full(self, rank: int) -> tuple[int, ...]:
        """A shape without empty axes."""
        return tuple(self.random.randint(1, 6) for _ in range(rank))

    def tensor(self, shape: tuple[int, ...] | list[int], dtype: torch.dtype | None = None) -> torch.Tensor:
        """Row-major, channels last, permuted, a slice of something larger, or expanded."""
        shape, dtype = tuple(shape), dtype or self.dtype
        if not shape and dtype in (torch.float64, torch.int64):  # recorded as Python numbers are, and taken for them
            dtype = torch.float32
        kind = self.random.randrange(8)
        if kind == 0 and len(shape) in (4, 5):
            format_ = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
            return torch.empty(shape, dtype=dtype, device="meta", memory_format=format_)
        if kind in (1, 2) and len(shape) > 1:
            order = self.random.sample(range(len(shape)), len(shape))
            made = torch.empty([shape[axis] for axis in order], dtype=dtype, device="meta")
            return made.permute([order.index(axis) for axis in range(len(shape))])
        if kind == 3 and shape:
            wider = torch.empty((*shape[:-1], 2 * shape[-1] + 1), dtype=dtype, device="meta")
            return wider[..., : shape[-1]] if self.random.random() < 0.5 else wider[..., 1::2]
        if kind == 4 and shape:
            axis = self.random.randrange(len(shape))
            return torch.empty((*shape[:axis], 1, *shape[axis + 1 :]), dtype=dtype, device="meta").expand(shape)
        return torch.empty(shape, dtype=dtype, device="meta")

    def partner(self, shape: tuple[int, ...]) -> torch.Tensor | float:
        """What broadcasts with a shape: the same, with axes of 1 or without the first ones, 0-dim, or a number."""
        kind = self.random.randrange(8)
        if kind == 0:
            return self.random.choice((2, 1.5))
        if kind == 1:
            return self.tensor((), self.random.choice((*FLOATS[:3], torch.int32, torch.bool)))
        dtype = self.random.choice(DTYPES) if kind == 2 else self.dtype
        own = [size if self.random.random() < 0.7 else 1 for size in shape]
        return self.tensor(own[self.random.randrange(len(own) + 1) if kind == 3 else 0 :], dtype)

    def axis(self, rank: int) -> int:
        return self.random.randrange(-max(rank, 1), max(rank, 1))

    def axes(self, rank: int) -> list[int]:
        chosen = self.random.sample(range(rank), self.random.randint(0, rank))
        return [axis - rank if self.random.random() < 0.3 else axis for axis in chosen]


Given = dict[str, Any]


def _broadcasting(m: Maker, overload: Any) -> Given:
    shape = m.shape()
    given: Given = {}
    for argument in overload._schema.arguments:
        kind = str(argument.type)
        if kind == "Tensor" and not argument.kwarg_only:
            given[argument.name] = m.partner(shape) if given else m.tensor(shape)
        elif kind == "Optional[Tensor]":
            given[argument.name] = m.random.choice((None, m.tensor(shape)))
        if argument.name in ("condition", "mask"):
            given[argument.name] = m.tensor(shape, torch.bool)
    return given


def _gradient(m: Maker, overload: Any) -> Given:
    m.floats()
    shape = m.shape()
    return {a.name: m.tensor(shape) for a in overload._schema.arguments if str(a.type) == "Tensor" and not a.kwarg_only}


def _halved(m: Maker, overload: Any) -> Given:
    m.floats()
    return {"self": m.tensor((4, 6, 8)), "grad_output": m.tensor((4, 3, 8)), "dim": 1}


def _one(m: Maker, overload: Any) -> Given:
    return {_first(overload): m.tensor(m.shape())}


def _one_float(m: Maker, overload: Any) -> Given:
    m.floats()
    return _one(m, overload)


def _first(overload: Any) -> str:
    return str(overload._schema.arguments[0].name)


def _view(m: Maker, overload: Any) -> Given:
    source = m.tensor(m.shape(0, 4))
    wanted = [source.numel()]
    if source.dim() > 1 and m.random.random() < 0.7:
        cut = m.random.randrange(source.dim())
        wanted = [*source.shape[:cut], *([1] * m.random.randrange(2)), -1, *source.shape[cut + 2 :]]
    other = torch.empty([source.numel()], device="meta")
    return {"self": source, "size": wanted, "shape": wanted, "other": other}


def _expand(m: Maker, overload: Any) -> Given:
    shape = m.full(m.random.randint(0, 4))
    wanted = [*m.full(m.random.randint(0, 2)), *(m.random.choice((-1, s)) if s > 1 else s + 3 for s in shape)]
    return {"self": m.tensor(shape), "size": wanted, "other": m.tensor([3, *(s if s > 1 else 4 for s in shape)])}


def _permute(m: Maker, overload: Any) -> Given:
    shape = m.shape()
    order = m.random.sample(range(len(shape)), len(shape))
    half = len(order) // 2
    return {"self": m.tensor(shape), "dims": order, "source": order[:half], "destination": sorted(order[:half])}


def _parts(m: Maker, overload: Any) -> Given:
    source = m.tensor(m.full(m.random.randint(1, 4)))
    axis = m.axis(source.dim())
    size = source.shape[axis]
    cut = m.random.randint(0, size)
    sizes = [cut, size - cut]
    given = {"self": source, "dim": axis, "chunks": m.random.randint(1, 5), "split_sizes": sizes, "sections": 3}
    given |= {"split_size": sizes if overload._overloadname == "sizes" else m.random.randint(1, 4), "indices": [1, cut]}
    given |= {
        "start": min(cut, size),
        "length": size - cut,
        "step": m.random.randint(1, 3),
        "end": m.random.randint(-3, 9),
    }
    return given | {"index": m.random.randrange(size), "dimension": axis, "size": m.random.randint(1, size)}


def _flatten(m: Maker, overload: Any) -> Given:
    source = m.tensor(m.full(4))
    return {"self": source, "start_dim": 1, "end_dim": m.random.choice((-1, 2)), "dim": 1, "sizes": [1, -1]}


def _strided(m: Maker, overload: Any) -> Given:
    return {"self": m.tensor((60,)), "size": [3, 4], "stride": m.random.choice(([4, 1], [1, 3], [0, 2]))}


def _new(m: Maker, overload: Any) -> Given:
    given: Given = {
        "self": m.tensor(m.shape()),
        "size": list(m.shape()),
        "high": 9,
        "low": 1,
        "n": 5,
        "m": 3,
        "steps": 7,
    }
    if m.random.random() < 0.3:
        given |= {"size": [2, 3, 4, 5], "memory_format": torch.channels_last}
    return given | {"window_length": 9, "start": m.random.choice((0, 1.5)), "end": m.random.choice((7, 9.5)), "step": 2}


def _like(m: Maker, overload: Any) -> Given:
    source = m.tensor(m.shape())
    formats = [None, torch.contiguous_format, torch.preserve_format]
    if source.dim() == 4:
        formats.append(torch.channels_last)
    if overload._schema.name == "aten::contiguous":
        formats = [f for f in formats if f not in (None, torch.preserve_format)]
    return {"self": source, "memory_format": m.random.choice(formats), "other": m.tensor((2,)), "high": 3, "low": 0}


def _reduction(m: Maker, overload: Any) -> Given:
    shape = m.full(m.random.randint(0, 4)) if m.random.random() < 0.8 else m.shape()
    source = m.tensor(shape)
    given: Given = {_first(overload): source, "other": m.tensor(shape), "k": 1, "unbiased": m.random.random() < 0.5}
    asked = m.random.choice((None, torch.float32, torch.float64))
    return given | {"ord": 2, "p": 2, "dtype": asked, "correction": 1, "dim": _dim(m, overload, len(shape))}


def _dim(m: Maker, overload: Any, rank: int) -> Any:
    kind = next((str(a.type) for a in overload._schema.arguments if a.name == "dim"), "")
    if "List" in kind:
        axes = m.axes(rank)
        return axes or (None if "Optional" in kind else [])
    return None if "Optional" in kind and m.random.random() < 0.3 else m.axis(rank)


def _ordered(m: Maker, overload: Any) -> Given:
    source = m.tensor(m.full(m.random.randint(1, 4)), m.random.choice((torch.float32, torch.int64, torch.bfloat16)))
    axis = m.axis(source.dim())
    return {"self": source, "dim": axis, "k": m.random.randint(1, source.shape[axis]), "dtype": None}


def _softmax(m: Maker, overload: Any) -> Given:
    m.floats()
    shape = m.full(m.random.randint(1, 4))
    given: Given = {"self": m.tensor(shape), "grad_output": m.tensor(shape), "output": m.tensor(shape)}
    return given | {"dim": m.axis(len(shape)), "half_to_float": False, "input_dtype": m.dtype, "dtype": None}


def _loss(m: Maker, overload: Any) -> Given:
    m.floats()
    shape = m.full(m.random.randint(1, 4))
    given: Given = {"self": m.tensor(shape), "target": m.tensor(shape), "grad_output": m.tensor(shape)}
    return given | {"reduction": m.random.randrange(3), "beta": 1.0, "delta": 1.0, "weight": None, "pos_weight": None}


def _nll(m: Maker, overload: Any) -> Given:
    m.floats()
    reduction, classes = m.random.randrange(3), 5
    batch, extra = m.random.randint(1, 4), [3, 2] if "2d" in overload._schema.name else []
    target = torch.empty([batch, *extra], dtype=torch.int64, device="meta")
    grad = m.tensor(target.shape if reduction == 0 else ())
    given: Given = {
        "self": m.tensor((batch, classes, *extra)),
        "target": target,
        "weight": None,
        "reduction": reduction,
    }
    return given | {"grad_output": grad, "total_weight": m.tensor(()), "ignore_index": -100, "label_smoothing": 0.0}


def _product(m: Maker, overload: Any) -> Given:
    m.floats()
    b, i, j, k = m.random.randint(1, 4), *m.full(3)
    name = overload._schema.name
    batch = (b,) if "bmm" in name else ()
    left, right = m.tensor((*batch, i, j)), m.tensor((*batch, j, k))
    vector = m.tensor((j,))
    given: Given = {"mat1": left, "mat2": right, "batch1": left, "batch2": right, "mat": left, "vec": vector}
    given |= {
        "vec1": m.tensor((i,)),
        "vec2": m.tensor((k,)),
        "self": m.random.choice((m.tensor((k,)), m.tensor((i, k)))),
    }
    if name in ("aten::mm", "aten::bmm", "aten::mv", "aten::_int_mm"):
        given["self"] = left
    if name in ("aten::addmv",):
        given["self"] = m.tensor((i,))
    if name == "aten::_int_mm":
        given |= {"self": torch.empty(24, 16, dtype=torch.int8, device="meta")}
        given |= {"mat2": torch.empty(16, 8, dtype=torch.int8, device="meta")}
    if name.startswith("aten::_scaled_mm"):
        eight, one = torch.float8_e4m3fn, torch.ones((), dtype=torch.float32, device="meta")
        given |= {"self": torch.empty(16, 32, dtype=eight, device="meta"), "scale_a": one, "scale_b": one, "bias": None}
        given |= {"mat2": torch.empty(48, 32, dtype=eight, device="meta").t(), "out_dtype": torch.bfloat16}
        given |= {"scale_result": None}
    if name in ("aten::outer", "aten::ger"):
        given["self"] = m.tensor((i,))
    if name in ("aten::dot", "aten::vdot"):
        given |= {"self": vector, "tensor": m.tensor((j,)), "other": m.tensor((j,))}
    return given


def _matmul(m: Maker, overload: Any) -> Given:
    m.floats()
    a, b, c = m.full(3)
    left = m.random.choice(((b,), (a, b), (2, a, b), (1, 3, a, b)))
    right = m.random.choice(((b,), (b, c), (2, b, c), (3, b, c)))
    weight = m.tensor((c, b))
    given: Given = {"self": m.tensor(left), "other": m.tensor(right), "input": m.tensor(left), "weight": weight}
    return given | {"bias": m.random.choice((None, m.tensor((c,))))}


def _convolution(m: Maker, overload: Any) -> Given:
    m.floats()
    name = overload._schema.name
    axes = 1 if "1d" in name else 3 if "3d" in name else 2
    groups, batch = m.random.choice((1, 1, 2)), m.random.randint(1, 3)
    each, out = m.random.randint(1, 3), groups * m.random.randint(1, 3)
    backwards = "transpose" in name or (m.random.random() < 0.3 and "conv1d conv2d conv3d".find(name[6:]) < 0)
    kernel = [m.random.randint(1, 3) for _ in range(axes)]
    source = m.tensor((batch, groups * each, *(m.random.randint(7, 9) for _ in range(axes))))
    weight = m.tensor((groups * each, out // groups, *kernel) if backwards else (out, each, *kernel))
    steps = [m.random.randint(1, 2) for _ in range(axes)]
    given: Given = {
        "input": source,
        "self": source,
        "weight": weight,
        "bias": m.random.choice((None, m.tensor((out,)))),
    }
    given |= {"stride": steps, "padding": [m.random.randint(0, 1)] * axes, "dilation": [m.random.randint(1, 2)] * axes}
    return given | {"transposed": backwards, "output_padding": [0] * axes, "groups": groups, "kernel_size": kernel}


def _convolution_backward(m: Maker, overload: Any) -> Given:
    given = _convolution(m, overload)
    out = torch.ops.aten.convolution.default(
        given["input"], given["weight"], None, given["stride"], given["padding"], given["dilation"],
        given["transposed"], given["output_padding"], given["groups"],
    )  # fmt: skip
    mask = [m.random.random() < 0.7 for _ in range(3)]
    return given | {"grad_output": out, "output_mask": mask, "bias_sizes": [out.shape[1]]}


def _pool(m: Maker, overload: Any) -> Given:
    m.floats()
    axes = 1 if "1d" in overload._schema.name else 3 if "3d" in overload._schema.name else 2
    lead = (2, 3) if m.random.random() < 0.8 else (3,)
    source = m.tensor((*lead, *(m.random.randint(6, 9) for _ in range(axes))))
    kernel = [m.random.randint(2, 3) for _ in range(axes)]
    stride = m.random.choice(([], [m.random.randint(1, 3)] * axes))
    given: Given = {"self": source, "kernel_size": kernel, "stride": stride, "padding": [m.random.randint(0, 1)] * axes}
    given |= {"ceil_mode": m.random.random() < 0.5, "output_size": [m.random.randint(1, 4) for _ in range(axes)]}
    given |= {"scale_factors": [2.0] * axes, "dilation": [1] * axes, "divisor_override": None, "grid": None}
    return given | {"input": source, "scales": None, "scales_h": None, "scales_w": None, "scales_d": None}


def _pool_backward(m: Maker, overload: Any) -> Given:
    given = _pool(m, overload)
    name = overload._schema.name.removeprefix("aten::").removesuffix("_backward")
    source, size = given["self"], given["output_size"]
    forward = getattr(torch.ops.aten, name).default
    if "adaptive" in name:
        out = forward(source, size)
    else:
        out = forward(*(given.get(a.name, a.default_value) for a in forward._schema.arguments))
    out, indices = out if isinstance(out, tuple) else (out, None)
    return given | {"grad_output": m.tensor(out.shape), "indices": indices, "count_include_pad": True}


def _upsample_backward(m: Maker, overload: Any) -> Given:
    given = _pool(m, overload)
    axes = given["self"].dim() - 2
    sizes = [4] * len(given["kernel_size"])
    return given | {
        "grad_output": m.tensor((2, 3, *sizes)),
        "output_size": sizes,
        "input_size": [2, 3, *[2] * len(sizes)],
        "axes": axes,
    }


def _grid(m: Maker, overload: Any) -> Given:
    m.floats()
    axes = 3 if "3d" in overload._schema.name else 2
    return {"input": m.tensor((2, 3, *m.full(axes))), "grid": m.tensor((2, *m.full(axes), axes))}


def _norm(m: Maker, overload: Any) -> Given:
    m.floats()
    batch, channels, group = m.random.randint(1, 3), 4, m.random.choice((1, 2, 4))
    source = m.tensor((batch, channels, *m.full(2)))
    row = list(source.shape[m.random.randint(1, 3) :])
    name = overload._schema.name
    wide = torch.float32 if m.dtype != torch.float64 else m.dtype
    scale = m.tensor(row) if "layer" in name or "rms" in name else torch.empty(channels, dtype=m.dtype, device="meta")
    weights = {n: m.random.choice((None, scale)) for n in ("weight", "gamma")} | {"bias": None}
    if weights["weight"] is not None:
        weights["bias"] = scale
    shape = (*source.shape[: 4 - len(row)], *[1] * len(row))
    kept = torch.empty((batch, group) if "group" in name else shape, dtype=wide, device="meta")
    if "batch" in name:
        kept = torch.empty(channels, dtype=wide, device="meta")
    given: Given = {"input": source, "normalized_shape": row, **weights, "mean": kept, "rstd": kept, "save_mean": kept}
    given |= {"save_invstd": kept, "grad_out": m.tensor(source.shape), "dY": m.tensor(source.shape), "X": source}
    given |= {"output_mask": [m.random.random() < 0.7 for _ in range(3)], "group": group, "num_groups": group}
    given |= {"N": batch, "C": channels, "HxW": source.shape[2] * source.shape[3], "training": True, "train": True}
    given |= {"running_mean": None, "running_var": None, "use_input_stats": True, "momentum": 0.1, "eps": 1e-5}
    return given | {"cudnn_enabled": False}


def _attention(m: Maker, overload: Any) -> Given:
    m.floats()
    b, h, s, t, d = m.random.randint(1, 3), m.random.randint(1, 4), *m.full(2), 8 * m.random.randint(1, 3)
    forward_layout = overload._schema.name in (
        "aten::_flash_attention_forward", "aten::_efficient_attention_forward",
        "aten::_flash_attention_backward", "aten::_efficient_attention_backward",
    )  # fmt: skip

    def heads(length: int) -> torch.Tensor:
        shape = (b, length, h, d)
        made = torch.empty(shape, dtype=m.dtype, device="meta")
        return made if forward_layout else made.transpose(1, 2)

    query, key, value = heads(s), heads(t), heads(t)
    kept = torch.empty(b, h, -(-s // 32) * 32, dtype=torch.float32, device="meta")
    seed = torch.empty((), dtype=torch.int64, device="meta")
    given: Given = {"query": query, "key": key, "value": value, "attn_mask": None, "attn_bias": None, "bias": None}
    given |= {"compute_log_sumexp": m.random.random() < 0.7, "dropout_p": 0.0, "is_causal": m.random.random() < 0.5}
    given |= {"return_debug_mask": False, "grad_out": torch.empty_like(query), "grad_out_": torch.empty_like(query)}
    given |= {
        "out": torch.empty_like(query),
        "logsumexp": kept,
        "philox_seed": seed,
        "philox_offset": seed,
        "cum_seq_q": None,
    }
    given |= {
        "cum_seq_k": None,
        "max_q": s,
        "max_k": t,
        "grad_input_mask": [True, True, True, False],
        "rng_state": seed,
    }
    given |= {"unused": seed, "custom_mask_type": 0, "cu_seqlens_q": None, "cu_seqlens_k": None, "max_seqlen_q": s}
    given |= {"max_seqlen_k": t, "bias_requires_grad": False, "enable_gqa": False, "scale": None, "dropout_mask": None}
    return given | {"need_attn_weights": False, "seqlen_k": None, "causal_diagonal": None, "window_size": None}


def _lookup(m: Maker, overload: Any) -> Given:
    source = m.tensor(m.full(m.random.randint(1, 4)))
    axis = m.axis(source.dim())
    name = overload._schema.name
    index = torch.empty(source.shape if "index" not in name else (3,), dtype=torch.int64, device="meta")
    piece = list(source.shape)
    piece[axis] = 3
    given: Given = {
        "self": source,
        "dim": axis,
        "index": index,
        "src": m.tensor(source.shape),
        "source": m.tensor(piece),
    }
    if "select_scatter" in name:
        del piece[axis]
        given |= {"src": m.tensor(piece), "index": 0}
    table, indices = m.tensor((9, 4)), torch.empty(m.full(2), dtype=torch.int64, device="meta")
    given |= {"weight": table, "indices": indices, "grad_output": m.tensor((*indices.shape, 4)), "num_weights": 9}
    given |= {"padding_idx": -1, "scale_grad_by_freq": False, "sparse": False, "reduce": "sum", "num_classes": 7}
    return given | {"value": 2, "start": None, "end": None, "step": 1}


def _gradient_of_view(m: Maker, overload: Any) -> Given:
    name = overload._schema.name
    shapes = {"slice": (5, 2), "select": (5,), "diagonal": (4,)}
    grad = m.tensor(shapes[name.removeprefix("aten::").removesuffix("_backward")])
    given: Given = {"grad_output": grad, "input_sizes": [5, 4], "dim": 1, "start": 0, "end": 2, "step": 1, "index": 1}
    return given | {"offset": 0, "dim1": 0, "dim2": 1}


def _list(m: Maker, overload: Any) -> Given:
    count = m.random.randint(1, 3)
    shape = m.full(m.random.randint(1, 4))
    axis = m.axis(len(shape))
    name = overload._schema.name
    members = []
    for _ in range(count):
        own = list(shape)
        if "cat" in name:
            own[axis] = m.random.randint(0, 4)
        members.append(m.tensor(own))
    if m.random.random() < 0.2 and "cat" in name:
        members.append(torch.empty(0, dtype=m.dtype, device="meta"))
    other = [m.tensor(shape) for _ in range(count)]
    given: Given = {
        "tensors": members,
        "dim": axis,
        "self": members,
        "other": other,
        "tensor1": other,
        "tensor2": other,
    }
    given |= {"exponent": other, "weights": other, "scalars": [1.5] * count, "value": 1.5, "weight": 0.5}
    return given | {"tensors1": other, "ord": 2}


def _repeat(m: Maker, overload: Any) -> Given:
    source = m.tensor(m.shape(0, 3))
    times = [m.random.randint(0, 3) for _ in range(source.dim() + m.random.randint(0, 1))]
    pads = [m.random.randint(0, 2) for _ in range(2 * m.random.randint(0, source.dim()))]
    if "1d" in overload._schema.name or "2d" in overload._schema.name:
        pads = [1] * (2 if "1d" in overload._schema.name else 4)
        source = m.tensor(m.full(2 + len(pads) // 2) if m.random.random() < 0.1 else (2, 3, 4, 5)[: 2 + len(pads) // 2])
    axes = m.random.sample(range(source.dim()), m.random.randint(0, source.dim()))
    dims: list[int] = times if overload._schema.name == "aten::tile" else axes
    return {
        "self": source,
        "repeats": m.random.choice((times, 2)) if "interleave" not in overload._schema.name else 2,
        "dims": dims,
        "pad": pads,
        "padding": pads,
        "shifts": [1] * len(axes),
        "diagonal": 0,
        "dim": None,
    }


def _complex(m: Maker, overload: Any) -> Given:
    made = m.tensor((*m.full(2), 2), torch.float32)
    if "as_complex" in overload._schema.name:
        return {"self": torch.empty(made.shape, device="meta")}
    return {"self": m.tensor(m.full(3), torch.complex64)}


RECIPES: dict[str, Callable[[Maker, Any], Given]] = {
    "pointwise": _broadcasting,
    "keeps": _broadcasting,
    "filled": _broadcasting,
    "same": _lookup,
    "row_major": _repeat,
    "prelu_gradients": lambda m, o: {
        name: m.tensor((4, 6, 8), torch.float32) for name in ("grad_output", "self", "weight")
    },
    "halved": lambda m, o: {"self": m.tensor((4, 6, 8), torch.float32), "dim": m.axis(3)},
    "dropout": _one_float,
    "log_sigmoid": _one_float,
    "reduction": _reduction,
    "extremum": _reduction,
    "kth_value": _ordered,
    "scan": _ordered,
    "sort": _ordered,
    "topk": _ordered,
    "softmax": _softmax,
    "softmax_backward": _softmax,
    "loss": _loss,
    "nll_loss": _nll,
    "product": _product,
    "summed_product": _product,
    "matrix_vector": _product,
    "dot": _product,
    "outer": _product,
    "int_product": _product,
    "linear": _matmul,
    "matmul": _matmul,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "pool": _pool,
    "adaptive_pool": _pool,
    "suggested_like": _pool_backward,
    "upsample": _pool,
    "upsample_backward": _upsample_backward,
    "grid_sampler": _grid,
    "layer_norm": _norm,
    "norm_backward": _norm,
    "group_norm": _norm,
    "group_norm_backward": _norm,
    "batch_norm": _norm,
    "batch_norm_backward": _norm,
    "attention": _attention,
    "math_attention": _attention,
    "flash_attention": _attention,
    "flash_forward": _attention,
    "efficient_attention": _attention,
    "efficient_forward": _attention,
    "cudnn_attention": _attention,
    "attention_backward": _attention,
    "alias": _one,
    "transpose": _one,
    "transposed_matrix": lambda m, o: {"self": m.tensor(m.full(2))},
    "reversed_axes": _one,
    "permute": _permute,
    "movedim": _permute,
    "view": _view,
    "view_as": _view,
    "flatten": _flatten,
    "unflatten": _flatten,
    "expand": _expand,
    "broadcast_lists": _list,
    "unsqueeze": lambda m, o: {"self": m.tensor(m.full(3)), "dim": m.random.randrange(-4, 4)},
    "squeeze": _one,
    "select": _parts,
    "slice_": _parts,
    "narrow": _parts,
    "as_strided": _strided,
    "split": _parts,
    "chunk": _parts,
    "tensor_split": _parts,
    "unbind": _parts,
    "diagonal": lambda m, o: {"self": m.tensor(m.full(3)), "offset": m.random.randint(-2, 2), "dim1": 0, "dim2": -1},
    "unfold": _parts,
    "view_as_real": _complex,
    "view_as_complex": _complex,
    "part": _complex,
    "new": _new,
    "new_strided": _strided,
    "new_like": _like,
    "arange": _new,
    "counted": _new,
    "eye": _new,
    "resized": _new,
    "to_copy": _like,
    "to": _like,
    "contiguous_": _like,
    "dropped": _one_float,
    "conjugate": _one,
    "flip": _repeat,
    "cat": _list,
    "stack": _list,
    "repeat": _repeat,
    "repeat_interleave": _repeat,
    "pad": _repeat,
    "gather": _lookup,
    "index_select": _lookup,
    "embedding": _lookup,
    "embedding_backward": _lookup,
    "one_hot": _lookup,
    "full_gradient": _gradient_of_view,
    "foreach": _list,
    "foreach_norm": _list,
    "flattened": _list,
}
_GRADIENTS = ("_backward", "_backward_data")


def make(overload: torch._ops.OpOverload, rule: str, seed: int) -> tuple[list[Any], dict[str, Any]]:
    """Arguments for one call of an operator whose outputs a rule tells."""
    m = Maker(seed)
    recipe = RECIPES[rule]
    name = overload._schema.name
    if rule in ("pointwise", "keeps") and name.endswith(_GRADIENTS):
        recipe = _loss if "loss" in name or "entropy" in name else _gradient
    if rule == "row_major" and "nll" in name:
        recipe = _nll
    if rule in ("row_major", "alias") and name.removesuffix("_").endswith(("scatter", "_add", "_copy", "_reduce")):
        recipe = _lookup
    if name in ("aten::avg_pool3d_backward", "aten::max_pool3d_with_indices_backward"):
        recipe = _pool_backward
    if name == "aten::upsample_bicubic2d_backward":
        recipe = _upsample_backward
    if name.startswith("aten::glu_backward"):
        recipe = _halved
    if name.startswith(("aten::bernoulli", "aten::poisson")):
        recipe = _one_float
    if name == "aten::binary_cross_entropy_backward":
        recipe = _loss
    if rule == "same" and name.removeprefix("aten::") in ("dropout", "bernoulli", "poisson", "alpha_dropout"):
        recipe = _one_float
    given = recipe(m, overload)
    for argument in overload._schema.arguments:
        if "List[Optional[Tensor]]" in str(argument.type):
            given[argument.name] = [torch.empty(2, dtype=torch.int64, device="meta")]
        elif argument.name == "min":
            given.setdefault("min", 0 if "Tensor" not in str(argument.type) else m.tensor(()))
        elif argument.name == "out_dtype":
            given.setdefault("out_dtype", m.dtype)
        elif argument.name == "reduce" and name.startswith("aten::scatter.") | (
            name in ("aten::scatter", "aten::scatter_")
        ):
            given["reduce"] = "add"
        elif argument.name == "output_mask" and name == "aten::_fused_rms_norm_backward":
            given["output_mask"] = given["output_mask"][:2]
        elif argument.name == "scale_factors" and m.random.random() < 0.5:
            given["output_size"] = None
        elif argument.name == "scale_factors":
            given["scale_factors"] = None
    first = next((value for value in given.values() if isinstance(value, torch.Tensor)), None)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for argument in overload._schema.arguments:
        if argument.is_out:
            value: Any = torch.empty(0, dtype=m.dtype, device="meta")
        elif argument.name in given:
            value = given[argument.name]
        elif argument.has_default_value() and m.random.random() < 0.5:
            value = argument.default_value
        else:
            value = _value(m, argument, first)
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    return args, kwargs


def _value(m: Maker, argument: Any, first: torch.Tensor | None) -> Any:
    kind, rank = str(argument.type), 0 if first is None else first.dim()
    if argument.name == "device":
        return torch.device("meta")
    if kind == "bool" or kind == "Optional[bool]":
        return (
            argument.name not in ("pin_memory", "copy_") and m.random.random() < 0.5 and argument.name != "pin_memory"
        )
    if "Optional" in kind and "ScalarType" not in kind:
        return argument.default_value if argument.has_default_value() else None
    if "ScalarType" in kind:
        return m.random.choice((torch.float32, torch.float64, torch.int64))
    if kind == "Tensor":
        return m.tensor(() if first is None else first.shape)
    if kind in ("number", "Scalar"):
        return m.random.choice(NUMBERS)
    if kind == "int":
        return m.axis(rank) if argument.name.startswith(("dim", "axis")) else m.random.randint(1, 3)
    if kind == "List[int]":
        return m.axes(rank) if argument.name.startswith("dim") else [1] * rank
    if kind == "float":
        return 0.5
    return argument.default_value if argument.has_default_value() else None
