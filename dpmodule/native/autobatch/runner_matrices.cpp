// Steps on row-major matrices. Nothing is gathered, since a matrix justifies a separate call.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "rows.hpp"
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

constexpr int few_rows = 2;  // largest number of rows for which packing the other factor does not pay

// C (m x n) = A (m x k) B (k x n), for each element of a minibatch. If B has no minibatch, all rows form one product.
struct Factors {
    Factors(const Signature &s, const Shape &shape) : m(shape.dims[0]), k(s.params[2]), parts(shape.batch) {
        n = s.width / parts / m;
        a = s.widths[0] == m * k ? 0 : m * k;
        if (s.widths[1] == k * n) m *= parts, a = 0, parts = 1;
    }
    int m, n, k, parts;
    int a;  // stride between elements of A
};

// A large parameter times matrices: the columns of all of them become rows of one product with packed weights.
bool by_columns(const Signature &s, const Factors &z) {
    constexpr int large = 1 << 14;  // smaller matrices are not worth transposing
    return s.params[0] >= 0 && z.n > 1 && static_cast<std::int64_t>(z.m) * z.k >= large;
}

}  // namespace

void Runner::multiply(const Work &work, const Step &step, const Signature &s) {
    const Factors z(s, graph_.signatures.shape(s.shape));
    const Rows a = values(work, step.in[0]), b = values(work, step.in[1]);
    const Block c = value_of(work, step);
    const Kernels &kernel = kernels();
    if (by_columns(s, z)) return multiply_columns(work, step, s);
    const bool packs = s.params[1] >= 0 && z.m * work.count > few_rows;
    for (int e = 0; e < work.count * z.parts; e++) {
        const int i = e / z.parts, part = e % z.parts;
        const float *row = a[i] + part * z.a, *right = b[i] + part * z.k * z.n;
        float *to = row_of(c, i) + part * z.m * z.n;
        if (z.n > 1) {
            if (packs) right = packed_.get(s.params[1], false);
            kernel.product({z.m, z.n, z.k, row, z.k, 1, right, packs ? Layout::Packed : Layout::Rows, z.n, to, z.n,
                            nullptr, false});
            continue;
        }
        for (int r = 0; r < z.m; r++, row += z.k) to[r] = kernel.dot(z.k, row, right);
    }
}

void Runner::multiply_back(const Work &work, const Step &step, const Signature &s) {
    const Factors z(s, graph_.signatures.shape(s.shape));
    const Rows a = values(work, step.in[0]), b = values(work, step.in[1]);
    const Rows da = gradients(work, step.in[0]), db = gradients(work, step.in[1]);
    const Block dc = grad_of(work, step);
    const Kernels &kernel = kernels();
    if (by_columns(s, z)) return multiply_columns_back(work, step, s);
    const bool is_fixed = s.params[1] >= 0, packs = z.n > 1 && z.m * (is_fixed ? work.count : 1) > few_rows;
    float *turned = packs && !is_fixed ? scratch_.take(packed_size(kernel, z.n, z.k)) : nullptr;
    for (int e = 0; e < work.count * z.parts; e++) {
        const int i = e / z.parts, part = e % z.parts;
        const float *d = row_of(dc, i) + part * z.m * z.n, *left = a[i] + part * z.a, *right = b[i] + part * z.k * z.n;
        if (db[i]) {  // A^T dC; a column is computed as a row
            float *to = db[i] + part * z.k * z.n;
            if (z.n > 1)
                kernel.product({z.k, z.n, z.m, left, 1, z.k, d, Layout::Rows, z.n, to, z.n, nullptr, db.add()});
            else kernel.product({1, z.k, z.m, d, 0, 1, left, Layout::Rows, z.k, to, z.k, nullptr, db.add()});
        }
        if (!da[i]) continue;
        float *to = da[i] + part * z.a;
        const bool add = da.add() || (part > 0 && z.a == 0);
        if (packs) {  // dC B^T
            if (turned) pack(kernel, z.n, z.k, right, z.n, true, turned);
            kernel.product({z.m, z.k, z.n, d, z.n, 1, turned ? turned : packed_.get(s.params[1], true), Layout::Packed,
                            0, to, z.k, nullptr, add});
        } else if (z.n == 1) {
            kernel.product({z.m, z.k, 1, d, 1, 1, right, Layout::Rows, z.k, to, z.k, nullptr, add});
        } else {
            kernel.product({z.m, z.k, z.n, d, z.n, 1, right, Layout::Columns, z.n, to, z.k, nullptr, add});
        }
    }
}

void Runner::multiply_columns(const Work &work, const Step &step, const Signature &s) {
    const Factors z(s, graph_.signatures.shape(s.shape));
    const Rows b = values(work, step.in[1]);
    const Block c = value_of(work, step);
    const int matrices = work.count * z.parts, rows = matrices * z.n, in = z.k * z.n, out = z.m * z.n;
    float *x = scratch_.take(static_cast<std::size_t>(matrices) * in),
          *y = scratch_.take(static_cast<std::size_t>(matrices) * out);
    for (int e = 0; e < matrices; e++) turn(z.k, z.n, b[e / z.parts] + e % z.parts * in, x + e * in);
    kernels().product(
        {rows, z.m, z.k, x, z.k, 1, packed_.get(s.params[0], true), Layout::Packed, 0, y, z.m, nullptr, false});
    for (int e = 0; e < matrices; e++) turn(z.n, z.m, y + e * out, row_of(c, e / z.parts) + e % z.parts * out);
}

void Runner::multiply_columns_back(const Work &work, const Step &step, const Signature &s) {
    const Factors z(s, graph_.signatures.shape(s.shape));
    const Rows b = values(work, step.in[1]), db = gradients(work, step.in[1]);
    const Block dc = grad_of(work, step);
    const int matrices = work.count * z.parts, rows = matrices * z.n, in = z.k * z.n, out = z.m * z.n;
    float *x = scratch_.take(static_cast<std::size_t>(matrices) * in),
          *dy = scratch_.take(static_cast<std::size_t>(matrices) * out);
    for (int e = 0; e < matrices; e++) turn(z.m, z.n, row_of(dc, e / z.parts) + e % z.parts * out, dy + e * out);
    if (float *grad = graph_.params[s.params[0]].grad) {
        for (int e = 0; e < matrices; e++) turn(z.k, z.n, b[e / z.parts] + e % z.parts * in, x + e * in);
        kernels().product({z.m, z.k, rows, dy, 1, z.m, x, Layout::Rows, z.k, grad, z.k, nullptr, true});
    }
    bool wanted = false;
    for (int i = 0; i < work.count; i++) wanted |= db[i] != nullptr;
    if (!wanted) return;
    kernels().product(
        {rows, z.k, z.m, dy, z.m, 1, packed_.get(s.params[0], false), Layout::Packed, 0, x, z.k, nullptr, false});
    for (int e = 0; e < matrices; e++) {
        if (float *to = db[e / z.parts]) turn(z.n, z.k, x + e * in, to + e % z.parts * in, db.add());
    }
}

namespace {

// Gauss and Jordan's elimination of (X, 1), with pivots by columns.
void invert(int n, const float *x, float *y, std::vector<double> &both) {
    const int wide = 2 * n;
    both.assign(static_cast<std::size_t>(n) * wide, 0.0);
    const auto row = [&](int r) { return both.begin() + r * wide; };
    for (int r = 0; r < n; r++) std::copy_n(x + r * n, n, row(r)), row(r)[n + r] = 1.0;
    for (int c = 0; c < n; c++) {
        int pivot = c;
        for (int r = c + 1; r < n; r++) {
            if (std::abs(row(r)[c]) > std::abs(row(pivot)[c])) pivot = r;
        }
        if (row(pivot)[c] == 0.0) throw std::domain_error("inverse: a matrix is singular");
        if (pivot != c) std::swap_ranges(row(c), row(c) + wide, row(pivot));
        const double scale = 1.0 / row(c)[c];
        for (int k = c; k < wide; k++) row(c)[k] *= scale;
        for (int r = 0; r < n; r++) {
            const double factor = row(r)[c];
            for (int k = c; r != c && k < wide; k++) row(r)[k] -= factor * row(c)[k];
        }
    }
    for (int r = 0; r < n; r++)
        std::transform(row(r) + n, row(r) + wide, y + r * n, [](double v) { return static_cast<float>(v); });
}

}  // namespace

void Runner::inverse(const Work &work, const Step &step, const Signature &s) {
    const int n = graph_.signatures.shape(s.shape).dims[0];
    const Rows x = values(work, step.in[0]);
    const Block y = value_of(work, step);
    std::vector<double> both;
    for (int i = 0; i < work.count; i++) {
        for (int at = 0; at < s.width; at += n * n) invert(n, x[i] + at, row_of(y, i) + at, both);
    }
}

// dX = -Y^T dY Y^T
void Runner::inverse_back(const Work &work, const Step &step, const Signature &s) {
    const int n = graph_.signatures.shape(s.shape).dims[0];
    const Rows dx = gradients(work, step.in[0]);
    const Block y = value_of(work, step), dy = grad_of(work, step);
    float *turned = scratch_.take(n * n), *left = scratch_.take(n * n), *found = scratch_.take(n * n);
    for (int i = 0; i < work.count; i++) {
        for (int at = 0; dx[i] && at < s.width; at += n * n) {
            turn(n, n, row_of(y, i) + at, turned);
            kernels().product({n, n, n, turned, n, 1, row_of(dy, i) + at, Layout::Rows, n, left, n, nullptr, false});
            kernels().product({n, n, n, left, n, 1, turned, Layout::Rows, n, found, n, nullptr, false});
            kernels().axpy(n * n, dx[i] + at, -1.0f, found);
        }
    }
}

// x + column * (1, 1, ...), computed as a product, which is fastest.
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

}  // namespace dpmodule::autobatch
