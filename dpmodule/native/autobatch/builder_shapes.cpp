// Matrices, stored row by row: products, concatenation, operations along dimensions.
#include <algorithm>

#include "builder.hpp"

namespace dpmodule::autobatch {
bool Builder::is_flat(int shape) const {
    const std::vector<int> &dims = graph_.signatures.shape(shape).dims;
    return std::count_if(dims.begin(), dims.end(), [](int d) { return d != 1; }) <= 1;
}

// The shape of the product of two matrices, -1 if they do not fit.
int Builder::product_shape(int a, int b) {
    const Shape &x = shape(a), &y = shape(b);
    if (x.batch != y.batch && x.batch != 1 && y.batch != 1) return -1;
    if (x.dims.size() > 2 || y.dims.size() > 2 || padded(x.dims, 1) != y.dims[0]) return -1;
    std::vector<int> dims = y.dims;
    dims[0] = x.dims[0];
    return graph_.signatures.add_shape(dims, std::max(x.batch, y.batch));
}

int Builder::multiply(int a, int b) {
    const int both[2] = {a, b}, product = affine(-1, both, 1, shape(b).dims.size() != 1);
    if (product >= 0) return product;
    const std::vector<int> number = {1};
    if (shape(a).dims == number && shape(b).dims == number && shape(a).batch + shape(b).batch > 2)
        return binary(Binary::Mul, a, b);
    int params[2] = {-1, -1};
    matrix(a, params[0]);
    matrix(b, params[1]);
    const int sig =
        signature({{static_cast<int>(Op::Multiply), shape_of(a), shape_of(b), params[0], params[1], 0}}, [&] {
            // -1 is cached, too
            return Signature(Op::Multiply, 0, product_shape(a, b),
                             {graph_.signature(a).width, graph_.signature(b).width},
                             {params[0], params[1], padded(shape(a).dims, 1)});
        });
    return graph_.signatures[sig].shape < 0 ? -1 : graph_.add(sig, both, 2);
}

int Builder::inverse(int x) {
    constexpr int most = 32;  // larger matrices are left to a library
    const std::vector<int> &dims = shape(x).dims;
    if (dims.size() != 2 || dims[0] != dims[1] || dims[0] > most) return -1;
    return graph_.add(simple(Op::Inverse, 0, 0, shape_of(x), 1), &x, 1);
}

int Builder::transform(int bias, const int *terms, int count) {
    const int plain = affine(bias, terms, count);
    if (plain >= 0 || bias < 0 || count < 1) return plain;
    // a column is a vector in the sum
    const auto upright = [](std::vector<int> dims) {
        if (dims.size() == 2 && dims[1] == 1) dims.pop_back();
        return dims;
    };
    std::vector<int> dims;
    int batch = shape(bias).batch;
    for (int i = 0; i < count; i++) {
        const int product = product_shape(terms[2 * i], terms[2 * i + 1]);
        if (product < 0) return -1;
        const Shape &of = graph_.signatures.shape(product);
        if ((i && upright(of.dims) != dims) || (of.batch != 1 && batch != 1 && of.batch != batch)) return -1;
        dims = upright(of.dims);
        batch = std::max(batch, of.batch);
    }
    const bool same = upright(shape(bias).dims) == dims;
    if (!same && upright(shape(bias).dims) != std::vector<int>{dims[0]}) return -1;
    const auto fitted = [&](int x) {
        return shape(x).dims == dims ? x : view(x, graph_.signatures.add_shape(dims, shape(x).batch), 0);
    };
    int total = dims.size() == 1 ? affine(-1, terms, count) : -1;
    for (int i = 0; total < 0 || i > 0; i++) {
        if (i == count) break;
        const int product = fitted(multiply(terms[2 * i], terms[2 * i + 1]));
        total = i ? binary(Binary::Add, total, product) : product;
    }
    return same ? binary(Binary::Add, fitted(bias), total) : add_to_columns(total, bias);
}

// Adds a vector to all columns.
int Builder::add_to_columns(int x, int column) {
    const int sum = add_column(x, column);
    if (sum >= 0 || !is_columns(column) || shape(column).dims[0] != shape(x).dims[0]) return sum;
    const bool both_vectors = shape(x).dims.size() == 1 && shape(column).dims.size() == 2;
    if (both_vectors) column = view(column, graph_.signatures.add_shape(shape(x).dims, shape(column).batch), 0);
    return binary(Binary::Add, x, column);
}

int Builder::add_column(int x, int column) {
    const Shape &matrix = shape(x);
    const int both[2] = {x, column};
    if (matrix.batch != 1 || matrix.dims.size() != 2 || !is_column(column) ||
        graph_.signature(column).width != matrix.dims[0])
        return -1;
    if (matrix.dims[1] == 1)
        return graph_.add(simple(Op::Binary, static_cast<int>(Binary::Add), 0, shape_of(x), 2), both, 2);
    const int sig = signature({{static_cast<int>(Op::AddColumn), shape_of(x), 0, 0, 0, 0}}, [&] {
        return Signature(Op::AddColumn, 0, shape_of(x), {graph_.signature(x).width, graph_.signature(column).width});
    });
    return graph_.add(sig, both, 2);
}

int Builder::concat(const int *parts, int count, int axis) {
    constexpr int most = 7;
    if (axis < 0 || axis >= most) return -1;
    const std::size_t along = static_cast<std::size_t>(axis);
    std::size_t rank = along + 1;
    for (int i = 0; i < count; i++) rank = std::max(rank, shape(parts[i]).dims.size());
    int batch = 1;
    for (int i = 0; i < count; i++) batch = std::max(batch, shape(parts[i]).batch);
    const std::vector<int> &first = shape(parts[0]).dims;
    std::int64_t total = 0;
    for (int i = 0; i < count; i++) {
        const Shape &each = shape(parts[i]);
        if (each.batch != batch && each.batch != 1) return -1;
        for (std::size_t k = 0; k < rank; k++) {
            if (k != along && padded(each.dims, k) != padded(first, k)) return -1;
        }
        total += padded(each.dims, along);
    }
    if (total > INT32_MAX) throw TooLarge();
    const Op op = axis == 0 && batch == 1 ? Op::Concat : Op::ConcatColumns;
    const auto make = [&] {
        std::vector<int> dims(rank), widths, repeats;
        for (std::size_t k = 0; k < rank; k++) dims[k] = k == along ? static_cast<int>(total) : padded(first, k);
        for (int i = 0; i < count; i++) {
            widths.push_back(graph_.signature(parts[i]).width);
            if (op == Op::ConcatColumns) repeats.push_back(batch / shape(parts[i]).batch);
        }
        return Signature(op, axis, graph_.signatures.add_shape(dims, batch), std::move(widths), std::move(repeats));
    };
    const auto of = [&](int i) { return i < count ? shape_of(parts[i]) : -1; };
    const int sig = count <= 4 ? signature({{static_cast<int>(op), count + 8 * axis, of(0), of(1), of(2), of(3)}}, make)
                               : graph_.signatures.add(make());
    return graph_.add(sig, parts, count);
}

int Builder::to_batch(const int *parts, int count, int kind) {
    const std::vector<int> &dims = shape(parts[0]).dims;
    std::int64_t batch = 0;
    for (int i = 0; i < count; i++) {
        if (shape_of(parts[i]) != shape_of(parts[0]) && shape(parts[i]).dims != dims) return -1;
        batch += shape(parts[i]).batch;
    }
    if (batch > INT32_MAX) throw TooLarge();
    std::vector<int> widths;
    for (int i = 0; i < count; i++) widths.push_back(graph_.signature(parts[i]).width);
    const int whole = graph_.signatures.add_shape(std::vector<int>(dims), static_cast<int>(batch));
    return graph_.add(graph_.signatures.add(Signature(Op::Concat, kind, whole, std::move(widths))), parts, count);
}

// Dimensions of 1, including missing trailing dimensions, are broadcast.
int Builder::broadcast(Binary kind, int a, int b) {
    const int sig =
        signature({{static_cast<int>(Op::Broadcast), static_cast<int>(kind), shape_of(a), shape_of(b), 0, 0}}, [&] {
            const Shape &x = shape(a), &y = shape(b);
            std::vector<int> dims(std::max(x.dims.size(), y.dims.size()));
            bool fits = x.batch == y.batch || x.batch == 1 || y.batch == 1;
            for (std::size_t k = 0; k < dims.size(); k++) {
                const int one = padded(x.dims, k), other = padded(y.dims, k);
                fits &= one == other || one == 1 || other == 1;
                dims[k] = std::max(one, other);
            }
            std::vector<int> wide = x.dims;
            wide.resize(dims.size(), 1);
            // no kernel: cached without a shape
            Signature s(Op::Broadcast, static_cast<int>(kind), -1, {x.size, y.size}, {shape_of(a), shape_of(b)});
            if (kind == Binary::Div) fits &= dims == wide;  // only the divisor is broadcast
            else if (kind == Binary::Pow) dims = x.dims, fits &= y.size == y.batch;
            else if (kind > Binary::Div) fits &= x.dims == y.dims;
            if (fits) s.shape = graph_.signatures.add_shape(dims, std::max(x.batch, y.batch));
            return s;
        });
    const int both[2] = {a, b};
    return graph_.signatures[sig].shape < 0 ? -1 : graph_.add(sig, both, 2);
}

int Builder::reduction(Reduction kind, int x, unsigned axes, int divisor) {
    const int sig = signature(
        {{static_cast<int>(Op::Reduce), static_cast<int>(kind), shape_of(x), static_cast<int>(axes), divisor, 0}}, [&] {
            const Shape &given = shape(x);
            // no kernel: cached without a shape
            Signature s(Op::Reduce, static_cast<int>(kind), -1, {given.size}, {1, 1});
            const std::size_t most = kind == Reduction::LogSumExp ? 2 : 30;
            if (given.dims.size() > most || !axes || axes >> (given.dims.size() + 1)) return s;
            // reduced elements must be evenly spaced, so the dimensions must be adjacent
            std::vector<int> sizes = {given.batch}, rest;
            sizes.insert(sizes.end(), given.dims.begin(), given.dims.end());
            bool begun = false, ended = false;
            for (std::size_t k = 0; k < sizes.size(); k++) {
                const bool goes = axes >> k & 1;
                if (!goes && k) rest.push_back(sizes[k]);
                if (sizes[k] == 1) continue;
                if (goes && ended) return s;
                begun |= goes;
                ended |= begun && !goes;
                (goes ? s.params[0] : s.params[1]) *= begun ? sizes[k] : 1;
            }
            if (!begun) s.params[1] = given.size;
            if (rest.empty()) rest = {1};
            s.attr = static_cast<float>(divisor > 0 ? divisor : s.params[0]);
            s.shape = graph_.signatures.add_shape(rest, axes & 1 ? 1 : given.batch);
            return s;
        });
    return graph_.signatures[sig].shape < 0 ? -1 : sig;
}

int Builder::along(Reduction kind, int x, unsigned axes, int divisor) {
    const int sig = reduction(kind, x, axes, divisor);
    return sig < 0 ? -1 : graph_.add(sig, &x, 1);
}

int Builder::moment(int power, int x, unsigned axes, int divisor) {
    const int sig = reduction(Reduction::Mean, x, axes, divisor);
    if (sig < 0) return -1;
    const int raised = power == 1 ? x : this->power(static_cast<float>(power), x);
    return graph_.add(sig, &raised, 1);
}

int Builder::power(float exponent, int x) {
    if (exponent == 2) return unary(Unary::Square, 0, x);
    return exponent == 3 ? unary(Unary::Cube, 0, x) : unary(Unary::Power, exponent, x);
}

int Builder::fold(int x, int rows) {
    const Shape &given = shape(x);
    if (given.dims.empty() || given.dims.size() > 2 || rows < 1 || given.dims[0] % rows) return -1;
    std::vector<int> dims = given.dims;
    dims[0] /= rows;
    return graph_.add(graph_.signatures.add(Signature(Op::Reduce, static_cast<int>(Reduction::Sum),
                                                      graph_.signatures.add_shape(dims, given.batch), {given.size},
                                                      {rows, padded(given.dims, 1), 2})),
                      &x, 1);
}

// An operation along one dimension, on `count` elements if that is not 0, or only on `places`.
int Builder::lines(Op op, int x, int axis, int count, const std::vector<int> &places) {
    const Shape given = shape(x);
    const std::size_t along = static_cast<std::size_t>(axis);
    if (axis < 0 || along >= given.dims.size() || count < 0 || count > given.dims[along]) return -1;
    const auto make = [&] {
        std::vector<int> params = {given.dims[along], 1}, dims = given.dims;
        for (std::size_t k = along + 1; k < given.dims.size(); k++) params[1] *= given.dims[k];
        params.insert(params.end(), places.begin(), places.end());
        if (count) dims[along] = count;
        return Signature(op, count, graph_.signatures.add_shape(dims, given.batch), {given.size}, std::move(params));
    };
    return graph_.add(places.empty() ? signature({{static_cast<int>(op), shape_of(x), axis, count, 0, 0}}, make)
                                     : graph_.signatures.add(make()),
                      &x, 1);
}

int Builder::greatest(int x, int count, int axis) { return count < 1 ? -1 : lines(Op::Greatest, x, axis, count); }

int Builder::sums(int x, int axis) { return lines(Op::Sums, x, axis); }

int Builder::softmax(Op op, int x, int axis) { return shape(x).dims.size() > 2 ? -1 : lines(op, x, axis); }

int Builder::restricted(int x, const std::vector<int> &places) {
    const int size = shape(x).dims[0];
    if (!is_columns(x) ||
        std::any_of(places.begin(), places.end(), [&](int place) { return place < 0 || place >= size; }))
        return -1;
    std::vector<int> sorted(places);
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
        return -1;  // the kernel's gradient requires distinct places
    return lines(Op::LogSoftmax, x, 0, 0, places);
}

}  // namespace dpmodule::autobatch
