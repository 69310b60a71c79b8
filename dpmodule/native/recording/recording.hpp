// Recording of torch operations for automatic batching of PyTorch programs.
//
// A call of torch becomes a node. Its key has the function, the grad mode, the shape and dtype of every tensor and all
// other arguments; equal keys share one `Call`, which Python describes when it is first seen. A view needs no node: a
// value is a range of the flat memory of an operation's result, or of a tensor of the program (a leaf).
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../python.hpp"

namespace dpmodule::recording {

// A counted reference to an object.
class Reference {
  public:
    Reference() = default;
    explicit Reference(PyObject *object) : object_(object) {}
    Reference(Reference &&other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Reference &operator=(Reference &&other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    ~Reference() { Py_XDECREF(object_); }
    PyObject *get() const { return object_; }
    explicit operator bool() const { return object_; }
    PyObject *release() { return std::exchange(object_, nullptr); }

  private:
    PyObject *object_ = nullptr;
};

// Shape, dtype and device of a tensor; equal ones have one number.
struct Spec {
    PyObject *shape, *dtype, *device;
    PyObject *stand_in;  // a tensor without memory
    bool needs_grad;
    int dims;
    std::int64_t numel;  // number of elements
    std::int64_t first;  // size of the first dimension; 1 for a scalar
    bool is_on_cpu;
    char number;    // of a number in memory of the CPU: f, d, l, i or ? as in Python's struct; 0 for others
    int item_size;  // of a number, in bytes
};

// A result of a call: an output of its node, or a range of an operand (source >= 0).
struct Result {
    int spec;
    int source;
    std::int64_t offset;
    int base;  // the operand that shares its memory in torch; -1 if none does, or if it is `source` itself
};

// Everything that calls with equal keys share.
struct Call {
    enum class Kind { eager, constant, values } kind = Kind::eager;
    int group = -1;            // a number of Python; -1 if all results are ranges of operands
    bool is_single = true;     // one value, not a tuple of values
    PyObject *pack = nullptr;  // makes the result from the tuple of values; nullptr for a tuple
    PyObject *constant = nullptr;
    std::vector<Result> results;
};

using Key = std::vector<std::int64_t>;

struct KeyHash {
    std::size_t operator()(const Key &key) const noexcept {
        std::uint64_t hash = 0x9E3779B97F4A7C15ull;
        for (const std::int64_t each : key) {
            hash = (hash ^ static_cast<std::uint64_t>(each)) * 0xD6E8FEB86659FD93ull;
            hash ^= hash >> 32;
        }
        return static_cast<std::size_t>(hash);
    }
};

// How a function is treated: see RECORD and the others in autobatch/pytorch/calls.py.
enum class Treatment : long { record, eager, in_place, read, attribute, constant, like };

// What all recordings of the process share.
struct Table {
    std::vector<Spec> specs;
    std::vector<Treatment> treatments;  // of each function
    std::vector<PyObject *> functions;
    int recorders = 0;   // whose nodes refer to calls
    int generation = 0;  // of `calls`
    std::unordered_map<Key, Call, KeyHash> calls;
    PyObject *function_numbers = nullptr, *constant_numbers = nullptr, *spec_numbers = nullptr;
};

// The value of an operand: a range of a node's output, or of a leaf (node < 0: leaf number ~node).
struct Operand {
    int node, output;
    std::int64_t offset;
    int spec;
};

struct Node {
    const Call *call;
    int partition;  // nodes of one partition may run together
    int first;      // of its operands
    int count;
    int batch = -1;        // the batch that computed it
    std::int64_t row = 0;  // within the batch: number of the node, or first of its rows in a ragged batch
    int handles = 0;       // values of the program that refer to it
    int uses = 0;          // operands of other nodes
};

struct Leaf {
    PyObject *tensor;
    int spec;
    bool is_parameter;  // calls with other parameters never run together
    bool is_contiguous;
    bool has_grad_calls;  // calls that may have a gradient read it
    bool is_own;          // a value of the recording alone is this tensor
    bool is_constant;     // several values of the program are the same tensor, which must not be changed
};

// Results of one call of torch for many nodes.
struct Batch {
    std::vector<PyObject *> outputs;
    std::vector<std::int64_t> sizes;  // of each output, in elements
    std::vector<const char *> data;   // memory of each output
    bool is_ragged;                   // rows of the first dimension one after the other
    bool is_shared;                   // all nodes have the same result
};

struct PlaceObject;
struct Cells;

// What is recorded since the last restart.
struct Recording {
    std::vector<Node> nodes;
    std::vector<Operand> operands;
    std::vector<Leaf> leaves;
    std::vector<Batch> batches;
    std::unordered_map<PyObject *, int> leaf_numbers;
    std::unordered_map<Key, int, KeyHash> constants;  // leaves, by call
    std::unordered_map<Key, int, KeyHash> partition_numbers;
    std::vector<std::vector<int>> planned;  // nodes of each batch to run
    std::vector<int> run_of_node, level;    // of planned nodes; -1 and 0 between plans
};

// dpmodule._native.Recorder: the recording of one `batching` block, and its mode on torch's stack of function modes.
struct RecorderObject : PyObject, Recording {
    PlaceObject *places;  // of all values of the program that refer to the recording
    PyObject *owner;      // the Python object that computes
    std::size_t recorded;
    std::size_t views;     // places with a view
    unsigned long thread;  // the recording's thread
    Py_ssize_t modes;      // function modes of the thread while it is the innermost one
    Cells *cells;          // calls of modules and functions that are recorded as one
    bool is_traced;        // calls are those of the body of a cell, with arguments that have no values
    bool is_suspended;     // calls may come from the body of an autograd.Function, which is not recorded
};

// dpmodule._native.RecordedPlace: the place of the value of a tensor that is not computed yet.
struct PlaceObject {
    PyObject_HEAD RecorderObject *recorder;  // nullptr after the end of the recording
    Operand place;
    bool has_views;  // its memory is, or was, that of other values, too
    PyObject *view;  // for views that are not a range of their base, (base, function, args, kwargs, output); or nullptr
    PyObject *value;  // the tensor, which owns this object
    PlaceObject *next, *previous;
};

extern Table table;

// The arguments of a call as a tuple; empty with an exception.
inline Reference tuple_of_arguments(PyObject *const *args, std::size_t count) {
    return Reference(tuple_of(count, [&](std::size_t i) { return Py_NewRef(args[i]); }));
}

// The keyword arguments of a vectorcall as a dict; empty if there are none, and with an exception.
Reference keywords_of(PyObject *names, PyObject *const *items);

// The descriptor protocol of functions.
PyObject *bound_to(PyObject *self, PyObject *object, PyObject *);

// Record a call, or run it where it cannot be recorded. Returns a new reference.
PyObject *call_function(RecorderObject *self, int function, PyObject *const *args, std::size_t count,
                        PyObject *keywords);

// Number of the nodes that a node of a call may run with.
int partition_of(RecorderObject *self, const Call &call, const Operand *operands, int count);

// The recording of this thread; nullptr if there is none.
RecorderObject *active_recorder();

// The open recordings, by thread: a block may be closed in another thread than its own.
extern std::unordered_map<unsigned long, RecorderObject *> active_recorders;

// Stop tracing a cell whose body does more than to record calls: nullptr, with an exception.
PyObject *abort_trace();

// Whether a call may be a part of a cell; false with an exception.
bool fits_trace(const RecorderObject *self, Treatment treatment, PyObject *const *args, std::size_t count);

void forget_cells(RecorderObject *self);

int function_number(PyObject *function);

// Read the shape and dtype of a leaf again, after a change in place, and the need of gradients of values that refer to
// it; false with an exception.
bool refresh_leaf(RecorderObject *self, int number);

// Number of a tensor of the program; -1, perhaps with an exception, if it is not an ordinary one.
int leaf_number(RecorderObject *self, PyObject *tensor);

// The number of a value that is computed: a new reference; nullptr, without an exception, if it is not one number in
// memory of the CPU.
PyObject *number_of(const PlaceObject *place);

// Make a tensor without memory for a value: a new reference.
PyObject *make_value(RecorderObject *self, Operand place);

// The place of an object of the class of values; nullptr, without an exception, if it has none.
PlaceObject *place_of_value(PyObject *value);

// Set the view of a place; steals the reference.
void set_view(PlaceObject *place, PyObject *view);

// Forget that a value refers to a recording.
void unlink(PlaceObject *place);

// The start of an operand in the flat memory of its batch or leaf; -1 if it is not computed.
std::int64_t place_of(const RecorderObject *self, const Operand &operand);

// Whether the operands of two nodes of a partition have equal shapes.
bool equal_shapes(const RecorderObject *self, int a, int b);

// Fill `planned` with the batches that compute the given nodes (all that values refer to, if there are none).
void plan(RecorderObject *self, const std::vector<int> &wanted);

}  // namespace dpmodule::recording
