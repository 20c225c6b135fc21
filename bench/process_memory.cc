#include "bench/process_memory.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>

namespace ringmaster::bench {
namespace {

std::optional<uint64_t> Number(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return std::nullopt;
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + begin, end, number);
  if (parsed.ec != std::errc()) return std::nullopt;
  return number;
}

}  // namespace

std::optional<uint64_t> StatusBytes(const std::string& status, const std::string& key) {
  std::istringstream lines(status);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key + ':')) continue;
    const auto kibibytes = Number(line.substr(key.size() + 1));
    if (kibibytes) return *kibibytes << 10;
  }
  return std::nullopt;
}

std::optional<uint64_t> SmiBytes(const std::string& lines) {
  std::istringstream in(lines);
  std::optional<uint64_t> sum;
  for (std::string line; std::getline(in, line);) {
    const auto mebibytes = Number(line);
    if (!mebibytes) return std::nullopt;
    sum = sum.value_or(0) + (*mebibytes << 20);
  }
  return sum;
}

HostMemory ReadHostMemory() {
  std::ifstream file("/proc/self/status");
  const std::string status{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return {StatusBytes(status, "VmRSS").value_or(0), StatusBytes(status, "VmHWM").value_or(0)};
}

// "5" resets the peak: proc(5), /proc/pid/clear_refs.
void ResetPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }

std::optional<uint64_t> DeviceBytesUsed() {
  constexpr char kCommand[] =
      "nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null";
  const auto close = [](FILE* pipe) { pclose(pipe); };
  const std::unique_ptr<FILE, decltype(close)> pipe(popen(kCommand, "r"), close);
  if (!pipe) return std::nullopt;
  std::string text;
  std::array<char, 256> line{};
  while (std::fgets(line.data(), line.size(), pipe.get()) != nullptr) text += line.data();
  return SmiBytes(text);
}

}  // namespace ringmaster::bench
