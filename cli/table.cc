#include "cli/table.h"

#include <algorithm>
#include <utility>

#include "cli/columns.h"

namespace ringmaster::cli {
Table::Table(std::vector<std::string> header) {
  std::vector<Cell> cells;
  for (std::string& title : header) cells.emplace_back(std::move(title), Colour::kBold);
  rows_.push_back(std::move(cells));
}

void Table::Add(std::vector<Cell> row) {
  row.resize(rows_.front().size(), Cell(""));
  rows_.push_back(std::move(row));
}

std::string Table::Print(const Terminal& terminal) const {
  std::vector<size_t> widths(rows_.front().size());
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], ColumnsOf(row[i].text));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string gap;
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i].text.empty()) {
        gap.append(widths[i] + 2, ' ');
        continue;
      }
      text += gap + terminal.Paint(row[i].colour, row[i].text);
      gap.assign(widths[i] - ColumnsOf(row[i].text) + 2, ' ');
    }
    text += '\n';
  }
  return text;
}

}  // namespace ringmaster::cli
