#include "runner.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "rows.hpp"

namespace dpmodule::autobatch {
namespace {

constexpr int block_of_rows = 128;  // rows whose weight gradients are computed together

// Floats that a row reads and writes.
int width_of(const Group &group) {
    const int own = group.row + group.kept + group.scratch + group.grad_kept + group.grad_scratch;
    return std::accumulate(group.outside.begin(), group.outside.end(), std::max(own, 1));
}

}  // namespace

// Number of rows for which a batch fits into the L2 cache. Calls and random numbers need the whole batch.
int Runner::rows_at_once(const Group &group, int rows) const {
    const Op op = graph_.signatures[group.sig].op;
    if (!group.counted || op == Op::Call || op == Op::Drawn) return rows;
    constexpr int floats = 1 << 18;
    const int width = width_of(group);
    const int fit = std::max(48, floats / width / 12 * 12);
    return fit > rows / 2 ? rows : fit;
}

void Runner::forward(Segment &segment) {
    for (const Bucket &bucket : segment.plan.buckets) {
        Run &run = segment.plan.runs[bucket.run];
        const Group &group = groups_[run.group];
        const int at_once = rows_at_once(group, bucket.count);
        for (int first = 0; first < bucket.count; first += at_once) {
            scratch_.rewind();
            forward({&segment, &run, &group, bucket.run, bucket.first + first, std::min(at_once, bucket.count - first),
                     nullptr, nullptr});
        }
    }
}

// Memory for the gradients of steps: of a few rows, whose weight gradients then follow immediately, while the caches
// hold them, or of all.
void Runner::place_gradients(Segment &segment) {
    windows_.rewind();
    for (Run &run : segment.plan.runs) run.grad_rows = run.pending = 0;
    for (const Bucket &bucket : segment.plan.buckets) {
        Run &run = segment.plan.runs[bucket.run];
        run.grad_rows = std::max(run.grad_rows, rows_at_once(groups_[run.group], bucket.count) + block_of_rows);
    }
    for (std::size_t r = 0; r < segment.plan.runs.size(); r++) {
        Run &run = segment.plan.runs[r];
        if (!run.wanted) continue;
        for (const std::unique_ptr<Affine> &each : segment.affine[r]) {
            if (each && each->needs_all_rows(run)) run.grad_rows = run.rows;
        }
        run.grad_rows = std::min(run.grad_rows, run.rows);
        run.grad_kept = windows_.take(static_cast<std::size_t>(run.grad_rows) * groups_[run.group].grad_kept);
    }
}

void Runner::backward(Segment &segment) {
    place_gradients(segment);
    for (auto bucket = segment.plan.buckets.rbegin(); bucket != segment.plan.buckets.rend(); ++bucket) {
        Run &run = segment.plan.runs[bucket->run];
        if (!run.wanted) continue;
        const Group &group = groups_[run.group];
        const int at_once = rows_at_once(group, bucket->count);
        const int parts = (bucket->count + at_once - 1) / at_once;
        for (int part = parts - 1; part >= 0; part--) {
            scratch_.rewind();
            const int first = part * at_once;
            backward({&segment, &run, &group, bucket->run, bucket->first + first,
                      std::min(at_once, bucket->count - first), nullptr, nullptr});
        }
    }
}

void Runner::shrink() {
    constexpr std::size_t usual = 32u << 20;
    if (scratch_.bytes() > usual) scratch_ = Arena();
    if (windows_.bytes() > usual) windows_ = Arena();
}

// Calls `body` with a batch, or with as many rows of it as the L1 cache holds.
template <class F>
void Runner::in_parts(const Work &work, F body) {
    constexpr int floats = 1 << 14, least = 4;
    const Group &group = *work.group;
    const int rows = group.by_rows ? std::max(least, floats / width_of(group)) : work.count;
    const Arena::Mark mark = scratch_.mark();
    for (int first = 0; first < work.count; first += rows) {
        scratch_.rewind(mark);
        Work part = work;
        part.first += first;
        part.count = std::min(rows, work.count - first);
        part.scratch = scratch_.take(static_cast<std::size_t>(group.scratch) * part.count);
        part.grad_scratch = scratch_.take(static_cast<std::size_t>(group.grad_scratch) * part.count);
        body(part);
    }
}

void Runner::forward(const Work &work) {
    const auto is_ahead = [&](const Step &step) { return work.group->by_rows && step.kind == Step::Kind::Affine; };
    for (const Step &step : work.group->steps) {
        if (is_ahead(step)) forward_step(work, step);
    }
    in_parts(work, [&](const Work &part) {
        for (const Step &step : work.group->steps) {
            if (!is_ahead(step)) forward_step(part, step);
        }
    });
}

void Runner::backward(const Work &work) {
    for (int i = 0; i < work.count && !graph_.remainder.empty(); i++) {
        graph_.settle(work.segment->plan.instances[work.run->order[work.first + i]].root);
    }
    if (!work.run->pending) work.run->grad_first = work.first + work.count - work.run->grad_rows;
    const std::vector<Step> &steps = work.group->steps;
    const auto is_last = [&](const Step &step) { return work.group->by_rows && step.kind == Step::Kind::Affine; };
    in_parts(work, [&](const Work &part) {
        for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
            if (!is_last(*step)) backward_step(part, *step);
        }
    });
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
        if (is_last(*step)) backward_step(work, *step);
    }
    // a block of the product kernel: its results are read and written once for all these rows
    Run &run = *work.run;
    run.pending += work.count;
    if (work.first > 0 && (run.pending < block_of_rows || run.grad_rows == run.rows)) return;
    for (const Step &step : work.group->steps) {
        if (step.kind == Step::Kind::Affine)
            affine(work, step).finish(space_, run, work.first, run.pending, grad_in(run, *work.group, step));
    }
    run.pending = 0;
}

Affine &Runner::affine(const Work &work, const Step &step) {
    auto &all = work.segment->affine[work.index];
    if (all.empty()) all.resize(work.group->steps.size());
    std::unique_ptr<Affine> &found = all[&step - work.group->steps.data()];
    if (!found) found = std::make_unique<Affine>(space_, work.segment->plan, *work.run, *work.group, step);
    return *found;
}

// Each step has its own block of consecutive rows.
Block Runner::value_of(const Work &work, const Step &step) const {
    if (step.home == Step::Home::Scratch)
        return {work.scratch + static_cast<std::ptrdiff_t>(step.at) * work.count, step.width};
    return rows_from(value_in(*work.run, *work.group, step), work.first);
}

Block Runner::grad_of(const Work &work, const Step &step) const {
    if (step.grad_home == Step::Home::Scratch)
        return {work.grad_scratch + static_cast<std::ptrdiff_t>(step.grad_at) * work.count, step.width};
    return rows_from(grad_in(*work.run, *work.group, step), work.first);
}

Block Runner::read(const Work &work, Operand operand, int width) {
    if (!operand.outside) return value_of(work, work.group->steps[operand.index]);
    const int *nodes = work.run->nodes(operand.index) + work.first;
    const Block lying = as_block(graph_.value, nodes, work.count, width, false);
    if (lying.at) return lying;
    const Block copy{scratch_.take(static_cast<std::size_t>(width) * work.count), width};
    gather(graph_, nodes, work.count, width, copy);
    return copy;
}

bool Runner::target(const Work &work, Operand operand, int width, Target &found) {
    if (!operand.outside) {
        found = {grad_of(work, work.group->steps[operand.index]), operand.add, -1, {}};
        return true;
    }
    const int *nodes = work.run->nodes(operand.index) + work.first;
    if (!any_grad(graph_, nodes, work.count)) return false;
    const bool crowded = any_crowded(graph_, nodes, work.count);
    const Block lying = crowded ? Block{} : as_block(graph_.grad, nodes, work.count, width, true);
    if (lying.at) found = {lying, true, -1, {}};
    else found = {{scratch_.take(static_cast<std::size_t>(width) * work.count), width}, false, operand.index, {}};
    return true;
}

Runner::Rows Runner::read_rows(const Work &work, Operand operand, int width) {
    const int *nodes = operand.outside ? work.run->nodes(operand.index) + work.first : nullptr;
    const bool scattered = nodes && std::find(nodes, nodes + work.count, -1) == nodes + work.count &&
                           !as_block(graph_.value, nodes, work.count, width, false).at;
    if (scattered) return {{nullptr, width}, nodes, &graph_.value};
    return {read(work, operand, width), nullptr, nullptr};
}

bool Runner::target_rows(const Work &work, Operand operand, int width, Target &found) {
    const int *nodes = operand.outside ? work.run->nodes(operand.index) + work.first : nullptr;
    const bool scattered = nodes && std::find(nodes, nodes + work.count, -1) == nodes + work.count &&
                           !any_crowded(graph_, nodes, work.count) &&
                           !as_block(graph_.grad, nodes, work.count, width, true).at;
    if (scattered) {
        found = {{}, true, -1, {{nullptr, width}, nodes, &graph_.grad}};
        return any_grad(graph_, nodes, work.count);
    }
    if (!target(work, operand, width, found)) return false;
    found.rows = {found.at, nullptr, nullptr};
    return true;
}

void Runner::done(const Work &work, const Target &target, int width) {
    if (target.column >= 0) scatter(graph_, work.run->nodes(target.column) + work.first, work.count, width, target.at);
}

void Runner::forward_step(const Work &work, const Step &step) {
    if (step.kind == Step::Kind::Affine) {
        // all rows: some inputs are multiplied ahead
        return affine(work, step)
            .forward(space_, *work.run, work.first, work.count, value_in(*work.run, *work.group, step));
    }
    const Signature &s = graph_.signatures[step.sig];
    if (step.kind == Step::Kind::Cell) return cell(work, step, s);
    switch (s.op) {
#define RUNNER_STEP(op, function) \
    case Op::op: return function(work, step, s);
        RUNNER_STEPS(RUNNER_STEP)
        RUNNER_SHARED_STEPS(RUNNER_STEP)
#undef RUNNER_STEP
        default: return;
    }
}

void Runner::backward_step(const Work &work, const Step &step) {
    if (step.kind == Step::Kind::Affine)
        return affine(work, step)
            .backward(space_, *work.run, *work.group, work.first, work.count, grad_in(*work.run, *work.group, step));
    const Signature &s = graph_.signatures[step.sig];
    if (step.kind == Step::Kind::Cell) return cell_back(work, step, s);
    switch (s.op) {
#define RUNNER_STEP(op, function) \
    case Op::op: return function##_back(work, step, s);
        RUNNER_STEPS(RUNNER_STEP)
        RUNNER_SHARED_STEPS(RUNNER_STEP)
#undef RUNNER_STEP
        default: return;
    }
}

}  // namespace dpmodule::autobatch
