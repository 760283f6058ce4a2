# mypy: ignore-errors
"""The Triton kernels that calibration times: the memory access patterns that fused kernels are made of.

Each is the plainest kernel of its kind, in the shape a generated one would have: the length of a row is a constant of
the kernel, rows up to 1,024 elements are held whole, longer ones are walked in steps and walked again to write.
Offsets are 64-bit, for the largest points span several gigabytes. Names end in `_pattern`: that is how their
activities are distinguished from others in the profile.

This is Triton's language, not Python's: no type checker follows it.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def read_pattern(x, out, n, BLOCK: tl.constexpr):
    """Read n elements, write one number a block."""
    block = tl.program_id(0).to(tl.int64)
    offset = block * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offset, mask=offset < n, other=0.0)
    tl.store(out + block, tl.sum(value.to(tl.float32), 0))


@triton.jit
def write_pattern(out, n, BLOCK: tl.constexpr):
    """Write n elements."""
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offset, tl.full((BLOCK,), 1.0, tl.float32), mask=offset < n)


@triton.jit
def copy_pattern(x, out, n, BLOCK: tl.constexpr):
    """Read n elements and write n: one input, one output, of one type or of two."""
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offset < n
    tl.store(out + offset, tl.load(x + offset, mask=mask), mask=mask)


@triton.jit
def add_pattern(x, y, out, n, BLOCK: tl.constexpr):
    """Read two inputs of n elements each, write one output."""
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offset < n
    tl.store(out + offset, tl.load(x + offset, mask=mask) + tl.load(y + offset, mask=mask), mask=mask)


@triton.jit
def add3_pattern(x, y, z, out, n, BLOCK: tl.constexpr):
    """Read three inputs of n elements each, write one output."""
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offset < n
    value = tl.load(x + offset, mask=mask) + tl.load(y + offset, mask=mask) + tl.load(z + offset, mask=mask)
    tl.store(out + offset, value, mask=mask)


@triton.jit
def add4_pattern(x, y, z, w, out, n, BLOCK: tl.constexpr):
    """Read four inputs of n elements each, write one output."""
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offset < n
    value = tl.load(x + offset, mask=mask) + tl.load(y + offset, mask=mask)
    value += tl.load(z + offset, mask=mask) + tl.load(w + offset, mask=mask)
    tl.store(out + offset, value, mask=mask)


@triton.jit
def function_pattern(x, out, n, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    """Copy with one function an element: arithmetic that memory may not hide."""
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offset < n
    value = tl.load(x + offset, mask=mask).to(tl.float32)
    if FUNCTION == "exp":
        value = tl.exp(value)
    elif FUNCTION == "log":
        value = tl.log(tl.abs(value) + 1.0)
    elif FUNCTION == "tanh":
        value = libdevice.tanh(value)
    elif FUNCTION == "erf":
        value = tl.math.erf(value)
    elif FUNCTION == "divide":
        value = value / (tl.abs(value) + 1.0)
    elif FUNCTION == "sigmoid":
        value = tl.sigmoid(value)
    elif FUNCTION == "log_exp_tanh":
        value = libdevice.tanh(tl.log(tl.exp(value) + 1.0))
    tl.store(out + offset, value, mask=mask)


@triton.jit
def strided_pattern(x, out, rows, columns, TILE: tl.constexpr):
    """Transpose a matrix: reads along rows, writes along columns."""
    row = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1).to(tl.int64) * TILE + tl.arange(0, TILE)
    mask = (row[:, None] < rows) & (column[None, :] < columns)
    tile = tl.load(x + row[:, None] * columns + column[None, :], mask=mask)
    tl.store(out + column[None, :] * rows + row[:, None], tile, mask=mask)


@triton.jit
def row_sum_pattern(x, out, rows, LENGTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Reduce each row to one number; each element is read once."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, LENGTH, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = (row[:, None] < rows) & (column[None, :] < LENGTH)
        total += tl.load(x + row[:, None] * LENGTH + column[None, :], mask=mask, other=0.0).to(tl.float32)
    tl.store(out + row, tl.sum(total, 1), mask=row < rows)


@triton.jit
def row_norm_pattern(x, weight, out, rows, LENGTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Normalize rows in registers by root mean square: each element is read once and written once."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    mask = (row[:, None] < rows) & (column[None, :] < LENGTH)
    place = row[:, None] * LENGTH + column[None, :]
    value = tl.load(x + place, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 1) / LENGTH + 1e-6)
    gain = tl.load(weight + column, mask=column < LENGTH, other=0.0).to(tl.float32)
    tl.store(out + place, value * scale[:, None] * gain[None, :], mask=mask)


@triton.jit
def row_norm_looped_pattern(x, weight, out, rows, LENGTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Normalize longer rows: a pass that reduces, a pass that reads again and writes."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, LENGTH, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = (row[:, None] < rows) & (column[None, :] < LENGTH)
        place = row[:, None] * LENGTH + column[None, :]
        value = tl.load(x + place, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        total += value * value
    scale = tl.rsqrt(tl.sum(total, 1) / LENGTH + 1e-6)
    for start in range(0, LENGTH, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = (row[:, None] < rows) & (column[None, :] < LENGTH)
        place = row[:, None] * LENGTH + column[None, :]
        value = tl.load(x + place, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        gain = tl.load(weight + column, mask=column < LENGTH, other=0.0).to(tl.float32)
        tl.store(out + place, value * scale[:, None] * gain[None, :], mask=mask)


@triton.jit
def row_two_sums_pattern(x, weight, out, rows, LENGTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Reduce twice, the second time by the first result (mean, then variance): three passes over each row."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, LENGTH, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = (row[:, None] < rows) & (column[None, :] < LENGTH)
        place = row[:, None] * LENGTH + column[None, :]
        total += tl.load(x + place, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
    mean = tl.sum(total, 1) / LENGTH
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, LENGTH, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = (row[:, None] < rows) & (column[None, :] < LENGTH)
        place = row[:, None] * LENGTH + column[None, :]
        value = tl.load(x + place, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        centred = tl.where(mask, value - mean[:, None], 0.0)
        total += centred * centred
    scale = tl.rsqrt(tl.sum(total, 1) / LENGTH + 1e-6)
    for start in range(0, LENGTH, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = (row[:, None] < rows) & (column[None, :] < LENGTH)
        place = row[:, None] * LENGTH + column[None, :]
        value = tl.load(x + place, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        gain = tl.load(weight + column, mask=column < LENGTH, other=0.0).to(tl.float32)
        tl.store(out + place, (value - mean[:, None]) * scale[:, None] * gain[None, :], mask=mask)


@triton.jit
def _welford(mean_a, m2_a, count_a, mean_b, m2_b, count_b):
    count = count_a + count_b
    delta = mean_b - mean_a
    share = tl.where(count == 0.0, 0.0, count_b / count)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * count_a * share, count


@triton.jit
def row_welford_pattern(x, weight, out, rows, LENGTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Normalize a layer with a running mean and variance: a pass that divides for each element, one that writes."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    mean = tl.zeros((ROWS, BLOCK), tl.float32)
    m2 = tl.zeros((ROWS, BLOCK), tl.float32)
    count = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, LENGTH, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = (row[:, None] < rows) & (column[None, :] < LENGTH)
        place = row[:, None] * LENGTH + column[None, :]
        value = tl.load(x + place, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        more = count + 1.0
        delta = value - mean
        next_mean = mean + delta / more
        mean, m2, count = (
            tl.where(mask, next_mean, mean),
            tl.where(mask, m2 + delta * (value - next_mean), m2),
            tl.where(mask, more, count),
        )
    row_mean, row_m2, row_count = tl.reduce((mean, m2, count), 1, _welford)
    scale = tl.rsqrt(row_m2 / row_count + 1e-6)
    for start in range(0, LENGTH, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = (row[:, None] < rows) & (column[None, :] < LENGTH)
        place = row[:, None] * LENGTH + column[None, :]
        value = tl.load(x + place, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        gain = tl.load(weight + column, mask=column < LENGTH, other=0.0).to(tl.float32)
        tl.store(out + place, (value - row_mean[:, None]) * scale[:, None] * gain[None, :], mask=mask)


@triton.jit
def row_softmax_pattern(x, out, rows, LENGTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Compute softmax of rows in registers: two reductions, one read, one write."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    mask = (row[:, None] < rows) & (column[None, :] < LENGTH)
    place = row[:, None] * LENGTH + column[None, :]
    value = tl.load(x + place, mask=mask, other=-float("inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, 1)[:, None])
    tl.store(out + place, value / tl.sum(value, 1)[:, None], mask=mask)


@triton.jit
def row_softmax_online_pattern(x, out, rows, LENGTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Compute softmax of longer rows: a running maximum and sum (two exponentials an element), a pass that writes."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    highest = tl.full((ROWS, BLOCK), -float("inf"), tl.float32)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, LENGTH, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = (row[:, None] < rows) & (column[None, :] < LENGTH)
        place = row[:, None] * LENGTH + column[None, :]
        value = tl.load(x + place, mask=mask, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
        top = tl.maximum(highest, value)
        old = tl.where(highest == top, 1.0, tl.exp(highest - top))
        new = tl.where(value == top, 1.0, tl.exp(value - top))
        total = tl.where(mask, total * old + new, total)
        highest = tl.where(mask, top, highest)
    row_top = tl.max(highest, 1)
    row_total = tl.sum(tl.where(total > 0.0, total * tl.exp(highest - row_top[:, None]), 0.0), 1)
    for start in range(0, LENGTH, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = (row[:, None] < rows) & (column[None, :] < LENGTH)
        place = row[:, None] * LENGTH + column[None, :]
        value = tl.load(x + place, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(out + place, tl.exp(value - row_top[:, None]) / row_total[:, None], mask=mask)


@triton.jit
def _add(a, b):
    return a + b


@triton.jit
def row_scan_pattern(x, out, rows, LENGTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Sum along each row, carried from step to step."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    carry = tl.zeros((ROWS,), tl.float32)
    for start in range(0, LENGTH, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = (row[:, None] < rows) & (column[None, :] < LENGTH)
        place = row[:, None] * LENGTH + column[None, :]
        value = tl.load(x + place, mask=mask, other=0.0).to(tl.float32)
        running = tl.associative_scan(value, 1, _add) + carry[:, None]
        tl.store(out + place, running, mask=mask)
        last = tl.arange(0, BLOCK) == BLOCK - 1  # not carry + sum: Triton 3.6 cannot compile that
        carry = tl.sum(tl.where(last[None, :], running, 0.0), 1)


@triton.jit
def column_sum_pattern(x, partial, rows, COLUMNS: tl.constexpr, STRIP: tl.constexpr, TILE: tl.constexpr):
    """Reduce each column over a strip of rows; `row_sum` of the few partial sums left would finish it."""
    column = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    strip = tl.program_id(1).to(tl.int64)
    total = tl.zeros((8, TILE), tl.float32)
    for start in range(0, STRIP, 8):
        row = strip * STRIP + start + tl.arange(0, 8)
        mask = (row[:, None] < rows) & (column[None, :] < COLUMNS)
        total += tl.load(x + row[:, None] * COLUMNS + column[None, :], mask=mask, other=0.0).to(tl.float32)
    tl.store(partial + strip * COLUMNS + column, tl.sum(total, 0), mask=column < COLUMNS)


@triton.jit
def split_sum_pattern(x, partial, rows, LENGTH: tl.constexpr, PART: tl.constexpr, BLOCK: tl.constexpr):
    """Sum few long rows: every program sums one part of one row; `row_sum` finishes."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, PART, BLOCK):
        column = part * PART + start + tl.arange(0, BLOCK)
        total += tl.load(x + row * LENGTH + column, mask=column < LENGTH, other=0.0).to(tl.float32)
    tl.store(partial + row * tl.num_programs(1) + part, tl.sum(total, 0))


@triton.jit
def empty_pattern(out):
    """Write one number from one block: what a kernel costs that does nothing."""
    tl.store(out, 1.0)
