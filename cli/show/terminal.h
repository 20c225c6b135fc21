// Where output goes and what it looks like there: colours, columns, tables, and lines that are
// painted again. It returns text and writes nothing.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace ringmaster::cli {

// Where output goes: a terminal may be repainted and coloured, a pipe may not. Thread-compatible.
enum class Colour { kPlain, kGreen, kYellow, kRed, kBlue, kMagenta, kCyan, kBold };

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

// Text by the columns that it takes on a terminal. Escape sequences of colours take none; every
// other character that we print takes one. Thread-safe (free functions).
[[nodiscard]] size_t ColumnsOf(const std::string& text);
// The first `columns` of `text`; colours end where it was cut.
[[nodiscard]] std::string CutTo(size_t columns, const std::string& text);
// Lines of at most `columns`, broken at spaces, all but the first indented by two; a word that is
// longer stays whole.
[[nodiscard]] std::vector<std::string> WrapTo(size_t columns, const std::string& text);

// Columns of text, left-aligned, two spaces apart, without lines. A value; thread-compatible.
struct Cell {
  Cell(std::string cell_text, Colour cell_colour = Colour::kPlain)  // NOLINT: a string is a cell
      : text(std::move(cell_text)), colour(cell_colour) {}
  std::string text;  // UTF-8
  Colour colour;
};

class Table {
 public:
  explicit Table(std::vector<std::string> header);
  // As many cells as the header has.
  void Add(std::vector<Cell> row);
  // Lines with their ends; nothing trails in a line.
  [[nodiscard]] std::string Print(const Terminal& terminal) const;

 private:
  std::vector<std::vector<Cell>> rows_;  // the header first
};

// A few lines at the bottom of a terminal that are painted again and again, and lines above them
// that stay. It returns bytes and writes nothing. Thread-compatible.
//
// Its lines are cut to the width that the terminal has now. One that became narrower has wrapped
// what was painted (most terminals do): the block counts how many rows that makes and erases them
// all.
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
