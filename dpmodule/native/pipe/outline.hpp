// Outline of a nested structure (defined in streams/nested.py), compiled for comparing and building.
#pragma once

#include "python.hpp"

#include <memory>
#include <vector>

namespace dpmodule::pipe {

class Outline {
  public:
    // Compile the tuples of streams/nested.py; nullptr with an exception. Needs the GIL, as does everything here.
    static std::unique_ptr<Outline> compile(PyObject *description);

    Outline() = default;
    ~Outline();
    Outline(const Outline &) = delete;
    Outline &operator=(const Outline &) = delete;

    // Collect the tensors of a value, in order. Returns false, without an exception, if its outline differs in any way.
    bool match(PyObject *value, std::vector<PyObject *> &leaves) const;

    // Build a structure; steals the references of the leaves, even on failure. nullptr with an exception.
    PyObject *build(PyObject **leaves) const;

    int leaves() const { return leaves_; }

  private:
    struct Node {
        int kind = 0;
        PyObject *type = nullptr, *make = nullptr;
        std::vector<PyObject *> keys;
        std::vector<Node> children;
    };
    bool compile(PyObject *description, Node &node);
    static void clear(Node &node);
    static bool match(const Node &node, PyObject *value, std::vector<PyObject *> &leaves);
    static bool match_dict(const Node &node, PyObject *value, std::vector<PyObject *> &leaves);
    static bool match_ordered(const Node &node, PyObject *value, std::vector<PyObject *> &leaves);
    static bool match_fields(const Node &node, PyObject *value, std::vector<PyObject *> &leaves);
    static PyObject *build(const Node &node, PyObject **&leaves);
    static PyObject *build_dict(const Node &node, PyObject **&leaves);
    static PyObject *build_record(const Node &node, PyObject **&leaves);

    Node root_;
    int leaves_ = 0;
};

}  // namespace dpmodule::pipe
