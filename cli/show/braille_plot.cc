#include "cli/show/braille_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

namespace ringmaster::cli {
namespace {

constexpr size_t kDotsAcross = 2, kDotsDown = 4;
constexpr size_t kLeastColumns = 20;  // of the curves
constexpr Colour kColours[] = {Colour::kCyan, Colour::kYellow,  Colour::kGreen,
                               Colour::kRed,  Colour::kMagenta, Colour::kBlue};

Colour ColourOfCurve(size_t curve) { return kColours[curve % std::size(kColours)]; }

// From U+2800: the dots of the left column from above are the bits 0, 1, 2, 6, those of the right
// one 3, 4, 5, 7 (Unicode, Braille Patterns).
std::string Braille(uint8_t dots) {
  return {'\xE2', static_cast<char>(0xA0 | (dots >> 6)), static_cast<char>(0x80 | (dots & 0x3F))};
}

uint8_t DotAt(size_t across, size_t down) {
  constexpr uint8_t kBits[kDotsDown][kDotsAcross] = {{0, 3}, {1, 4}, {2, 5}, {6, 7}};
  return static_cast<uint8_t>(1U << kBits[down][across]);
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void Cover(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Of [0, 1]; without overflow between the largest numbers.
  [[nodiscard]] double Part(double value) const {
    return (value / 2 - low / 2) / (high / 2 - low / 2);
  }
  [[nodiscard]] double At(double part) const { return low * (1 - part) + high * part; }
};

// So that one value alone stands in the middle.
Range Widened(Range range) {
  if (range.high > range.low) return range;
  const double margin = range.low == 0 ? 1 : std::abs(range.low) / 2;
  return {range.low - margin, range.high + margin};
}

class Canvas {
 public:
  Canvas(size_t columns, size_t rows)
      : columns_(columns), rows_(rows), dots_(columns * rows), curves_(columns * rows) {}

  // Both of [0, 1], y upwards.
  void Line(double x0, double y0, double x1, double y1, size_t curve) {
    const double across = static_cast<double>(columns_ * kDotsAcross - 1);
    const double down = static_cast<double>(rows_ * kDotsDown - 1);
    const double length = std::max(std::abs(x1 - x0) * across, std::abs(y1 - y0) * down);
    const auto dots = static_cast<size_t>(std::ceil(length));
    for (size_t i = 0; i <= dots; ++i) {
      const double part = dots == 0 ? 0 : static_cast<double>(i) / static_cast<double>(dots);
      const double x = x0 + (x1 - x0) * part, y = y0 + (y1 - y0) * part;
      Dot(static_cast<size_t>(std::lround(x * across)),
          static_cast<size_t>(std::lround((1 - y) * down)), curve);
    }
  }
  [[nodiscard]] std::string Row(size_t row, const Terminal& terminal) const {
    std::string text;
    size_t blanks = 0;
    for (size_t i = row * columns_; i < (row + 1) * columns_; ++i) {
      if (dots_[i] == 0) {
        ++blanks;
        continue;
      }
      text.append(std::exchange(blanks, 0), ' ');
      text += terminal.Paint(ColourOfCurve(curves_[i]), Braille(dots_[i]));
    }
    return text;
  }

 private:
  void Dot(size_t across, size_t down, size_t curve) {
    const size_t cell = down / kDotsDown * columns_ + across / kDotsAcross;
    dots_[cell] |= DotAt(across % kDotsAcross, down % kDotsDown);
    curves_[cell] = curve;
  }

  const size_t columns_, rows_;
  std::vector<uint8_t> dots_;
  std::vector<size_t> curves_;  // that came to the cell last
};

void Draw(const Curve& curve, size_t number, const Range& x, const Range& y, Canvas* canvas) {
  for (size_t i = 0; i < curve.points.size(); ++i) {
    const auto& [x1, y1] = curve.points[i];
    const auto& [x0, y0] = curve.points[i == 0 ? 0 : i - 1];
    canvas->Line(x.Part(x0), y.Part(y0), x.Part(x1), y.Part(y1), number);
  }
}

std::string ShortNumber(double value) { return fmt::format("{:.4g}", value); }

// `left` and `right` at the ends of so many columns.
std::string AtEnds(const std::string& left, const std::string& right, size_t columns) {
  const size_t taken = left.size() + right.size();
  return left + std::string(columns > taken ? columns - taken : 1, ' ') + right;
}

}  // namespace

std::string RenderPlot(const std::string& title, const std::vector<Curve>& curves,
                       const PlotSize& size, const Terminal& terminal) {
  Range x, y;
  for (const Curve& curve : curves) {
    for (const auto& [at, value] : curve.points) {
      x.Cover(at);
      y.Cover(value);
    }
  }
  std::string text = terminal.Paint(Colour::kBold, title) + '\n';
  if (x.low <= x.high) {
    x = Widened(x);
    y = Widened(y);
    const size_t rows = std::max<size_t>(2, size.rows);
    std::vector<std::string> labels(rows);
    for (const size_t row : {size_t{0}, rows / 2, rows - 1}) {
      labels[row] = ShortNumber(y.At(1 - static_cast<double>(row) / static_cast<double>(rows - 1)));
    }
    size_t width = 0;
    for (const std::string& label : labels) width = std::max(width, label.size());
    const size_t columns =
        std::max(kLeastColumns, size.columns - std::min(size.columns, width + 2));
    Canvas canvas(columns, rows);
    for (size_t i = 0; i < curves.size(); ++i) Draw(curves[i], i, x, y, &canvas);
    for (size_t row = 0; row < rows; ++row) {
      const std::string line = canvas.Row(row, terminal);
      text +=
          fmt::format("{:>{}} {}{}\n", labels[row], width, labels[row].empty() ? "│" : "┤", line);
    }
    text += fmt::format("{:>{}} └", "", width);
    for (size_t i = 0; i < columns; ++i) text += "─";
    text += fmt::format("\n{:>{}}{}\n", "", width + 2,
                        AtEnds(ShortNumber(x.low), ShortNumber(x.high), columns));
  }
  for (size_t i = 0; i < curves.size(); ++i) {
    const Curve& curve = curves[i];
    text +=
        fmt::format("{} {}: {}\n", terminal.Paint(ColourOfCurve(i), "⣿"), curve.label,
                    curve.points.empty() ? "no value" : ShortNumber(curve.points.back().second));
  }
  return text;
}

}  // namespace ringmaster::cli
