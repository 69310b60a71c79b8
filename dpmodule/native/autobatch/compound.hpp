// A step of a recurrent network as one node.
//
// The step's operations are added once to stand-ins for its operands, remembered, and taken back.  From then on one node
// stands for all of them: it is made at once, and its group has them all, also those with several consumers.
#pragma once

#include "graph.hpp"
#include "group.hpp"

namespace dpmodule::autobatch {

// The number of what stands in the graph from node `first` on: so many stand-ins, then operations, the last of which is
// `output`; `memory` -1: there is none.  -1 if something is among them that groups do not hold.
int remember_compound(Graph &graph, int first, int operands, int output, int memory);

void add_compound(Group &group, const Signatures &signatures, const Compound &compound);

}  // namespace dpmodule::autobatch
