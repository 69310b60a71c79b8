#include "affine.hpp"

#include <cstring>

#include "rows.hpp"

namespace dpmodule::autobatch {
namespace {

constexpr int few = 3;   // up to so many rows, packing the weights costs more than it saves

void expand(const std::vector<int> &which, int width, Block from, Block to, bool add) {
    for (std::size_t i = 0; i < which.size(); i++, to.at += to.stride) {
        const float *row = from.at + which[i] * from.stride;
        if (add) kernels().accumulate(width, to.at, row);
        else std::memcpy(to.at, row, sizeof(float) * width);
    }
}

Block rows_from(Block block, int first) { return {block.at + first * block.stride, block.stride}; }

}  // namespace

bool Affine::Term::wants_grad(const Graph &graph, const Run &run) const {
    if (read == Read::Distinct) return any_grad(graph, nodes.data(), static_cast<int>(nodes.size()));
    return any_grad(graph, run.nodes(column), run.rows);
}

Affine::Affine(Workspace &space, const Plan &plan, const Run &run, const Group &, const Step &step)
    : width_(step.width), bias_(step.params[0]) {
    for (std::size_t k = 0; k < step.in.size(); k++) {
        Term term{step.params[k + 1], step.in[k].index, space.graph.params[step.params[k + 1]].cols, Read::Gathered, {}, {}, {}};
        choose(space, plan, run, term);
        terms_.push_back(std::move(term));
    }
}

void Affine::choose(Workspace &space, const Plan &plan, const Run &run, Term &term) {
    const Graph &graph = space.graph;
    const int *nodes = run.nodes(term.column);
    bool inside = !plan.batched;   // the recurrence: then nothing is known, or to be done, before its bucket
    for (int i = 0; i < run.rows && !inside; i++) {
        const int owner = nodes[i] < plan.from ? -1 : plan.owner(nodes[i]);
        if (nodes[i] < 0) inside = true;
        else if (run.recurrent && owner >= 0) inside = plan.runs[plan.instances[owner].run].component == run.component;
    }
    term.x = as_block(graph.value, nodes, run.rows, term.width, false);
    if (term.x.at) {
        term.read = inside || !run.recurrent ? Read::Direct : Read::Ahead;
        return;
    }
    if (!inside && find_distinct(space, plan, run, term)) return;
    term.read = inside || !run.recurrent ? Read::Gathered : Read::Ahead;
    term.x = {space.memory.take(static_cast<std::size_t>(run.rows) * term.width), term.width};
    if (term.read == Read::Ahead) gather(graph, nodes, run.rows, term.width, term.x);
}

bool Affine::find_distinct(Workspace &space, const Plan &plan, const Run &run, Term &term) {
    Graph &graph = space.graph;
    const int *nodes = run.nodes(term.column);
    if (run.rows < 8) return false;
    const auto first_reader = [&](int node) {
        const Signature &s = graph.signature(node);
        return s.op == Op::Lookup ? graph.tables[s.params[0]]->first_reader(graph.nodes[node].aux, node, plan.stamp) : node;
    };
    if (graph.signature(nodes[0]).op != Op::Lookup && graph.signature(nodes[run.rows - 1]).op != Op::Lookup) return false;
    std::vector<int> &number = graph.numbers;   // all -1 between uses
    number.resize(graph.nodes.size(), -1);
    term.which.resize(run.rows);
    for (int i = 0; i < run.rows; i++) {
        const int node = first_reader(nodes[i]);
        if (number[node] < 0) {
            number[node] = static_cast<int>(term.nodes.size());
            term.nodes.push_back(node);
        }
        term.which[i] = number[node];
    }
    for (int node : term.nodes) number[node] = -1;
    const int count = static_cast<int>(term.nodes.size());
    if (4 * count > 3 * run.rows) return false;
    term.read = Read::Distinct;
    term.x = {space.memory.take(static_cast<std::size_t>(count) * term.width), term.width};
    gather(graph, term.nodes.data(), count, term.width, term.x);
    return true;
}

void Affine::multiply(Workspace &space, const Term &term, int total, int rows, Block x, Block out, const float *bias,
                      bool add) const {
    const Param &w = space.graph.params[term.param];
    const Kernels &kernel = kernels();
    if (total <= few && !space.packed.has(term.param, true)) {
        for (int i = 0; i < rows; i++) {
            float *z = out.at + i * out.stride;
            for (int j = 0; j < width_; j++) {
                const float before = add ? z[j] : bias ? bias[j] : 0.0f;
                z[j] = before + kernel.dot(term.width, w.value + static_cast<std::size_t>(j) * w.cols, x.at + i * x.stride);
            }
        }
        return;
    }
    kernel.product({rows, width_, term.width, x.at, x.stride, 1, space.packed.get(term.param, true), true, 0, out.at,
                    out.stride, bias, add});
}

void Affine::multiply_back(Workspace &space, const Term &term, int total, int rows, Block dout, Block dx, bool add) const {
    const Param &w = space.graph.params[term.param];
    const Kernels &kernel = kernels();
    if (total <= few && !space.packed.has(term.param, false)) {
        for (int i = 0; i < rows; i++) {
            float *x = dx.at + i * dx.stride;
            if (!add) std::memset(x, 0, sizeof(float) * term.width);
            for (int j = 0; j < width_; j++) {
                kernel.axpy(term.width, x, dout.at[i * dout.stride + j], w.value + static_cast<std::size_t>(j) * w.cols);
            }
        }
        return;
    }
    kernel.product({rows, term.width, width_, dout.at, dout.stride, 1, space.packed.get(term.param, false), true, 0, dx.at,
                    dx.stride, nullptr, add});
}

void Affine::multiply_ahead(Workspace &space, const Run &run, Block out) {
    const float *bias = bias_ < 0 ? nullptr : space.graph.params[bias_].value;
    for (const Term &term : terms_) {
        if (term.read == Read::Ahead) {
            multiply(space, term, run.rows, run.rows, term.x, out, ahead_ ? nullptr : bias, ahead_);
        } else if (term.read == Read::Distinct) {
            const int count = static_cast<int>(term.nodes.size());
            const Block product{space.scratch.take(static_cast<std::size_t>(count) * width_), width_};
            multiply(space, term, count, count, term.x, product, ahead_ ? nullptr : bias, false);
            expand(term.which, width_, product, out, ahead_);
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
    const float *bias = add || bias_ < 0 ? nullptr : space.graph.params[bias_].value;
    const Block rows = rows_from(out, first);
    for (const Term &term : terms_) {
        if (term.read != Read::Direct && term.read != Read::Gathered) continue;
        const Block x = rows_from(term.x, first);
        if (term.read == Read::Gathered) {
            const int *nodes = run.nodes(term.column) + first;
            gather(space.graph, nodes, count, term.width, x);
            bool zeros = true;
            for (int i = 0; i < count && zeros; i++) zeros = nodes[i] < 0;
            if (zeros) continue;
        }
        multiply(space, term, run.rows, count, x, rows, add ? nullptr : bias, add);
        add = true;
    }
    if (add) return;
    for (int i = 0; i < count; i++) {
        float *z = rows.at + i * rows.stride;
        if (bias) std::memcpy(z, bias, sizeof(float) * width_);
        else std::memset(z, 0, sizeof(float) * width_);
    }
}

void Affine::backward(Workspace &space, const Run &run, int first, int count, Block dout) {
    const Block rows = rows_from(dout, first);
    for (const Term &term : terms_) {
        if (term.read != Read::Direct && term.read != Read::Gathered) continue;
        const int *nodes = run.nodes(term.column) + first;
        if (!any_grad(space.graph, nodes, count)) continue;
        const Block dx = as_block(space.graph.grad, nodes, count, term.width, true);
        if (dx.at) {
            multiply_back(space, term, run.rows, count, rows, dx, true);
            continue;
        }
        const Block copy{space.scratch.take(static_cast<std::size_t>(count) * term.width), term.width};
        multiply_back(space, term, run.rows, count, rows, copy, false);
        scatter(space.graph, nodes, count, term.width, copy);
    }
}

void Affine::add_weight_grad(Workspace &space, const Term &term, int rows, Block x, Block dout) const {
    const Param &w = space.graph.params[term.param];
    if (!w.grad || !rows) return;
    kernels().product({width_, term.width, rows, dout.at, 1, dout.stride, x.at, false, x.stride, w.grad, w.cols, nullptr, true});
}

void Affine::finish(Workspace &space, const Run &run, Block dout) {
    const Graph &graph = space.graph;
    if (bias_ >= 0 && graph.params[bias_].grad) {
        for (int i = 0; i < run.rows; i++) kernels().accumulate(width_, graph.params[bias_].grad, dout.at + i * dout.stride);
    }
    for (const Term &term : terms_) {
        if (term.read == Read::Direct || term.read == Read::Gathered) {
            add_weight_grad(space, term, run.rows, term.x, dout);
            continue;
        }
        const bool distinct = term.read == Read::Distinct;
        const int count = distinct ? static_cast<int>(term.nodes.size()) : run.rows;
        const int *nodes = distinct ? term.nodes.data() : run.nodes(term.column);
        Block d = dout;
        if (distinct) {
            d = {space.scratch.take(static_cast<std::size_t>(count) * width_), width_};
            std::memset(d.at, 0, sizeof(float) * count * width_);
            for (int i = 0; i < run.rows; i++) {
                kernels().accumulate(width_, d.at + term.which[i] * d.stride, dout.at + i * dout.stride);
            }
        }
        add_weight_grad(space, term, count, term.x, d);
        if (!term.wants_grad(graph, run)) continue;
        const Block dx{space.scratch.take(static_cast<std::size_t>(count) * term.width), term.width};
        multiply_back(space, term, count, count, d, dx, false);
        scatter(graph, nodes, count, term.width, dx);
    }
}

}  // namespace dpmodule::autobatch
