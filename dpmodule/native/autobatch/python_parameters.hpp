// Parameters and tables of Python. Their storages provide the addresses of values and gradients, which are checked
// before every pass, because a tensor may have been modified or replaced.
#pragma once

#include <deque>
#include <utility>

#include "python_state.hpp"

namespace dpmodule::autobatch {

// A new reference; nullptr with a Python error set.
class Owned {
  public:
    explicit Owned(PyObject *made) : made_(made) {
        if (!made) throw PythonError();
    }
    ~Owned() { Py_DECREF(made_); }
    Owned(const Owned &) = delete;
    operator PyObject *() const { return made_; }
    PyObject *release() { return Py_NewRef(made_); }

  private:
    PyObject *made_;
};

struct Names {
    PyObject *name(const char *text) { return PyUnicode_InternFromString(text); }
    PyObject *check_fits = name("check_fits"), *contiguous = name("contiguous"), *data_ptr = name("data_ptr"),
             *dtype = name("dtype");
    PyObject *gradient = name("gradient"), *is_contiguous = name("is_contiguous"), *is_cpu = name("is_cpu"),
             *opened = name("opened");
    PyObject *shape = name("shape"), *tensor = name("tensor"), *updated = name("updated"), *version = name("_version");
};

inline const Names &names() {
    static const Names all;
    return all;
}

inline bool is_true(const Owned &x) {
    const int truth = PyObject_IsTrue(x);
    if (truth < 0) throw PythonError();
    return truth;
}

inline PyObject *float32() {
    static PyObject *found = nullptr;  // never released
    if (!found) found = PyObject_GetAttrString(Owned(PyImport_ImportModule("torch")), "float32");
    return found;
}

inline PyObject *cpu() {
    static PyObject *found = nullptr;
    if (!found) found = PyObject_CallMethod(Owned(PyImport_ImportModule("torch")), "device", "s", "cpu");
    return found;
}

inline bool has_shape(PyObject *tensor, const std::vector<int> &dims) {
    const Owned shape(PyObject_GetAttr(tensor, names().shape));
    if (!PyTuple_Check(shape) ||
        PyTuple_GET_SIZE(static_cast<PyObject *>(shape)) != static_cast<Py_ssize_t>(dims.size()))
        return false;
    for (std::size_t k = 0; k < dims.size(); k++) {
        if (PyLong_AsLong(PyTuple_GET_ITEM(static_cast<PyObject *>(shape), static_cast<Py_ssize_t>(k))) != dims[k])
            return false;
    }
    return true;
}

inline bool is_of_engine(PyObject *tensor) {  // float32 on the CPU
    return Owned(PyObject_GetAttr(tensor, names().dtype)) == float32() &&
           is_true(Owned(PyObject_GetAttr(tensor, names().is_cpu)));
}

class PythonParameters {
  public:
    explicit PythonParameters(Engine &engine) : engine_(engine) {}
    PythonParameters(const PythonParameters &) = delete;

    // Adds a parameter and returns its number; `reference` is a weak reference to its storage.
    int add_parameter(const std::vector<int> &dims, PyObject *reference, bool is_updated) {
        Graph &graph = engine_.graph;
        const int shape = graph.signatures.add_shape(dims);  // raises an error if it is too large
        Param p;
        p.rows = dims.empty() ? 1 : dims[0];
        p.cols = 1;
        for (std::size_t i = 1; i < dims.size(); i++) p.cols *= dims[i];
        Signature s(Op::Param, 0, shape, {}, {static_cast<int>(graph.params.size())});
        p.sig = graph.signatures.add(s);
        graph.params.push_back(p);
        return params_.add(reference, dims, is_updated);
    }
    // the first dimension counts rows
    int add_table(const std::vector<int> &dims, PyObject *reference) {
        Graph &graph = engine_.graph;
        const int rows = dims.at(0);
        Signature s(Op::Lookup, 0,
                    graph.signatures.add_shape(dims.size() == 1 ? std::vector<int>{1}
                                                                : std::vector<int>(dims.begin() + 1, dims.end())),
                    {}, {static_cast<int>(graph.tables.size())});
        const int sig = graph.signatures.add(s);
        graph.tables.push_back(std::make_unique<Table>(nullptr, rows, graph.signatures[sig].width));
        graph.tables.back()->sig = sig;
        return tables_.add(reference, dims, true);
    }
    // The node of a parameter; -1 if its value is not float32 on the CPU.
    int parameter(int number) {
        if (!is_here(number)) {
            const Owned tensor(PyObject_GetAttr(params_.enter(number), names().tensor));
            if (!is_of_engine(tensor)) return -1;
        }
        return engine_.graph.param_node(number);
    }
    // Called when a row is looked up, to keep the table as long as the graph.
    void hold_table(int number) { tables_.enter(number); }

    // Update the addresses and versions of values.
    void follow() {
        Graph &graph = engine_.graph;
        bool changed = false, moved = false;
        // by index, since Python code may add parameters
        for (std::size_t i = 0; i < params_.entered.size(); i++) {
            const int number = params_.entered[i];
            float *place;
            if (!is_here(number) || !look(params_.known[number], place)) continue;
            changed = true;
            moved |= place != graph.params[number].value;
            graph.params[number].value = place;
        }
        for (std::size_t i = 0; i < tables_.entered.size(); i++) {
            const int number = tables_.entered[i];
            Known &table = tables_.known[number];
            has_changed(table, Owned(PyObject_GetAttr(table.storage, names().tensor)));
            float *place = pointer(table.seen.place);
            moved |= place != graph.tables[number]->value;
            graph.tables[number]->value = place;
        }
        if (changed) engine_.parameters_changed();
        if (moved) place_again();
    }
    // The same, and prepare gradients for a backward pass.
    void begin_pass() {
        follow();
        for (std::size_t i = 0; i < params_.entered.size(); i++) {
            if (is_here(params_.entered[i])) open(params_.entered[i]);
        }
    }
    // (the gradient before the last pass or None, its version after it), None: the pass had no gradient for it.
    PyObject *passed(int number) const {
        const Known &known = params_.known[number];
        if (known.left == Mark()) return Py_NewRef(Py_None);
        const std::vector<float> &before = known.before;
        PyObject *bytes = before.empty()
                              ? Py_NewRef(Py_None)
                              : PyByteArray_FromStringAndSize(reinterpret_cast<const char *>(before.data()),
                                                              static_cast<Py_ssize_t>(sizeof(float) * before.size()));
        return bytes ? Py_BuildValue("(NN)", bytes, pair(known.left)) : nullptr;
    }
    void set_gradient(int number, float *at) {
        Graph &graph = engine_.graph;
        Param &p = graph.params[number];
        p.grad = at;
        if (is_here(number) && p.node < static_cast<int>(graph.grad.size())) graph.grad[p.node] = p.grad;
    }
    // Detach from all gradients.
    void close() {
        for (const int number : params_.entered) set_gradient(number, nullptr);
        for (const int number : tables_.entered) engine_.graph.tables[number]->grads = nullptr;
    }
    // {reference: last known version}
    PyObject *marks() {
        Owned found(PyDict_New());
        const auto set = [&](const Known &known, const Mark &mark) {
            if (PyDict_SetItem(found, known.reference, Owned(pair(mark))) < 0) throw PythonError();
        };
        for (const int number : used_parameters()) set(params_.known[number], params_.known[number].seen);
        for (const int number : tables_.entered) {
            const Known &table = tables_.known[number];
            set(table, mark_of(Owned(PyObject_GetAttr(table.storage, names().tensor))));
        }
        return found.release();
    }
    std::vector<int> used_parameters() const {
        std::vector<int> found;
        for (const int number : params_.entered) {
            if (is_here(number)) found.push_back(number);
        }
        return found;
    }
    const std::vector<int> &used_tables() const { return tables_.entered; }

    // releases the storages
    void renew() {
        for (All *all : {&params_, &tables_}) {
            for (const int number : std::exchange(all->entered, {})) {
                Py_CLEAR(all->known[number].storage);
                std::vector<float>().swap(all->known[number].before);
            }
        }
    }
    int traverse(visitproc visit, void *arg) {
        for (All *all : {&params_, &tables_}) {
            for (const Known &each : all->known) {
                for (PyObject *held : {each.reference, each.storage, each.packed}) Py_VISIT(held);
            }
        }
        return 0;
    }
    void clear() {
        for (All *all : {&params_, &tables_}) {
            all->entered.clear();
            for (Known &each : std::exchange(all->known, {})) {
                for (PyObject *held : {each.reference, each.storage, each.packed}) Py_XDECREF(held);
            }
        }
    }

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
        int add(PyObject *reference, const std::vector<int> &dims, bool is_updated) {
            known.push_back({Py_NewRef(reference), dims, is_updated, nullptr, nullptr, {}, {}, {}});
            return static_cast<int>(known.size()) - 1;
        }
        // returns the borrowed storage
        PyObject *enter(int number) {
            PyObject *&storage = known[number].storage;
            if (!storage) {
                storage = Owned(PyObject_CallNoArgs(known[number].reference)).release();
                entered.push_back(number);
            }
            return storage;
        }
    };
    static Mark mark_of(PyObject *tensor) {
        const Owned place(PyObject_CallMethodNoArgs(tensor, names().data_ptr)),
            version(PyObject_GetAttr(tensor, names().version));
        const Mark found{PyLong_AsUnsignedLongLong(place), PyLong_AsLongLong(version)};
        if (PyErr_Occurred()) throw PythonError();
        return found;
    }
    static PyObject *pair(const Mark &mark) { return Py_BuildValue("(KL)", mark.place, mark.version); }
    // false if it was removed with its part of the graph
    bool is_here(int number) const { return engine_.graph.params[number].round == engine_.graph.round; }
    // True if a value has changed since the last check; a replacement must have the same type and shape.
    bool has_changed(Known &known, PyObject *tensor) {
        const Mark now = mark_of(tensor);
        if (now == known.seen) return false;
        if (now.place != known.seen.place && !(has_shape(tensor, known.dims) && is_of_engine(tensor))) {
            Owned(PyObject_CallMethodObjArgs(known.storage, names().check_fits, cpu(), float32(), nullptr));  // raises
        }
        known.seen = now;
        return true;
    }
    // Updates the address of a parameter after a change.
    bool look(Known &known, float *&place) {
        const Owned tensor(PyObject_GetAttr(known.storage, names().tensor));
        if (!has_changed(known, tensor)) return false;
        place = pointer(known.seen.place);
        Py_CLEAR(known.packed);
        if (is_true(Owned(PyObject_CallMethodNoArgs(tensor, names().is_contiguous)))) return true;
        known.packed = Owned(PyObject_CallMethodNoArgs(tensor, names().contiguous)).release();
        place = pointer(mark_of(known.packed).place);
        return true;
    }
    void open(int number) {
        Known &known = params_.known[number];
        known.left = {};
        known.before.clear();
        if (known.is_updated && is_true(Owned(PyObject_GetAttr(known.storage, names().updated)))) {
            const bool has_gradient = Owned(PyObject_GetAttr(known.storage, names().gradient)) != Py_None;
            known.left = mark_of(Owned(PyObject_CallMethodNoArgs(known.storage, names().opened)));
            const float *at = pointer(known.left.place);
            if (has_gradient) known.before.assign(at, at + engine_.graph.params[number].size());
        }
        set_gradient(number, pointer(known.left.place));
    }
    // Computed nodes still point to the old values.
    void place_again() {
        Graph &graph = engine_.graph;
        const std::vector<float *> before = graph.value;
        for (int n = 0; n < static_cast<int>(before.size()); n++) {
            const Signature &s = graph.signature(n);
            const int aux = graph.nodes[n].aux, whole = s.op == Op::View ? *graph.begin(n) : -1;
            if (!before[n]) continue;
            if (s.op == Op::Param) graph.value[n] = graph.params[s.params[0]].value;
            else if (s.op == Op::Lookup)
                graph.value[n] = graph.tables[s.params[0]]->value + static_cast<std::size_t>(aux) * s.width;
            else if (whole >= 0 && before[n] == before[whole] + aux) graph.value[n] = graph.value[whole] + aux;
        }
    }

    Engine &engine_;
    All params_, tables_;
};

inline PythonParameters *parameters_of_current = nullptr;

}  // namespace dpmodule::autobatch
