// The steps on matrices, which lie row by row.  Nothing is gathered: a matrix is worth a call of its own.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>

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
void turn(int rows, int columns, const float *from, float *to, bool add = false) {
    for (int c = 0; c < columns; c++) {
        for (int r = 0; r < rows; r++, to++) *to = (add ? *to : 0.0f) + from[r * columns + c];
    }
}

// How often what is joined lies in turn.
int parts_of(const Signature &s, const Shape &joined) {
    return std::accumulate(joined.dims.begin(), joined.dims.begin() + s.kind, joined.batch, std::multiplies<>());
}

// A large parameter times matrices: the columns of all of them become rows of one product with packed weights.
bool by_columns(const Signature &s, const Sizes &z) {
    constexpr int large = 1 << 14;   // less is not worth turning the matrices
    return s.params[0] >= 0 && z.n > 1 && static_cast<std::int64_t>(z.m) * z.k >= large;
}

}  // namespace

void Runner::multiply(const Work &work, const Step &step, const Signature &s) {
    const Sizes z(s, graph_.signatures.shape(s.shape));
    const Rows a = values(work, step.in[0]), b = values(work, step.in[1]);
    const Block c = value_of(work, step);
    const Kernels &kernel = kernels();
    if (by_columns(s, z)) return multiply_columns(work, step, s);
    const bool packs = s.params[1] >= 0 && z.m * work.count > few;
    for (int i = 0; i < work.count; i++) {
        float *to = row_of(c, i);
        if (z.n > 1) {
            const float *right = packs ? packed_.get(s.params[1], false) : b[i];
            kernel.product({z.m, z.n, z.k, a[i], z.k, 1, right, packs ? Layout::Packed : Layout::Rows, z.n, to, z.n, nullptr, false});
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
    if (by_columns(s, z)) return multiply_columns_back(work, step, s);
    const bool is_fixed = s.params[1] >= 0, packs = z.n > 1 && z.m * (is_fixed ? work.count : 1) > few;
    float *turned = packs && !is_fixed ? scratch_.take(packed_size(kernel, z.n, z.k)) : nullptr;
    for (int i = 0; i < work.count; i++) {
        const float *d = row_of(dc, i);
        if (float *to = db[i]) {   // A^T dC; a column is computed as a row
            if (z.n > 1) kernel.product({z.k, z.n, z.m, a[i], 1, z.k, d, Layout::Rows, z.n, to, z.n, nullptr, db.add()});
            else kernel.product({1, z.k, z.m, d, 0, 1, a[i], Layout::Rows, z.k, to, z.k, nullptr, db.add()});
        }
        float *to = da[i];
        if (!to) continue;
        if (packs) {               // dC B^T
            if (turned) pack(kernel, z.n, z.k, b[i], z.n, true, turned);
            const float *right = turned ? turned : packed_.get(s.params[1], true);
            kernel.product({z.m, z.k, z.n, d, z.n, 1, right, Layout::Packed, 0, to, z.k, nullptr, da.add()});
        } else if (z.n == 1) {
            kernel.product({z.m, z.k, 1, d, 1, 1, b[i], Layout::Rows, z.k, to, z.k, nullptr, da.add()});
        } else {
            kernel.product({z.m, z.k, z.n, d, z.n, 1, b[i], Layout::Columns, z.n, to, z.k, nullptr, da.add()});
        }
    }
}

void Runner::multiply_columns(const Work &work, const Step &step, const Signature &s) {
    const Sizes z(s, graph_.signatures.shape(s.shape));
    const Rows b = values(work, step.in[1]);
    const Block c = value_of(work, step);
    const int rows = work.count * z.n;
    float *x = scratch_.take(static_cast<std::size_t>(rows) * z.k), *y = scratch_.take(static_cast<std::size_t>(rows) * z.m);
    for (int i = 0; i < work.count; i++) turn(z.k, z.n, b[i], x + i * s.widths[1]);
    kernels().product({rows, z.m, z.k, x, z.k, 1, packed_.get(s.params[0], true), Layout::Packed, 0, y, z.m, nullptr, false});
    for (int i = 0; i < work.count; i++) turn(z.n, z.m, y + i * s.width, row_of(c, i));
}

void Runner::multiply_columns_back(const Work &work, const Step &step, const Signature &s) {
    const Sizes z(s, graph_.signatures.shape(s.shape));
    const Rows b = values(work, step.in[1]), db = gradients(work, step.in[1]);
    const Block dc = grad_of(work, step);
    const int rows = work.count * z.n;
    float *x = scratch_.take(static_cast<std::size_t>(rows) * z.k), *dy = scratch_.take(static_cast<std::size_t>(rows) * z.m);
    for (int i = 0; i < work.count; i++) turn(z.m, z.n, row_of(dc, i), dy + i * s.width);
    if (float *grad = graph_.params[s.params[0]].grad) {
        for (int i = 0; i < work.count; i++) turn(z.k, z.n, b[i], x + i * s.widths[1]);
        kernels().product({z.m, z.k, rows, dy, 1, z.m, x, Layout::Rows, z.k, grad, z.k, nullptr, true});
    }
    bool wanted = false;
    for (int i = 0; i < work.count; i++) wanted |= db[i] != nullptr;
    if (!wanted) return;
    kernels().product({rows, z.k, z.m, dy, z.m, 1, packed_.get(s.params[0], false), Layout::Packed, 0, x, z.k, nullptr, false});
    for (int i = 0; i < work.count; i++) {
        if (float *to = db[i]) turn(z.n, z.k, x + i * s.widths[1], to, db.add());
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
        kernels().product({rows, width, 1, column[i], 1, 1, ones, Layout::Rows, width, to, width, nullptr, true});
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
    const int rows = parts_of(s, graph_.signatures.shape(s.shape)), wide = s.width / rows;
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
    const int rows = parts_of(s, graph_.signatures.shape(s.shape)), wide = s.width / rows;
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
    const int rows = std::abs(s.kind), width = s.width / rows, wide = s.widths[0] / rows;
    const Rows x = values(work, step.in[0]);
    const Block y = value_of(work, step);
    for (int i = 0; i < work.count; i++) copy(rows, width, x[i] + root(work, i).aux, wide, row_of(y, i), width);
}

void Runner::columns_back(const Work &work, const Step &step, const Signature &s) {
    const int rows = std::abs(s.kind), width = s.width / rows, wide = s.widths[0] / rows;
    const Rows dx = gradients(work, step.in[0]);
    const Block dy = grad_of(work, step);
    for (int i = 0; i < work.count; i++) {
        if (float *to = dx[i]) add(rows, width, row_of(dy, i), width, to + root(work, i).aux, wide);
    }
}

namespace {

struct Places {
    explicit Places(const Signature &s) : rows(s.params[0]), columns(s.width / rows), row(s.params.data() + 1), column(row + rows) {}
    int rows, columns;
    const int *row, *column;
};

}  // namespace

void Runner::select(const Work &work, const Step &step, const Signature &s) {
    const Places at(s);
    const Rows x = values(work, step.in[0]);
    const Block y = value_of(work, step);
    for (int i = 0; i < work.count; i++) {
        float *to = row_of(y, i);
        for (int r = 0; r < at.rows; r++, to += at.columns) {
            for (int c = 0; c < at.columns; c++) to[c] = x[i][at.row[r] + at.column[c]];
        }
    }
}

void Runner::select_back(const Work &work, const Step &step, const Signature &s) {
    const Places at(s);
    const Rows dx = gradients(work, step.in[0]);
    const Block dy = grad_of(work, step);
    for (int i = 0; i < work.count; i++) {
        const float *from = row_of(dy, i);
        float *to = dx[i];
        for (int r = 0; to && r < at.rows; r++, from += at.columns) {
            for (int c = 0; c < at.columns; c++) to[at.row[r] + at.column[c]] += from[c];
        }
    }
}

void Runner::pick_each(const Work &work, const Step &step, const Signature &s) {
    const int batch = graph_.signatures.shape(s.shape).batch, width = s.width / batch, wide = s.widths[0] / batch;
    const Rows x = values(work, step.in[0]);
    const Block y = value_of(work, step);
    for (int i = 0; i < work.count; i++) {
        const int *labels = graph_.labels(root(work, i), batch);
        for (int k = 0; k < batch; k++) std::memcpy(row_of(y, i) + k * width, x[i] + k * wide + labels[k] * width, sizeof(float) * width);
    }
}

void Runner::pick_each_back(const Work &work, const Step &step, const Signature &s) {
    const int batch = graph_.signatures.shape(s.shape).batch, width = s.width / batch, wide = s.widths[0] / batch;
    const Rows dx = gradients(work, step.in[0]);
    const Block dy = grad_of(work, step);
    for (int i = 0; i < work.count; i++) {
        const int *labels = graph_.labels(root(work, i), batch);
        float *to = dx[i];
        for (int k = 0; to && k < batch; k++) add(1, width, row_of(dy, i) + k * width, 0, to + k * wide + labels[k] * width, 0);
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
