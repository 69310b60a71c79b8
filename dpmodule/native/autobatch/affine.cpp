#include "affine.hpp"

#include <algorithm>
#include <cstring>

#include "rows.hpp"

namespace dpmodule::autobatch {
namespace {

constexpr int few = 3;  // largest number of rows for which packing the weights does not pay

void expand(const std::vector<int> &which, int width, Block from, Block to, bool add) {
    for (std::size_t i = 0; i < which.size(); i++, to.at += to.stride) {
        const float *row = from.at + which[i] * from.stride;
        if (add) kernels().accumulate(width, to.at, row);
        else std::memcpy(to.at, row, sizeof(float) * width);
    }
}

}  // namespace

bool Affine::Term::wants_grad(const Graph &graph, const Run &run) const {
    if (read == Read::Distinct) return any_grad(graph, nodes.data(), static_cast<int>(nodes.size()));
    return any_grad(graph, run.nodes(column), run.rows);
}

Affine::Affine(Workspace &space, const Plan &plan, const Run &run, const Group &group, const Step &step)
    : batch_(step.width / space.graph.params[step.params[1]].rows), width_(step.width / batch_), bias_(step.params[0]) {
    for (std::size_t k = 0; k < step.in.size(); k++) {
        const Operand &operand = step.in[k];
        Term term{step.params[k + 1],
                  operand.index,
                  space.graph.params[step.params[k + 1]].cols * batch_,
                  Read::Inside,
                  {},
                  {},
                  {},
                  {},
                  operand.add};
        if (operand.outside) {
            choose(space, plan, run, term);
        } else {
            term.x = value_in(run, group, group.steps[operand.index]);
            term.dx = grad_in(run, group, group.steps[operand.index]);
        }
        terms_.push_back(std::move(term));
    }
}

void Affine::choose(Workspace &space, const Plan &plan, const Run &run, Term &term) {
    const Graph &graph = space.graph;
    const int *nodes = run.nodes(term.column);
    bool inside = !plan.batched;  // the recurrence: nothing can be done before its bucket
    for (int i = 0; i < run.rows && !inside; i++) {
        const int owner = nodes[i] < plan.from ? -1 : plan.owner(nodes[i]);
        if (nodes[i] < 0) inside = true;
        else if (run.recurrent && owner >= 0) inside = plan.runs[plan.instances[owner].run].component == run.component;
    }
    term.x = as_block(graph.value, nodes, run.rows, term.width, false);
    if (!term.x.at && (inside || !run.recurrent)) term.x = run.joined[term.column].first;
    if (term.x.at) {
        term.read = inside || !run.recurrent ? Read::Direct : Read::Ahead;
        return;
    }
    if (!inside && plan.has_repeats && find_distinct(space, run, term)) return;
    term.read = inside || !run.recurrent ? Read::Gathered : Read::Ahead;
    term.x = {space.memory.take(static_cast<std::size_t>(run.rows) * term.width), term.width};
    if (term.read == Read::Ahead) gather(graph, nodes, run.rows, term.width, term.x);
}

bool Affine::find_distinct(Workspace &space, const Run &run, Term &term) {
    Graph &graph = space.graph;
    const int *nodes = run.nodes(term.column);
    if (run.rows < 8) return false;
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
    const int count = static_cast<int>(term.nodes.size());
    if (4 * count > 3 * run.rows) return false;
    term.read = Read::Distinct;
    term.x = {space.memory.take(static_cast<std::size_t>(count) * term.width), term.width};
    gather(graph, term.nodes.data(), count, term.width, term.x);
    return true;
}

// Calls `body` with the vectors of `count` minibatches, in one call if they are contiguous in `a` and `b`.
template <class F>
void Affine::vectors(int rows, Block a, int width, Block b, int other, F body) const {
    if (batch_ == 1) return body(rows, a, b);
    const bool lie = rows == 1 || (a.stride == width * batch_ && b.stride == other * batch_);
    for (int i = 0; i < rows; i += lie ? rows : 1) {
        body(lie ? rows * batch_ : batch_, Block{rows_from(a, i).at, width}, Block{rows_from(b, i).at, other});
    }
}

void Affine::multiply(Workspace &space, const Term &term, bool forward, int total, int rows, Block x, Block out,
                      const float *bias, bool add) const {
    const Param &w = space.graph.params[term.param];
    const bool packed = total * batch_ > few || space.packed.has(term.param, forward);
    const float *weights = packed ? space.packed.get(term.param, forward) : w.value;
    const Layout layout = packed ? Layout::Packed : forward ? Layout::Columns : Layout::Rows;
    const int deep = forward ? w.cols : width_, wide = forward ? width_ : w.cols;
    vectors(rows, x, deep, out, wide, [&](int count, Block from, Block to) {
        kernels().product(
            {count, wide, deep, from.at, from.stride, 1, weights, layout, w.cols, to.at, to.stride, bias, add});
    });
}

// The bias is added to the first computed term, so that the sum of two terms does not depend on their order.
const float *Affine::bias_of(const Workspace &space, const Term &term) const {
    return bias_ < 0 || &term != terms_.data() ? nullptr : space.graph.params[bias_].value;
}

void Affine::multiply_ahead(Workspace &space, const Run &run, Block out) {
    for (const Term &term : terms_) {
        const float *bias = bias_of(space, term);
        if (term.read == Read::Ahead) {
            multiply(space, term, true, run.rows, run.rows, term.x, out, bias, ahead_);
        } else if (term.read == Read::Distinct) {
            const int count = static_cast<int>(term.nodes.size());
            const Block product{space.scratch.take(static_cast<std::size_t>(count) * batch_ * width_), batch_ * width_};
            multiply(space, term, true, count, count, term.x, product, bias, false);
            expand(term.which, batch_ * width_, product, out, ahead_);
        } else {
            continue;
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
        const Block x = rows_from(term.x, first);
        const float *bias = bias_of(space, term);
        if (term.read == Read::Gathered) {
            const int *nodes = run.nodes(term.column) + first;
            gather(space.graph, nodes, count, term.width, x);
            bool zeros = !bias;
            for (int i = 0; i < count && zeros; i++) zeros = nodes[i] < 0;
            if (zeros) continue;
        }
        multiply(space, term, true, run.rows, count, x, rows, bias, add);
        add = true;
    }
    for (int i = 0; i < count && !add; i++) std::memset(rows.at + i * rows.stride, 0, sizeof(float) * batch_ * width_);
}

void Affine::backward(Workspace &space, const Run &run, int first, int count, Block dout) {
    const Block rows = rows_from(dout, first);
    for (const Term &term : terms_) {
        if (!term.is_step_by_step()) continue;
        if (term.read == Read::Inside) {
            multiply(space, term, false, run.rows, count, rows, rows_from(term.dx, first), nullptr, term.adds);
            continue;
        }
        const int *nodes = run.nodes(term.column) + first;
        if (!any_grad(space.graph, nodes, count)) continue;
        const Block dx = as_target(space.graph, run, term.column, first, count, term.width);
        if (dx.at) {
            multiply(space, term, false, run.rows, count, rows, dx, nullptr, true);
            continue;
        }
        const Block copy{space.scratch.take(static_cast<std::size_t>(count) * term.width), term.width};
        multiply(space, term, false, run.rows, count, rows, copy, nullptr, false);
        scatter(space.graph, nodes, count, term.width, copy);
    }
}

void Affine::add_weight_grad(Workspace &space, const Term &term, int rows, Block x, Block dout) const {
    const Param &w = space.graph.params[term.param];
    if (!w.grad) return;
    vectors(rows, dout, width_, x, w.cols,
            [&](int count, Block d, Block from) { add_weight_grad(space, w, count, from, d); });
}

void Affine::add_weight_grad(Workspace &space, const Param &w, int rows, Block x, Block dout) const {
    const auto add = [&](int first, int count, float *to, bool adds) {
        kernels().product({width_, w.cols, count, dout.at + first * dout.stride, 1, dout.stride,
                           x.at + first * x.stride, Layout::Rows, x.stride, to, w.cols, nullptr, adds});
    };
    constexpr int most = 8192;  // rows whose products are added without compensation
    if (rows <= most) return add(0, rows, w.grad, true);
    float *part = space.scratch.take(w.size()), *lost = space.scratch.take(w.size());
    std::memset(lost, 0, sizeof(float) * w.size());
    for (int first = 0; first < rows; first += most) {
        add(first, std::min(most, rows - first), part, false);
        kernels().add_exactly(w.size(), w.grad, lost, part);
    }
    kernels().accumulate(w.size(), w.grad, lost);
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

void Affine::finish(Workspace &space, const Run &run, Block dout) {
    const Graph &graph = space.graph;
    if (bias_ >= 0 && graph.params[bias_].grad) {
        vectors(run.rows, dout, width_, dout, width_, [&](int count, Block d, Block) {
            kernels().sum_rows(count, width_, graph.params[bias_].grad, d, nullptr);
        });
    }
    for (const Term &term : terms_) {
        if (term.is_step_by_step()) {
            add_weight_grad(space, term, run.rows, term.x, dout);
            continue;
        }
        const bool distinct = term.read == Read::Distinct;
        const int count = distinct ? static_cast<int>(term.nodes.size()) : run.rows;
        const int *nodes = distinct ? term.nodes.data() : run.nodes(term.column);
        const Block d = distinct ? folded(space, term, run, dout) : dout;
        add_weight_grad(space, term, count, term.x, d);
        if (!term.wants_grad(graph, run)) continue;
        const Block dx{space.scratch.take(static_cast<std::size_t>(count) * term.width), term.width};
        multiply(space, term, false, count, count, d, dx, nullptr, false);
        scatter(graph, nodes, count, term.width, dx);
    }
}

}  // namespace dpmodule::autobatch
