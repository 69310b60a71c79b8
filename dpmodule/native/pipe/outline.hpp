// Outline of a nested structure (defined in streams/nested.py), compiled for comparing and building.
#pragma once

#include <memory>
#include <vector>

#include "pipe/tensors.hpp"
#include "python.hpp"

namespace dpmodule::pipe {

enum OutlineKind { none = 0, leaf = 1, list = 2, tuple = 3, named = 4, dict = 5, ordered = 6, record = 7 };

inline bool same_key(PyObject *a, PyObject *b) {
    if (a == b) return true;
    if (Py_TYPE(a) != Py_TYPE(b)) return false;
    int answer = PyObject_RichCompareBool(a, b, Py_EQ);
    if (answer < 0) PyErr_Clear();
    return answer == 1;
}

inline PyObject *attribute_of(const char *module, const char *name) {
    PyObject *loaded = PyImport_ImportModule(module);
    if (!loaded) return nullptr;
    PyObject *value = PyObject_GetAttrString(loaded, name);
    Py_DECREF(loaded);
    return value;
}

class Outline {
  public:
    // Compile the tuples of streams/nested.py; nullptr with an exception. Needs the GIL, as does everything here.
    static std::unique_ptr<Outline> compile(PyObject *description) {
        auto made = std::make_unique<Outline>();
        if (!made->compile(description, made->root_)) return nullptr;
        return made;
    }

    Outline() = default;
    ~Outline() { clear(root_); }
    Outline(const Outline &) = delete;
    Outline &operator=(const Outline &) = delete;

    // Collect the tensors of a value, in order. Returns false, without an exception, if its outline differs in any way.
    bool match(PyObject *value, std::vector<PyObject *> &leaves) const {
        leaves.clear();
        if (match(root_, value, leaves)) return true;
        for (PyObject *leaf : leaves) Py_DECREF(leaf);
        leaves.clear();
        return false;
    }

    // Build a structure; steals the references of the leaves, even on failure. nullptr with an exception.
    PyObject *build(PyObject **leaves) const {
        PyObject **next = leaves, **end = leaves + leaves_;
        PyObject *made = build(root_, next);
        if (!made) {
            for (; next != end; next++) Py_DECREF(*next);
        }
        return made;
    }

    int leaves() const { return leaves_; }

  private:
    struct Node {
        int kind = 0;
        PyObject *type = nullptr, *make = nullptr;
        std::vector<PyObject *> keys;
        std::vector<Node> children;
    };
    bool compile(PyObject *description, Node &node) {
        if (description == Py_None) return node.kind = none, true;
        if (PyLong_Check(description)) return node.kind = leaf, leaves_++, true;
        PyObject *type, *keys, *children;
        if (!PyTuple_Check(description)) return PyErr_SetString(PyExc_TypeError, "an outline is a tuple"), false;
        if (!PyArg_ParseTuple(description, "iOOO!", &node.kind, &type, &keys, &PyTuple_Type, &children)) return false;
        if (type != Py_None) node.type = Py_NewRef(type);
        if (node.kind == ordered) node.type = attribute_of("collections", "OrderedDict");
        if (node.kind == ordered && !node.type) return false;
        if (node.kind == named) {
            node.make = PyObject_GetAttrString(type, "_make");
            if (!node.make) PyErr_Clear(), node.make = Py_NewRef(type);
        }
        if (node.kind == record) {  // object.__new__ refuses classes it cannot create
            node.make = PyObject_GetAttrString(reinterpret_cast<PyObject *>(&PyBaseObject_Type), "__new__");
            if (!node.make) return false;
        }
        Py_ssize_t size = PyTuple_GET_SIZE(children);
        if (keys != Py_None) {
            if (!PyTuple_Check(keys) || PyTuple_GET_SIZE(keys) != size) {
                return PyErr_SetString(PyExc_TypeError, "an outline has different numbers of keys and parts"), false;
            }
            for (Py_ssize_t i = 0; i < size; i++) node.keys.push_back(Py_NewRef(PyTuple_GET_ITEM(keys, i)));
        }
        node.children.resize(size);
        for (Py_ssize_t i = 0; i < size; i++) {
            if (!compile(PyTuple_GET_ITEM(children, i), node.children[i])) return false;
        }
        return true;
    }
    static void clear(Node &node) {
        Py_CLEAR(node.type);
        Py_CLEAR(node.make);
        for (PyObject *&key : node.keys) Py_CLEAR(key);
        for (Node &child : node.children) clear(child);
    }
    static bool match(const Node &node, PyObject *value, std::vector<PyObject *> &leaves) {
        Py_ssize_t size = static_cast<Py_ssize_t>(node.children.size());
        switch (node.kind) {
            case none: return value == Py_None;
            case leaf:
                if (!torch.is_tensor(value)) return false;
                leaves.push_back(Py_NewRef(value));
                return true;
            case list:
                if (!PyList_CheckExact(value) || PyList_GET_SIZE(value) != size) return false;
                for (Py_ssize_t i = 0; i < size; i++) {
                    if (i >= PyList_GET_SIZE(value)) return false;  // a nested property has shortened it
                    PyObject *item = Py_NewRef(PyList_GET_ITEM(value, i));
                    bool same = match(node.children[i], item, leaves);
                    Py_DECREF(item);
                    if (!same) return false;
                }
                return true;
            case tuple:
            case named:
                if (node.kind == tuple ? !PyTuple_CheckExact(value)
                                       : Py_TYPE(value) != reinterpret_cast<PyTypeObject *>(node.type)) {
                    return false;
                }
                if (PyTuple_GET_SIZE(value) != size) return false;
                for (Py_ssize_t i = 0; i < size; i++) {
                    if (!match(node.children[i], PyTuple_GET_ITEM(value, i), leaves)) return false;
                }
                return true;
            case dict: return match_dict(node, value, leaves);
            case ordered: return match_ordered(node, value, leaves);
            default: return match_fields(node, value, leaves);
        }
    }
    static bool match_dict(const Node &node, PyObject *value, std::vector<PyObject *> &leaves) {
        if (!PyDict_CheckExact(value) || PyDict_GET_SIZE(value) != static_cast<Py_ssize_t>(node.children.size()))
            return false;
        Py_ssize_t position = 0;
        PyObject *key, *item;
        size_t i = 0;
        for (; i < node.children.size() && PyDict_Next(value, &position, &key, &item); i++) {
            if (!same_key(key, node.keys[i])) return false;
            Py_INCREF(item);
            bool same = match(node.children[i], item, leaves);
            Py_DECREF(item);
            if (!same) return false;
        }
        return i == node.children.size();
    }
    // The order of an OrderedDict differs from that of its underlying dict.
    static bool match_ordered(const Node &node, PyObject *value, std::vector<PyObject *> &leaves) {
        if (Py_TYPE(value) != reinterpret_cast<PyTypeObject *>(node.type)) return false;
        PyObject *keys = PySequence_List(value);
        if (!keys) return PyErr_Clear(), false;
        bool same = PyList_GET_SIZE(keys) == static_cast<Py_ssize_t>(node.keys.size());
        for (size_t i = 0; same && i < node.keys.size(); i++) {
            PyObject *key = PyList_GET_ITEM(keys, i);
            PyObject *item = same_key(key, node.keys[i]) ? PyObject_GetItem(value, key) : nullptr;
            same = item && match(node.children[i], item, leaves);
            Py_XDECREF(item);
        }
        PyErr_Clear();
        Py_DECREF(keys);
        return same;
    }
    static bool match_fields(const Node &node, PyObject *value, std::vector<PyObject *> &leaves) {
        if (Py_TYPE(value) != reinterpret_cast<PyTypeObject *>(node.type)) return false;
        for (size_t i = 0; i < node.keys.size(); i++) {
            PyObject *item = PyObject_GetAttr(value, node.keys[i]);
            if (!item) return PyErr_Clear(), false;  // the Python side reads it again and raises the error
            bool same = match(node.children[i], item, leaves);
            Py_DECREF(item);
            if (!same) return false;
        }
        return true;
    }
    static PyObject *build(const Node &node, PyObject **&leaves) {
        Py_ssize_t size = static_cast<Py_ssize_t>(node.children.size());
        if (node.kind == none) Py_RETURN_NONE;
        if (node.kind == leaf) return *leaves++;
        if (node.kind == dict || node.kind == ordered) return build_dict(node, leaves);
        if (node.kind == record) return build_record(node, leaves);
        PyObject *made = node.kind == list ? PyList_New(size) : PyTuple_New(size);
        for (Py_ssize_t i = 0; made && i < size; i++) {
            PyObject *item = build(node.children[i], leaves);
            if (!item) {
                Py_CLEAR(made);
            } else if (node.kind == list) {
                PyList_SET_ITEM(made, i, item);
            } else {
                PyTuple_SET_ITEM(made, i, item);
            }
        }
        if (made && node.kind == named) Py_SETREF(made, PyObject_CallOneArg(node.make, made));
        return made;
    }
    static PyObject *build_dict(const Node &node, PyObject **&leaves) {
        PyObject *made = node.kind == dict ? PyDict_New() : PyObject_CallNoArgs(node.type);
        for (size_t i = 0; made && i < node.keys.size(); i++) {
            PyObject *item = build(node.children[i], leaves);
            int failed = !item || (node.kind == dict ? PyDict_SetItem(made, node.keys[i], item)
                                                     : PyObject_SetItem(made, node.keys[i], item));
            Py_XDECREF(item);
            if (failed) Py_CLEAR(made);
        }
        return made;
    }
    static PyObject *build_record(const Node &node, PyObject **&leaves) {
        PyObject *made = PyObject_CallOneArg(node.make, node.type);
        for (size_t i = 0; made && i < node.keys.size(); i++) {
            PyObject *item = build(node.children[i], leaves);
            // bypasses the class's __setattr__: it may be frozen
            int failed = !item || PyObject_GenericSetAttr(made, node.keys[i], item);
            Py_XDECREF(item);
            if (failed) Py_CLEAR(made);
        }
        return made;
    }

    Node root_;
    int leaves_ = 0;
};

}  // namespace dpmodule::pipe
