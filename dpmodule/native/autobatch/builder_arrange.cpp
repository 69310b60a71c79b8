// Selection, reordering and reshaping of an operand.
#include <algorithm>
#include <cstdint>

#include "builder.hpp"

namespace dpmodule::autobatch {
namespace {

constexpr int view_code = 1002, part_code = 1003, transpose_code = 1004, reshape_code = 1006;

}  // namespace

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

// A view of the argument's elements from `first` on, with another shape.
int Builder::view(int x, int shape, int first) {
    const int width = graph_.signature(x).width;
    const int sig =
        signature({{view_code, width, shape, 0, 0, 0}}, [&] { return Signature(Op::View, 0, shape, {width}); });
    return graph_.add(sig, &x, 1, first);
}

// Reads the argument's elements from `first` on in nested loops, the outermost first; a view if they are contiguous.
Signature Builder::arrangement(Arrangement kind, int width, int first, const std::vector<Loop> &loops, int shape) {
    std::vector<Loop> merged;
    for (const Loop &each : loops) {
        if (each.size == 1) continue;
        if (!merged.empty() && merged.back().step == each.size * each.step)
            merged.back() = {merged.back().size * each.size, each.step};
        else merged.push_back(each);
    }
    if (merged.empty() || (merged.size() == 1 && merged[0].step == 1)) return Signature(Op::View, 0, shape, {width});
    Signature s(Op::Arrange, static_cast<int>(kind), shape, {width}, {first});
    for (const Loop &each : merged) s.params.insert(s.params.end(), {each.size, each.step});
    return s;
}

int Builder::arranged(Arrangement kind, int x, int first, const std::vector<Loop> &loops, int shape) {
    std::int64_t least = first, most = first, count = 1;
    for (const Loop &each : loops) {
        (each.step < 0 ? least : most) += static_cast<std::int64_t>(each.size - 1) * each.step;
        count *= each.size;
    }
    if (least < 0 || most >= graph_.signature(x).width || count != graph_.signatures.shape(shape).size) return -1;
    const int sig = graph_.signatures.add(arrangement(kind, graph_.signature(x).width, first, loops, shape));
    return graph_.add(sig, &x, 1, graph_.signatures[sig].op == Op::View ? first : 0);
}

int Builder::strided(int x, const std::vector<int> &steps, const std::vector<int> &firsts,
                     const std::vector<int> &lasts) {
    const Shape given = shape(x);
    std::vector<int> sizes = given.dims;
    sizes.push_back(given.batch);
    if (std::max({steps.size(), firsts.size(), lasts.size()}) > sizes.size()) return -1;
    std::vector<Loop> loops(sizes.size());
    int begin = 0, apart = 1;
    for (std::size_t k = given.dims.size(); k-- > 0; apart *= given.dims[k]) loops[k].step = apart;
    loops.back().step = apart;
    for (std::size_t k = 0; k < sizes.size(); k++) {
        const auto of = [&](const std::vector<int> &list, int otherwise) {
            return k < list.size() ? list[k] : otherwise;
        };
        const int step = of(steps, 1), first = of(firsts, 0), last = of(lasts, sizes[k]);
        if (step < 1 || first < 0 || first >= last || last > sizes[k]) return -1;
        begin += first * loops[k].step;
        loops[k] = {(last - first - 1) / step + 1, std::min(step, sizes[k]) * loops[k].step};
        sizes[k] = loops[k].size;
    }
    std::rotate(loops.begin(), loops.end() - 1, loops.end());  // the minibatch is the outermost loop
    const int batch = sizes.back();
    sizes.pop_back();
    return arranged(Arrangement::Strided, x, begin, loops, graph_.signatures.add_shape(sizes, batch));
}

namespace {

// A minibatch with the dimensions of each element reversed.
std::vector<Builder::Loop> reversed(const std::vector<int> &dims, int batch, int size) {
    std::vector<Builder::Loop> loops = {{batch, size / batch}};
    int step = 1;
    for (std::size_t k = dims.size(); k-- > 0; step *= dims[k]) loops.push_back({dims[k], step});
    return loops;
}

}  // namespace

int Builder::transpose(int x) {
    const int given = shape_of(x);
    const int sig = signature({{transpose_code, given, 0, 0, 0, 0}}, [&] {
        const Shape of = shape(x);
        if (of.dims.size() > 2) return Signature{};  // without a shape, also cached
        std::vector<int> dims = {padded(of.dims, 1), of.dims[0]};
        if (of.dims.size() == 1 && dims[1] == 1) dims = {1};
        return arrangement(Arrangement::Transpose, of.size, 0, reversed(of.dims, of.batch, of.size),
                           graph_.signatures.add_shape(dims, of.batch));
    });
    return graph_.signatures[sig].shape < 0 ? -1 : graph_.add(sig, &x, 1);
}

// Reshape is column-major within minibatch elements, but memory is row-major.
int Builder::reshape(int x, int target) {
    const int given = shape_of(x);
    const Shape from = graph_.signatures.shape(given), to = graph_.signatures.shape(target);
    if (from.batch != 1 && to.batch == 1 && from.size / from.batch == to.size)
        return reshape(x, graph_.signatures.add_shape(to.dims, from.batch));
    if (from.size != to.size) return -1;
    if (from.batch == to.batch && from.dims == to.dims) return view(x, target, 0);
    const bool ends = is_flat(target);
    if (!is_flat(given)) {
        x = graph_.add(signature({{reshape_code, given, ends ? target : -1, 0, 0, 0}},
                                 [&] {
                                     const int found = ends ? target : graph_.signatures.vector_shape(from.size);
                                     return arrangement(Arrangement::Reshape, from.size, 0,
                                                        reversed(from.dims, from.batch, from.size), found);
                                 }),
                       &x, 1);
        if (ends) return x;
    }
    if (ends) return view(x, target, 0);
    return graph_.add(signature({{reshape_code, -1, target, 0, 0, 0}},
                                [&] {
                                    return arrangement(Arrangement::Reshape, to.size, 0,
                                                       reversed({to.dims.rbegin(), to.dims.rend()}, to.batch, to.size),
                                                       target);
                                }),
                      &x, 1);
}

// `count` elements of a dimension; 0: one element, and the dimension is removed.
int Builder::part(int x, int first, int count, int axis) {
    const Shape given = shape(x);
    const std::size_t along = static_cast<std::size_t>(axis);
    const int last = first + std::max(count, 1);
    if (axis < 0 || along >= given.dims.size() || first < 0 || last <= first || last > given.dims[along]) return -1;
    int rows = given.batch, step = 1;
    for (std::size_t k = 0; k < given.dims.size(); k++) (k < along ? rows : step) *= k == along ? 1 : given.dims[k];
    const int sig = signature({{part_code, shape_of(x), count, axis, 0, 0}}, [&] {
        std::vector<int> dims = given.dims;
        if (count) dims[along] = count;
        else dims.erase(dims.begin() + axis);
        if (dims.empty()) dims = {1};
        return Signature(rows == 1 ? Op::View : Op::Columns,
                         rows == 1 ? 0
                         : count   ? rows
                                   : -rows,
                         graph_.signatures.add_shape(dims, given.batch), {given.size});
    });
    return graph_.add(sig, &x, 1, first * step);
}

int Builder::pick(int x, int index, int axis) {
    const std::vector<int> &dims = shape(x).dims;
    if (axis < 0 || static_cast<std::size_t>(axis) >= dims.size()) return -1;
    return part(x, index < 0 ? index + dims[axis] : index, 0, axis);
}

int Builder::range(int x, int first, int last, int axis) {
    return last > first ? part(x, first, last - first, axis) : -1;
}

int Builder::select(int x, const std::vector<int> &rows, const std::vector<int> &columns) {
    constexpr std::size_t most = 1 << 12;  // part of the signature
    const Shape &given = shape(x);
    if (given.dims.size() > 2 || rows.empty() || columns.empty() || rows.size() + columns.size() > most) return -1;
    const int width = padded(given.dims, 1);
    const auto fits = [](const std::vector<int> &places, int size) {
        return std::all_of(places.begin(), places.end(), [&](int place) { return place >= 0 && place < size; });
    };
    if (!fits(rows, given.dims[0]) || !fits(columns, width)) return -1;
    std::vector<int> dims = {static_cast<int>(rows.size())};
    if (given.dims.size() > 1) dims.push_back(static_cast<int>(columns.size()));
    Signature s(Op::Select, 0, graph_.signatures.add_shape(dims, given.batch), {given.size}, {dims[0]});
    for (int row : rows) s.params.push_back(row * width);
    s.params.insert(s.params.end(), columns.begin(), columns.end());
    return graph_.add(graph_.signatures.add(std::move(s)), &x, 1);
}

}  // namespace dpmodule::autobatch
