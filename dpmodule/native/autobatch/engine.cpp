#include "engine.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>

namespace dpmodule::autobatch {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

class Engine::Busy {
  public:
    explicit Busy(bool &flag) : flag_(flag) {
        if (flag) throw std::logic_error("the graph is being computed: its operations must not use it");
        flag = true;
    }
    ~Busy() { flag_ = false; }

  private:
    bool &flag_;
};

int Engine::forward(int node) {
    if (graph.is_fused(node)) node = graph.again(node);
    if (node < computed_) return node;
    Busy busy(busy_);
    const int before = computed_;
    try {
        const double start = now();
        const Arena::Mark mark = memory_.mark();
        segments_.emplace_back(Plan(graph, groups, memory_, before, node + 1, {batched, fuses}), mark);
        const double planned = now();
        times_.schedule += planned - start;
        runner_.forward(segments_.back());
        times_.forward += now() - planned;
    } catch (...) {
        forget(before);
        throw;
    }
    computed_ = node + 1;
    return node;
}

void Engine::skip() {
    if (computed_ < graph.size()) graph.skip(computed_++);
}

// A segment that extends beyond `computed` is discarded as a whole, since it may batch nodes on both sides.
void Engine::forget(int computed) {
    computed = std::min(computed, computed_);
    while (!segments_.empty() && segments_.back().plan.to > computed) {
        computed = std::min(computed, segments_.back().plan.from);
        memory_.rewind(segments_.back().start);
        segments_.pop_back();
    }
    computed_ = computed;
    graph.revert(graph.size(), computed);
}

// Zero gradients for all values, table rows for lookups; views follow their arguments.
void Engine::prepare_gradients(int node, bool full) {
    for (Segment &segment : segments_) {
        Plan &plan = segment.plan;
        if (plan.from > node) break;
        for (Run &run : plan.runs) {
            const std::size_t floats = static_cast<std::size_t>(run.rows) * groups[run.group].row;
            std::memset(run.grad, 0, sizeof(float) * floats);
        }
        for (int n : plan.lookups) {
            Table &table = *graph.tables[graph.signature(n).params[0]];
            if (fuses) {
                graph.grad[n] = table.grad(graph.nodes[n].aux);
                continue;
            }
            // with `full`, gradients of single nodes are needed, not the row's shared gradient
            graph.grad[n] = graph.inputs.take(table.width);
            std::memset(graph.grad[n], 0, sizeof(float) * table.width);
        }
        if (full) {
            for (int n = plan.from; n < plan.to; n++) {
                const Signature &s = graph.signature(n);
                if (s.op != Op::Input) continue;
                if (!graph.grad[n]) graph.grad[n] = graph.inputs.take(s.width);
                std::memset(graph.grad[n], 0, sizeof(float) * s.width);
            }
        }
        for (int n : plan.views) {
            float *grad = graph.grad[*graph.begin(n)];
            graph.grad[n] = grad ? grad + graph.nodes[n].aux : nullptr;
        }
    }
    graph.drop_remainders();  // left over after an error
    if (fuses) keep_remainders(node);
}

// For rows and values that many nodes use; a view shares its argument's remainder.
void Engine::keep_remainders(int node) {
    const auto end = graph.uses.begin() + node + 1;
    for (auto use = graph.uses.begin(); (use = std::find(use, end, Graph::most_uses)) != end; ++use) {
        int crowded = static_cast<int>(use - graph.uses.begin());
        while (graph.signature(crowded).op == Op::View) crowded = *graph.begin(crowded);
        graph.keep_remainder(crowded);
    }
    for (const Segment &segment : segments_) {
        if (segment.plan.from > node) break;
        for (int n : segment.plan.lookups) {
            if (graph.tables[graph.signature(n).params[0]]->is_crowded(graph.nodes[n].aux)) graph.keep_remainder(n);
        }
        for (int n : segment.plan.views) {
            if (graph.is_crowded(*graph.begin(n)))
                graph.remainder[n] = graph.remainder[*graph.begin(n)] + graph.nodes[n].aux;
        }
    }
}

namespace {

// The runs that each run reads; the planner builds this graph only when batching.
void draw_producers(const Graph &graph, Plan &plan) {
    plan.producers.resize(plan.runs.size());
    for (std::size_t r = 0; r < plan.consumers.size(); r++) {
        for (int consumer : plan.consumers[r]) plan.producers[consumer].push_back(static_cast<int>(r));
    }
    if (plan.batched) return;
    for (const Instance &instance : plan.instances) {
        for (int k = 0; k < instance.count; k++) {
            int node = plan.outside[instance.first + k];
            while (node >= plan.from && plan.owner(node) < 0 && graph.signature(node).op == Op::View)
                node = *graph.begin(node);
            const int owner = node >= plan.from ? plan.owner(node) : -1;
            if (owner >= 0) plan.producers[instance.run].push_back(plan.instances[owner].run);
        }
    }
}

// A run and the runs it reads, directly or indirectly, within one plan.
void mark_inside(const Graph &graph, Plan &plan, int first) {
    if (plan.runs[first].wanted) return;
    if (plan.producers.empty()) draw_producers(graph, plan);
    std::vector<int> open = {first};
    while (!open.empty()) {
        const int run = open.back();
        open.pop_back();
        if (plan.runs[run].wanted) continue;
        plan.runs[run].wanted = true;
        open.insert(open.end(), plan.producers[run].begin(), plan.producers[run].end());
    }
}

}  // namespace

// Runs on which the node depends, by the graph of runs.
void Engine::mark_wanted(Segment &last, int node) {
    for (Segment &segment : segments_) {
        for (Run &run : segment.plan.runs) run.wanted = false;
    }
    Plan &plan = last.plan;
    const int owner = plan.owner(node);
    if (owner < 0) {  // a view, or not a computed node
        if (graph.signature(node).op == Op::View) {
            for (Segment &segment : segments_) {
                for (Run &run : segment.plan.runs) run.wanted = segment.plan.from <= last.plan.from;
            }
        }
        return;
    }
    mark_inside(graph, plan, plan.instances[owner].run);
    for (auto segment = segments_.rbegin(); segments_.size() > 1 && segment != segments_.rend(); ++segment) {
        if (segment->plan.from > 0) mark_producers(*segment);
    }
}

Segment *Engine::segment_of(int node) {
    const auto after = std::upper_bound(segments_.begin(), segments_.end(), node,
                                        [](int n, const Segment &segment) { return n < segment.plan.from; });
    return after == segments_.begin() ? nullptr : &*(after - 1);
}

// Runs of earlier segments that needed runs of this one read.
void Engine::mark_producers(const Segment &consumer) {
    const Plan &plan = consumer.plan;
    for (const Instance &instance : plan.instances) {
        if (!plan.runs[instance.run].wanted) continue;
        for (int k = 0; k < instance.count; k++) {
            int node = plan.outside[instance.first + k];
            // a view may be newer than its argument
            while (node >= 0 && graph.signature(node).op == Op::View && segment_of(node)->plan.owner(node) < 0)
                node = *graph.begin(node);
            if (node < 0 || node >= plan.from) continue;
            Plan &earlier = segment_of(node)->plan;
            const int owner = earlier.owner(node);
            if (owner < 0) continue;
            mark_inside(graph, earlier, earlier.instances[owner].run);
        }
    }
}

void Engine::backward(int node, bool full) {
    node = forward(node);
    Busy busy(busy_);
    const double start = now();
    prepare_gradients(node, full);
    root_ = node;
    Segment *last = nullptr;
    for (Segment &segment : segments_) {
        if (segment.plan.from <= node && node < segment.plan.to) last = &segment;
    }
    mark_wanted(*last, node);
    if (graph.grad[node]) graph.grad[node][0] += 1.0f;
    for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) {
        if (segment->plan.from <= node) runner_.backward(*segment);
    }
    graph.settle();
    times_.backward += now() - start;
}

bool Engine::add_gradient(int node, float *sum) const {
    bool found = false;
    // a recomputed node has a gradient under each of its numbers; nodes after the root have none
    for (; node >= 0 && node <= root_; node = graph.copy_of(node)) {
        const Signature &s = graph.signature(node);
        const int whole = s.op == Op::View ? *graph.begin(node) : -1;
        // the row of a step has the complete gradient of a memory; a copy of the memory lacks the output's part
        const Op step = whole < 0 ? Op::View : graph.signature(whole).op;  // Call: a step computed by torch
        const bool memory =
            (step == Op::Lstm || step == Op::Call) && graph.nodes[node].aux >= graph.signature(whole).width;
        const float *part = graph.is_fused(node) ? nullptr : graph.grad[memory ? whole : node];
        if (!part) continue;
        if (memory) part += graph.nodes[node].aux;
        found = true;
        for (int i = 0; i < s.width; i++) sum[i] += part[i];
    }
    return found;
}

bool Engine::is_shared(int node) {
    const int whole = graph.is_memory(node) ? node - 1 : node;
    const Segment *segment = segment_of(whole);
    const int owner = segment ? segment->plan.owner(whole) : -1;
    if (owner < 0) return false;
    return segment->plan.instances[owner].repeats;
}

void Engine::keep_drawn() {
    for (const Segment &segment : segments_) {
        for (const Run &run : segment.plan.runs) {
            const Group &group = groups[run.group];
            if (graph.signatures[group.sig].op != Op::Drawn) continue;
            for (int row = 0; row < run.rows; row++) {
                const float *numbers = run.kept + static_cast<std::ptrdiff_t>(row) * group.kept;
                graph.drawn[segment.plan.instances[run.order[row]].root].assign(numbers, numbers + group.kept);
            }
        }
    }
}

void Engine::revert(int size, int computed) {
    Busy busy(busy_);
    forget(computed);
    graph.revert(size, computed_);
}

void Engine::renew() {
    Busy busy(busy_);
    segments_.clear();
    memory_.reset();
    graph.renew();
    computed_ = 0;
    root_ = -1;
    times_ = {};
    runner_.parameters_changed();
    runner_.shrink();
}

}  // namespace dpmodule::autobatch
