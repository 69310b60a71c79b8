// Parameters and tables of Python. Their storages provide the addresses of values and gradients, which are checked
// before every pass, because a tensor may have been modified or replaced.
#pragma once

#include <deque>

#include "python_state.hpp"

namespace dpmodule::autobatch {

class PythonParameters {
  public:
    explicit PythonParameters(Engine &engine) : engine_(engine) {}
    PythonParameters(const PythonParameters &) = delete;

    // Adds a parameter and returns its number; `reference` is a weak reference to its storage.
    int add_parameter(const std::vector<int> &dims, PyObject *reference, bool is_updated);
    int add_table(const std::vector<int> &dims, PyObject *reference);  // the first dimension counts rows
    // The node of a parameter; -1 if its value is not float32 on the CPU.
    int parameter(int number);
    // Called when a row is looked up, to keep the table as long as the graph.
    void hold_table(int number) { tables_.enter(number); }

    // Update the addresses and versions of values.
    void follow();
    // The same, and prepare gradients for a backward pass.
    void begin_pass();
    // (the gradient before the last pass or None, its version after it), None: the pass had no gradient for it.
    PyObject *passed(int number) const;
    void set_gradient(int number, float *at);
    // Detach from all gradients.
    void close();
    // {reference: last known version}
    PyObject *marks();
    std::vector<int> used_parameters() const;
    const std::vector<int> &used_tables() const { return tables_.entered; }

    void renew();  // releases the storages
    int traverse(visitproc visit, void *arg);
    void clear();

  private:
    // Address and version of a tensor, which change if it is modified or replaced.
    struct Mark {
        unsigned long long place = 0;
        long long version = -1;
        bool operator==(const Mark &other) const { return place == other.place && version == other.version; }
    };
    struct Known {
        PyObject *reference;
        std::vector<int> dims;
        bool is_updated;
        PyObject *storage;          // owned while it is in a graph
        PyObject *packed;           // a copy of a non-contiguous value
        std::vector<float> before;  // the gradient before the last pass, empty for none
        Mark seen, left;            // of the value; of the gradient, by the last pass
    };
    struct All {
        std::deque<Known> known;   // a deque, for stable addresses
        std::vector<int> entered;  // numbers of the parameters in this graph
        int add(PyObject *reference, const std::vector<int> &dims, bool is_updated);
        PyObject *enter(int number);  // returns the borrowed storage
    };
    static Mark mark_of(PyObject *tensor);
    static PyObject *pair(const Mark &mark);
    bool is_here(int number) const;  // false if it was removed with its part of the graph
    bool has_changed(Known &known, PyObject *tensor);
    bool look(Known &known, float *&place);
    void open(int number);
    void place_again();

    Engine &engine_;
    All params_, tables_;
};

extern PythonParameters *parameters_of_current;

}  // namespace dpmodule::autobatch
