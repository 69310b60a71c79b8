#include "runner.hpp"

#include <algorithm>
#include <cstring>

#include "rows.hpp"

namespace dpmodule::autobatch {

// Number of rows for which a batch fits into the L2 cache.
int Runner::rows_at_once(const Group &group, int rows) const {
    constexpr int floats = 1 << 17;
    int width = group.row + group.kept + group.scratch + group.grad_kept + group.grad_scratch;
    for (int w : group.outside) width += w;
    const int fit = std::max(48, floats / std::max(1, width) / 12 * 12);
    return fit > rows / 2 ? rows : fit;
}

// Calls and random numbers need the whole batch.
bool Runner::splits(const Group &group) const {
    const Op op = graph_.signatures[group.sig].op;
    return group.counted && op != Op::Call && op != Op::Drawn;
}

void Runner::forward(Segment &segment) {
    for (const Bucket &bucket : segment.plan.buckets) {
        Run &run = segment.plan.runs[bucket.run];
        const Group &group = groups_[run.group];
        const int at_once = splits(group) ? rows_at_once(group, bucket.count) : bucket.count;
        for (int first = 0; first < bucket.count; first += at_once) {
            scratch_.rewind();
            forward({&segment, &run, &group, bucket.run, bucket.first + first, std::min(at_once, bucket.count - first),
                     nullptr, nullptr});
        }
    }
}

void Runner::backward(Segment &segment) {
    for (auto bucket = segment.plan.buckets.rbegin(); bucket != segment.plan.buckets.rend(); ++bucket) {
        Run &run = segment.plan.runs[bucket->run];
        if (!run.wanted) continue;
        const Group &group = groups_[run.group];
        const int at_once = splits(group) ? rows_at_once(group, bucket->count) : bucket->count;
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
}

void Runner::forward(const Work &given) {
    Work work = given;
    work.scratch = scratch_.take(static_cast<std::size_t>(work.group->scratch) * work.count);
    for (const Step &step : work.group->steps) forward_step(work, step);
}

void Runner::backward(const Work &given) {
    Work work = given;
    for (int i = 0; i < work.count && !graph_.remainder.empty(); i++) {
        graph_.settle(work.segment->plan.instances[work.run->order[work.first + i]].root);
    }
    work.grad_scratch = scratch_.take(static_cast<std::size_t>(work.group->grad_scratch) * work.count);
    for (auto step = work.group->steps.rbegin(); step != work.group->steps.rend(); ++step) backward_step(work, *step);
    if (work.first > 0) return;
    for (const Step &step : work.group->steps) {
        if (step.kind != Step::Kind::Affine) continue;
        affine(work, step)
            .finish(space_, *work.run, grad_of(work, step));  // all rows: this is the last batch of the run
    }
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

int Runner::width_of(const Work &work, Operand operand) const {
    return operand.outside ? work.group->outside[operand.index] : work.group->steps[operand.index].width;
}

Block Runner::read(const Work &work, Operand operand, int width) {
    if (!operand.outside) return value_of(work, work.group->steps[operand.index]);
    const int *nodes = work.run->nodes(operand.index) + work.first;
    const Block lying = as_block(graph_.value, nodes, work.count, width, false);
    if (lying.at) return lying;
    if (const Block joined = work.run->joined[operand.index].first; joined.at) return rows_from(joined, work.first);
    const Block copy{scratch_.take(static_cast<std::size_t>(width) * work.count), width};
    gather(graph_, nodes, work.count, width, copy);
    return copy;
}

bool Runner::target(const Work &work, Operand operand, int width, Target &found) {
    if (!operand.outside) {
        found = {grad_of(work, work.group->steps[operand.index]), operand.add, -1};
        return true;
    }
    const int *nodes = work.run->nodes(operand.index) + work.first;
    if (!any_grad(graph_, nodes, work.count)) return false;
    const Block lying = as_target(graph_, *work.run, operand.index, work.first, work.count, width);
    if (lying.at) found = {lying, true, -1};
    else found = {{scratch_.take(static_cast<std::size_t>(width) * work.count), width}, false, operand.index};
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
            .backward(space_, *work.run, work.first, work.count, grad_in(*work.run, *work.group, step));
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
