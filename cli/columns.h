// Text by the columns that it takes on a terminal. Escape sequences of colours take none; every
// other character that we print takes one. Thread-safe (free functions).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ringmaster::cli {

[[nodiscard]] size_t ColumnsOf(const std::string& text);
// The first `columns` of `text`; colours end where it was cut.
[[nodiscard]] std::string CutTo(size_t columns, const std::string& text);
// Lines of at most `columns`, broken at spaces, all but the first indented by two; a word that is
// longer stays whole.
[[nodiscard]] std::vector<std::string> WrapTo(size_t columns, const std::string& text);

}  // namespace ringmaster::cli
