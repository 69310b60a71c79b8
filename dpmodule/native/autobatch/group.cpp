#include "group.hpp"

#include <algorithm>
#include <utility>

namespace dpmodule::autobatch {
namespace {

bool by_output(const Signature &s) {
    if (s.op == Op::Unary || s.op == Op::UnaryEach) return by_output(static_cast<Unary>(s.kind));
    return s.op == Op::Softmax || s.op == Op::LogSoftmax || s.op == Op::Sparsemax ||
           (s.op == Op::Binary && s.kind == static_cast<int>(Binary::Div));
}

// True if the backward of a step of signature `s` reads its argument `k`.
bool reads_argument(const Signature &s, int k) {
    switch (s.op) {
        case Op::UnaryEach:
        case Op::Unary: return by_input(static_cast<Unary>(s.kind));
        case Op::Binary: {
            const auto kind = static_cast<Binary>(s.kind);
            return kind == Binary::Mul || kind >= Binary::Max || (kind == Binary::Div && k == 1);
        }
        case Op::Dot:
        case Op::SquaredNorm:
        case Op::Multiply: return true;
        default: return false;
    }
}

// Inserts the steps of group `from` before those of `to`; returns the operand for its root.
Operand append(Group &to, const Group &from) {
    const int steps = static_cast<int>(to.steps.size()), columns = static_cast<int>(to.outside.size());
    for (Step step : from.steps) {
        for (Operand &operand : step.in) operand.index += operand.outside ? columns : steps;
        to.steps.push_back(std::move(step));
    }
    to.outside.insert(to.outside.end(), from.outside.begin(), from.outside.end());
    to.size += from.size;
    return {false, static_cast<int>(to.steps.size()) - 1};
}

Operand column(Group &group, int width) {
    group.outside.push_back(width);
    return {true, static_cast<int>(group.outside.size()) - 1};
}

// A weight times an operand, or the operands of a concatenation.
void add_terms(Group &group, Step &affine, int weight, const std::vector<int> &widths) {
    group.size += widths.size() > 1;
    int first = 0;
    for (int width : widths) {
        affine.in.push_back(column(group, width));
        affine.params.push_back(weight);
        affine.firsts.push_back(first);
        first += width;
    }
}

// x, h and c of an LSTM: the gates as one product, then the cell.
void add_lstm(Group &group, int sig, const Signature &s) {
    const Operand x = column(group, s.widths[0]), h = column(group, s.widths[1]), c = column(group, s.widths[2]);
    Step gates;
    gates.kind = Step::Kind::Affine;
    gates.sig = sig;
    gates.width = 4 * s.width;
    gates.in = {x, h};
    gates.params = s.params;
    gates.firsts = {0, 0};
    group.steps.push_back(gates);
    Step cell = step_of(sig, s);
    cell.kind = Step::Kind::Cell;
    cell.in = {{false, 0}, c};
    group.steps.push_back(cell);
}

}  // namespace

Step step_of(int sig, const Signature &s) {
    Step step;
    step.kind = s.op == Op::Affine ? Step::Kind::Affine : Step::Kind::Op;
    step.sig = sig;
    step.width = s.row();
    if (s.op == Op::Affine) step.params = s.params, step.firsts.assign(s.nargs, 0);
    return step;
}

const Traits *Groups::traits() {
    constexpr int narrow = 32;  // operands of fewer numbers are multiplied faster together
    // sizes of matrices differ between examples, so vectors stay out of their groups
    for (int sig = static_cast<int>(traits_.size()); sig < signatures_.size(); sig++) {
        const Signature &s = signatures_[sig];
        const bool matrices = s.op == Op::Multiply || s.op == Op::AddColumn || s.op == Op::Arrange,
                   vectors = s.op == Op::Affine || s.op == Op::Unary || s.op == Op::Binary,
                   holds = matrices || vectors || s.op == Op::UnaryEach || s.op == Op::PickNegLogSoftmax ||
                           s.op == Op::Softmax || s.op == Op::LogSoftmax || s.op == Op::SumElems ||
                           s.op == Op::SquaredNorm || s.op == Op::Dot,
                   wide = s.op == Op::Concat && s.kind == 0 &&
                          std::all_of(s.widths.begin(), s.widths.end(), [](int width) { return width >= narrow; });
        traits_.push_back({s.op, matrices, holds, s.is_matrix && (matrices || vectors), vectors, wide});
    }
    return traits_.data();
}

int Groups::find(int sig, const int *inner, int count) {
    if (count > 2) {
        for (int k = 0; k < count; k++) {
            if (inner[k] >= 0) return compile(sig, inner, count);
        }
        count = 0;  // a group of one is determined by its signature
    }
    const int a = count > 0 ? inner[0] : -1, b = count > 1 ? inner[1] : -1;
    const unsigned h = hash(sig, a, b);
    // as in Builder::signature
    constexpr unsigned tries = 4;
    for (unsigned i = 0; i < tries; i++) {
        Entry &entry = recent_[(h + i) % recent_.size()];
        if (entry.sig == sig && entry.a == a && entry.b == b) return entry.group;
        if (entry.sig >= 0 && i + 1 < tries) continue;
        const int both[2] = {a, b};
        const int group = compile(sig, both, 2);
        entry = {sig, a, b, group};
        return group;
    }
    return -1;  // not reached
}

int Groups::compile(int sig, const int *inner, int count) {
    std::vector<int> key = {sig};
    for (int k = 0; k < count; k++) key.push_back(inner[k]);
    const auto [index, fresh] = numbers_.number(key);
    if (!fresh) return index;
    const Signature &s = signatures_[sig];
    Group group;
    group.sig = sig;
    group.row = s.row();
    group.counted = s.nargs >= 0;
    if (s.op == Op::Lstm) {
        add_lstm(group, sig, s);
    } else if (s.op == Op::Compound) {
        add_compound(group, signatures_, signatures_.compounds[s.kind]);
    } else {
        Step root = step_of(sig, s);
        if (s.op == Op::Affine) root.params.resize(1), root.firsts.clear();
        for (int k = 0; k < s.nargs; k++) {
            const int child = k < count ? inner[k] : -1;
            if (s.op == Op::Affine)
                add_terms(group, root, s.params[k + 1],
                          child < 0 ? std::vector<int>{s.widths[k]} : all_[child].outside);
            else root.in.push_back(child >= 0 ? append(group, all_[child]) : column(group, s.widths[k]));
        }
        group.steps.push_back(std::move(root));
    }
    group.inner.assign(inner, inner + count);
    group.inner.resize(s.nargs < 0 ? 0 : s.nargs, -1);
    place(group);
    all_.push_back(std::move(group));
    return index;
}

void Groups::place(Group &group) const {
    const int count = static_cast<int>(group.steps.size());
    constexpr int several = -2;
    std::vector<int> consumer(count, -1);
    std::vector<char> kept(count, 0), multiplied(count, 0);
    for (int i = 0; i < count; i++) {
        const Step &step = group.steps[i];
        const Op op = signatures_[step.sig].op;
        group.by_rows &= step.kind == Step::Kind::Affine
                             ? std::all_of(step.in.begin(), step.in.end(), [](Operand in) { return in.outside; })
                             : op == Op::Unary || op == Op::Binary;
        for (std::size_t k = 0; k < step.in.size(); k++) {
            if (step.in[k].outside) continue;
            const int a = step.in[k].index;
            consumer[a] = consumer[a] == -1 ? i : several;
            multiplied[a] |= step.kind == Step::Kind::Affine;
            kept[a] |= step.kind != Step::Kind::Op || reads_argument(signatures_[step.sig], static_cast<int>(k));
        }
        kept[i] |= step.kind == Step::Kind::Affine || (step.kind == Step::Kind::Op && by_output(signatures_[step.sig]));
    }
    group.kept = group.scratch = group.grad_kept = group.grad_scratch = 0;
    for (int i = count - 1; i >= 0; i--) {  // the consumer first, since a product may share its memory
        Step &step = group.steps[i];
        const bool root = i == count - 1;
        const Signature &s = signatures_[step.sig];
        if (root || i == group.memory) {
            step.home = step.grad_home = Step::Home::Root;
            step.at = step.grad_at = root ? 0 : signatures_[group.sig].width;
            // losses keep probabilities, and random nodes their numbers, before all other kept values
            if (s.op == Op::PickNegLogSoftmax) group.kept = s.widths[0];
            if (s.op == Op::Drawn) group.kept = s.width / s.params[5];
            continue;
        }
        const Step *user = consumer[i] >= 0 ? &group.steps[consumer[i]] : nullptr;
        const bool sums = step.kind == Step::Kind::Affine || s.op == Op::Multiply || s.op == Op::AddColumn;
        const bool shares = sums && user && user->kind == Step::Kind::Op && by_output(signatures_[user->sig]) &&
                            signatures_[user->sig].op == Op::Unary;
        if (shares) {
            // activated in place, since the previous value is not read
            step.home = user->home;
            step.at = user->at;
        } else if (kept[i]) {
            step.home = Step::Home::Kept;
            step.at = group.kept;
            group.kept += step.width;
        } else {
            step.home = Step::Home::Scratch;
            step.at = group.scratch;
            group.scratch += step.width;
        }
        const bool lasting = step.kind == Step::Kind::Affine || multiplied[i];
        step.grad_home = lasting ? Step::Home::Kept : Step::Home::Scratch;
        if (user && user->kind == Step::Kind::Op && is_sum(signatures_[user->sig]) &&
            !(lasting && user->grad_home == Step::Home::Scratch)) {
            // the gradient of a sum is that of its terms
            step.grad_home = user->grad_home;
            step.grad_at = user->grad_at;
            continue;
        }
        int &grads = lasting ? group.grad_kept : group.grad_scratch;
        step.grad_at = grads;
        grads += step.width;
    }
    std::vector<char> begun(count, 0);  // gradients, in the order of the backward pass
    if (group.memory >= 0) begun[group.memory] = 1;
    for (int i = count - 1; i >= 0; i--) {
        for (Operand &operand : group.steps[i].in) {
            if (!operand.outside) operand.add = std::exchange(begun[operand.index], 1);
        }
    }
}

}  // namespace dpmodule::autobatch
