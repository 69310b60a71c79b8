// Forward and backward over a growing graph: segments, computed when a value is requested.
#pragma once

#include <deque>

#include "runner.hpp"

namespace dpmodule::autobatch {

class Engine {
  public:
    explicit Engine(Caller *caller) : groups(graph.signatures), runner_(graph, groups, memory_, caller) {}
    Engine(const Engine &) = delete;

    Graph graph;
    Groups groups;
    bool batched = true, fuses = true;

    // Compute everything up to and including `node`; returns the node that holds its value.
    int forward(int node);
    // Skip the first node that has not been computed, because it failed.
    void skip();
    // Compute gradients of the scalar `node` for all earlier nodes, and add those of parameters and tables. With
    // `full`, inputs get gradients, too.
    void backward(int node, bool full);
    // Add the gradient of a node, after `backward`, to `to`; false if it is not kept.
    bool add_gradient(int node, float *sum) const;
    bool is_shared(int node);  // true if its gradient contains parts of other nodes
    void renew();
    int computed() const { return computed_; }
    bool busy() const { return busy_; }  // computing; callbacks must not use the engine
    void revert(int size, int computed);
    void keep_drawn();  // in graph.drawn
    void parameters_changed() { runner_.parameters_changed(); }

    const std::deque<Segment> &segments() const { return segments_; }
    struct Times {
        double schedule = 0, forward = 0, backward = 0;
    };
    const Times &times() const { return times_; }  // seconds since renew
    std::size_t bytes() const { return memory_.bytes() + graph.inputs.bytes(); }

  private:
    // Prevents reentry while a run calls user code.
    class Busy;
    void prepare_gradients(int node, bool full);
    void keep_remainders(int node);
    void forget(int computed);
    void mark_wanted(Segment &last, int node);
    void mark_producers(const Segment &consumer);
    Segment *segment_of(int node);

    Arena memory_;
    std::deque<Segment> segments_;
    int computed_ = 0;
    int root_ = -1;  // the root of `backward`
    Runner runner_;
    Times times_;
    bool busy_ = false;
};

}  // namespace dpmodule::autobatch
