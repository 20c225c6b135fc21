#include "tests/worker/backend/pjrt/double/options.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <functional>
#include <map>

#include "common/amount.h"

namespace ringmaster::pjrt::plugin_double {
namespace {

template <typename Number>
bool ReadNumber(const std::string& text, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

bool ReadBytes(const std::string& text, size_t* bytes) {
  const auto read = ParseBytes(text, "memory");
  if (read.ok()) *bytes = *read;
  return read.ok();
}

bool ReadTrouble(const std::string& text, Trouble* trouble) {
  static const std::map<std::string, Trouble> kNames = {{"error", Trouble::kError},
                                                        {"abort", Trouble::kAbort},
                                                        {"hang", Trouble::kHang},
                                                        {"oom", Trouble::kOutOfMemory},
                                                        {"segv", Trouble::kSegmentation}};
  const auto found = kNames.find(text);
  if (found == kNames.end()) return false;
  *trouble = found->second;
  return true;
}

bool ReadAbility(const std::string& text, Ability* ability) {
  static const std::map<std::string, Ability> kNames = {{"missing", Ability::kMissing},
                                                        {"none", Ability::kUnimplemented},
                                                        {"error", Ability::kError},
                                                        {"elsewhere", Ability::kElsewhere}};
  const auto found = kNames.find(text);
  if (found == kNames.end()) return false;
  *ability = found->second;
  return true;
}

using Reader = std::function<bool(const std::string& value, Options* options)>;

// An option that is said by one word.
Reader Word(const std::string& word, bool Options::*field) {
  return [=](const std::string& value, Options* options) {
    options->*field = true;
    return value == word;
  };
}
template <typename Number>
Reader Numeric(Number Options::*field) {
  return [=](const std::string& value, Options* options) {
    return ReadNumber(value, &(options->*field));
  };
}
Reader Text(std::string Options::*field) {
  return [=](const std::string& value, Options* options) {
    options->*field = value;
    return !value.empty();
  };
}

const std::map<std::string, Reader>& Readers() {
  static const std::map<std::string, Reader> kReaders = {
      {"devices", Numeric(&Options::devices)},
      {"memory", [](const auto& value, Options* to) { return ReadBytes(value, &to->memory); }},
      {"tiles", Word("on", &Options::tiles)},
      {"ids", Word("shuffled", &Options::shuffled_ids)},
      {"layout", Word("column", &Options::column_layout)},
      {"platform", Text(&Options::platform)},
      {"kind", Text(&Options::kind)},
      {"stats", Word("none", &Options::no_stats)},
      {"minor", Numeric(&Options::minor)},
      {"version", Text(&Options::version)},
      {"stablehlo", Numeric(&Options::stablehlo_minor)},
      {"table", Word("short", &Options::short_table)},
      {"strict",
       [](const auto& value, Options* to) {
         to->strict = value == "on";
         return value == "on" || value == "off";
       }},
      {"structs", Word("grown", &Options::grown_structs)},
      {"client", Word("busy", &Options::busy)},
      {"compile", [](const auto& value, Options* to) { return ReadTrouble(value, &to->compile); }},
      {"execute", [](const auto& value, Options* to) { return ReadTrouble(value, &to->execute); }},
      {"execute_at", Numeric(&Options::execute_at)},
      {"abort_one_in", Numeric(&Options::abort_one_in)},
      {"seed", Numeric(&Options::seed)},
      {"results", Word("wrong", &Options::wrong_results)},
      {"once_file", Text(&Options::once_file)},
      {"serialize",
       [](const auto& value, Options* to) {
         return ReadAbility(value, &to->serialize) && to->serialize != Ability::kElsewhere;
       }},
      {"load", [](const auto& value, Options* to) { return ReadAbility(value, &to->load); }},
      {"compile_gate", Text(&Options::compile_gate)},
      {"log_file", Text(&Options::log_file)},
  };
  return kReaders;
}

const StatusOr<Options>& FromEnvironment() {
  static const StatusOr<Options> kOptions = [] {
    const char* const text = std::getenv("PJRT_DOUBLE");
    return ParseOptions(text == nullptr ? "" : text);
  }();
  return kOptions;
}

// Whether trouble has not been yet, by the file that stands for it.
bool Due() {
  const std::string& path = ProcessOptions().once_file;
  if (path.empty()) return true;
  const int file = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0) return false;
  close(file);
  return true;
}

constexpr size_t kMuch = 9997000000;  // 9.31G
constexpr size_t kNotEnough = size_t{8} << 30;

Status Make(Trouble trouble, const char* what) {
  switch (trouble) {
    case Trouble::kNone:
      return absl::OkStatus();
    case Trouble::kError:
      return Internal("{} fails, as PJRT_DOUBLE says", what);
    case Trouble::kAbort:
      std::abort();
    case Trouble::kHang:
      while (true) pause();
    case Trouble::kOutOfMemory:
      return OutOfMemory(what, kMuch, kNotEnough);
    case Trouble::kSegmentation:
      raise(SIGSEGV);
  }
  return absl::OkStatus();
}

uint64_t Mixed(uint64_t x) {  // the finalizer of SplitMix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

StatusOr<Options> ParseOptions(const std::string& text) {
  Options options;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, end - at);
    at = end + 1;
    const size_t equals = item.find('=');
    const auto reader = Readers().find(item.substr(0, equals));
    if (equals == std::string::npos || reader == Readers().end() ||
        !reader->second(item.substr(equals + 1), &options)) {
      return InvalidArgument("PJRT_DOUBLE: '{}' is not known", item);
    }
  }
  if (options.devices < 1 || options.devices > 64) {
    return InvalidArgument("PJRT_DOUBLE: {} devices, expected 1 to 64", options.devices);
  }
  return options;
}

const Options& ProcessOptions() {
  static const Options kDefaults;
  return FromEnvironment().ok() ? *FromEnvironment() : kDefaults;
}

Status ProcessOptionsStatus() { return FromEnvironment().status(); }

Status CompileTrouble() {
  const Options& options = ProcessOptions();
  if (!options.compile_gate.empty()) {
    const int gate = open(options.compile_gate.c_str(), O_RDONLY | O_CLOEXEC);
    if (gate >= 0) close(gate);
  }
  if (options.compile == Trouble::kNone || !Due()) return absl::OkStatus();
  return Make(options.compile, "the compilation");
}

Status ExecuteTrouble(uint64_t execution) {
  const Options& options = ProcessOptions();
  if (options.abort_one_in > 0) {
    const auto process = static_cast<uint64_t>(getpid());
    const uint64_t last =
        1 + Mixed(options.seed * 0x9e3779b97f4a7c15 + process) % (2 * options.abort_one_in - 1);
    if (execution == last && Due()) std::abort();
  }
  const bool here = options.execute_at == 0 || options.execute_at == execution;
  if (options.execute == Trouble::kNone || !here || !Due()) return absl::OkStatus();
  return Make(options.execute, "the execution");
}

Status AbilityTrouble(Ability ability, const char* what) {
  if (ability == Ability::kUnimplemented) {
    return Error(absl::StatusCode::kUnimplemented, "{} is not implemented here", what);
  }
  if (ability == Ability::kError) return Internal("{} fails, as PJRT_DOUBLE says", what);
  return absl::OkStatus();
}

void Log(const std::string& line) {
  const std::string& path = ProcessOptions().log_file;
  if (path.empty()) return;
  const int file = open(path.c_str(), O_CREAT | O_APPEND | O_WRONLY | O_CLOEXEC, 0600);
  const std::string text = line + "\n";
  if (file < 0 || write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    std::abort();  // whoever counts lines would count wrong
  }
  close(file);
}

Status OutOfMemory(const std::string& what, size_t needed, size_t limit) {
  return Error(absl::StatusCode::kResourceExhausted,
               "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm while running {}. Used "
               "{} of {} hbm. Exceeded hbm capacity by {}.",
               what, FormatHbm(needed), FormatHbm(limit),
               FormatHbm(needed > limit ? needed - limit : 0));
}

}  // namespace ringmaster::pjrt::plugin_double
