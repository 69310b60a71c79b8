// The steps on matrices, which lie row by row.  Nothing is gathered: a matrix is worth a call of its own.
#include <algorithm>
#include <cstring>

#include "runner.hpp"

namespace dpmodule::autobatch {

Runner::Rows Runner::values(const Work &work, Operand operand) const {
    if (!operand.outside) return {value_of(work, work.group->steps[operand.index]), nullptr, nullptr};
    return {{}, work.run->nodes(operand.index) + work.first, &graph_.value};
}

Runner::Rows Runner::gradients(const Work &work, Operand operand) const {
    if (!operand.outside) return {grad_of(work, work.group->steps[operand.index]), nullptr, nullptr};
    return {{}, work.run->nodes(operand.index) + work.first, &graph_.grad};
}

namespace {

constexpr int few = 2;   // up to so many rows, packing the other factor costs more than it saves

// C (m x n) = A (m x k) B (k x n).
struct Sizes {
    Sizes(const Signature &s, const Shape &shape)
        : m(shape.dims[0]), n(s.width / shape.dims[0]), k(s.widths[0] / shape.dims[0]) {}
    int m, n, k;
};

float *row_of(Block block, int i) { return block.at + i * block.stride; }

void copy(int rows, int width, const float *from, int step, float *to, int to_step) {
    for (int r = 0; r < rows; r++, from += step, to += to_step) {
        for (int j = 0; j < width; j++) to[j] = from[j];
    }
}

void add(int rows, int width, const float *from, int step, float *to, int to_step) {
    for (int r = 0; r < rows; r++, from += step, to += to_step) {
        for (int j = 0; j < width; j++) to[j] += from[j];
    }
}

// `to` (columns x rows) from a matrix of so many rows and columns
void turn(int rows, int columns, const float *from, float *to) {
    for (int c = 0; c < columns; c++) {
        for (int r = 0; r < rows; r++) *to++ = from[r * columns + c];
    }
}

}  // namespace

void Runner::multiply(const Work &work, const Step &step, const Signature &s) {
    const Sizes z(s, graph_.signatures.shape(s.shape));
    const Rows a = values(work, step.in[0]), b = values(work, step.in[1]);
    const Block c = value_of(work, step);
    const Kernels &kernel = kernels();
    for (int i = 0; i < work.count; i++) {
        float *to = row_of(c, i);
        if (z.n > 1) {
            kernel.product({z.m, z.n, z.k, a[i], z.k, 1, b[i], false, z.n, to, z.n, nullptr, false});
            continue;
        }
        const float *row = a[i], *column = b[i];
        for (int r = 0; r < z.m; r++, row += z.k) to[r] = kernel.dot(z.k, row, column);
    }
}

void Runner::multiply_back(const Work &work, const Step &step, const Signature &s) {
    const Sizes z(s, graph_.signatures.shape(s.shape));
    const Rows a = values(work, step.in[0]), b = values(work, step.in[1]);
    const Rows da = gradients(work, step.in[0]), db = gradients(work, step.in[1]);
    const Block dc = grad_of(work, step);
    const Kernels &kernel = kernels();
    float *turned = z.n > 1 && z.m > few ? scratch_.take(packed_size(kernel, z.n, z.k)) : nullptr;
    for (int i = 0; i < work.count; i++) {
        const float *d = row_of(dc, i);
        if (float *to = db[i]) {   // A^T dC; a column is computed as a row
            if (z.n > 1) kernel.product({z.k, z.n, z.m, a[i], 1, z.k, d, false, z.n, to, z.n, nullptr, db.add()});
            else kernel.product({1, z.k, z.m, d, 0, 1, a[i], false, z.k, to, z.k, nullptr, db.add()});
        }
        float *to = da[i];
        if (!to) continue;
        if (turned) {              // dC B^T
            pack(kernel, z.n, z.k, b[i], z.n, true, turned);
            kernel.product({z.m, z.k, z.n, d, z.n, 1, turned, true, 0, to, z.k, nullptr, da.add()});
        } else if (z.n == 1) {
            kernel.product({z.m, z.k, 1, d, 1, 1, b[i], false, z.k, to, z.k, nullptr, da.add()});
        } else {
            for (int r = 0; r < z.m; r++, d += z.n, to += z.k) {
                for (int j = 0; j < z.k; j++) to[j] = (da.add() ? to[j] : 0.0f) + kernel.dot(z.n, d, b[i] + j * z.n);
            }
        }
    }
}

// x + column * (1, 1, ...): the product's way is the fastest.
void Runner::add_column(const Work &work, const Step &step, const Signature &s) {
    const int rows = s.widths[1], width = s.width / rows;
    const Rows x = values(work, step.in[0]), column = values(work, step.in[1]);
    const Block y = value_of(work, step);
    float *ones = scratch_.take(width);
    std::fill_n(ones, width, 1.0f);
    for (int i = 0; i < work.count; i++) {
        float *to = row_of(y, i);
        std::memcpy(to, x[i], sizeof(float) * s.width);
        kernels().product({rows, width, 1, column[i], 1, 1, ones, false, width, to, width, nullptr, true});
    }
}

void Runner::add_column_back(const Work &work, const Step &step, const Signature &s) {
    const int rows = s.widths[1], width = s.width / rows;
    const Rows dx = gradients(work, step.in[0]), dcolumn = gradients(work, step.in[1]);
    const Block dy = grad_of(work, step);
    for (int i = 0; i < work.count; i++) {
        const float *d = row_of(dy, i);
        float *to = dx[i], *sums = dcolumn[i];
        if (to && dx.add()) kernels().accumulate(s.width, to, d);
        else if (to) std::memcpy(to, d, sizeof(float) * s.width);
        for (int r = 0; sums && r < rows; r++) {
            sums[r] = (dcolumn.add() ? sums[r] : 0.0f) + kernels().sum(width, d + r * width);
        }
    }
}

void Runner::concat_columns(const Work &work, const Signature &s) {
    const int rows = graph_.signatures.shape(s.shape).dims[0], wide = s.width / rows;
    float *to = work.run->value + static_cast<std::ptrdiff_t>(work.first) * s.width;
    for (int i = 0; i < work.count; i++, to += s.width) {
        int at = 0;
        for (std::size_t k = 0; k < s.widths.size(); k++) {
            const int width = s.widths[k] / rows;
            copy(rows, width, graph_.value[work.run->nodes(static_cast<int>(k))[work.first + i]], width, to + at, wide);
            at += width;
        }
    }
}

void Runner::concat_columns_back(const Work &work, const Signature &s) {
    const int rows = graph_.signatures.shape(s.shape).dims[0], wide = s.width / rows;
    const float *from = work.run->grad + static_cast<std::ptrdiff_t>(work.first) * s.width;
    for (int i = 0; i < work.count; i++, from += s.width) {
        int at = 0;
        for (std::size_t k = 0; k < s.widths.size(); k++) {
            const int width = s.widths[k] / rows;
            float *to = graph_.grad[work.run->nodes(static_cast<int>(k))[work.first + i]];
            if (to) add(rows, width, from + at, wide, to, width);
            at += width;
        }
    }
}

void Runner::columns(const Work &work, const Step &step, const Signature &s) {
    const int rows = graph_.signatures.shape(s.shape).dims[0], width = s.width / rows, wide = s.widths[0] / rows;
    const Rows x = values(work, step.in[0]);
    const Block y = value_of(work, step);
    for (int i = 0; i < work.count; i++) copy(rows, width, x[i] + root(work, i).aux, wide, row_of(y, i), width);
}

void Runner::columns_back(const Work &work, const Step &step, const Signature &s) {
    const int rows = graph_.signatures.shape(s.shape).dims[0], width = s.width / rows, wide = s.widths[0] / rows;
    const Rows dx = gradients(work, step.in[0]);
    const Block dy = grad_of(work, step);
    for (int i = 0; i < work.count; i++) {
        if (float *to = dx[i]) add(rows, width, row_of(dy, i), width, to + root(work, i).aux, wide);
    }
}

void Runner::transpose(const Work &work, const Step &step, const Signature &s) {
    const Rows x = values(work, step.in[0]);
    const Block y = value_of(work, step);
    for (int i = 0; i < work.count; i++) turn(s.kind, s.width / s.kind, x[i], row_of(y, i));
}

void Runner::transpose_back(const Work &work, const Step &step, const Signature &s) {
    const Rows dx = gradients(work, step.in[0]);
    const Block dy = grad_of(work, step);
    float *turned = scratch_.take(s.width);
    for (int i = 0; i < work.count; i++) {
        float *to = dx[i];
        if (!to) continue;
        turn(s.width / s.kind, s.kind, row_of(dy, i), dx.add() ? turned : to);
        if (dx.add()) kernels().accumulate(s.width, to, turned);
    }
}

}  // namespace dpmodule::autobatch
