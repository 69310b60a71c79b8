// A custom functor: counts the words of a text in a thread of the pool, without Python.
//
// It needs only dpmodule's header; setup.py in this folder builds it. The Python side is three lines:
//
//     with streams.ThreadPool() as pool:
//         worker = streams.cpp_threaded_worker(pool)
//         counts = await worker(word_count.WordCount(text))        # {b"the": 2, b"cat": 1}
#include <dpmodule/functor.h>

#include <string_view>
#include <unordered_map>

namespace {

constexpr std::size_t longest_word = 1 << 16;

bool is_space(char letter) { return letter == ' ' || (letter >= '\t' && letter <= '\r'); }

class WordCount : public dpmodule::Functor {
  public:
    explicit WordCount(dpmodule::Bytes text) : text_(std::move(text)) {}

    // In a thread of the pool: no Python here. The words are views of the text, which `text_` keeps alive.
    void operator()() override {
        counts_.clear();  // a functor may be sent again after it has finished
        std::string_view rest = text_.text();
        while (!rest.empty()) {
            std::size_t size = 0;
            while (size < rest.size() && !is_space(rest[size])) ++size;
            if (size > longest_word) {
                throw dpmodule::Error(dpmodule::Kind::file_format,
                                      "word_count: a word of " + std::to_string(size) + " bytes, expected a text");
            }
            if (size > 0) ++counts_[rest.substr(0, size)];
            rest.remove_prefix(size < rest.size() ? size + 1 : size);
        }
    }

    // In the loop's thread, with the GIL: the result as a Python object.
    PyObject *result() override {
        PyObject *counts = PyDict_New();
        if (!counts) return nullptr;
        for (const auto &[word, count] : counts_) {
            if (!add(counts, word, count)) {
                Py_DECREF(counts);
                return nullptr;
            }
        }
        return counts;
    }

  private:
    static bool add(PyObject *counts, std::string_view word, long count) {
        PyObject *key = PyBytes_FromStringAndSize(word.data(), static_cast<Py_ssize_t>(word.size()));
        PyObject *value = PyLong_FromLong(count);
        bool added = key && value && PyDict_SetItem(counts, key, value) == 0;
        Py_XDECREF(key);
        Py_XDECREF(value);
        return added;
    }

    dpmodule::Bytes text_;
    std::unordered_map<std::string_view, long> counts_;
};

// WordCount(text): text is bytes, a memoryview, a dpmodule.streams.StringHandle, or any buffer. Nothing is copied.
PyObject *make_word_count(PyObject *, PyObject *text) {
    dpmodule::Bytes bytes;
    if (!dpmodule::bytes_from(text, bytes)) return nullptr;
    try {
        return dpmodule::make_capsule(std::make_shared<WordCount>(std::move(bytes)));
    } catch (const std::bad_alloc &) {
        return PyErr_NoMemory();
    }
}

PyMethodDef methods[] = {
    {"WordCount", make_word_count, METH_O,
     "WordCount(text): a functor; its result is a dict of words and their counts."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "word_count",
                          "Counts words in threads of C++.",
                          -1,
                          methods,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_word_count() { return PyModule_Create(&definition); }
