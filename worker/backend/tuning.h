// What timing kernels beforehand is asked and what it says: Backend::Tune. Values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace ringmaster {

// Whether a gradient of weights that is rounded to 16 bits on its way may win by its speed.
enum class GradientBits : uint8_t { kKept, kMayBeRounded };

struct TuneOptions {
  uint32_t device = 0;  // which one of Backend::devices()
  GradientBits gradient_bits = GradientBits::kKept;
};

// A kernel table as text, whose form is the backend's own.
struct KernelTable {
  std::string source;  // its path, for messages
  std::string text;
};

// A row that the table did not have, and how long a launch takes.
struct TunedKernel {
  std::string op;
  std::string shape;
  int candidates = 0;
  double microseconds = 0;
  double untuned = 0;  // of what is chosen without a table
};
using TuneReport = std::function<void(const TunedKernel&)>;

}  // namespace ringmaster
