// Where output goes: a terminal may be repainted and coloured, a pipe may not. Thread-compatible.
#pragma once

#include <cstdio>
#include <string>

namespace ringmaster::cli {

enum class Colour { kPlain, kGreen, kYellow, kRed, kBold };

class Terminal {
 public:
  // Of an open stream: it is a terminal or not, and NO_COLOR (no-color.org) stands in the
  // environment or not.
  static Terminal Of(std::FILE* stream);
  // Columns of the terminal that the stream is now; 80 when it does not say.
  static size_t ColumnsOf(std::FILE* stream);
  // For tests and for files: nothing is repainted or coloured.
  static Terminal Plain() { return Terminal(false, false); }

  [[nodiscard]] bool repaints() const { return repaints_; }
  [[nodiscard]] std::string Paint(Colour colour, const std::string& text) const;

 private:
  Terminal(bool repaints, bool colours) : repaints_(repaints), colours_(colours) {}
  bool repaints_;
  bool colours_;
};

}  // namespace ringmaster::cli
