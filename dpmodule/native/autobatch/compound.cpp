#include "group.hpp"

namespace dpmodule::autobatch {
namespace {

bool fits(const Signature &s) {
    return !s.is_matrix && (s.op == Op::Affine || s.op == Op::Unary || s.op == Op::Binary);
}

// A part as a step, with the part's numbering of operands.
struct DraftStep {
    Step step;
    int uses = 0;
    bool gone = false;  // merged into a later step

    bool is_affine() const { return step.kind == Step::Kind::Affine; }
    bool has_bias() const { return step.params[0] >= 0; }
};

// The sum of two products without other consumers becomes one product with more terms.
void join(DraftStep &sum, DraftStep &a, DraftStep &b) {
    DraftStep &first = b.has_bias() ? b : a, &second = b.has_bias() ? a : b;  // the bias belongs to the first term
    sum.step.kind = Step::Kind::Affine;
    sum.step.params = first.step.params;
    sum.step.params.insert(sum.step.params.end(), second.step.params.begin() + 1, second.step.params.end());
    sum.step.firsts.assign(sum.step.params.size() - 1, 0);
    sum.step.in = first.step.in;
    sum.step.in.insert(sum.step.in.end(), second.step.in.begin(), second.step.in.end());
    a.gone = b.gone = true;
}

std::vector<DraftStep> drafts_of(const Signatures &signatures, const Compound &compound) {
    std::vector<DraftStep> all;
    for (const Compound::Part &part : compound.parts) {
        DraftStep draft{step_of(part.sig, signatures[part.sig])};
        for (int a : part.args) {
            const bool outside = a < compound.operands;
            draft.step.in.push_back({outside, outside ? a : a - compound.operands});
            if (!outside) all[a - compound.operands].uses++;
        }
        all.push_back(std::move(draft));
    }
    if (compound.memory >= 0) all[compound.memory].uses++;
    return all;
}

}  // namespace

int remember_compound(Graph &graph, int first, int operands, int output, int memory) {
    const int begin = first + operands, end = graph.size();
    if (output != end - 1 || output < begin || (memory >= 0 && memory < begin) || memory == output) return -1;
    Compound found;
    found.operands = operands;
    found.memory = memory < 0 ? -1 : memory - begin;
    std::vector<char> used(graph.size() - first, 0);
    for (int node = begin; node < end; node++) {
        if (!fits(graph.signature(node))) return -1;
        Compound::Part part{graph.nodes[node].sig, {}};
        for (int i = 0; i < graph.nodes[node].count; i++) {
            const int a = graph.begin(node)[i] - first;
            if (a < 0) return -1;  // not an operand or a part
            part.args.push_back(a);
            used[a] = 1;
        }
        found.parts.push_back(std::move(part));
    }
    used[output - first] = 1;
    if (memory >= 0) used[memory - first] = 1;
    for (int node = begin; node < end; node++) {
        if (!used[node - first]) return -1;  // it would get no gradient
    }
    const int shape = graph.signature(output).shape, width = graph.signature(output).width;
    if (memory >= 0 && graph.signature(memory).shape != shape) return -1;
    std::vector<Compound> &all = graph.signatures.compounds;
    Signature s(Op::Compound, static_cast<int>(all.size()), shape, {});
    s.further = memory < 0 ? 0 : width;
    s.nargs = operands;
    for (int k = 0; k < operands; k++) s.widths.push_back(graph.signature(first + k).width);
    found.sig = graph.signatures.add(s);
    if (memory >= 0) found.memory_sig = graph.signatures.add(Signature(Op::View, 0, shape, {width}));
    all.push_back(std::move(found));
    return s.kind;
}

void add_compound(Group &group, const Signatures &signatures, const Compound &compound) {
    group.outside = signatures[compound.sig].widths;
    group.size = static_cast<int>(compound.parts.size());
    std::vector<DraftStep> all = drafts_of(signatures, compound);
    for (std::size_t i = 0; i < all.size(); i++) {
        const std::vector<Operand> in = all[i].step.in;
        if (!is_sum(signatures[compound.parts[i].sig]) || in[0].outside || in[1].outside || in[0].index == in[1].index)
            continue;
        DraftStep &a = all[in[0].index], &b = all[in[1].index];
        if (a.is_affine() && b.is_affine() && a.uses == 1 && b.uses == 1 && !(a.has_bias() && b.has_bias()))
            join(all[i], a, b);
    }
    std::vector<int> place(all.size(), -1);
    for (std::size_t i = 0; i < all.size(); i++) {
        if (all[i].gone) continue;
        place[i] = static_cast<int>(group.steps.size());
        for (Operand &operand : all[i].step.in) {
            if (!operand.outside) operand.index = place[operand.index];
        }
        group.steps.push_back(std::move(all[i].step));
    }
    if (compound.memory >= 0) group.memory = place[compound.memory];
}

}  // namespace dpmodule::autobatch
