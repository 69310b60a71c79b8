// Steps of a batch other than a kernel over a block.
#include <algorithm>
#include <cstring>

#include "rows.hpp"
#include "runner.hpp"

namespace dpmodule::autobatch {

// The node of row `row` of the batch.
const Node &Runner::root(const Work &work, int row) const {
    return graph_.nodes[work.segment->plan.instances[work.run->order[work.first + row]].root];
}

namespace {

float number_of(const Node &node) {
    float found;
    std::memcpy(&found, &node.aux, sizeof found);
    return found;
}

}  // namespace

namespace {

// Calls body(first, count) for a whole batch, or row by row.
template <class F>
void each_block(int count, bool whole, F body) {
    for (int i = 0; i < count; i += whole ? count : 1) body(i, whole ? count : 1);
}

}  // namespace

void Runner::unary(const Work &work, const Step &step, const Signature &s) {
    const Rows x = read_rows(work, step.in[0], s.width);
    const Block y = value_of(work, step);
    each_block(work.count, !x.nodes, [&](int i, int count) {
        kernels().unary(static_cast<Unary>(s.kind), s.attr, count, s.width, rows_from(y, i), x.from(i));
    });
}

void Runner::unary_back(const Work &work, const Step &step, const Signature &s) {
    Target to;
    if (!target_rows(work, step.in[0], s.width, to)) return;
    const auto kind = static_cast<Unary>(s.kind);
    const Block y = value_of(work, step), dy = grad_of(work, step);
    const Rows x = by_input(kind) ? read_rows(work, step.in[0], s.width) : Rows{y, nullptr, nullptr};
    each_block(work.count, !x.nodes && !to.rows.nodes, [&](int i, int count) {
        const Block dx = to.rows.from(i);
        if (dx.at)
            kernels().unary_back(kind, s.attr, count, s.width, dx, to.add, rows_from(dy, i), x.from(i),
                                 rows_from(y, i));
    });
    done(work, to, s.width);
}

void Runner::binary(const Work &work, const Step &step, const Signature &s) {
    const Rows a = read_rows(work, step.in[0], s.width), b = read_rows(work, step.in[1], s.width);
    const Block y = value_of(work, step);
    each_block(work.count, !a.nodes && !b.nodes, [&](int i, int count) {
        kernels().binary(static_cast<Binary>(s.kind), count, s.width, rows_from(y, i), a.from(i), b.from(i));
    });
}

void Runner::binary_back(const Work &work, const Step &step, const Signature &s) {
    const auto kind = static_cast<Binary>(s.kind);
    const bool plain = kind == Binary::Add || kind == Binary::Sub;
    const Block dy = grad_of(work, step), y = value_of(work, step);
    const Rows dys{dy, nullptr, nullptr}, a = plain ? dys : read_rows(work, step.in[0], s.width),
                                          b = plain ? dys : read_rows(work, step.in[1], s.width);
    Target to;
    for (int k = 0; k < 2; k++) {
        if (!target_rows(work, step.in[k], s.width, to)) continue;
        if (to.at.at == dy.at) continue;  // a term of a sum: see Groups::place
        each_block(work.count, !a.nodes && !b.nodes && !to.rows.nodes, [&](int i, int count) {
            const Block dx = to.rows.from(i);
            if (dx.at)
                kernels().binary_back(kind, k, count, s.width, dx, to.add, rows_from(dy, i), a.from(i), b.from(i),
                                      rows_from(y, i));
        });
        done(work, to, s.width);
    }
}

void Runner::unary_each(const Work &work, const Step &step, const Signature &s) {
    const Block y = value_of(work, step), x = read(work, step.in[0], s.width);
    for (int i = 0; i < work.count; i++) {
        kernels().unary(static_cast<Unary>(s.kind), number_of(root(work, i)), 1, s.width, rows_from(y, i),
                        rows_from(x, i));
    }
}

void Runner::unary_each_back(const Work &work, const Step &step, const Signature &s) {
    Target to;
    if (!target(work, step.in[0], s.width, to)) return;
    const Block y = value_of(work, step), x = read(work, step.in[0], s.width), dy = grad_of(work, step);
    for (int i = 0; i < work.count; i++) {
        kernels().unary_back(static_cast<Unary>(s.kind), number_of(root(work, i)), 1, s.width, rows_from(to.at, i),
                             to.add, rows_from(dy, i), rows_from(x, i), rows_from(y, i));
    }
    done(work, to, s.width);
}

// Views are copies only if gradients of single nodes are needed.
void Runner::view(const Work &work, const Step &, const Signature &s) {
    const int *nodes = work.run->nodes(0) + work.first;
    float *to = work.run->value + static_cast<std::ptrdiff_t>(work.first) * s.width;
    for (int i = 0; i < work.count; i++, to += s.width) {
        std::memcpy(to, graph_.value[nodes[i]] + root(work, i).aux, sizeof(float) * s.width);
    }
}

void Runner::view_back(const Work &work, const Step &, const Signature &s) {
    const int *nodes = work.run->nodes(0) + work.first;
    const float *from = work.run->grad + static_cast<std::ptrdiff_t>(work.first) * s.width;
    for (int i = 0; i < work.count; i++, from += s.width) {
        if (float *to = graph_.grad[nodes[i]]) kernels().accumulate(s.width, to + root(work, i).aux, from);
    }
}

void Runner::cell(const Work &work, const Step &step, const Signature &s) {
    const int width = graph_.signatures.shape(s.shape).dims[0];
    const Block gates = value_of(work, work.group->steps[step.in[0].index]), out = value_of(work, step);
    const int *before = work.run->nodes(step.in[1].index) + work.first;
    for (int i = 0; i < work.count; i++) {
        float *h = out.at + i * out.stride, *gate = gates.at + i * gates.stride;
        const float *c = before[i] < 0 ? nullptr : graph_.value[before[i]];
        for (int at = 0; at < s.width; at += width) {
            kernels().lstm({width, gate + 4 * at, c ? c + at : nullptr, h + at, h + s.width + at, s.attr});
        }
    }
}

void Runner::cell_back(const Work &work, const Step &step, const Signature &s) {
    const int width = graph_.signatures.shape(s.shape).dims[0];
    const Step &product = work.group->steps[step.in[0].index];
    const Block gates = value_of(work, product), dgates = grad_of(work, product);
    const Block out = value_of(work, step), dout = grad_of(work, step);
    const int *before = work.run->nodes(step.in[1].index) + work.first;
    float *part = scratch_.take(s.width);
    for (int i = 0; i < work.count; i++) {
        float *dh = dout.at + i * dout.stride;
        const float *c = before[i] < 0 ? nullptr : graph_.value[before[i]];
        float *dc = before[i] < 0 ? nullptr : graph_.grad[before[i]];
        const bool apart = dc && graph_.is_crowded(before[i]);
        if (apart) std::memset(dc = part, 0, sizeof(float) * s.width);
        const float *h = out.at + i * out.stride, *gate = gates.at + i * gates.stride;
        float *dgate = dgates.at + i * dgates.stride;
        for (int at = 0; at < s.width; at += width) {
            kernels().lstm_back({width, gate + 4 * at, c ? c + at : nullptr, h + at, dh + at, dh + s.width + at,
                                 dgate + 4 * at, dc ? dc + at : nullptr});
        }
        if (apart) scatter(graph_, before + i, 1, s.width, {part, s.width});
    }
}

// The random numbers of a batch, each repeated as in the result.
Block Runner::mask(const Work &work, const Signature &s) {
    const int repeats = s.params[5], inner = s.params[6], width = s.width / repeats;
    const Block kept{work.run->kept + static_cast<std::ptrdiff_t>(work.first) * width, width};
    if (repeats == 1) return kept;
    const Block whole{scratch_.take(static_cast<std::size_t>(work.count) * s.width), s.width};
    float *to = whole.at;
    for (const float *from = kept.at; from < kept.at + static_cast<std::ptrdiff_t>(work.count) * width; from += inner) {
        for (int k = 0; k < repeats; k++, to += inner) std::memcpy(to, from, sizeof(float) * inner);
    }
    return whole;
}

// Numbers are drawn for the whole batch; recomputed nodes reuse theirs.
void Runner::drawn(const Work &work, const Step &step, const Signature &s) {
    double numbers[2];
    std::memcpy(numbers, &s.params[1], sizeof numbers);
    const int width = s.width / s.params[5];
    const Block kept{work.run->kept + static_cast<std::ptrdiff_t>(work.first) * width, width};
    const auto of = [&](int i) {
        return graph_.drawn.empty()
                   ? graph_.drawn.end()
                   : graph_.drawn.find(work.segment->plan.instances[work.run->order[work.first + i]].root);
    };
    bool draws = graph_.drawn.empty();
    for (int i = 0; i < work.count && !draws; i++) draws = of(i) == graph_.drawn.end();
    if (draws) caller_->draw(s.kind, numbers, kept.at, static_cast<std::size_t>(work.count) * width);
    for (int i = 0; i < work.count && !graph_.drawn.empty(); i++) {
        const auto known = of(i);
        if (known != graph_.drawn.end()) std::copy(known->second.begin(), known->second.end(), rows_from(kept, i).at);
    }
    if (s.nargs == 0) return kernels().unary(Unary::Copy, 0, work.count, s.width, value_of(work, step), kept);
    const Binary how = s.kind == static_cast<int>(Draw::Noise) ? Binary::Add : Binary::Mul;
    kernels().binary(how, work.count, s.width, value_of(work, step), read(work, step.in[0], s.width), mask(work, s));
}

void Runner::drawn_back(const Work &work, const Step &step, const Signature &s) {
    Target to;
    if (s.nargs == 0 || !target(work, step.in[0], s.width, to)) return;
    const Block drawn = mask(work, s), dy = grad_of(work, step);
    const Binary how = s.kind == static_cast<int>(Draw::Noise) ? Binary::Add : Binary::Mul;
    kernels().binary_back(how, 0, work.count, s.width, to.at, to.add, dy, drawn, drawn, drawn);
    done(work, to, s.width);
}

void Runner::reduce(const Work &work, const Step &step, const Signature &s) {
    const int batch = s.width, operands = s.op == Op::Dot ? 2 : 1,
              width = *std::max_element(s.widths.begin(), s.widths.end()) / batch;
    const Block x = read(work, step.in[0], s.widths[0]), out = value_of(work, step);
    const Block y = operands > 1 ? read(work, step.in[1], s.widths[1]) : x;
    const int a_step = s.widths[0] / batch == width ? width : 0,
              b_step = s.widths[operands - 1] / batch == width ? width : 0;
    for (int i = 0; i < work.count; i++) {
        const float *a = x.at + i * x.stride, *b = y.at + i * y.stride;
        for (int k = 0; k < batch; k++, a += a_step, b += b_step) {
            out.at[i * out.stride + k] = s.op == Op::SumElems ? kernels().sum(width, a) : kernels().dot(width, a, b);
        }
    }
}

void Runner::reduce_back(const Work &work, const Step &step, const Signature &s) {
    const int batch = s.width, operands = s.op == Op::Dot ? 2 : 1,
              width = *std::max_element(s.widths.begin(), s.widths.end()) / batch;
    const Block dout = grad_of(work, step);
    for (int k = 0; k < operands; k++) {
        Target to;
        if (!target(work, step.in[k], s.widths[k], to)) continue;
        const int other_width = s.widths[operands - 1 - k];
        const int own_step = s.widths[k] / batch == width ? width : 0,
                  other_step = other_width / batch == width ? width : 0;
        const Block other = s.op == Op::SumElems ? Block{} : read(work, step.in[operands - 1 - k], other_width);
        const float factor = s.op == Op::SquaredNorm ? 2.0f : 1.0f;
        for (int i = 0; i < work.count; i++) {
            float *dx = to.at.at + i * to.at.stride;
            if (!to.add) std::memset(dx, 0, sizeof(float) * s.widths[k]);
            for (int part = 0; part < batch; part++, dx += own_step) {
                const float d = dout.at[i * dout.stride + part] * factor;
                if (other.at) kernels().axpy(width, dx, d, other.at + i * other.stride + part * other_step);
                else
                    for (int j = 0; j < width; j++) dx[j] += d;
            }
        }
        done(work, to, s.widths[k]);
    }
}

void Runner::concat(const Work &work, const Step &, const Signature &s) {
    float *to = work.run->value + static_cast<std::ptrdiff_t>(work.first) * work.group->row;
    for (std::size_t k = 0; k < s.widths.size(); to += s.widths[k++]) {
        gather(graph_, work.run->nodes(s.nargs > 1 ? static_cast<int>(k) : 0) + work.first, work.count, s.widths[k],
               {to, work.group->row});
    }
}

void Runner::concat_back(const Work &work, const Step &, const Signature &s) {
    float *from = work.run->grad + static_cast<std::ptrdiff_t>(work.first) * work.group->row;
    for (std::size_t k = 0; k < s.widths.size(); from += s.widths[k++]) {
        scatter(graph_, work.run->nodes(s.nargs > 1 ? static_cast<int>(k) : 0) + work.first, work.count, s.widths[k],
                {from, work.group->row});
    }
}

void Runner::sum(const Work &work, const Step &, const Signature &) {
    const Plan &plan = work.segment->plan;
    const int width = work.group->row;
    for (int row = work.first; row < work.first + work.count; row++) {
        const Instance &instance = plan.instances[work.run->order[row]];
        const int *nodes = plan.outside.data() + instance.first;
        float *to = work.run->value + static_cast<std::ptrdiff_t>(row) * width;
        const Block lying = as_block(graph_.value, nodes, instance.count, width, false);
        if (width == 1) {
            Block x = lying;
            if (!x.at || x.stride != 1)
                gather(graph_, nodes, instance.count, 1, x = {scratch_.take(instance.count), 1});
            to[0] = kernels().sum(instance.count, x.at);
            continue;
        }
        std::memset(to, 0, sizeof(float) * width);
        if (lying.at) {
            kernels().sum_rows(instance.count, width, to, lying, nullptr);
            continue;
        }
        // in the order of `sum_rows`
        float *part = scratch_.take(width), *lost = scratch_.take(width);
        std::memset(lost, 0, sizeof(float) * width);
        for (int first = 0; first < instance.count; first += Kernels::block) {
            const int last = std::min(first + Kernels::block, instance.count);
            std::memcpy(part, graph_.value[nodes[first]], sizeof(float) * width);
            for (int k = first + 1; k < last; k++) kernels().accumulate(width, part, graph_.value[nodes[k]]);
            kernels().add_exactly(width, to, lost, part);
        }
        kernels().accumulate(width, to, lost);
    }
}

void Runner::sum_back(const Work &work, const Step &, const Signature &) {
    const Plan &plan = work.segment->plan;
    const int width = work.group->row;
    for (int row = work.first; row < work.first + work.count; row++) {
        const Instance &instance = plan.instances[work.run->order[row]];
        const int *nodes = plan.outside.data() + instance.first;
        scatter(graph_, nodes, instance.count, width, {work.run->grad + static_cast<std::ptrdiff_t>(row) * width, 0});
    }
}

// One operand of a call: consecutive rows, or one shared row. Copies are kept until renew, since the callee may keep
// them.
Runner::Part Runner::part(const int *nodes, int count, int width, bool may_share, bool wants_grad) {
    Part found{nodes, count, width, {nullptr, may_share, nullptr}};
    for (int i = 1; i < count && found.argument.shared; i++) found.argument.shared = nodes[i] == nodes[0];
    if (found.argument.shared) found.count = 1;
    const Block lying = as_block(graph_.value, nodes, found.count, width, false);
    if (lying.at && (found.count == 1 || lying.stride == width)) {
        found.argument.at = lying.at;
    } else {
        found.argument.at = space_.memory.take(static_cast<std::size_t>(found.count) * width);
        gather(graph_, nodes, found.count, width, {found.argument.at, width});
    }
    if (wants_grad && any_grad(graph_, nodes, found.count)) {
        const std::size_t floats = static_cast<std::size_t>(found.count) * width;
        found.argument.grad = scratch_.take(floats);
        std::memset(found.argument.grad, 0, sizeof(float) * floats);
    }
    return found;
}

void Runner::call(const Work &work, const Step &, const Signature &s) { run_call(work, s, true); }

void Runner::call_back(const Work &work, const Step &, const Signature &s) { run_call(work, s, false); }

void Runner::run_call(const Work &work, const Signature &s, bool forward) {
    if (!forward && s.attr != 0) return;  // a constant
    const Plan &plan = work.segment->plan;
    const auto instance = [&](int i) -> const Instance & { return plan.instances[work.run->order[work.first + i]]; };
    CallBatch batch;
    batch.key = instance(0).root;  // a batch is identified by the node of its first row
    batch.kind = s.kind;
    batch.rows = work.count;
    std::vector<Part> parts;
    std::vector<int> all;  // operands of operations on many operands
    if (s.nargs < 0) {
        for (int i = 0; i < work.count; i++) {
            const int *nodes = plan.outside.data() + instance(i).first;
            all.insert(all.end(), nodes, nodes + instance(i).count);
            batch.counts.push_back(instance(i).count);
        }
        parts.push_back(part(all.data(), static_cast<int>(all.size()), s.widths[0], false, !forward));
    }
    // all rows are equal: one operand is not shared, so that the callee knows the number of rows
    bool differ = work.count == 1;
    for (int k = 0; k < s.nargs && !differ; k++) {
        const int *nodes = work.run->nodes(k) + work.first;
        differ = std::any_of(nodes, nodes + work.count, [&](int node) { return node != nodes[0]; });
    }
    for (int k = 0; k < s.nargs; k++) {
        parts.push_back(part(work.run->nodes(k) + work.first, work.count, s.widths[k], differ || k > 0, !forward));
    }
    for (const Part &each : parts) batch.arguments.push_back(each.argument);
    batch.out =
        (forward ? work.run->value : work.run->grad) + static_cast<std::ptrdiff_t>(work.first) * work.group->row;
    if (forward) {
        for (int i = 0; i < work.count; i++) batch.aux.push_back(graph_.nodes[instance(i).root].aux);
        caller_->forward(batch);
        return;
    }
    caller_->backward(batch);
    for (const Part &each : parts) {
        if (each.argument.grad) scatter(graph_, each.nodes, each.count, each.width, {each.argument.grad, each.width});
    }
}

}  // namespace dpmodule::autobatch
