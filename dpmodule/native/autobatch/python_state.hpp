// Shared by the Python types of the engine: the current engine, and the creation of expressions.
#pragma once

#include <vector>

#include "builder.hpp"
#include "engine.hpp"
#include "python.hpp"

namespace dpmodule::autobatch {

// Thrown after a Python error; the outermost function returns the error to Python.
struct PythonError {};

struct NodeObject {
    PyObject_HEAD int node;
    int version;
    // For tables: the number in the engine `serial`, or 0. For parameters: -2 minus their number. Otherwise -1.
    int table;
    union {
        int serial;
        int place;  // of a plain expression: index in `Handles`
    };
};

// All existing plain expressions, whose values may still be requested.
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

// Memory of freed expressions for the next ones, since graphs have tens of thousands: at most two megabytes.
class SpareMemory {
  public:
    // Uninitialized memory for a NodeObject, or nullptr if the system has none left.
    void *take() { return count_ ? free_[--count_] : PyObject_Malloc(sizeof(NodeObject)); }
    void give(void *memory) {
        if (count_ < most) free_[count_++] = memory;
        else PyObject_Free(memory);
    }

  private:
    static constexpr std::size_t most = 1 << 16;
    std::size_t count_ = 0;
    void *free_[most];
};
extern SpareMemory spare_memory;

// The turn in which this thread last started adding to a graph: one load, while Python's thread number needs a call.
// With glibc, such small data of a late-loaded library fits into static thread-local storage.
#ifdef __GLIBC__
#define DPMODULE_NEAR [[gnu::tls_model("initial-exec")]]
#else
#define DPMODULE_NEAR
#endif
DPMODULE_NEAR inline thread_local std::uint64_t own_turn = 0;
#undef DPMODULE_NEAR

// The engine that fast functions add to; `engine` is nullptr if the graph under construction is not native.
struct Current {
    Engine *engine = nullptr;
    std::uint64_t turn = closed;  // of the owner thread
    int version = -1;             // of the graph
    int serial = 0;               // of the engine
    PyTypeObject *expression = nullptr;
    PyTypeObject *input = nullptr;      // of inputs
    PyTypeObject *parameter = nullptr;  // of the parameter that last entered a graph; may be nullptr
    PyObject *fallback = nullptr;       // the class with the operators in Python
    // True if there is a native graph owned by this thread.
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
    static constexpr std::uint64_t closed = ~std::uint64_t{0};  // never the turn of a thread
    std::uint64_t turns_ = 0;
};
extern Current current;

extern PyTypeObject *node_type;  // AutobatchNode

// A new handle of a node of the current graph. The types consist only of a NodeObject, so all fields are set.
inline PyObject *make_handle(PyTypeObject *type, int node) {
    void *memory = spare_memory.take();
    if (!memory) return PyErr_NoMemory();
    PyObject *made = PyObject_Init(static_cast<PyObject *>(memory), type);
    auto *handle = reinterpret_cast<NodeObject *>(made);
    handle->node = node;
    handle->version = current.version;
    handle->table = -1;
    handle->serial = 0;
    return made;
}

// A new expression of an input, whose value is never recomputed.
inline PyObject *make_input(int node) { return make_handle(current.input, node); }

// A new expression for a node of the current graph.
inline PyObject *make_expression(int node) {
    PyObject *made = make_handle(current.expression, node);
    if (made) handles.enter(reinterpret_cast<NodeObject *>(made));
    return made;
}

// True for an AutobatchNode; exact types are checked first, since most are plain expressions or parameters.
inline bool is_node(PyObject *x) {
    return Py_IS_TYPE(x, current.expression) || Py_IS_TYPE(x, current.parameter) || PyObject_TypeCheck(x, node_type);
}

// The node of an operand, -1 if it is not an expression of the current graph (Python then raises the error). Parameters
// enter the graph on first use.
int enter(PyObject *x);
inline int node_of(PyObject *x) {
    if (!is_node(x)) return -1;
    const auto *object = reinterpret_cast<NodeObject *>(x);
    if (object->version == current.version && object->node < current.engine->graph.size()) return object->node;
    return enter(x);
}

// The node of an operand or None (-1); false to fall back to Python.
inline bool optional(PyObject *x, int &node) {
    node = x == Py_None ? -1 : node_of(x);
    return x == Py_None || node >= 0;
}

// Clear a Python error, which the fallback will raise again in the order of arguments. Other exceptions, such as an
// interrupt, are propagated.
inline void fall_back_to_python() {
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

// Getter of an object attribute, where nullptr means None.
template <class Object, PyObject *Object::*field>
PyObject *get_or_none(PyObject *self, void *) {
    PyObject *found = reinterpret_cast<Object *>(self)->*field;
    return Py_NewRef(found ? found : Py_None);
}

// Setter of an object attribute.
inline void set_or_none(PyObject *&field, PyObject *value) {
    PyObject *kept = value == Py_None ? nullptr : value;
    Py_XINCREF(kept);
    Py_XSETREF(field, kept);
}

// Runs `body`, which returns a new reference; converts C++ exceptions to Python exceptions.
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

// Nodes of a list or tuple, on the stack if they fit, else on the heap.
class Nodes {
  public:
    // False: some are not expressions of this graph.
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
    // From call arguments, which are few.
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
