// Curves in a terminal, of braille characters: each has 2 x 4 dots. Values in, text out;
// thread-safe (free functions).
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "cli/show/terminal.h"

namespace ringmaster::cli {

struct Curve {
  std::string label;                              // of the legend
  std::vector<std::pair<double, double>> points;  // x ascending; all finite
};

struct PlotSize {
  size_t columns = 80;  // of all lines, at least 40
  size_t rows = 16;     // of the curves alone
};

// A title, the curves over each other with both axes, and the legend with each curve's newest
// value. Every curve has a colour of its own as far as there are colours; where two meet, the later
// one is seen. Points of a curve are joined by lines. Curves without points stand in the legend
// alone.
[[nodiscard]] std::string RenderPlot(const std::string& title, const std::vector<Curve>& curves,
                                     const PlotSize& size, const Terminal& terminal);

}  // namespace ringmaster::cli
