// Parameters and tables of rows as Python holds them: their storages say where values and gradients lie. These are asked
// before every pass, because somebody may have written to a tensor, or put another one in its place.
#pragma once

#include <deque>

#include "python_state.hpp"

namespace dpmodule::autobatch {

class PythonParameters {
  public:
    explicit PythonParameters(Engine &engine) : engine_(engine) {}
    PythonParameters(const PythonParameters &) = delete;

    // The number of a new one; `reference` is a weak reference to its storage.
    int add_parameter(const std::vector<int> &dims, PyObject *reference, bool is_updated);
    int add_table(const std::vector<int> &dims, PyObject *reference);  // the first dimension counts rows
    // The node of a parameter; -1: its value is not of float32 on the CPU.
    int parameter(int number);
    // A row of it is looked up: it stays as long as the graph.
    void hold_table(int number) { tables_.enter(number); }

    // Look where values lie, and whether they have changed.
    void follow();
    // Likewise, and let a backward pass add to the gradients.
    void begin_pass();
    // (the numbers of the gradient before the last pass or None, the mark that it left on the gradient), None: it had none for this one.
    PyObject *passed(int number) const;
    void set_gradient(int number, float *at);
    // Let nothing add to gradients any more.
    void close();
    // {reference: mark as it was seen last}
    PyObject *marks();
    std::vector<int> used_parameters() const;
    const std::vector<int> &used_tables() const { return tables_.entered; }

    void renew();  // storages may go
    int traverse(visitproc visit, void *arg);
    void clear();

  private:
    // What tells whether somebody has written to a tensor, or taken another one.
    struct Mark {
        unsigned long long place = 0;
        long long version = -1;
        bool operator==(const Mark &other) const { return place == other.place && version == other.version; }
    };
    struct Known {
        PyObject *reference;
        std::vector<int> dims;
        bool is_updated;
        PyObject *storage;          // while it is in a graph
        PyObject *packed;           // a copy of a value whose elements do not lie side by side
        std::vector<float> before;  // the gradient before the last pass, empty for none
        Mark seen, left;            // of the value; of the gradient, by the last pass
    };
    struct All {
        std::deque<Known> known;   // which stay where they are
        std::vector<int> entered;  // the numbers of those in this graph
        int add(PyObject *reference, const std::vector<int> &dims, bool is_updated);
        PyObject *enter(int number);  // its storage, which is borrowed
    };
    static Mark mark_of(PyObject *tensor);
    static PyObject *pair(const Mark &mark);
    bool is_here(int number) const;  // else it was taken back with its part of the graph
    bool has_changed(Known &known, PyObject *tensor);
    bool look(Known &known, float *&place);
    void open(int number);
    void place_again();

    Engine &engine_;
    All params_, tables_;
};

extern PythonParameters *parameters_of_current;

}  // namespace dpmodule::autobatch
