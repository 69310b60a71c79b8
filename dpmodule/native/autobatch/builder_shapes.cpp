// Matrices: products, joining, parts, other shapes.  They are stored row by row.
#include <algorithm>

#include "builder.hpp"

namespace dpmodule::autobatch {
namespace {

constexpr int view_code = 1002, part_code = 1003, transpose_code = 1004, list_code = 1005;

int padded(const std::vector<int> &dims, std::size_t axis) { return axis < dims.size() ? dims[axis] : 1; }

}  // namespace

bool Builder::is_flat(int shape) const {
    const std::vector<int> &dims = graph_.signatures.shape(shape).dims;
    return std::count_if(dims.begin(), dims.end(), [](int d) { return d != 1; }) <= 1;
}

// The shape of the product of two matrices, -1 where they do not fit.
int Builder::product_shape(int a, int b) {
    const Shape &x = shape(a), &y = shape(b);
    if (x.batch != 1 || y.batch != 1 || x.dims.size() > 2 || y.dims.size() > 2 || padded(x.dims, 1) != y.dims[0]) return -1;
    std::vector<int> dims = y.dims;
    dims[0] = x.dims[0];
    return graph_.signatures.add_shape(dims);
}

int Builder::multiply(int a, int b) {
    const int both[2] = {a, b}, product = affine(-1, both, 1, shape(b).dims.size() != 1);
    if (product >= 0) return product;
    const std::vector<int> number = {1};
    if (shape(a).dims == number && shape(b).dims == number && shape(a).batch + shape(b).batch > 2) return binary(Binary::Mul, a, b);
    int params[2] = {-1, -1};
    matrix(a, params[0]);
    matrix(b, params[1]);
    const int sig = signature({{static_cast<int>(Op::Multiply), shape_of(a), shape_of(b), params[0], params[1], 0}}, [&] {
        Signature s;
        s.op = Op::Multiply;
        s.shape = product_shape(a, b);   // -1: remembered, too
        s.nargs = 2;
        s.params.assign(params, params + 2);
        s.widths = {graph_.signature(a).width, graph_.signature(b).width};
        return s;
    });
    return graph_.signatures[sig].shape < 0 ? -1 : graph_.add(sig, both, 2);
}

int Builder::transform(int bias, const int *terms, int count) {
    const int plain = affine(bias, terms, count);
    if (plain >= 0 || bias < 0 || count < 1) return plain;
    const int found = product_shape(terms[0], terms[1]);
    for (int i = 1; i < count; i++) {
        if (product_shape(terms[2 * i], terms[2 * i + 1]) != found) return -1;
    }
    if (found < 0) return -1;
    const Shape of = graph_.signatures.shape(found);
    const bool same = shape_of(bias) == found;
    // the sum of columns is a vector, whatever its terms
    if (of.dims.size() == 2 && of.dims[1] == 1) return -1;
    if (!same && (of.dims.size() == 1 || !is_column(bias) || graph_.signature(bias).width != of.dims[0])) return -1;
    int total = of.dims.size() == 1 ? affine(-1, terms, count) : -1;
    if (total < 0) {
        total = multiply(terms[0], terms[1]);
        for (int i = 1; i < count; i++) total = binary(Binary::Add, total, multiply(terms[2 * i], terms[2 * i + 1]));
    }
    return same ? binary(Binary::Add, bias, total) : add_column(total, bias);
}

int Builder::add_column(int x, int column) {
    const Shape &matrix = shape(x);
    const int both[2] = {x, column};
    if (matrix.batch != 1 || matrix.dims.size() != 2 || !is_column(column) || graph_.signature(column).width != matrix.dims[0]) return -1;
    if (matrix.dims[1] == 1) return graph_.add(simple(Op::Binary, static_cast<int>(Binary::Add), 0, shape_of(x), 2), both, 2);
    const int sig = signature({{static_cast<int>(Op::AddColumn), shape_of(x), 0, 0, 0, 0}}, [&] {
        Signature s;
        s.op = Op::AddColumn;
        s.shape = shape_of(x);
        s.nargs = 2;
        s.widths = {graph_.signature(x).width, graph_.signature(column).width};
        return s;
    });
    return graph_.add(sig, both, 2);
}

int Builder::concat(const int *parts, int count, int axis) {
    constexpr int most = 7;
    if (axis < 0 || axis >= most) return -1;
    const std::size_t along = static_cast<std::size_t>(axis);
    std::size_t rank = along + 1;
    for (int i = 0; i < count; i++) rank = std::max(rank, shape(parts[i]).dims.size());
    const int batch = shape(parts[0]).batch;
    const std::vector<int> &first = shape(parts[0]).dims;
    std::int64_t total = 0;
    for (int i = 0; i < count; i++) {
        const Shape &each = shape(parts[i]);
        if (each.batch != batch) return -1;
        for (std::size_t k = 0; k < rank; k++) {
            if (k != along && padded(each.dims, k) != padded(first, k)) return -1;
        }
        total += padded(each.dims, along);
    }
    if (total > INT32_MAX) throw TooLarge();
    const Op op = axis == 0 && batch == 1 ? Op::Concat : Op::ConcatColumns;
    const auto make = [&] {
        Signature s;
        s.op = op;
        s.kind = axis;
        std::vector<int> dims(rank);
        for (std::size_t k = 0; k < rank; k++) dims[k] = k == along ? static_cast<int>(total) : padded(first, k);
        s.shape = graph_.signatures.add_shape(dims, batch);
        s.nargs = count;
        for (int i = 0; i < count; i++) s.widths.push_back(graph_.signature(parts[i]).width);
        return s;
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
    Signature s;
    s.op = Op::Concat;
    s.kind = kind;
    s.nargs = count;
    for (int i = 0; i < count; i++) s.widths.push_back(graph_.signature(parts[i]).width);
    s.shape = graph_.signatures.add_shape(std::vector<int>(dims), static_cast<int>(batch));
    return graph_.add(graph_.signatures.add(std::move(s)), parts, count);
}

int Builder::elements(int x, const std::vector<int> &places) {
    const Shape given = shape(x);
    const int size = given.size / given.batch, count = static_cast<int>(places.size());
    bool lie = true;
    for (int i = 0; i < count; i++) {
        if (places[i] < 0 || places[i] >= given.batch) return -1;
        lie &= places[i] == places[0] + i;
    }
    if (lie) return view(x, graph_.signatures.add_shape(given.dims, count), places[0] * size);
    std::vector<int> parts;
    for (int place : places) parts.push_back(view(x, graph_.signatures.add_shape(given.dims), place * size));
    return to_batch(parts.data(), count, -3);
}

// The argument's numbers from `first` on, under another shape.
int Builder::view(int x, int shape, int first) {
    const int width = graph_.signature(x).width;
    const int sig = signature({{view_code, width, shape, 0, 0, 0}}, [&] {
        Signature s;
        s.op = Op::View;
        s.shape = shape;
        s.nargs = 1;
        s.widths = {width};
        return s;
    });
    return graph_.add(sig, &x, 1, first);
}

// The argument as a matrix of so many rows, exchanged with its columns.
int Builder::turned(int x, int rows, int shape) {
    const int sig = signature({{static_cast<int>(Op::Transpose), rows, shape, 0, 0, 0}}, [&] {
        Signature s;
        s.op = Op::Transpose;
        s.kind = rows;
        s.shape = shape;
        s.nargs = 1;
        s.widths = {graph_.signature(x).width};
        return s;
    });
    return graph_.add(sig, &x, 1);
}

int Builder::transpose(int x) {
    const int given = shape_of(x);
    const int sig = signature({{transpose_code, given, 0, 0, 0, 0}}, [&] {
        const std::vector<int> &of = shape(x).dims;
        const int rows = of[0], columns = padded(of, 1), width = graph_.signature(x).width;
        Signature s;
        s.nargs = 1;
        s.widths = {width};
        if (shape(x).batch != 1 || of.size() > 2) return s;   // without a shape: remembered, too
        s.op = rows == 1 || columns == 1 ? Op::View : Op::Transpose;
        s.kind = s.op == Op::View ? 0 : rows;
        s.shape = graph_.signatures.add_shape(of.size() == 1 && rows == 1 ? std::vector<int>{1} : std::vector<int>{columns, rows});
        return s;
    });
    return graph_.signatures[sig].shape < 0 ? -1 : graph_.add(sig, &x, 1);
}

// Dimensions are read with the first one fastest, and stored with the last one fastest.
int Builder::reshape(int x, int target) {
    const int given = shape_of(x);
    const Shape from = graph_.signatures.shape(given), to = graph_.signatures.shape(target);
    if (from.batch != 1 && to.batch == 1 && from.size / from.batch == to.size) return reshape(x, graph_.signatures.add_shape(to.dims, from.batch));
    if (from.size != to.size) return -1;
    if (given == target || (is_flat(given) && is_flat(target))) return view(x, target, 0);
    if (from.batch != 1 || to.batch != 1) return -1;
    if (from.dims.size() > 2 || to.dims.size() > 2) return -1;
    if (!is_flat(given)) x = turned(x, from.dims[0], is_flat(target) ? target : graph_.signatures.vector_shape(from.size));
    return is_flat(target) ? x : turned(x, to.dims[1], target);
}

// `count` places of a dimension; 0: one, and the dimension disappears.
int Builder::part(int x, int first, int count, int axis) {
    const Shape given = shape(x);
    const std::size_t along = static_cast<std::size_t>(axis);
    const int last = first + std::max(count, 1);
    if (axis < 0 || along >= given.dims.size() || first < 0 || last <= first || last > given.dims[along]) return -1;
    int rows = given.batch, step = 1;
    for (std::size_t k = 0; k < given.dims.size(); k++) (k < along ? rows : step) *= k == along ? 1 : given.dims[k];
    const int sig = signature({{part_code, shape_of(x), count, axis, 0, 0}}, [&] {
        Signature s;
        s.op = rows == 1 ? Op::View : Op::Columns;
        s.kind = rows == 1 ? 0 : count ? rows : -rows;
        std::vector<int> dims = given.dims;
        if (count) dims[along] = count;
        else dims.erase(dims.begin() + axis);
        if (dims.empty()) dims = {1};
        s.shape = graph_.signatures.add_shape(dims, given.batch);
        s.nargs = 1;
        s.widths = {given.size};
        return s;
    });
    return graph_.add(sig, &x, 1, first * step);
}

int Builder::pick(int x, int index, int axis) {
    const std::vector<int> &dims = shape(x).dims;
    if (axis < 0 || static_cast<std::size_t>(axis) >= dims.size()) return -1;
    return part(x, index < 0 ? index + dims[axis] : index, 0, axis);
}

int Builder::range(int x, int first, int last, int axis) { return last > first ? part(x, first, last - first, axis) : -1; }

// Dimensions of 1 are repeated; those that are missing behind the others are 1.
int Builder::broadcast(Binary kind, int a, int b) {
    const int sig = signature({{static_cast<int>(Op::Broadcast), static_cast<int>(kind), shape_of(a), shape_of(b), 0, 0}}, [&] {
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
        Signature s;   // without a shape: no kernel takes this, which is remembered, too
        s.op = Op::Broadcast;
        s.kind = static_cast<int>(kind);
        s.nargs = 2;
        s.params = {shape_of(a), shape_of(b)};
        s.widths = {x.size, y.size};
        if (kind > Binary::Div || (kind == Binary::Div && dims != wide)) fits = false;   // only who divides is repeated
        if (fits) s.shape = graph_.signatures.add_shape(dims, std::max(x.batch, y.batch));
        return s;
    });
    const int both[2] = {a, b};
    return graph_.signatures[sig].shape < 0 ? -1 : graph_.add(sig, both, 2);
}

int Builder::along(Reduction kind, int x, unsigned axes, int divisor) {
    const int sig = signature({{static_cast<int>(Op::Reduce), static_cast<int>(kind), shape_of(x), static_cast<int>(axes), divisor, 0}}, [&] {
        const Shape &given = shape(x);
        Signature s;   // without a shape: no kernel takes this, which is remembered, too
        s.op = Op::Reduce;
        s.kind = static_cast<int>(kind);
        s.params = {1, 1};
        s.nargs = 1;
        s.widths = {given.size};
        const std::size_t most = kind == Reduction::LogSumExp ? 2 : 30;
        if (given.dims.size() > most || !axes || axes >> (given.dims.size() + 1)) return s;
        // numbers that become one have to lie evenly: dimensions side by side
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
    return graph_.signatures[sig].shape < 0 ? -1 : graph_.add(sig, &x, 1);
}

int Builder::log_sum_exp(const int *parts, int count) {
    const int each = shape_of(parts[0]);
    const std::int64_t width = graph_.signatures.shape(each).size;
    for (int i = 1; i < count; i++) {
        if (shape_of(parts[i]) != each) return -1;
    }
    if (count * width > INT32_MAX) return -1;
    const int sig = signature({{static_cast<int>(Op::Reduce), list_code, each, count, 0, 0}}, [&] {
        Signature s;
        s.op = Op::Reduce;
        s.kind = static_cast<int>(Reduction::LogSumExp);
        s.params = {count, static_cast<int>(width), 1};
        s.nargs = count;
        s.widths.assign(count, static_cast<int>(width));
        s.shape = each;
        return s;
    });
    return graph_.add(sig, parts, count);
}

int Builder::select(int name, int x, const std::vector<int> &rows, const std::vector<int> &columns) {
    constexpr std::size_t most = 1 << 12;   // they are part of the signature
    const Shape &given = shape(x);
    if (given.batch != 1 || given.dims.size() > 2 || rows.empty() || columns.empty() || rows.size() + columns.size() > most) return -1;
    const int width = padded(given.dims, 1);
    const auto fits = [](const std::vector<int> &places, int size) {
        return std::all_of(places.begin(), places.end(), [&](int place) { return place >= 0 && place < size; });
    };
    if (!fits(rows, given.dims[0]) || !fits(columns, width)) return -1;
    Signature s;
    s.op = Op::Select;
    s.kind = name;
    s.params = {static_cast<int>(rows.size())};
    for (int row : rows) s.params.push_back(row * width);
    s.params.insert(s.params.end(), columns.begin(), columns.end());
    s.nargs = 1;
    s.widths = {given.size};
    std::vector<int> dims = {static_cast<int>(rows.size())};
    if (given.dims.size() > 1) dims.push_back(static_cast<int>(columns.size()));
    s.shape = graph_.signatures.add_shape(dims);
    return graph_.add(graph_.signatures.add(std::move(s)), &x, 1);
}

// As many windows as there are places for, so that none sticks out, or so that each step has one.
int Builder::slide(Op op, const int *args, int count, Window window, bool is_narrow) {
    const std::vector<int> image = shape(args[0]).dims;
    int channels = padded(image, 2), filters = channels;
    for (int i = 0; i < count; i++) {
        if (shape(args[i]).batch != 1) return -1;
    }
    if (image.size() < 2 || image.size() > 3) return -1;
    if (op == Op::Convolve) {
        std::vector<int> given = shape(args[1]).dims;
        if (is_narrow) given = {given[0], padded(given, 1), 1, padded(given, 2)};
        if (given.size() != 4 || given[2] != channels) return -1;
        window.tall = given[0], window.wide = given[1], filters = given[3];
        if (count > 2 && shape(args[2]).dims != std::vector<int>{filters}) return -1;
    }
    std::int64_t lengths[2], before[2];
    const int sizes[] = {window.tall, window.wide}, steps[] = {window.down, window.right};
    for (int k = 0; k < 2; k++) {
        if (window.is_valid && sizes[k] > image[k]) return -1;
        lengths[k] = window.is_valid ? (image[k] - sizes[k]) / steps[k] + 1 : (image[k] - 1) / steps[k] + 1;
        before[k] = window.is_valid ? 0 : std::max<std::int64_t>((lengths[k] - 1) * steps[k] + sizes[k] - image[k], 0) / 2;
    }
    constexpr std::int64_t most = 1 << 17;   // numbers in all windows: more are left to somebody with several threads
    const std::int64_t window_size = static_cast<std::int64_t>(window.tall) * window.wide;
    if (window_size > most || lengths[0] * lengths[1] > most || lengths[0] * lengths[1] * window_size > most / channels) return -1;
    Signature s;
    s.op = op;
    s.kind = is_narrow;
    std::vector<int> dims = {static_cast<int>(lengths[0]), static_cast<int>(lengths[1])};
    if (op == Op::Convolve || image.size() > 2) dims.push_back(filters);
    s.shape = graph_.signatures.add_shape(dims);
    s.nargs = count;
    s.params = {image[0], image[1], channels, window.tall, window.wide, window.down, window.right, static_cast<int>(before[0]), static_cast<int>(before[1])};
    for (int i = 0; i < count; i++) {
        const Signature &each = graph_.signature(args[i]);
        s.widths.push_back(each.width);
        if (i) s.params.push_back(each.op == Op::Param ? each.params[0] : -1);   // batches have one filter
    }
    return graph_.add(graph_.signatures.add(s), args, count);
}

int Builder::filter(int x, int filters) {
    const Shape &image = shape(x), &given = shape(filters);
    if (image.dims.size() != 2 || given.dims.size() < 2 || given.dims.size() > 3 || given.dims[0] != image.dims[0]) return -1;
    const int both[2] = {x, filters}, made = slide(Op::Convolve, both, 2, {0, 0, 1, 1, true}, true);
    if (made < 0) return -1;
    const int places = shape(made).dims[1], count = shape(made).dims[2];
    return turned(made, places, graph_.signatures.add_shape({count, places}));
}

int Builder::fold(int x, int rows) {
    const Shape &given = shape(x);
    if (given.dims.empty() || given.dims.size() > 2 || rows < 1 || given.dims[0] % rows) return -1;
    Signature s;
    s.op = Op::Reduce;
    s.kind = static_cast<int>(Reduction::Sum);
    s.params = {rows, padded(given.dims, 1), 2};
    s.nargs = 1;
    s.widths = {given.size};
    std::vector<int> dims = given.dims;
    dims[0] /= rows;
    s.shape = graph_.signatures.add_shape(dims, given.batch);
    return graph_.add(graph_.signatures.add(std::move(s)), &x, 1);
}

int Builder::greatest(int x, int count, int axis) {
    const Shape &given = shape(x);
    if (axis < 0 || static_cast<std::size_t>(axis) + 1 != given.dims.size() || count < 1 || count > given.dims.back()) return -1;
    Signature s;
    s.op = Op::Greatest;
    s.kind = count;
    s.params = {given.dims.back()};
    s.nargs = 1;
    s.widths = {given.size};
    std::vector<int> dims = given.dims;
    dims.back() = count;
    s.shape = graph_.signatures.add_shape(dims, given.batch);
    return graph_.add(graph_.signatures.add(std::move(s)), &x, 1);
}

int Builder::softmax(Op op, int x, int axis) {
    const Shape &given = shape(x);
    if (given.dims.size() > 2 || axis < 0 || static_cast<std::size_t>(axis) >= given.dims.size()) return -1;
    const int along = given.dims[axis];
    if (along == given.size / given.batch || axis == 1) return graph_.add(simple(op, along, 0, shape_of(x), 1), &x, 1);
    if (given.batch != 1) return -1;
    const int made = softmax(op, transpose(x), 1);
    return transpose(made);
}

}  // namespace dpmodule::autobatch
