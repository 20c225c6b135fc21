#include "cli/show/braille_plot.h"

#include <catch2/catch.hpp>
#include <limits>

namespace ringmaster::cli {
namespace {

std::string Plot(const std::vector<Curve>& curves, size_t columns = 40, size_t rows = 4) {
  return RenderPlot("loss", curves, {columns, rows}, Terminal::Plain());
}

TEST_CASE("RenderPlot: a line goes from corner to corner, axes have their ends") {
  CHECK(Plot({{"a", {{0, 0}, {10, 4}}}}, 24, 2) ==
        "loss\n"
        "4 ┤          ⢀⣀⣀⡠⠤⠤⠔⠒⠒⠊⠉\n"
        "0 ┤⣀⡠⠤⠤⠔⠒⠒⠊⠉⠉⠁\n"
        "  └─────────────────────\n"
        "   0                  10\n"
        "⣿ a: 4\n");
}

TEST_CASE("RenderPlot: one value alone stands in the middle, whatever its size") {
  for (const double value : {0.0, 3.5, -1e300, std::numeric_limits<double>::max() / 4}) {
    const std::string plot = Plot({{"a", {{7, value}}}}, 40, 3);
    size_t braille = 0, row = 0, line = 0;
    for (size_t at = 0; at < plot.rfind("⣿"); ++at) {
      line += plot[at] == '\n' ? 1 : 0;
      const auto byte = static_cast<unsigned char>(plot[at]);
      if (byte != 0xE2 || static_cast<unsigned char>(plot[at + 1]) < 0xA0) continue;
      ++braille;
      row = line;
    }
    CHECK(braille == 1);
    CHECK(row == 2);
  }
}

TEST_CASE("RenderPlot: curves share their axes; one without points is named alone") {
  const std::string plot = Plot({{"a", {{0, 1}, {4, 3}}}, {"b", {{8, -5}}}, {"c", {}}});
  CHECK_THAT(plot, Catch::Contains(" 3 ┤ "));
  CHECK_THAT(plot, Catch::Contains(" -5 ┤ "));
  CHECK_THAT(plot, Catch::Contains("⣿ a: 3\n⣿ b: -5\n⣿ c: no value\n"));
  CHECK(Plot({{"c", {}}}) == "loss\n⣿ c: no value\n");
}

TEST_CASE("RenderPlot: no line is longer than the columns") {
  Curve wave{"wave", {}};
  for (int i = 0; i < 1'000; ++i) wave.points.emplace_back(i, (i % 37) * 1e-3 - 7);
  for (const size_t columns : {size_t{40}, size_t{81}, size_t{200}}) {
    const std::string plot = Plot({wave}, columns, 16);
    size_t longest = 0;
    for (size_t at = 0; at < plot.size();) {
      const size_t end = plot.find('\n', at);
      longest = std::max(longest, ColumnsOf(plot.substr(at, end - at)));
      at = end + 1;
    }
    CHECK(longest == columns);
  }
}

}  // namespace
}  // namespace ringmaster::cli
