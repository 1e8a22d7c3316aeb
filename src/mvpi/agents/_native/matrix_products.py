"""Products of matrices that fit into the caches of a processor, for compiled kernels.

For matrices of a few hundred rows and columns a general library, which first packs its operands,
takes a fifth longer than the arithmetic. Here a product is formed in tiles whose sums stay in
registers, from operands where they lie; biases and ReLU units are fused into it. numba has no
vector registers, so tiles are written in the language of its compiler, LLVM.

Every entry is summed in the same order whichever tile it belongs to: a product of some rows has the
bits of these rows in the product of all.

The functions that call these are kept compiled on disk, and numba does not notice changes of this
file: remove `__pycache__` after one.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_HOST = llvm.get_host_cpu_features()
LANES = 16 if _HOST.get("avx512f") else 8 if _HOST.get("avx") else 4
"""Floats in a vector register."""
_TALL, _WIDE = {16: (8, 3), 8: (6, 2), 4: (6, 4)}[LANES]
"""Rows, and registers of columns, of the tile that the registers hold."""
LINE = 16
"""Numbers in a line of the cache: rows that begin on one are read fastest."""
PANEL = _WIDE * LANES
"""Columns of that tile."""
OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract", "nsz"}}


_NUMBER, _INDEX, _LANE = ir.FloatType(), ir.IntType(64), ir.IntType(32)
_REGISTER, _ORDER = ir.VectorType(_NUMBER, LANES), ir.VectorType(_LANE, LANES)
_WHOLE, _ARRAY = types.intp, types.Array(types.float32, 1, "C")


def _tile(height, width):
    """A function `(a, at, row, step, b, at, step, depth, start, at, floor, c, at, row)` that sets

        c[i, j] = max(floor, start[j] + sum_k a[i, k] b[k, j])

    for `height` rows and `width` registers of columns. All arrays are flat; `at` is where a
    matrix begins, `row` and `step` are how far apart neighbours along `i` and `k` are.
    """

    @intrinsic
    def tile(
        typing, a, a_at, a_row, a_step, b, b_at, b_step, depth, start, s_at, floor, c, c_at, c_row
    ):
        signature = types.void(
            _ARRAY, _WHOLE, _WHOLE, _WHOLE, _ARRAY, _WHOLE, _WHOLE, _WHOLE,
            _ARRAY, _WHOLE, types.float32, _ARRAY, _WHOLE, _WHOLE,
        )  # fmt: skip
        return signature, call

    def call(context, build, signature, given):
        def beginning(i):
            array = context.make_array(_ARRAY)(context, build, given[i])
            return build.gep(array.data, [given[i + 1]])

        a, b, start, c = (beginning(i) for i in (0, 4, 8, 11))
        function = _tile_function(build.module, height, width)
        build.call(
            function, [a, given[2], given[3], b, *given[6:8], start, given[10], c, given[13]]
        )
        return context.get_dummy_value()

    return tile


def _tile_function(module, height, width):
    """The tile as a function of its own, so that it is compiled once and not at every call."""
    name = f"mvpi_tile_{height}_{width}"
    if name in module.globals:
        return module.globals[name]
    pointer = _NUMBER.as_pointer()
    kind = ir.FunctionType(
        ir.VoidType(),
        [pointer, _INDEX, _INDEX, pointer, _INDEX, _INDEX, pointer, _NUMBER, pointer, _INDEX],
    )
    function = ir.Function(module, kind, name)
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")
    a, a_row, a_step, b, b_step, depth, start, floor, c, c_row = function.args
    build = ir.IRBuilder(function.append_basic_block("before"))
    loop, after = function.append_basic_block("loop"), function.append_basic_block("after")
    cells = [(i, j) for i in range(height) for j in range(width)]

    def row_of(matrix, row, i):
        return build.gep(matrix, [build.mul(row, i if isinstance(i, ir.Value) else _INDEX(i))])

    def opaque(row):
        # Rows as multiples of each other would be stepped through one after the other, which
        # takes longer than the arithmetic.
        return build.asm(ir.FunctionType(pointer, [pointer]), "", "=r,0", [row], side_effect=False)

    rows = [opaque(row_of(a, a_row, i)) for i in range(height)]
    starts = [build.load(_register(build, start, j * LANES), align=4) for j in range(width)]
    before = build.block
    build.branch(loop)

    build.position_at_end(loop)
    k = build.phi(_INDEX)
    sums = [build.phi(_REGISTER) for _ in cells]
    b_row = row_of(b, b_step, k)
    right = [build.load(_register(build, b_row, j * LANES), align=4) for j in range(width)]
    totals = []
    for (i, j), total in zip(cells, sums, strict=True):
        if j == 0:
            left = _spread(build, build.load(row_of(rows[i], a_step, k)))
        term = build.fmul(left, right[j], flags=("contract",))
        totals.append(build.fadd(term, total, flags=("contract",)))
    following = build.add(k, _INDEX(1))
    k.add_incoming(_INDEX(0), before)
    k.add_incoming(following, loop)
    for (_, j), total, new in zip(cells, sums, totals, strict=True):
        total.add_incoming(starts[j], before)
        total.add_incoming(new, loop)
    build.cbranch(build.icmp_signed("<", following, depth), loop, after)

    build.position_at_end(after)
    floors = _spread(build, floor)
    for (i, j), total in zip(cells, totals, strict=True):
        above = build.fcmp_unordered(">=", total, floors)  # a NaN stays one
        target = _register(build, row_of(c, c_row, i), j * LANES)
        build.store(build.select(above, total, floors), target, align=4)
    build.ret_void()
    return function


def _register(build, pointer, offset):
    """Where a register begins, so many numbers after a pointer."""
    return build.bitcast(build.gep(pointer, [_INDEX(offset)]), _REGISTER.as_pointer())


def _spread(build, number):
    """A register full of one number."""
    nothing = _REGISTER(ir.Undefined)
    first = build.insert_element(nothing, number, _LANE(0))
    return build.shuffle_vector(first, nothing, _ORDER([0] * LANES))


def _columns(width):
    """The same for any number of rows."""
    tall, four, single = _tile(_TALL, width), _tile(4, width), _tile(1, width)

    @njit(**OPTIONS)
    def columns(
        m, a, a_at, a_row, a_step, b, b_at, b_step, depth, start, s_at, floor, c, c_at, c_row
    ):
        i = 0
        while i + _TALL <= m:
            tall(
                a, a_at + i * a_row, a_row, a_step, b, b_at, b_step, depth,
                start, s_at, floor, c, c_at + i * c_row, c_row,
            )  # fmt: skip
            i += _TALL
        while i + 4 <= m:
            four(
                a, a_at + i * a_row, a_row, a_step, b, b_at, b_step, depth,
                start, s_at, floor, c, c_at + i * c_row, c_row,
            )  # fmt: skip
            i += 4
        while i < m:
            single(
                a, a_at + i * a_row, a_row, a_step, b, b_at, b_step, depth,
                start, s_at, floor, c, c_at + i * c_row, c_row,
            )  # fmt: skip
            i += 1

    return columns


_wide, _narrow = _columns(_WIDE), _columns(1)


@njit(**OPTIONS)
def product(
    m, n, a, a_at, a_row, a_step, b, b_at, b_step, depth, start, s_at, floor, c, c_at, c_row
):
    """`c[i, j] = max(floor, start[j] + sum_k a[i, k] b[k, j])`, `m` rows, `n` columns.

    `n` is a multiple of `LANES`; the rest as in `_tile`.
    """
    j = 0
    while j + PANEL <= n:
        _wide(
            m, a, a_at, a_row, a_step, b, b_at + j, b_step, depth,
            start, s_at + j, floor, c, c_at + j, c_row,
        )  # fmt: skip
        j += PANEL
    while j < n:
        _narrow(
            m, a, a_at, a_row, a_step, b, b_at + j, b_step, depth,
            start, s_at + j, floor, c, c_at + j, c_row,
        )  # fmt: skip
        j += LANES


@intrinsic
def _turn(typing, a, a_at, a_row, out, out_at, out_row):
    """`out[j, i] = a[i, j]` for a square of `LANES` rows and columns."""

    def generate(context, build, signature, given):
        def row(i, number):
            array = context.make_array(_ARRAY)(context, build, given[i])
            offset = build.add(given[i + 1], build.mul(given[i + 2], _INDEX(number)))
            return _register(build, build.gep(array.data, [offset]), 0)

        half = LANES // 2
        mixed = [_ORDER([at + i // 2 + i % 2 * LANES for i in range(LANES)]) for at in (0, half)]
        rows = [build.load(row(0, i), align=4) for i in range(LANES)]
        for _ in range(LANES.bit_length() - 1):
            pairs = zip(rows[:half], rows[half:], strict=True)
            rows = [build.shuffle_vector(*pair, order) for pair in pairs for order in mixed]
        for i in range(LANES):
            build.store(rows[i], row(3, i), align=4)
        return context.get_dummy_value()

    return types.void(_ARRAY, _WHOLE, _WHOLE, _ARRAY, _WHOLE, _WHOLE), generate


@njit(**OPTIONS)
def _transpose(a, a_at, a_row, m, n, out, out_row):
    """`out[j, i] = a[i, j]` for `m` rows and `n` columns, the rest of a row of `out` being 0."""
    for i in range(0, out_row, LANES):
        inside = n - n % LANES if i + LANES <= m else 0
        for j in range(0, inside, LANES):
            _turn(a, a_at + i * a_row + j, a_row, out, j * out_row + i, out_row)
        for j in range(inside, n):
            for k in range(i, i + LANES):
                out[j * out_row + k] = a[a_at + k * a_row + j] if k < m else 0.0


@njit(**OPTIONS)
def product_with_transposed(
    m, n, a, a_at, a_row, b, b_at, b_row, depth, panel, zeros, c, c_at, c_row
):
    """`c[i, j] = sum_k a[i, k] b[j, k]`, `m` rows, `n` columns, then zeros up to a register's end.

    `panel` is memory for `depth * PANEL` numbers, `zeros` for `PANEL` zeros.
    """
    one, none = np.int64(1), np.int64(0)
    for j in range(0, n, PANEL):
        width = min(PANEL, -(-(n - j) // LANES) * LANES)
        _transpose(b, b_at + j * b_row, b_row, n - j, depth, panel, width)
        product(
            m, width, a, a_at, a_row, one, panel, none, width, depth,
            zeros, none, np.float32(-np.inf), c, c_at + j, c_row,
        )  # fmt: skip
