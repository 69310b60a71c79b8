#include "engine.hpp"

#include <chrono>
#include <cstring>
#include <stdexcept>

namespace dpmodule::autobatch {
namespace {

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

class Engine::Busy {
   public:
    explicit Busy(bool &flag) : flag_(flag) {
        if (flag) throw std::logic_error("the graph is being computed: an operation on it must not use it itself");
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

void Engine::forget(int computed) {
    while (!segments_.empty() && segments_.back().plan.to > computed) {
        memory_.rewind(segments_.back().start);
        segments_.pop_back();
    }
    computed_ = computed;
    graph.revert(graph.size(), computed);
}

// Zero for all values, the tables' rows for lookups; views follow their arguments.
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
            graph.grad[n] = table.grad(graph.nodes[n].aux);
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
}

// Runs that the node depends on, as far as the graph of runs tells.
void Engine::mark_wanted(Segment &last, int node) {
    for (Segment &segment : segments_) {
        for (Run &run : segment.plan.runs) run.wanted = segment.plan.from < last.plan.from;
    }
    Plan &plan = last.plan;
    const int owner = plan.owner(node);
    if (owner < 0) return;
    std::vector<std::vector<int>> producers(plan.runs.size());
    for (std::size_t r = 0; r < plan.consumers.size(); r++) {
        for (int consumer : plan.consumers[r]) producers[consumer].push_back(static_cast<int>(r));
    }
    if (plan.consumers.empty()) {   // unbatched: nothing is known
        for (Run &run : plan.runs) run.wanted = true;
    }
    std::vector<int> open = {plan.instances[owner].run};
    while (!open.empty()) {
        const int run = open.back();
        open.pop_back();
        if (plan.runs[run].wanted && !plan.consumers.empty()) continue;
        plan.runs[run].wanted = true;
        if (plan.consumers.empty()) break;
        open.insert(open.end(), producers[run].begin(), producers[run].end());
    }
}

void Engine::backward(int node, bool full) {
    node = forward(node);
    Busy busy(busy_);
    const double start = now();
    prepare_gradients(node, full);
    Segment *last = nullptr;
    for (Segment &segment : segments_) {
        if (segment.plan.from <= node && node < segment.plan.to) last = &segment;
    }
    mark_wanted(*last, node);
    if (graph.grad[node]) graph.grad[node][0] += 1.0f;
    for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) {
        if (segment->plan.from <= node) runner_.backward(*segment);
    }
    times_.backward += now() - start;
}

void Engine::revert(int size, int computed) {
    Busy busy(busy_);
    forget(computed);
    graph.revert(size, computed);
}

void Engine::renew() {
    Busy busy(busy_);
    segments_.clear();
    memory_.reset();
    graph.renew();
    computed_ = 0;
    times_ = {};
    runner_.parameters_changed();
    runner_.shrink();
}

}  // namespace dpmodule::autobatch
