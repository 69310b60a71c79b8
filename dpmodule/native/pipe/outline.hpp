// The outline of a nested structure (streams/nested.py says what that is), compiled for comparing and building.
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

    // Collect the tensors of a value, in order, as borrowed references that the value keeps alive or `kept` does.
    // 1 if its outline is this one, 0 if not, and whatever is wrong with it.
    bool match(PyObject *value, std::vector<PyObject *> &leaves) const;

    // Build a structure; takes the references of the leaves, also when it fails. nullptr with an exception.
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
