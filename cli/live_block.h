// A few lines at the bottom of a terminal that are painted again and again, and lines above them
// that stay. It returns bytes and writes nothing. Thread-compatible.
//
// Its lines are cut to the width that the terminal has now. One that became narrower has wrapped
// what was painted (most terminals do): the block counts how many rows that makes and erases them
// all.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ringmaster::cli {

class LiveBlock {
 public:
  // Replaces the block; empty when it shows exactly this already.
  [[nodiscard]] std::string Paint(const std::vector<std::string>& lines, size_t columns);
  // Writes lines that stay, whole, where the block stands. It is gone until the next Paint.
  [[nodiscard]] std::string Commit(const std::vector<std::string>& lines, size_t columns);

 private:
  [[nodiscard]] std::string Erase(size_t columns) const;

  std::vector<std::string> painted_;  // as cut
  size_t columns_ = 0;                // when it was painted
};

}  // namespace ringmaster::cli
