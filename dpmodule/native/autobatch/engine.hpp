// Forward and backward over a growing graph: segments, computed when a value is asked for.
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
    // Go on behind the first node that has not been computed, since it cannot be.
    void skip();
    // Gradients of `node`, one number, into every node before it and into parameters and tables (added there).
    // With `full` inputs receive theirs as well.
    void backward(int node, bool full);
    // Add the gradient of a node, after `backward`, to so many numbers; false if none is kept.
    bool add_gradient(int node, float *sum) const;
    bool is_repeated(int node);  // are several equal nodes computed as one, which has the gradients of all
    void renew();
    int computed() const { return computed_; }
    bool busy() const { return busy_; }  // at work; what a run calls must leave the engine alone
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
    // Nobody may come in again while a run calls somebody else's code.
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
    int root_ = -1;  // the node that `backward` began at
    Runner runner_;
    Times times_;
    bool busy_ = false;
};

}  // namespace dpmodule::autobatch
