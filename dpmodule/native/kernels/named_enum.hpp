// Enumerations whose enumerators have names in Python, by which it learns their numbers.
#pragma once

#define NAMED_ENUM_KIND(kind, name) kind,
#define NAMED_ENUM_NAME(kind, name) name,
// `enum class TYPE : int` and `names_of(TYPE)`, of a macro LIST(X) that is a row of X(enumerator, name).
#define NAMED_ENUM(TYPE, LIST)                       \
    enum class TYPE : int { LIST(NAMED_ENUM_KIND) }; \
    constexpr const char *names_of_##TYPE[] = {LIST(NAMED_ENUM_NAME)};
