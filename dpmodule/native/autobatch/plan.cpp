#include "plan.hpp"

#include <algorithm>

#include "components.hpp"
#include "repeats.hpp"

namespace dpmodule::autobatch {

class Planner {
  public:
    Planner(Plan &plan, Graph &graph, Groups &groups, PlanOptions manner)
        : plan_(plan), graph_(graph), groups_(groups), traits_(groups.traits()), manner_(manner),
          size_(plan.to - plan.from), repeats_(graph, plan.from, plan.to) {}

    void make(Arena &memory) {
        find_groups();
        find_instances();
        if (manner_.batched) order_by_components();
        else order_by_creation();
        place_runs(memory);
        place_views();
        plan_.has_repeats = repeats_.any();
    }

  private:
    // Views share their argument's memory, or are copies without fusion.
    bool computed(int node) const {
        const Op op = traits(node).op;
        return op > Op::View || (op == Op::View && !manner_.fuses && !graph_.is_memory(node));
    }

    const Traits &traits(int node) const { return traits_[graph_.nodes[node].sig]; }

    int group_of(int node) const { return group_[node - plan_.from]; }

    // Bottom up: which arguments are fused into their consumer, and the resulting group.
    void find_groups() {
        group_.resize(size_);
        plan_.owner_.assign(size_, -1);
        const bool fuses = manner_.batched && manner_.fuses;
        std::vector<int> inner;
        for (int n = plan_.from; n < plan_.to; n++) {
            const Traits own = traits(n);
            if (!computed(n)) {
                given_.push_back(n);
                if (own.op == Op::Lookup && fuses) repeats_.add_row(n, plan_.stamp);
                continue;
            }
            const int count = graph_.nodes[n].count, *args = graph_.begin(n);
            if (!fuses || !own.may_hold) {
                group_[n - plan_.from] = groups_.of(graph_.nodes[n].sig, nullptr, 0);
                continue;
            }
            if (count > static_cast<int>(inner.size())) inner.resize(count);
            int total = 1;
            for (int k = 0; k < count; k++) {
                const int a = args[k];
                inner[k] = -1;
                if (a < plan_.from) continue;
                const Traits other = traits(a);
                const bool spread = own.op == Op::Affine;
                if (spread
                        ? !other.is_spread
                        : graph_.uses[a] != 1 || !(other.is_inner || (other.is_inner_of_vectors && !own.of_matrices)))
                    continue;
                const int size = groups_[group_of(a)].size;
                if (total + size > Groups::largest) continue;
                total += size;
                inner[k] = group_of(a);
                if (spread) spread_.push_back(a);
                else fuse(a);
            }
            group_[n - plan_.from] = groups_.of(graph_.nodes[n].sig, inner.data(), count);
        }
        // concatenations that only products read
        if (!std::is_sorted(spread_.begin(), spread_.end())) std::sort(spread_.begin(), spread_.end());
        for (auto first = spread_.begin(), last = first; first != spread_.end(); first = last) {
            last = std::upper_bound(first, spread_.end(), *first);
            if (last - first == graph_.uses[*first] && graph_.uses[*first] < Graph::most_uses) fuse(*first);
        }
    }

    void fuse(int node) {
        plan_.owner_[node - plan_.from] = -2;
        graph_.uses[node] |= Graph::fused;
    }

    // The arguments of a group, and in `key_` the numbers of its nodes.
    void collect(int node, const Group &group) {
        const int count = graph_.nodes[node].count, *args = graph_.begin(node);
        const bool holds = group.size > 1;
        if (repeats_.any()) key_.push_back(graph_.nodes[node].aux);
        for (int k = 0; k < count; k++) {
            if (holds && group.inner[k] >= 0) collect(args[k], groups_[group.inner[k]]);  // depth under Groups::largest
            else plan_.outside.push_back(repeats_.first(args[k]));
        }
    }

    int run_of(int group) {
        if (group >= static_cast<int>(run_of_group_.size())) run_of_group_.resize(groups_.size(), -1);
        int &run = run_of_group_[group];
        if (run < 0) {
            run = static_cast<int>(plan_.runs.size());
            plan_.runs.emplace_back();
            plan_.runs.back().group = group;
        }
        return run;
    }

    int module_tensor(int node) const { return node < plan_.from ? -1 : plan_.owner_[node - plan_.from]; }

    void find_instances() {
        plan_.outside.reserve(size_ * 2);
        for (int n = plan_.from; n < plan_.to; n++) {
            if (plan_.owner_[n - plan_.from] == -2) continue;
            if (computed(n)) add_instance(n);
            else if (graph_.signature(n).op == Op::View) add_view(n);
        }
    }

    void add_instance(int node) {
        const Op op = graph_.signature(node).op;
        const int id = static_cast<int>(plan_.instances.size()), first = static_cast<int>(plan_.outside.size());
        const int group = group_of(node);
        key_.clear();
        key_.push_back(group);
        collect(node, groups_[group]);
        const int count = static_cast<int>(plan_.outside.size()) - first;
        // random numbers and results of calls may differ each time
        if (op != Op::Drawn && op != Op::Call && repeats_.repeats(node, key_, plan_.outside.data() + first, count)) {
            plan_.owner_[node - plan_.from] = module_tensor(repeats_.first(node));
            plan_.instances[module_tensor(node)].repeats++;
            plan_.outside.resize(first);
            repeated_.push_back(node);
            return;
        }
        const int run = run_of(group);
        plan_.instances.push_back({node, run, first, count, 0, 0, 0});
        plan_.owner_[node - plan_.from] = id;
        plan_.runs[run].rows++;
    }

    void add_view(int node) {
        const int whole = repeats_.first(*graph_.begin(node));
        plan_.owner_[node - plan_.from] = module_tensor(whole);
        key_ = {-1 - graph_.nodes[node].sig, graph_.nodes[node].aux};
        repeats_.repeats(node, key_, &whole, 1);
    }

    // Calls body(instance, producing instance) for every argument computed in this segment, in order of creation.
    template <class F>
    void each_edge(F body) {
        for (Instance &instance : plan_.instances) {
            for (int k = 0; k < instance.count; k++) {
                const int a = plan_.outside[instance.first + k];
                if (a < plan_.from) continue;
                const int producer = plan_.owner_[a - plan_.from];
                if (producer >= 0) body(instance, plan_.instances[producer]);
            }
        }
    }

    void order_by_components() {
        const int runs = static_cast<int>(plan_.runs.size());
        Components components(runs);
        each_edge([&](Instance &to, Instance &from) { components.edge(from.run, to.run); });
        components.find();
        for (int r = 0; r < runs; r++) {
            plan_.runs[r].component = components.rank(r);
            plan_.runs[r].recurrent = components.cyclic(r);
        }
        plan_.consumers = components.take_edges();
        std::vector<char> cyclic(runs);
        std::vector<int> component(runs);
        for (int r = 0; r < runs; r++) cyclic[r] = plan_.runs[r].recurrent, component[r] = plan_.runs[r].component;
        std::vector<std::vector<int>> counts(runs);  // per run and level
        for (Instance &instance : plan_.instances) {
            int level = 0;
            if (cyclic[instance.run]) {
                for (int k = 0; k < instance.count; k++) {
                    const int a = plan_.outside[instance.first + k], producer = module_tensor(a);
                    if (a < 0 || producer < 0) continue;
                    const Instance &from = plan_.instances[producer];
                    if (component[from.run] == component[instance.run] && from.level >= level) level = from.level + 1;
                }
            }
            instance.level = level;
            std::vector<int> &per_level = counts[instance.run];
            if (level >= static_cast<int>(per_level.size())) per_level.resize(level + 1, 0);
            per_level[level]++;
        }
        for (int r = 0; r < runs; r++) {
            int row = 0;
            for (int l = 0; l < static_cast<int>(counts[r].size()); l++) {
                const int n = counts[r][l];
                if (n) plan_.buckets.push_back({r, l, row, n});
                counts[r][l] = row;
                row += n;
            }
            plan_.runs[r].order.resize(plan_.runs[r].rows);
        }
        std::sort(plan_.buckets.begin(), plan_.buckets.end(), [&](const Bucket &a, const Bucket &b) {
            if (component[a.run] != component[b.run]) return component[a.run] < component[b.run];
            return a.level != b.level ? a.level < b.level : a.run < b.run;
        });
        for (std::size_t i = 0; i < plan_.instances.size(); i++) {
            Instance &instance = plan_.instances[i];
            instance.row = counts[instance.run][instance.level]++;
            plan_.runs[instance.run].order[instance.row] = static_cast<int>(i);
        }
    }

    void order_by_creation() {
        for (Run &run : plan_.runs) run.recurrent = true, run.order.reserve(run.rows);
        for (std::size_t i = 0; i < plan_.instances.size(); i++) {
            Instance &instance = plan_.instances[i];
            std::vector<int> &order = plan_.runs[instance.run].order;
            instance.row = static_cast<int>(order.size());
            instance.level = static_cast<int>(i);
            order.push_back(static_cast<int>(i));
            plan_.buckets.push_back({instance.run, instance.level, instance.row, 1});
        }
    }

    void place_runs(Arena &memory) {
        if (static_cast<int>(graph_.value.size()) < plan_.to) {  // inputs after this plan already have values
            graph_.value.resize(plan_.to, nullptr);
            graph_.grad.resize(plan_.to, nullptr);
        }
        for (Run &run : plan_.runs) {
            const Group &group = groups_[run.group];
            const std::size_t rows = run.rows;
            run.value = memory.take(rows * group.row);
            run.kept = memory.take(rows * group.kept);
            run.grad = memory.take(rows * group.row);
            const int columns = group.counted ? static_cast<int>(group.outside.size()) : 0;
            run.column.resize(rows * columns);
            for (int row = 0; row < run.rows; row++) {
                const Instance &instance = plan_.instances[run.order[row]];
                graph_.value[instance.root] = run.value + static_cast<std::size_t>(row) * group.row;
                graph_.grad[instance.root] = run.grad + static_cast<std::size_t>(row) * group.row;
                for (int k = 0; k < columns; k++) run.column[k * rows + row] = plan_.outside[instance.first + k];
            }
        }
    }

    // Inputs, parameters and lookups are read in place; views point into their argument, and equal nodes share memory.
    void place_views() {
        for (int n : repeated_) {
            graph_.value[n] = graph_.value[repeats_.first(n)];
            graph_.grad[n] = graph_.grad[repeats_.first(n)];
        }
        for (int n : given_) {
            const Node &node = graph_.nodes[n];
            const Signature &s = graph_.signatures[node.sig];
            if (s.op == Op::Param) {
                const Param &p = graph_.params[s.params[0]];
                graph_.value[n] = p.value;
                graph_.grad[n] = p.grad;
            } else if (s.op == Op::Lookup) {
                graph_.value[n] = graph_.tables[s.params[0]]->value + static_cast<std::size_t>(node.aux) * s.width;
                plan_.lookups.push_back(n);
                graph_.grad[n] = nullptr;  // assigned by the backward pass
            } else if (s.op == Op::View) {
                const int a = *graph_.begin(n);
                plan_.views.push_back(n);
                graph_.value[n] = graph_.value[a] + node.aux;
                graph_.grad[n] = graph_.grad[a] ? graph_.grad[a] + node.aux : nullptr;
            }
        }
    }

    Plan &plan_;
    Graph &graph_;
    Groups &groups_;
    const Traits *const traits_;
    const PlanOptions manner_;
    const int size_;
    Repeats repeats_;
    std::vector<int> key_;    // of a node that may be repeated
    std::vector<int> group_;  // per node
    std::vector<int> run_of_group_;
    std::vector<int> spread_;    // concatenations, for each product that reads their operands
    std::vector<int> given_;     // nodes that are not computed
    std::vector<int> repeated_;  // nodes equal to an earlier one, whose value they share
};

Plan::Plan(Graph &graph, Groups &groups, Arena &memory, int from, int to, PlanOptions manner)
    : from(from), to(to), batched(manner.batched) {
    static std::uint32_t stamps = 0;
    stamp = ++stamps;
    Planner(*this, graph, groups, manner).make(memory);
}

}  // namespace dpmodule::autobatch
