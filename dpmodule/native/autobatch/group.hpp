// Fusion: operations that always occur together become one group, compiled once per pattern of signatures. A group is a
// tree: only the root's value may be used outside, and every inner node has one consumer, in the group. (Only a
// Compound's parts may have several, and two of them may be used outside.) Values needed by the backward pass are kept
// for each occurrence; the rest is in scratch space of one batch.
#pragma once

#include <array>
#include <vector>

#include "graph.hpp"

namespace dpmodule::autobatch {

// The source of a step's argument: another step of the group, or a column of external values.
struct Operand {
    bool outside;
    int index;
    bool add = false;  // its gradient already has other parts
};

struct Step {
    enum class Kind { Affine, Cell, Op };  // Cell: the gates of an LSTM; Op: see `sig`
    enum class Home { Root, Kept, Scratch };
    Kind kind;
    int sig;
    int width;
    std::vector<Operand> in;
    std::vector<int> params;    // Affine: bias or -1, then one weight per operand
    std::vector<int> firsts;    // Affine: the first column of each weight that is multiplied
    Home home = Home::Scratch;  // of the value
    int at = 0;                 // position in its home: in the row of the root, or an offset in floats per occurrence
    Home grad_home = Home::Scratch;
    int grad_at = 0;  // Kept: offset in the gradients of products, needed for weight gradients
};

struct Group {
    int sig;                    // of the root
    std::vector<int> inner;     // per argument of the root: the group of which it is the root, or -1
    std::vector<Step> steps;    // in order of computation, the root last
    std::vector<int> outside;   // width of each column
    int size = 1;               // nodes
    int row = 0;                // floats of the root's value
    int kept = 0, scratch = 0;  // floats per occurrence
    int grad_kept = 0, grad_scratch = 0;
    bool counted = true;  // false: the number of arguments differs (Sum, Call)
    bool by_rows =
        true;         // products of external operands, and elementwise steps that may follow for a few rows at a time
    int memory = -1;  // the step whose value follows the root's
};

// What the planner asks of every node, by signature.
struct Traits {
    Op op;
    bool of_matrices;
    bool may_hold;                       // may contain inner nodes
    bool is_inner, is_inner_of_vectors;  // may be fused into its only consumer: into any, or unless that is of matrices
    bool is_spread;                      // a concatenation: products read its operands instead of its value
};

Step step_of(int sig, const Signature &s);
inline bool is_sum(const Signature &s) { return s.op == Op::Binary && s.kind == static_cast<int>(Binary::Add); }

class Groups {
  public:
    explicit Groups(const Signatures &signatures) : signatures_(signatures) {}
    // The group of a node whose arguments are roots of the groups `inner` (-1: external).
    int of(int sig, const int *inner, int count) {
        const int a = count > 0 ? inner[0] : -1, b = count > 1 ? inner[1] : -1;
        const Entry &entry = recent_[hash(sig, a, b)];
        if (count <= 2 && entry.sig == sig && entry.a == a && entry.b == b) return entry.group;
        return find(sig, inner, count);
    }
    // Of all signatures so far.
    const Traits *traits();
    const Group &operator[](int index) const { return all_[index]; }
    int size() const { return static_cast<int>(all_.size()); }

    static constexpr int largest = 24;

  private:
    int find(int sig, const int *inner, int count);
    int compile(int sig, const int *inner, int count);
    void place(Group &group) const;

    struct Entry {
        int sig = -1, a = -1, b = -1, group = -1;
    };
    const Signatures &signatures_;
    Interner numbers_;
    std::vector<Group> all_;
    static constexpr unsigned places = 1024;
    static unsigned hash(int sig, int a, int b) {
        return static_cast<unsigned>(sig * 31 + a * 1009 + b * 9176) % places;
    }
    std::array<Entry, places> recent_;  // for one or two arguments, the hot case
    std::vector<Traits> traits_;
};

// A step of a recurrent network as one node (compound.cpp): its operations are added once to placeholders of its
// operands, recorded and removed. From then on one node represents them all, and its group contains even those with
// several consumers.

// The number of the compound of the nodes from `first` on: placeholders, then operations, the last of which is
// `output`; `memory` may be -1. -1 if groups do not support an operation.
int remember_compound(Graph &graph, int first, int operands, int output, int memory);

void add_compound(Group &group, const Signatures &signatures, const Compound &compound);

}  // namespace dpmodule::autobatch
