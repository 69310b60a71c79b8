#include "affine.hpp"

#include <algorithm>
#include <cstring>

#include "rows.hpp"

namespace dpmodule::autobatch {
namespace {

constexpr int few = 3;           // largest number of rows for which packing the weights does not pay
constexpr int most_rows = 8192;  // rows whose products are added without compensation

void expand(const std::vector<int> &which, int width, Block from, Block to, bool add) {
    for (std::size_t i = 0; i < which.size(); i++, to.at += to.stride) {
        const float *row = from.at + which[i] * from.stride;
        if (add) kernels().accumulate(width, to.at, row);
        else std::memcpy(to.at, row, sizeof(float) * width);
    }
}

}  // namespace

Affine::Affine(Workspace &space, const Plan &plan, const Run &run, const Group &group, const Step &step)
    : batch_(step.width / space.graph.params[step.params[1]].rows), width_(step.width / batch_), bias_(step.params[0]) {
    for (std::size_t k = 0; k < step.in.size(); k++) {
        const Operand &in = step.in[k];
        const int width = in.outside ? group.outside[in.index] : group.steps[in.index].width;
        Term term{step.params[k + 1], step.firsts[k], width / batch_, in.index, Read::Inside, in.add, {}, {}, {}};
        if (in.outside) choose(space, plan, run, term);
        else term.x = value_in(run, group, group.steps[in.index]);
        terms_.push_back(std::move(term));
    }
}

void Affine::choose(Workspace &space, const Plan &plan, const Run &run, Term &term) const {
    const int *nodes = run.nodes(term.index);
    bool inside = !plan.batched || !run.recurrent;  // nothing can be done before its bucket
    for (int i = 0; i < run.rows && !inside; i++) {
        const int owner = nodes[i] < plan.from ? -1 : plan.owner(nodes[i]);
        inside = nodes[i] < 0 || (owner >= 0 && plan.runs[plan.instances[owner].run].component == run.component);
    }
    term.x = as_block(space.graph.value, nodes, run.rows, term.cols * batch_, false);
    term.read = inside ? Read::Rows : Read::Ahead;
    const bool may_repeat =
        plan.has_repeats && plan.batched && std::find(nodes, nodes + run.rows, -1) == nodes + run.rows;
    if (!term.x.at && may_repeat && (!inside || !run.recurrent)) find_distinct(space, run, term);
}

void Affine::find_distinct(Workspace &space, const Run &run, Term &term) const {
    Graph &graph = space.graph;
    const int *nodes = run.nodes(term.index);
    if (run.rows < 8) return;
    std::vector<int> &number = graph.numbers;  // all -1 between uses
    number.resize(graph.nodes.size(), -1);
    term.which.resize(run.rows);
    for (int i = 0; i < run.rows; i++) {
        int &input = number[nodes[i]];
        if (input < 0) {
            input = static_cast<int>(term.nodes.size());
            term.nodes.push_back(nodes[i]);
        }
        term.which[i] = input;
    }
    for (int node : term.nodes) number[node] = -1;
    if (4 * static_cast<int>(term.nodes.size()) <= 3 * run.rows) term.read = Read::Distinct;
}

Vectors Affine::inputs(Workspace &space, const Run &run, const Term &term, int first, int count) const {
    if (term.x.at) return rows_from(term.x, first);
    return listed(space, false, nodes_of(run, term, first), count, term.cols);
}

Vectors Affine::listed(Workspace &space, bool is_grad, const int *nodes, int count, int width) const {
    const std::vector<float *> &pointers = is_grad ? space.graph.grad : space.graph.value;
    // in memory for numbers, since pointers have no gradients
    const std::size_t all = static_cast<std::size_t>(count) * batch_;
    auto *rows = reinterpret_cast<float **>(space.scratch.take(all * sizeof(float *) / sizeof(float)));
    const auto zeros = [&] {
        const std::size_t floats = static_cast<std::size_t>(width) * batch_;
        return static_cast<float *>(std::memset(space.scratch.take(floats), 0, sizeof(float) * floats));
    };
    float *none = nullptr;
    for (int i = 0; i < count; i++) {
        float *at = nodes[i] < 0 ? nullptr : pointers[nodes[i]];
        if (!at) at = none ? none : none = zeros();
        else if (is_grad && space.graph.is_crowded(nodes[i])) at = zeros();
        for (int k = 0; k < batch_; k++) rows[i * batch_ + k] = at + k * width;
    }
    return Vectors(rows);
}

// Calls `body` with the vectors of `count` minibatches, in one call if they are contiguous in `a` and `b`.
template <class F>
void Affine::vectors(int rows, Vectors a, int width, Vectors b, int other, F body) const {
    const bool lie = rows == 1 || (a.lies(width, batch_) && b.lies(other, batch_));
    for (int i = 0; i < rows; i += lie ? rows : 1)
        body(lie ? rows * batch_ : batch_, a.from(i, width, batch_), b.from(i, other, batch_));
}

void Affine::multiply(Workspace &space, const Term &term, bool forward, int total, int rows, Vectors x, Vectors out,
                      const float *bias, bool add) const {
    const Param &w = space.graph.params[term.param];
    const bool packed = total * batch_ > few || space.packed.has(term.param, forward, term.first, term.cols);
    const float *weights = packed ? space.packed.get(term.param, forward, term.first, term.cols) : w.value + term.first;
    const Layout layout = packed ? Layout::Packed : forward ? Layout::Columns : Layout::Rows;
    const int deep = forward ? term.cols : width_, wide = forward ? width_ : term.cols;
    vectors(rows, x, deep, out, wide, [&](int count, Vectors from, Vectors to) {
        kernels().product({count, wide, deep, from.at, from.stride, 1, weights, layout, w.cols, to.at, to.stride, bias,
                           add, from.rows, nullptr, to.rows});
    });
}

// The bias is added to the first computed term, so that the sum of two terms does not depend on their order.
const float *Affine::bias_of(const Workspace &space, const Term &term) const {
    return bias_ < 0 || &term != terms_.data() ? nullptr : space.graph.params[bias_].value;
}

void Affine::multiply_ahead(Workspace &space, const Run &run, Block out) {
    for (const Term &term : terms_) {
        const float *bias = bias_of(space, term);
        if (term.is_step_by_step()) continue;
        if (term.read == Read::Ahead) {
            multiply(space, term, true, run.rows, run.rows, inputs(space, run, term, 0, run.rows), out, bias, ahead_);
        } else {
            const int count = static_cast<int>(term.nodes.size());
            const Block product{space.scratch.take(static_cast<std::size_t>(count) * batch_ * width_), batch_ * width_};
            multiply(space, term, true, count, count, inputs(space, run, term, 0, count), product, bias, false);
            expand(term.which, batch_ * width_, product, out, ahead_);
        }
        ahead_ = true;
    }
}

void Affine::forward(Workspace &space, const Run &run, int first, int count, Block out) {
    if (!begun_) multiply_ahead(space, run, out);
    begun_ = true;
    bool add = ahead_;
    const Block rows = rows_from(out, first);
    for (const Term &term : terms_) {
        if (!term.is_step_by_step()) continue;
        const float *bias = bias_of(space, term);
        if (term.read == Read::Rows && !bias) {
            const int *nodes = run.nodes(term.index) + first;
            if (std::all_of(nodes, nodes + count, [](int node) { return node < 0; })) continue;
        }
        multiply(space, term, true, run.rows, count, inputs(space, run, term, first, count), rows, bias, add);
        add = true;
    }
    for (int i = 0; i < count && !add; i++) std::memset(rows.at + i * rows.stride, 0, sizeof(float) * batch_ * width_);
}

void Affine::backward(Workspace &space, const Run &run, const Group &group, int first, int count, Block dout) {
    const Block rows = rows_from(dout, first);
    for (const Term &term : terms_) {
        if (term.read == Read::Inside) {
            const Block dx = rows_from(grad_in(run, group, group.steps[term.index]), first);
            multiply(space, term, false, run.rows, count, rows, dx, nullptr, term.adds);
        } else if (term.read == Read::Rows) {
            add_input_grad(space, term, run.nodes(term.index) + first, run.rows, count, rows);
        }
    }
}

void Affine::add_input_grad(Workspace &space, const Term &term, const int *nodes, int total, int count,
                            Block dout) const {
    const Graph &graph = space.graph;
    if (!any_grad(graph, nodes, count)) return;
    const int width = term.cols * batch_;
    const bool crowded = any_crowded(graph, nodes, count);
    const Block lying = crowded ? Block{} : as_block(graph.grad, nodes, count, width, true);
    const Vectors dx = lying.at ? Vectors(lying) : listed(space, true, nodes, count, term.cols);
    multiply(space, term, false, total, count, dout, dx, nullptr, true);
    for (int i = 0; i < count && crowded; i++) {
        if (nodes[i] >= 0 && graph.is_crowded(nodes[i])) scatter_part(graph, nodes[i], 0, width, dx.rows[i * batch_]);
    }
}

void Affine::add_weight_grad(Workspace &space, const Term &term, int rows, Vectors x, Block dout) const {
    const Param &w = space.graph.params[term.param];
    if (!w.grad) return;
    vectors(rows, dout, width_, x, term.cols,
            [&](int count, Vectors d, Vectors from) { add_weight_grad(space, w, term, count, from, d); });
}

void Affine::add_weight_grad(Workspace &space, const Param &w, const Term &term, int rows, Vectors x,
                             Vectors dout) const {
    const auto add = [&](int first, int count, float *to, int stride, bool adds) {
        kernels().product({width_, term.cols, count, dout.at + first * dout.stride, 1, dout.stride,
                           x.rows ? nullptr : x.at + first * x.stride, Layout::Rows, x.stride, to, stride, nullptr,
                           adds, nullptr, x.rows ? x.rows + first : nullptr});
    };
    if (rows <= most_rows) return add(0, rows, w.grad + term.first, w.cols, true);
    const int size = width_ * term.cols;
    float *part = space.scratch.take(size), *lost = space.scratch.take(size);
    std::memset(lost, 0, sizeof(float) * size);
    for (int first = 0; first < rows; first += most_rows) {
        add(first, std::min(most_rows, rows - first), part, term.cols, false);
        for (int r = 0; r < width_; r++)
            kernels().add_exactly(term.cols, w.grad + r * w.cols + term.first, lost + r * term.cols,
                                  part + r * term.cols);
    }
    for (int r = 0; r < width_; r++)
        kernels().accumulate(term.cols, w.grad + r * w.cols + term.first, lost + r * term.cols);
}

// The sums of `dout` over the rows with the same input.
Block Affine::folded(Workspace &space, const Term &term, const Run &run, Block dout) const {
    const int count = static_cast<int>(term.nodes.size());
    std::vector<int> end(count + 1, 0), rows(run.rows);  // rows sorted by input
    for (int input : term.which) end[input + 1]++;
    for (int i = 0; i < count; i++) end[i + 1] += end[i];
    for (int i = 0; i < run.rows; i++) rows[end[term.which[i]]++] = i;
    const int width = batch_ * width_;
    const Block found{space.scratch.take(static_cast<std::size_t>(count) * width), width};
    std::memset(found.at, 0, sizeof(float) * count * width);
    for (int i = 0, first = 0; i < count; first = end[i++]) {
        kernels().sum_rows(end[i] - first, width, found.at + i * found.stride, dout, rows.data() + first);
    }
    return found;
}

bool Affine::needs_all_rows(const Run &run) const {
    return run.rows * batch_ > most_rows ||
           !std::all_of(terms_.begin(), terms_.end(), [](const Term &term) { return term.is_step_by_step(); });
}

void Affine::finish(Workspace &space, const Run &run, int first, int count, Block dout) {
    const Graph &graph = space.graph;
    const Block rows = rows_from(dout, first);
    if (bias_ >= 0 && graph.params[bias_].grad) {
        vectors(count, rows, width_, rows, width_, [&](int all, Vectors d, Vectors) {
            kernels().sum_rows(all, width_, graph.params[bias_].grad, {d.at, d.stride}, nullptr);
        });
    }
    for (const Term &term : terms_) {
        const bool distinct = term.read == Read::Distinct;
        const int all = distinct ? static_cast<int>(term.nodes.size()) : count;
        const Block d = distinct ? folded(space, term, run, dout) : rows;
        add_weight_grad(space, term, all, inputs(space, run, term, first, all), d);
        if (!term.is_step_by_step()) add_input_grad(space, term, nodes_of(run, term, first), all, all, d);
    }
}

}  // namespace dpmodule::autobatch
