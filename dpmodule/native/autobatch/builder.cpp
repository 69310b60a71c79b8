#include "builder.hpp"

#include <algorithm>
#include <cstring>

namespace dpmodule::autobatch {
namespace {

constexpr int lstm_code = 1000, memory_code = 1001, affine_code = 1100;

bool fit(const std::vector<int> &labels, int count, int places) {
    return labels.size() == static_cast<std::size_t>(count) &&
           std::all_of(labels.begin(), labels.end(), [&](int label) { return label >= 0 && label < places; });
}

}  // namespace

bool Builder::fits_elements(int x, int y) const {
    const Shape &a = shape(x), &b = shape(y);
    return a.dims == b.dims && (a.batch == b.batch || a.batch == 1 || b.batch == 1);
}

bool Builder::is_vector(int node) const {
    const Shape &found = shape(node);
    return found.batch == 1 && found.dims.size() == 1;
}

bool Builder::is_column(int node) const { return shape(node).batch == 1 && is_columns(node); }

bool Builder::is_columns(int node) const {
    const std::vector<int> &dims = shape(node).dims;
    return dims.size() == 1 || (dims.size() == 2 && dims[1] == 1);
}

const Param *Builder::matrix(int node, int &index) const {
    const Signature &s = graph_.signature(node);
    if (s.op != Op::Param || graph_.signatures.shape(s.shape).dims.size() != 2) return nullptr;
    index = s.params[0];
    return &graph_.params[index];
}

int Builder::simple(Op op, int kind, float attr, int shape, int nargs) {
    return signature({{static_cast<int>(op), kind, bits(attr), shape, nargs, 0}}, [&] {
        std::vector<int> widths(std::max(nargs, 0), graph_.signatures.shape(shape).size);
        Signature s(op, kind, shape, std::move(widths), {}, attr);
        s.nargs = nargs;
        return s;
    });
}

// Numbers are part of the signature, to allow fusion, up to a limit that protects the tables.
bool Builder::is_common(Unary kind, float attr) {
    constexpr std::size_t most = 512;
    const std::uint64_t key = static_cast<std::uint64_t>(kind) << 32 | static_cast<std::uint32_t>(bits(attr));
    if (numbers_.count(key)) return true;
    return numbers_.size() < most && numbers_.insert(key).second;
}

int Builder::unary_each(Unary kind, float attr, int x) {
    return graph_.add(simple(Op::UnaryEach, static_cast<int>(kind), 0, shape_of(x), 1), &x, 1, bits(attr));
}

int Builder::unary(Unary kind, float attr, int x) {
    // counts vary as much as labels
    if (kind == Unary::Poisson) return graph_.signature(x).width == shape(x).batch ? unary_each(kind, attr, x) : -1;
    if (attr != 0 && !is_common(kind, attr)) return unary_each(kind, attr, x);
    return graph_.add(simple(Op::Unary, static_cast<int>(kind), attr, shape_of(x), 1), &x, 1);
}

int Builder::binary(Binary kind, int a, int b) {
    const int both[2] = {a, b};
    int shape = shape_of(a);
    if (kind == Binary::Pow && graph_.signature(b).width != this->shape(b).batch) return -1;
    if (shape != shape_of(b)) {
        if (kind > Binary::Div) return broadcast(kind, a, b);
        if (is_column(a) && is_column(b) && graph_.signature(a).width == graph_.signature(b).width) {
            if (is_vector(a)) shape = shape_of(b);
        } else {
            int sum = kind == Binary::Add ? add_column(a, b) : -1;
            if (sum < 0 && kind == Binary::Add) sum = add_column(b, a);
            return sum < 0 ? broadcast(kind, a, b) : sum;
        }
    }
    return graph_.add(simple(Op::Binary, static_cast<int>(kind), 0, shape, 2), both, 2);
}

int Builder::affine(int bias, const int *terms, int count, bool is_column) {
    constexpr int most = 8;
    if (count < 1 || count > most) return -1;
    int xs[most];
    for (int i = 0; i < count; i++) xs[i] = terms[2 * i + 1];
    const auto make = [&] {
        std::vector<int> params(count + 1, -1), widths;
        int rows = 0;
        const int batch = shape(xs[0]).batch;
        for (int i = 0; i < count; i++) {
            const Param *w = matrix(terms[2 * i], params[i + 1]);
            const Shape &x = shape(xs[i]);
            if (!w || !is_columns(xs[i]) || x.batch != batch || x.dims[0] != w->cols || (i && w->rows != rows))
                return Signature{};  // without a shape, also cached
            rows = w->rows;
            widths.push_back(graph_.signature(xs[i]).width);
        }
        if (bias >= 0) {
            const Signature &s = graph_.signature(bias);
            if (s.op != Op::Param || !this->is_column(bias) || s.width != rows) return Signature{};
            params[0] = s.params[0];
        }
        const std::vector<int> dims = is_column ? std::vector<int>{rows, 1} : std::vector<int>{rows};
        return Signature(Op::Affine, 0, graph_.signatures.add_shape(dims, batch), std::move(widths), std::move(params));
    };
    const auto of = [&](int i) { return i < 2 * count ? graph_.nodes[terms[i]].sig : -1; };
    const int sig =
        count <= 2
            ? signature({{affine_code + is_column, bias < 0 ? -1 : graph_.nodes[bias].sig, of(0), of(1), of(2), of(3)}},
                        make)
            : graph_.signatures.add(make());
    return graph_.signatures[sig].shape < 0 ? -1 : graph_.add(sig, xs, count);
}

int Builder::sum(const int *parts, int count) {
    const int shape = shape_of(parts[0]);
    for (int i = 1; i < count; i++) {
        if (shape_of(parts[i]) != shape) return sum_of_shapes(parts, count);
    }
    return graph_.add(simple(Op::Sum, 0, 0, shape, -1), parts, count);
}

int Builder::loss(Op op, float margin, int scores, std::vector<int> labels, bool is_list) {
    const Shape &given = shape(scores);
    const int batch = given.batch, width = given.size;
    if (!is_list) labels.resize(static_cast<std::size_t>(batch), labels[0]);
    const int many = static_cast<int>(labels.size());
    if (batch == 1 && many > 1 && is_columns(scores) && fit(labels, many, given.dims[0]))
        return loss(op, margin, repeated(scores, many), std::move(labels), is_list);
    if (!is_columns(scores) || !fit(labels, batch, given.dims[0])) return -1;
    const int sig = signature({{static_cast<int>(op), width, bits(margin), batch, is_list, 0}}, [&] {
        return Signature(op, is_list, graph_.signatures.add_shape({1}, batch), {width}, {}, margin);
    });
    return graph_.add(sig, &scores, 1, batch == 1 ? labels[0] : graph_.keep_labels(labels));
}

// The dimension is removed; an operand without a minibatch is used for every index.
int Builder::pick_each(int x, const std::vector<int> &labels, int axis) {
    const Shape given = shape(x);
    const std::size_t along = static_cast<std::size_t>(axis);
    const int batch = given.batch == 1 ? static_cast<int>(labels.size()) : given.batch;
    if (along >= given.dims.size() || !fit(labels, batch, given.dims[along])) return -1;
    if (batch == 1) return pick(x, labels[0], axis);
    const int sig = signature({{static_cast<int>(Op::PickEach), shape_of(x), batch, axis, 0, 0}}, [&] {
        int parts = 1;
        for (std::size_t k = 0; k < along; k++) parts *= given.dims[k];
        std::vector<int> rest = given.dims;
        rest.erase(rest.begin() + axis);
        return Signature(Op::PickEach, 0, graph_.signatures.add_shape(rest.empty() ? std::vector<int>{1} : rest, batch),
                         {given.size}, {parts, given.dims[along]});
    });
    return graph_.add(sig, &x, 1, graph_.keep_labels(labels));
}

// Parameters are distinguished, as in calls, since random numbers depend on the batches.
int Builder::drawing(Draw kind, int shape, const Signature *operand, double first, double second, Mask mask) {
    const double numbers[2] = {first, second};
    std::vector<int> params(1 + (sizeof numbers) / (sizeof(int)), -1);
    std::memcpy(&params[1], numbers, sizeof numbers);
    if (operand && operand->op == Op::Param) params[0] = operand->params[0];
    params.insert(params.end(), {mask.repeats, mask.inner});
    const int drawing = drawings_.number(params).first, width = operand ? operand->width : -1;
    return signature({{static_cast<int>(Op::Drawn), static_cast<int>(kind), shape, drawing, 0, 0}}, [&] {
        return Signature(Op::Drawn, static_cast<int>(kind), shape,
                         operand ? std::vector<int>{width} : std::vector<int>{}, params);
    });
}

int Builder::drawn(Draw kind, double rate, int x, int axis) {
    const Shape &given = shape(x);
    Mask mask{1, 1};
    if (kind == Draw::BlockDropout) mask.repeats = given.size;
    if (kind == Draw::DropoutBatch) mask.repeats = given.size / given.batch;
    if (kind == Draw::DropoutDim) {
        if (axis < 0 || static_cast<std::size_t>(axis) >= given.dims.size()) return -1;
        mask.repeats = given.dims[axis];
        for (std::size_t k = static_cast<std::size_t>(axis) + 1; k < given.dims.size(); k++)
            mask.inner *= given.dims[k];
    }
    return graph_.add(drawing(kind, shape_of(x), &graph_.signature(x), rate, 0, mask), &x, 1);
}

int Builder::random(Draw kind, int shape, double first, double second) {
    return graph_.add(drawing(kind, shape, nullptr, first, second), nullptr, 0);
}

int Builder::reduce(Op op, int x, int y) {
    if (op == Op::SumElems && shape(x).batch != 1) {
        const std::size_t rank = shape(x).dims.size();
        return rank < 31 ? along(Reduction::Sum, x, (2u << rank) - 2u) : -1;
    }
    const int both[2] = {x, y}, count = op == Op::Dot ? 2 : 1, other = count == 2 ? shape_of(y) : 0;
    if (count == 2 && other != shape_of(x) && !fits_elements(x, y)) return -1;
    const int sig = signature({{static_cast<int>(op), shape_of(x), other, 0, 0, 0}}, [&] {
        std::vector<int> widths;
        int batch = 1;
        for (int i = 0; i < count; i++) {
            widths.push_back(shape(both[i]).size);
            batch = std::max(batch, shape(both[i]).batch);
        }
        return Signature(op, 0, graph_.signatures.add_shape({1}, batch), std::move(widths));
    });
    return graph_.add(sig, both, count);
}

int Builder::lookup(int table, int row) {
    const Table &t = *graph_.tables[table];
    if (row < 0 || row >= t.rows) return -1;
    return graph_.add(t.sig, nullptr, 0, row);
}

int Builder::input(const std::vector<int> &dims, float *&at, int batch) {
    const int shape = graph_.signatures.add_shape(dims, batch);
    at = graph_.inputs.take(graph_.signatures.shape(shape).size);
    return graph_.add_input(simple(Op::Input, 0, 0, shape, 0), at);
}

int Builder::lstm(int x, int h, int c, int wx, int wh, int bias, float forget_bias) {
    int params[3] = {-1, -1, -1};
    const Param *input = matrix(wx, params[1]), *state = matrix(wh, params[2]);
    const Signature &b = graph_.signature(bias);
    if (!input || !state || b.op != Op::Param || input->rows != b.width || state->rows != b.width) return -1;
    const int width = state->cols;
    const int batch = shape(x).batch;
    const auto fits = [&](int node, int size) {
        const Shape &each = shape(node);
        return each.batch == batch && each.dims.size() == 1 && each.dims[0] == size;
    };
    if (b.width != 4 * width || !is_columns(x) || shape(x).dims[0] != input->cols || (h >= 0 && !fits(h, width)) ||
        (c >= 0 && !fits(c, width)))
        return -1;
    params[0] = b.params[0];
    const int sig = signature({{lstm_code, params[0], params[1], params[2], bits(forget_bias), batch}}, [&] {
        Signature s(Op::Lstm, 0, graph_.signatures.add_shape({width}, batch),
                    {graph_.signature(x).width, batch * width, batch * width}, {params, params + 3}, forget_bias);
        s.further = batch * width;
        return s;
    });
    const int args[3] = {x, h, c}, node = graph_.add(sig, args, 3);
    const int rest = signature({{memory_code, width, batch, 0, 0, 0}},
                               [&] { return Signature(Op::View, 0, shape_of(node), {batch * width}); });
    graph_.add(rest, &node, 1, batch * width);
    return node;
}

int Builder::compound(int number, const int *operands) {
    const Compound &found = graph_.signatures.compounds[number];
    const int node = graph_.add(found.sig, operands, found.operands);
    if (found.memory >= 0) graph_.add(found.memory_sig, &node, 1, graph_.signature(node).width);
    return node;
}

}  // namespace dpmodule::autobatch
