// Operands with and without a minibatch, and concatenation of operands.
#include <algorithm>
#include <iterator>

#include "builder.hpp"

namespace dpmodule::autobatch {
namespace {

constexpr int list_code = 1005, repeat_code = 1007;

}  // namespace

int Builder::repeated(int x, int batch) {
    const int sig = signature({{repeat_code, shape_of(x), batch, 0, 0, 0}}, [&] {
        const Shape given = shape(x);
        Signature s(Op::Concat, -4, graph_.signatures.add_shape(given.dims, batch),
                    std::vector<int>(static_cast<std::size_t>(batch), given.size));
        s.nargs = 1;
        return s;
    });
    return graph_.add(sig, &x, 1);
}

// Sums operands of one shape first, then the results.
int Builder::sum_of_shapes(const int *parts, int count) {
    std::vector<int> shapes, dims;
    int batch = 1;
    for (int i = 0; i < count; i++) {
        if (std::find(shapes.begin(), shapes.end(), shape_of(parts[i])) == shapes.end())
            shapes.push_back(shape_of(parts[i]));
    }
    for (int each : shapes) {
        const Shape &found = graph_.signatures.shape(each);
        if (found.batch != 1 && batch != 1 && found.batch != batch) return -1;
        batch = std::max(batch, found.batch);
        dims.resize(std::max(dims.size(), found.dims.size()), 1);
        for (std::size_t k = 0; k < found.dims.size(); k++) {
            if (found.dims[k] != 1 && dims[k] != 1 && found.dims[k] != dims[k]) return -1;
            dims[k] = std::max(dims[k], found.dims[k]);
        }
    }
    int total = -1;
    for (int each : shapes) {
        std::vector<int> alike;
        std::copy_if(parts, parts + count, std::back_inserter(alike), [&](int part) { return shape_of(part) == each; });
        const int found = alike.size() == 1 ? alike[0] : sum(alike.data(), static_cast<int>(alike.size()));
        total = total < 0 ? found : binary(Binary::Add, total, found);
    }
    return total;
}

int Builder::across(Reduction kind, const int *parts, int count) {
    int widest = parts[0];
    bool alike = true;
    for (int i = 1; i < count; i++) {
        if (!fits_elements(widest, parts[i])) return -1;
        alike &= shape_of(parts[i]) == shape_of(widest);
        if (shape(parts[i]).batch > shape(widest).batch) widest = parts[i];
    }
    const std::int64_t width = graph_.signature(widest).width;
    if (count * width > INT32_MAX) return -1;
    const auto make = [&] {
        std::vector<int> widths;
        for (int i = 0; i < count; i++) widths.push_back(graph_.signature(parts[i]).width);
        return Signature(Op::Reduce, static_cast<int>(kind), shape_of(widest), std::move(widths),
                         {count, static_cast<int>(width), 1});
    };
    const int sig = alike ? signature({{list_code, static_cast<int>(kind), shape_of(widest), count, 0, 0}}, make)
                          : graph_.signatures.add(make());
    return graph_.add(sig, parts, count);
}

int Builder::hinge_along(int axis, float margin, int scores, std::vector<int> labels) {
    const Shape given = shape(scores);
    if (given.dims.size() != 2 || axis < 0 || axis > 1) return -1;
    const int rows = given.dims[1 - axis], many = rows * given.batch;
    if (labels.size() == static_cast<std::size_t>(rows)) {
        labels.resize(many);
        for (int i = rows; i < many; i++) labels[i] = labels[i - rows];
    }
    if (labels.size() != static_cast<std::size_t>(many)) return -1;
    if (std::any_of(labels.begin(), labels.end(), [&](int label) { return label < 0 || label >= given.dims[axis]; }))
        return -1;
    if (axis == 0 && (scores = transpose(scores)) < 0) return -1;
    const int sig = signature({{static_cast<int>(Op::Hinge), given.size, bits(margin), rows, given.batch, 2}}, [&] {
        return Signature(Op::Hinge, 2, graph_.signatures.add_shape({rows}, given.batch), {given.size}, {}, margin);
    });
    return graph_.add(sig, &scores, 1, many == 1 ? labels[0] : graph_.keep_labels(labels));
}

int Builder::sparsemax(int x) {
    const Shape &given = shape(x);
    return given.size / given.batch == given.dims[0]
               ? graph_.add(simple(Op::Sparsemax, given.dims[0], 0, shape_of(x), 1), &x, 1)
               : -1;
}

int Builder::constrained(int x, int bounds) {
    if (shape(x).dims.size() != 1 || !fits_elements(x, bounds)) return -1;
    const int batch = std::max(shape(x).batch, shape(bounds).batch);
    const int both[2] = {shape(x).batch == batch ? x : repeated(x, batch),
                         shape(bounds).batch == batch ? bounds : repeated(bounds, batch)};
    return graph_.add(simple(Op::Constrained, shape(x).dims[0], 0, shape_of(both[0]), 2), both, 2);
}

}  // namespace dpmodule::autobatch
