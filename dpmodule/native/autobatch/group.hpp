// Fusion: operations that always stand together become one group, compiled once per pattern of signatures.
//
// A group is a tree: its root is the only value that others may use, every inner node has one consumer, in the group.
// (Only the parts of a Compound may have several, and two of them be used by others.)
// What the backward pass will need is kept for each occurrence; the rest lives in scratch space of one batch.
#pragma once

#include <vector>

#include "graph.hpp"

namespace dpmodule::autobatch {

// Where a step takes an argument from: another step of the group, or a column of values from outside.
struct Operand {
    bool outside;
    int index;
    bool add = false;  // its gradient has parts already when this one is computed
};

struct Step {
    enum class Kind { Affine, Cell, Op };  // Cell: the gates of an LSTM; Op: see `sig`
    enum class Home { Root, Kept, Scratch };
    Kind kind;
    int sig;
    int width;
    std::vector<Operand> in;
    std::vector<int> params;    // Affine: bias or -1, then one weight per operand
    Home home = Home::Scratch;  // of the value
    int at = 0;                 // where in its home: in the row of the root, or behind so many floats per occurrence
    Home grad_home = Home::Scratch;
    int grad_at = 0;  // Kept: among the gradients of products, which weight gradients need at the end
};

struct Group {
    int sig;                    // of the root
    std::vector<int> inner;     // per argument of the root: the group it is the root of, or -1
    std::vector<Step> steps;    // in order of computation, the root last
    std::vector<int> outside;   // width of each column
    int size = 1;               // nodes
    int row = 0;                // floats of the root's value
    int kept = 0, scratch = 0;  // floats per occurrence
    int grad_kept = 0, grad_scratch = 0;
    bool counted = true;  // false: the number of arguments differs (Sum, Call)
    int memory = -1;      // the step whose value lies behind the root's
};

Step step_of(int sig, const Signature &s);

class Groups {
  public:
    explicit Groups(const Signatures &signatures) : signatures_(signatures) {}
    // The group of a node whose arguments are roots of the groups `inner` (-1: from outside).
    int of(int sig, const int *inner, int count);
    const Group &operator[](int index) const { return all_[index]; }
    int size() const { return static_cast<int>(all_.size()); }

    // May a node of signature `s` be computed in the group of its only consumer; may it hold inner nodes.
    static bool may_be_inner(const Signature &s, const Signature &consumer);
    static bool may_hold(const Signature &s);
    static constexpr int largest = 24;

  private:
    int compile(int sig, const int *inner, int count);
    void place(Group &group) const;

    struct Entry {
        int sig = -1, a = -1, b = -1, group = -1;
    };
    const Signatures &signatures_;
    Interner numbers_;
    std::vector<Group> all_;
    std::vector<Entry> recent_ = std::vector<Entry>(1024);  // for one or two arguments, the hot case
};

// A step of a recurrent network as one node (compound.cpp): its operations are added once to stand-ins for its operands,
// remembered, and taken back. From then on one node stands for all of them: it is made at once, and its group has them all,
// also those with several consumers.

// The number of what stands in the graph from node `first` on: so many stand-ins, then operations, the last of which is
// `output`; `memory` -1: there is none.  -1 if something is among them that groups do not hold.
int remember_compound(Graph &graph, int first, int operands, int output, int memory);

void add_compound(Group &group, const Signatures &signatures, const Compound &compound);

}  // namespace dpmodule::autobatch
