"""Make tracemine/ops/table.json from the operator schemas of the torch that is installed.

    python tools/generate_ops.py            write the table, print what was classed how and what was not
    python tools/generate_ops.py --check    exit 1 unless the committed table is what would be written

What torch says (tags, alias annotations) decides first; the reviewed rules below decide the rest. The few places
where torch's word is not what this project means by a class, or where a schema keeps silent about a write, are
tables too, each with its reason.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
import torch._prims
import torch.distributed._functional_collectives
import torch.distributed._symmetric_memory  # each import registers operators of its own

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tracemine.ops.facts import CLASSES  # noqa: E402
from tracemine.ops.operators import TABLE_SCHEMA  # noqa: E402

TABLE = ROOT / "tracemine" / "ops" / "table.json"

# Namespaces whose operators are the same in every build of one torch release. The others (mkldnn, onednn, quantized)
# depend on the processor that the wheel was built for.
NAMESPACES = ("aten", "prims", "c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem")

# Where torch's tag or annotation is not the kind of work that is done. Name without namespace → class, reason.
OVERRIDES = {
    "clone": ("copy", "tagged pointwise; it computes nothing"),
    "equal": ("sync", "tagged pointwise; it returns a bool to the host"),
    "max": ("reduction", "tagged pointwise and reduction; max.other calls maximum, which then owns the kernel"),
    "min": ("reduction", "as max"),
    "to": ("copy", "annotated as a view because it returns its input when there is nothing to do"),
    "contiguous": ("copy", "as to"),
    "pin_memory": ("copy", "as to"),
    "_autocast_to_full_precision": ("copy", "as to"),
    "_autocast_to_reduced_precision": ("copy", "as to"),
    "coalesce": ("sparse", "annotated as a view; it sorts and sums"),
    "_sparse_broadcast_to": ("sparse", "annotated as a view; it makes new indices"),
    "linalg_diagonal": ("view", "annotated as a view and named linalg"),
    "resize_": ("allocate", "tagged inplace_view; it takes storage"),
    "resize_as_": ("allocate", "as resize_"),
    "convert_element_type": ("copy", "tagged pointwise; it computes nothing but the cast"),
    "index": ("gather", "tagged for its dynamic shape only"),
    "_fused_sdp_choice": ("metadata", "tagged random; it returns a number"),
    "_cudnn_init_dropout_state": ("random", "named after cuDNN's recurrent layers; it seeds a generator"),
}

# What schemas keep silent about: arguments that are written after all.
_STATISTICS = ("running_mean", "running_var")  # written in training, through schemas that look functional
SILENT_WRITES = {
    "aten::batch_norm": _STATISTICS,
    "aten::_batch_norm_impl_index": _STATISTICS,
    "aten::native_batch_norm": _STATISTICS,
    "aten::cudnn_batch_norm": _STATISTICS,
    "aten::miopen_batch_norm": _STATISTICS,
    "aten::instance_norm": _STATISTICS,
    "aten::batch_norm_gather_stats": _STATISTICS,
    "aten::batch_norm_gather_stats_with_counts": _STATISTICS,
    # c10d fills what it is given, and returns it
    "c10d::allreduce_": ("tensors",),
    "c10d::allreduce_coalesced_": ("tensors",),
    "c10d::broadcast_": ("tensors",),
    "c10d::reduce_": ("tensors",),
    "c10d::allgather_": ("output_tensors",),
    "c10d::_allgather_base_": ("output_tensor",),
    "c10d::allgather_coalesced_": ("output_lists",),
    "c10d::allgather_into_tensor_coalesced_": ("outputs",),
    "c10d::reduce_scatter_": ("output_tensors",),
    "c10d::_reduce_scatter_base_": ("output_tensor",),
    "c10d::reduce_scatter_tensor_coalesced_": ("outputs",),
    "c10d::gather_": ("output_tensors",),
    "c10d::scatter_": ("output_tensors",),
    "c10d::alltoall_": ("output_tensors",),
    "c10d::alltoall_base_": ("output",),
    "c10d::recv_": ("tensors",),
    "c10d::recv_any_source_": ("tensors",),
}
# Those of them whose old elements count: the sum starts from them, or only some ranks write.
_READS_TOO = ("tensors", *_STATISTICS)

# Outputs that share the first input's storage although the schema does not say so: safe for autograd, not for us.
SILENT_VIEWS = ("_unsafe_view", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk", "unflatten_dense_tensors")

# In place, and the old elements are not read.
OVERWRITES = re.compile(
    r"(copy|fill|zero|uniform|normal|log_normal|random|bernoulli|cauchy|exponential|geometric|_foreach_zero"
    r"|_foreach_copy|_no_grad_(fill|normal|uniform|zero)|_philox_normal|_philox_uniform)_"
)

# Patterns of names without namespace and without the underscore of in-place variants, separated by blanks; each
# matches a whole name, and the first that fits decides.
RULES: tuple[tuple[str, str], ...] = (
    (
        "metadata",
        r"""
        size stride numel dim dense_dim sparse_dim _dimI _dimV _nnz storage_offset sym_.* is_(?!nonzero)\w+
        _is_zerotensor result_type record_stream requires_grad retain_grad retains_grad _version _assert_.*
        _functional_.* qscheme q_\w+ _validate_.* _has_.* output_nr _debug_.* _use_\w+ cudnn_is_acceptable
        _nested_get_\w* _nested_tensor_(size|strides|storage_offsets) _shape_as_tensor set_data data _backward
        _coalesced _propagate_xla_data _make_dep_token _linalg_check_errors _nested_compute_\w+
        _cslt_sparse_mm_search _add_batch_dim _remove_batch_dim _dim_arange get_device _cudnn_rnn_flatten_weight
        """,
    ),
    ("metadata", r"get_gradients _make_token _sink_tokens"),
    ("sparse", r"_coalesce"),
    ("gemm", r"_foreach_mm"),
    ("foreach", r"_foreach_\w+ _amp_\w+"),
    ("optimizer", r"_fused_(adam|adamw|sgd|adagrad)"),
    (
        "attention",
        r"""
        \w*scaled_dot_product\w* \w*_attention_(forward|backward)\w* \w*multi_head_attention\w*
        _fill_mem_eff_dropout_mask _triton_scaled_dot_attention _transform_bias_rescale_qkv
        _transformer_encoder_layer_fwd
        """,
    ),
    ("rnn", r"\w*(lstm|gru|rnn)\w*"),
    ("loss", r"\w*_loss(\d?d|_nd|_forward|_backward)* \w*cross_entropy\w* kl_div"),
    ("sync", r"item _local_scalar_dense is_nonzero nonzero nonzero_numpy argwhere masked_select allclose"),
    ("embedding", r"\w*embedding\w*"),
    (
        "quantize",
        r"""
        \w*(fake_quant|quantize_per|dequantize|choose_qparams|moving_avg_obs)\w* _make_per_\w*_quantized_tensor
        int_repr
        """,
    ),
    (
        "gemm",
        r"""
        (add|badd|addb|sp_)?(b?mm|bmm|mv) matmul(_backward)? linear(_backward)? mkldnn_linear\w* bilinear _trilinear
        dot vdot inner einsum tensordot chain_matmul linalg_(matmul|multi_dot|vecdot) _int_mm _scaled\w*_mm\w*
        _grouped_mm _weight_int\d\w*_mm\w* _addmm_activation _mixed_dtypes_linear _dyn_quant_matmul_4bit
        fbgemm_linear_\w+_weight(_fp32_activation)? _wrapped\w*_linear\w* _sparse_semi_structured_(mm|addmm|linear)
        _cslt_sparse_mm corrcoef cov _compute_linear_combination sparse_sampled_addmm
        """,
    ),
    (
        "sparse",
        r"""
        \w*(sparse|_coo|_csr|_csc|_bsr|_bsc)\w* smm hspmm sspaddmm _spdiags _spsolve to_dense(_backward)? _to_dense
        _cslt_compress
        """,
    ),
    ("norm", r"\w*(batch_norm|layer_norm|group_norm|instance_norm|rms_norm|weight_norm)\w* renorm"),
    ("softmax", r"\w*softmax\w*"),
    ("copy", r"im2col col2im mkldnn_reorder_\w+ to_mkldnn(_backward)? _mkldnn_(reshape|transpose)"),
    ("conv", r"\w*convolution\w* \w*conv(_transpose|_depthwise|_dilated)?\dd\w* conv_tbc(_backward)?"),
    ("copy", r"pixel_(un)?shuffle (native_)?channel_shuffle"),
    ("pool", r"\w*(pool|max_unpool)\d?d\w*"),
    ("resample", r"\w*upsample\w* \w*grid_sampler?\w* \w*affine_grid_generator\w*"),
    ("copy", r"fft_i?fftshift"),
    ("fill", r"fft_r?fftfreq"),
    ("fft", r"_?fft_\w+ i?stft"),
    ("reduction", r"linalg_(vector_norm|norm|matrix_norm|_powsum)"),
    ("pointwise", r"linalg_cross"),
    ("fill", r"linalg_vander"),
    (
        "linalg",
        r"""
        _?linalg_\w+ \w*cholesky\w* svd qr orgqr ormqr geqrf (p?inverse) _?lu_\w+ triangular_solve det logdet
        slogdet matrix_(exp|power)\w*
        """,
    ),
    ("scan", r"(log)?cumsum(exp)? _?logcumsumexp cumprod(_backward)? _?cum(max|min)(_helper)? cumulative_trapezoid"),
    (
        "sort",
        r"""
        sort argsort msort topk kthvalue (nan)?median mode (nan)?quantile _?unique\w* searchsorted bucketize isin
        _rowwise_prune
        """,
    ),
    (
        "random",
        r"""
        randperm _philox_\w+ _sobol_\w+ multinomial rand\w* _standard_gamma native_dropout _fused_dropout normal\w*
        """,
    ),
    (
        "scatter",
        r"""
        index_(put|add|copy|fill|reduce) _index_put_impl _unsafe_index_put _unsafe_masked_index_put_accumulate
        scatter scatter_add scatter_reduce put masked_scatter
        \w*(select|slice|diagonal|unfold|gather|masked_select|trace|scatter)_backward
        value_selecting_reduction_backward cummaxmin_backward hist(c|ogram\w*) _histogramdd\w* bincount
        """,
    ),
    (
        "gather",
        r"""
        index_select gather take take_along_dim repeat_interleave _unsafe_index _unsafe_masked_index nonzero_static
        """,
    ),
    ("allocate", r"_?empty\w* new_empty\w* resize(_as)? _resize_output set"),
    (
        "fill",
        r"""
        fill zero (new_)?(zeros|ones|full)(_like)? arange range linspace logspace eye tri[lu]_indices \w+_window
        scalar_tensor fill_diagonal _efficientzerotensor vander iota one_hot from_file
        _new_zeros_with_same_feature_meta
        """,
    ),
    (
        "view",
        r"""
        _unsafe_view unsafe_(split|split_with_sizes|chunk) unflatten_dense_tensors broadcast_tensors meshgrid
        atleast_\dd lift as_strided
        """,
    ),
    (
        "copy",
        r"""
        copy _to_copy _to_cpu _?cat concat(enate)? _?stack [hvd]stack (column|row)_stack _chunk_cat block_diag
        repeat tile flip(lr|ud)? roll rot90 pad _pad_(enum|circular) constant_pad_nd \w*_pad\dd(_backward)?
        pad_sequence _?pack_\w+ _pad_packed_sequence diag diag_embed diagflat _copy_from\w* \w+_copy type_as
        _pin_memory _cast_\w+ chalf _lazy_clone cartesian_prod combinations
        (select|slice|diagonal|as_strided)_scatter _convert_weight_to_\w+ _dyn_quant_pack_\w+ fbgemm_pack_\w+
        fbgemm_linear_quantize_weight flatten_dense_tensors _reshape_from_tensor _saturate_weight_to_fp16
        _nested_(from|tensor|select)\w* nested_to_padded_tensor to_padded_tensor _?(jagged|padded)_\w+ device_put
        copy_to copy_strided rev reshape collapse _nested_sum_backward
        """,
    ),
    (
        "reduction",
        r"""
        \w*norm norm_except_dim _?aminmax trace dist cdist _cdist_\w+ _euclidean_dist _?pdist(_\w+)?
        pairwise_distance cosine_similarity trapezoid trapz sum_to_size nanmean \w*logsumexp segment_reduce
        _segment_reduce_backward _is_(all|any)_true xor_sum hash_tensor
        """,
    ),
    (
        "pointwise",
        r"""
        __i?(and|or|xor|lshift|rshift)__ absolute arc\w+ divide multiply subtract floor_divide greater(_equal)?
        less(_equal)? not_equal negative fix special_\w+ isclose isreal complex polar cross outer ger addr kron diff
        gradient tri[lu] prelu _prelu_kernel(_backward)? glu(_backward|_jvp|_backward_jvp)? hardswish
        rrelu_with_noise_backward _masked_scale _add_relu log_sigmoid\w*
        (elu|hardshrink|hardsigmoid|hardswish|hardtanh|leaky_relu|mish|softplus|softshrink|celu|selu|relu6?|silu|gelu|tanh|sigmoid|logit|threshold|abs|dist)_backward
        infinitely_differentiable_gelu_backward _dirichlet_grad _standard_gamma_grad shift_\w+ bessel_\w+ erf_inv
        erfcx cbrt ndtri zeta spherical_bessel_j0
        """,
    ),
)


class Entry(NamedTuple):
    """One overload as it goes into the table."""

    overload: str
    op_class: str
    arguments: str
    outputs: str


class Schema(NamedTuple):
    """One registered overload as torch describes it."""

    overload: str
    out: frozenset[str]  # names of the out= arguments
    # (type with alias annotation, name, "=" behind it where it has a default); ("*", "*") ends the positional ones
    arguments: list[tuple[str, str]]
    outputs: list[str]
    tags: frozenset[str]


def schemas() -> dict[str, list[Schema]]:
    """Every registered operator of NAMESPACES by its full name, its overloads sorted, the default one first."""
    found: dict[str, list[Schema]] = defaultdict(list)
    for full in sorted(torch._C._dispatch_get_all_op_names()):
        name, _, overload = full.partition(".")
        namespace, _, short = name.partition("::")
        if namespace in NAMESPACES and not short.startswith(("_test_", "_foobar")):  # torch's own tests
            op = getattr(getattr(getattr(torch.ops, namespace), short), overload or "default")
            tags = frozenset(str(tag).removeprefix("Tag.") for tag in op.tags)
            out = frozenset(argument.name for argument in op._schema.arguments if argument.is_out)
            found[name].append(Schema(overload, out, *parse_schema(str(op._schema)), tags))
    return dict(found)


def parse_schema(text: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Arguments (type, name) and output types of a schema's text, alias annotations kept.

    >>> parse_schema("aten::t_(Tensor(a!) self, *, int[2] n=[1, 2]) -> Tensor(a!)")
    ([('Tensor(a!)', 'self'), ('*', '*'), ('int[]', 'n=')], ['Tensor(a!)'])
    """
    inside, _, returned = text[text.index("(") + 1 :].rpartition(") -> ")
    arguments = []
    for part in _split(inside):
        if part == "*":
            arguments.append(("*", "*"))
            continue
        kind, _, name = part.partition("=")[0].rpartition(" ") if "=" in part else part.rpartition(" ")
        arguments.append((re.sub(r"\[\d+\]", "[]", kind), f"{name}=" if "=" in part else name))
    wrapped = returned.startswith("(") and returned.endswith(")")
    outputs = [
        part.split(" ")[0] if " -> " not in part else part for part in _split(returned[1:-1] if wrapped else returned)
    ]
    return arguments, outputs


def _split(text: str) -> Iterator[str]:
    """Parts between commas that stand outside brackets and quotes."""
    depth, start, quoted = 0, 0, ""
    for i, c in enumerate(text):
        if quoted:
            quoted = "" if c == quoted else quoted
        elif c in "\"'":
            quoted = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "," and depth == 0:
            yield text[start:i].strip()
            start = i + 1
    if text[start:].strip():
        yield text[start:].strip()


def base_name(name: str) -> str:
    """The name without namespace and without the underscore of in-place variants.

    >>> base_name("aten::add_"), base_name("aten::__and__"), base_name("c10d::allreduce_")
    ('add', '__and__', 'allreduce')
    """
    short = name.partition("::")[2]
    return short if short.endswith("__") else short.removesuffix("_") or short


def classify(name: str, tags: frozenset[str], overloads: list[Schema]) -> tuple[str, str]:
    """Class of an operator and which kind of evidence decided it."""
    namespace, _, short = name.partition("::")
    base = base_name(name)
    outputs = [alias_of(kind) for schema in overloads for kind in schema.outputs]
    is_view = "inplace_view" in tags or any(alias and not written for alias, written in outputs)
    has_tensors = any("Tensor" in kind for s in overloads for kind in (*s.outputs, *(kind for kind, _ in s.arguments)))
    if namespace not in ("aten", "prims"):
        return "collective", "namespace"
    for key in (short, base):
        if key in OVERRIDES:
            return OVERRIDES[key][0], "override"
    if "pointwise" in tags:
        return "pointwise", "tag"
    if "view_copy" in tags:
        return "copy", "tag"
    if not has_tensors:
        return "metadata", "schema"
    if is_view:
        return "view", "schema"
    if "reduction" in tags:
        return "reduction", "tag"
    for op_class, pattern in _RULES:
        if pattern.fullmatch(base):
            return op_class, "rule"
    if "nondeterministic_seeded" in tags:
        return "random", "tag"
    return "other", "nothing"


_RULES = tuple((op_class, re.compile("|".join(words.split()))) for op_class, words in RULES)
_ALIAS = re.compile(r"\(([^)]*)\)")


def alias_of(kind: str) -> tuple[str, bool]:
    """Alias set and whether it is written, from a type with its annotation.

    >>> alias_of("Tensor(a!)[]"), alias_of("Tensor(a -> *)"), alias_of("Tensor?")
    (('a', True), ('a', False), ('', False))
    """
    found = _ALIAS.search(kind)
    text = found.group(1).partition(" ")[0] if found else ""
    return text.removesuffix("!"), text.endswith("!")


def pack(name: str, schema: Schema, op_class: str) -> Entry:
    """One overload in the table's text: see tracemine.ops.operators._Table."""
    namespace, _, short = name.partition("::")
    writes_elements = "inplace_view" not in schema.tags and op_class != "metadata"
    silent = SILENT_WRITES.get(name, ())
    sets: dict[str, int] = {}  # alias set → position
    arguments: list[str] = []
    place, first_written = 0, None
    for kind, named in schema.arguments:
        if kind == "*":
            arguments.append("*")
            continue
        argument = named.removesuffix("=")
        alias, written = alias_of(kind)
        if alias:
            sets[alias] = place
        mark = ""
        if argument in silent:
            mark = "!" if argument in _READS_TOO else "="
        elif written and writes_elements:
            mark = "=" if argument in schema.out or (place == 0 and OVERWRITES.fullmatch(short)) else "!"
        if mark and first_written is None:
            first_written = place
        arguments.append(f"{plain(kind)}{mark} {named}")
        place += 1
    outputs = []
    for kind in schema.outputs:
        alias, _ = alias_of(kind)
        target = sets.get(alias)
        if short in SILENT_VIEWS and schema.overload != "out":
            target = 0
        elif namespace == "c10d" and kind.startswith("Tensor"):
            target = first_written
        outputs.append(plain(kind) + ("" if target is None else f"@{target}"))
    return Entry(schema.overload, op_class, ",".join(arguments), ",".join(outputs))


def plain(kind: str) -> str:
    """The type without alias annotation and without the path of a custom class.

    >>> plain("Tensor(a!)[]"), plain("__torch__.torch.classes.c10d.ProcessGroup")
    ('Tensor[]', 'ProcessGroup')
    """
    return _ALIAS.sub("", kind).rpartition(".")[2]


def build() -> tuple[dict[str, list[object]], dict[str, str]]:
    """The table's operators, and what decided each one's class."""
    registered = schemas()
    tags: dict[str, set[str]] = defaultdict(set)  # of all variants together: not every variant is tagged
    for name, overloads in registered.items():
        tags[_variants(name)].update(*(schema.tags - {"inplace_view"} for schema in overloads))
    operators: dict[str, list[object]] = {}
    decided: dict[str, str] = {}
    for name, overloads in sorted(registered.items()):
        known_tags = frozenset(tags[_variants(name)].union(*(schema.tags for schema in overloads)))
        op_class, decided[name] = classify(name, known_tags, overloads)
        entries = []
        for schema in sorted(overloads):
            # One name, two kinds of work: max.other is pointwise, max.dim reduces.
            own = "pointwise" if op_class == "reduction" and "pointwise" in schema.tags else op_class
            packed = pack(name, schema, own)
            entries.append([packed.overload, packed.arguments, packed.outputs] + ([own] if own != op_class else []))
        operators[name] = [op_class, *entries]
    return operators, decided


def _variants(name: str) -> str:
    """What an operator, its in-place variant and its prim have in common."""
    return base_name(name) if name.startswith(("aten::", "prims::")) else name


def render(operators: dict[str, list[object]]) -> str:
    """The file's text: one operator a line, so that a change of torch shows as a readable diff."""
    version = torch.__version__.partition("+")[0]
    lines = (f"{json.dumps(name)}:{json.dumps(entry, separators=(',', ':'))}" for name, entry in operators.items())
    return f'{{"schema":{TABLE_SCHEMA},"torch":"{version}","operators":{{\n' + ",\n".join(lines) + "\n}}\n"


def report(operators: dict[str, list[object]], decided: dict[str, str]) -> str:
    """What was classed how, and by name what was not."""
    classes = Counter(str(entry[0]) for entry in operators.values())
    overloads = sum(len(entry) - 1 for entry in operators.values())
    evidence = Counter(decided.values())
    other = [name for name, entry in operators.items() if entry[0] == "other"]
    return "\n".join(
        (
            f"torch {torch.__version__}: {len(operators)} operators, {overloads} overloads",
            "decided by " + ", ".join(f"{what} {n}" for what, n in evidence.most_common()),
            "\n".join(f"  {op_class:<12}{classes[op_class]:5d}" for op_class in CLASSES),
            f"not classed ({len(other)}): " + " ".join(other),
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 unless the table is up to date")
    check = parser.parse_args().check
    operators, decided = build()
    text = render(operators)
    if check:
        if TABLE.read_text("utf-8") == text:
            return 0
        print(
            f"{TABLE.relative_to(ROOT)} is not what torch {torch.__version__} gives; run python tools/generate_ops.py"
        )
        return 1
    TABLE.write_text(text, "utf-8")
    print(report(operators, decided))
    return 0


if __name__ == "__main__":
    sys.exit(main())
