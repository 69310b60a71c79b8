// What the Python types of the engine share: which engine is current, and how expressions are made.
#pragma once

#include <vector>

#include "builder.hpp"
#include "engine.hpp"
#include "python.hpp"

namespace dpmodule::autobatch {

// Thrown where Python has raised; whoever stands at the border returns the error indicator to Python.
struct PythonError {};

struct NodeObject {
    PyObject_HEAD int node;
    int version;
    // For tables of rows that may be looked up: the number in the engine `serial`; 0 is none yet. For parameters: -2 less
    // their number. -1 for all else.
    int table;
    union {
        int serial;
        int place;  // of a plain expression: in `Handles`
    };
};

// All plain expressions there are, so that the values that somebody may still ask for are known.
class Handles {
  public:
    void enter(NodeObject *handle) {
        handle->place = static_cast<int>(all_.size());
        all_.push_back(handle);
    }
    void leave(const NodeObject *handle) {
        all_[handle->place] = all_.back();
        all_[handle->place]->place = handle->place;
        all_.pop_back();
    }
    void clear() { all_.clear(); }
    const std::vector<NodeObject *> &all() const { return all_; }

  private:
    std::vector<NodeObject *> all_;
};
extern Handles handles;

// The turn in which this thread has last begun to add to a graph: one load, where Python's own number of a thread is a call.
// A library that is loaded late finds room beside the stack of a thread for so little with glibc; others look it up.
#ifdef __GLIBC__
#define DPMODULE_NEAR [[gnu::tls_model("initial-exec")]]
#else
#define DPMODULE_NEAR
#endif
DPMODULE_NEAR inline thread_local std::uint64_t own_turn = 0;
#undef DPMODULE_NEAR

// The engine that fast functions add to; `engine` is nullptr where the graph under construction is not native.
struct Current {
    Engine *engine = nullptr;
    std::uint64_t turn = closed;  // of the thread which alone adds to it
    int version = -1;             // of the graph
    int serial = 0;               // of the engine
    PyTypeObject *expression = nullptr;
    PyTypeObject *input = nullptr;      // of inputs
    PyTypeObject *parameter = nullptr;  // of the parameter that has last entered a graph; nullptr for none yet
    PyObject *slow = nullptr;           // the class with the operators in Python
    // Is there a native graph, and this thread the one that adds to it?
    bool is_open() const { return own_turn == turn; }
    void open(Engine &engine_of_graph) {
        engine = &engine_of_graph;
        own_turn = turn = ++turns_;
    }
    void close() {
        engine = nullptr;
        turn = closed;
    }

  private:
    static constexpr std::uint64_t closed = ~std::uint64_t{0};  // no thread's
    std::uint64_t turns_ = 0;
};
extern Current current;

extern PyTypeObject *node_type;  // AutobatchNode

// A new handle of a node of the current graph.  The types were made here, of nothing but a NodeObject, so all is set.
inline PyObject *make_handle(PyTypeObject *type, int node) {
    NodeObject *made = PyObject_New(NodeObject, type);
    if (made) {
        made->node = node;
        made->version = current.version;
        made->table = -1;
        made->serial = 0;
    }
    return reinterpret_cast<PyObject *>(made);
}

// A new expression of an input of the current graph, whose value is never computed again.
inline PyObject *make_input(int node) { return make_handle(current.input, node); }

// A new expression for a node of the current graph.
inline PyObject *make_expression(int node) {
    PyObject *made = make_handle(current.expression, node);
    if (made) handles.enter(reinterpret_cast<NodeObject *>(made));
    return made;
}

// Is it an AutobatchNode?  Most of them are plain expressions or parameters, which tells sooner than their ancestors do.
inline bool is_node(PyObject *x) {
    return Py_IS_TYPE(x, current.expression) || Py_IS_TYPE(x, current.parameter) || PyObject_TypeCheck(x, node_type);
}

// The node of an operand, -1 if it is not an expression of the current graph (then the way in Python says what is wrong).
// Parameters enter the graph at their first use.
int enter(PyObject *x);
inline int node_of(PyObject *x) {
    if (!is_node(x)) return -1;
    const auto *object = reinterpret_cast<NodeObject *>(x);
    if (object->version == current.version && object->node < current.engine->graph.size()) return object->node;
    return enter(x);
}

// The node of an operand or None (-1); false where the slow way is needed.
inline bool optional(PyObject *x, int &node) {
    node = x == Py_None ? -1 : node_of(x);
    return x == Py_None || node >= 0;
}

// Python has raised: forget it, since the slow way will raise in its turn among the arguments.  Others than Exceptions, such
// as an interrupt, go on.
inline void leave_to_slow_way() {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) throw PythonError();
    PyErr_Clear();
}

// Raises an error of dpmodule.autobatch.errors.
inline void raise(const char *name, const char *text) {
    PyObject *errors = PyImport_ImportModule("dpmodule.autobatch.errors");
    PyObject *kind = errors ? PyObject_GetAttrString(errors, name) : nullptr;
    if (kind) PyErr_SetString(kind, text);
    Py_XDECREF(kind);
    Py_XDECREF(errors);
}

// The getter of an attribute that is an object, or nullptr for None.
template <class Object, PyObject *Object::*field>
PyObject *get_or_none(PyObject *self, void *) {
    PyObject *found = reinterpret_cast<Object *>(self)->*field;
    return Py_NewRef(found ? found : Py_None);
}

// The same for setting it, to a new reference.
inline void set_or_none(PyObject *&field, PyObject *value) {
    PyObject *kept = value == Py_None ? nullptr : value;
    Py_XINCREF(kept);
    Py_XSETREF(field, kept);
}

// Runs `body`, which returns a new reference; turns C++ exceptions into Python's.
template <class F>
PyObject *guarded(F body) noexcept {
    try {
        return body();
    } catch (const PythonError &) {
    } catch (const std::bad_alloc &) {
        PyErr_NoMemory();
    } catch (const TooLarge &error) {
        raise("ShapeError", error.what());
    } catch (const std::domain_error &error) {
        raise("ArgumentError", error.what());
    } catch (const std::exception &error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
}

// The builder of the current engine.
extern Builder *builder_of_current;
inline Builder &current_builder() { return *builder_of_current; }

// Nodes of a list or tuple; more than fit on the stack go to the heap.
class Nodes {
  public:
    // False: some are no expressions of this graph.
    bool read(PyObject *sequence) {
        if (!PyList_CheckExact(sequence) && !PyTuple_CheckExact(sequence)) return false;
        count = static_cast<int>(PySequence_Fast_GET_SIZE(sequence));
        if (count == 0) return false;
        if (count > few) {
            many_.resize(count);
            at = many_.data();
        }
        for (int i = 0; i < count; i++) {
            // entering a parameter may run Python, which may change a list
            if (i >= PySequence_Fast_GET_SIZE(sequence)) return false;
            at[i] = node_of(PySequence_Fast_GET_ITEM(sequence, i));
            if (at[i] < 0) return false;
        }
        return true;
    }
    // Of arguments, which are few.
    bool read(PyObject *const *arguments, Py_ssize_t number) {
        for (count = 0; count < number; count++) {
            if ((at[count] = node_of(arguments[count])) < 0) return false;
        }
        return true;
    }
    int count = 0;
    int *at = few_;

  private:
    static constexpr int few = 16;
    int few_[few];
    std::vector<int> many_;
};

}  // namespace dpmodule::autobatch
