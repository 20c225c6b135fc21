// Columns of text, left-aligned, two spaces apart, without lines. A value; thread-compatible.
#pragma once

#include <string>
#include <vector>

#include "cli/terminal.h"

namespace ringmaster::cli {

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

}  // namespace ringmaster::cli
