#include "worker/backend/cuda/libraries/plan_table.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

#include "common/sha256.h"

namespace ringmaster::cuda {
namespace {

bool Number(std::string_view text, int64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

// `2=11`.
bool Knob(std::string_view text, std::pair<int64_t, int64_t>* knob) {
  const size_t equals = text.find('=');
  return equals != std::string_view::npos && Number(text.substr(0, equals), &knob->first) &&
         Number(text.substr(equals + 1), &knob->second);
}

bool Knobs(std::string_view text, std::vector<std::pair<int64_t, int64_t>>* knobs) {
  while (true) {
    const size_t comma = text.find(',');
    if (!Knob(text.substr(0, comma), &knobs->emplace_back())) return false;
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

std::string ToString(const EngineChoice& choice) {
  std::string text = fmt::format("engine {}", choice.engine);
  const char* separator = " knobs ";
  for (const auto& [type, value] : choice.knobs) {
    text += fmt::format("{}{}={}", separator, type, value);
    separator = ",";
  }
  return text;
}

StatusOr<EngineChoice> ParseEngineChoice(const std::string& text) {
  constexpr std::string_view kEngine = "engine ";
  constexpr std::string_view kKnobs = " knobs ";
  EngineChoice choice;
  std::string_view rest = text;
  bool good = rest.starts_with(kEngine);
  if (good) rest.remove_prefix(kEngine.size());
  const size_t knobs = rest.find(kKnobs);
  good = good && Number(rest.substr(0, knobs), &choice.engine) && choice.engine >= 0;
  if (good && knobs != std::string_view::npos) {
    good = Knobs(rest.substr(knobs + kKnobs.size()), &choice.knobs);
  }
  if (!good) {
    return InvalidArgument("`{}` is no engine; expected something like `engine 37 knobs 2=11,13=4`",
                           text);
  }
  return choice;
}

std::string Refusal(const std::vector<cudnnBackendNumericalNote_t>& notes, graph::DType type) {
  const auto has = [&notes](cudnnBackendNumericalNote_t note) {
    return std::find(notes.begin(), notes.end(), note) != notes.end();
  };
  if (has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) return "not the same bits on every run";
  if (has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)) return "sums in less than float32";
  if (has(CUDNN_NUMERICAL_NOTE_FFT)) return "an FFT";
  if (has(CUDNN_NUMERICAL_NOTE_WINOGRAD)) return "a Winograd transform";
  if (type != graph::DType::kFloat32) return "";
  if (has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE)) return "float32 on tensor cores";
  if (has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)) return "float32 inputs rounded";
  return "";
}

StatusOr<std::optional<size_t>> ChooseFirst(size_t count, size_t cap,
                                            const std::function<StatusOr<size_t>(size_t)>& make) {
  std::optional<size_t> above_cap;
  for (size_t i = 0; i < count; ++i) {
    const StatusOr<size_t> workspace = make(i);
    if (absl::IsResourceExhausted(workspace.status())) return workspace.status();
    if (!workspace.ok()) continue;
    if (*workspace <= cap) return i;
    if (!above_cap) above_cap = i;
  }
  return above_cap;
}

namespace {

constexpr const char* kPathVariable = "RINGMASTER_KERNEL_TABLE";
constexpr const char* kFileName = "kernel_table.txt";
constexpr const char* kHeader =
    "# Kernels that ringctl tune found quickest: device | library | op | shape | choice\n";

std::string Trim(const std::string& text) {
  constexpr const char* kBlank = " \t\r";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::vector<std::string> Fields(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream stream(line);
  for (std::string field; std::getline(stream, field, '|');) fields.push_back(Trim(field));
  return fields;
}

StatusOr<MatmulChoice> ParseAlgorithm(const std::string& digits) {
  MatmulChoice choice;
  constexpr size_t kWord = 16;
  const bool hexadecimal = digits.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!hexadecimal || digits.size() != kWord * choice.algorithm.size()) {
    return InvalidArgument("an algorithm is {} hexadecimal digits, got `{}`",
                           kWord * choice.algorithm.size(), digits);
  }
  for (size_t i = 0; i < choice.algorithm.size(); ++i) {
    choice.algorithm[i] = std::stoull(digits.substr(i * kWord, kWord), nullptr, 16);
  }
  return choice;
}

StatusOr<ConvolutionVariant> ParseVariant(const std::string& text) {
  ConvolutionVariant variant;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, '+');) {
    if (word == "fused") {
      variant.fused = true;
    } else if (word == "padded") {
      variant.padded = true;
    } else if (word == "narrow") {
      variant.narrow = true;
    } else if (word != "plain") {
      return InvalidArgument("`{}` is no variant; expected plain, fused, padded or narrow", word);
    }
  }
  return variant;
}

// Of two rows with one key.
bool Wins(const PlanChoice& choice, const PlanChoice& over) {
  if (IsNarrow(choice) != IsNarrow(over)) return IsNarrow(over);
  return ToString(choice) < ToString(over);
}

}  // namespace

StatusOr<PlanChoice> ParseChoice(const std::string& text) {
  const size_t space = text.find(' ');
  if (space == std::string::npos) {
    return InvalidArgument("`{}` is no choice; expected `plain engine ...` or `algorithm ...`",
                           text);
  }
  const std::string first = text.substr(0, space);
  const std::string rest = text.substr(space + 1);
  if (first == "algorithm") return ParseAlgorithm(rest);
  ConvolutionChoice choice;
  RING_ASSIGN_OR_RETURN(choice.variant, ParseVariant(first));
  RING_ASSIGN_OR_RETURN(choice.engine, ParseEngineChoice(rest));
  return choice;
}

std::string ToString(const PlanChoice& choice) {
  if (const auto* convolution = std::get_if<ConvolutionChoice>(&choice)) {
    return Describe(convolution->variant) + " " + ToString(convolution->engine);
  }
  std::string text = "algorithm ";
  for (const uint64_t word : std::get<MatmulChoice>(choice).algorithm) {
    text += fmt::format("{:016x}", word);
  }
  return text;
}

bool IsNarrow(const PlanChoice& choice) {
  const auto* convolution = std::get_if<ConvolutionChoice>(&choice);
  return convolution != nullptr && convolution->variant.narrow;
}

StatusOr<PlanTable> PlanTable::Parse(const std::string& text, const std::string& source) {
  PlanTable table;
  std::istringstream stream(text);
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    line = Trim(line);
    if (line.empty() || line.front() == '#') continue;
    const std::vector<std::string> fields = Fields(line);
    if (fields.size() != 5) {
      return InvalidArgument(
          "{}:{}: expected 5 fields between bars (device | library | op | shape | choice), got {}",
          source, number, fields.size());
    }
    PlanKey key = {fields[0], fields[1], fields[2], fields[3]};
    const auto choice = ParseChoice(fields[4]);
    if (!choice.ok()) return Annotate(choice.status(), fmt::format("{}:{}", source, number));
    const auto [row, fresh] = table.rows_.emplace(std::move(key), *choice);
    if (!fresh && Wins(*choice, row->second)) row->second = *choice;
  }
  return table;
}

std::string PlanTable::Print() const {
  std::string text = kHeader;
  for (const auto& [key, choice] : rows_) {
    text += fmt::format("{} | {} | {} | {} | {}\n", key.device, key.library, key.op, key.shape,
                        ToString(choice));
  }
  return text;
}

std::string PlanTable::Version() const { return Hex(Sha256Of(Print())).substr(0, 16); }

std::string InstalledPlanTablePath() {
  if (const char* path = std::getenv(kPathVariable)) return path;
  Dl_info library = {};
  if (dladdr(reinterpret_cast<const void*>(&InstalledPlanTablePath), &library) == 0) return "";
  const auto beside = std::filesystem::path(library.dli_fname).parent_path() / kFileName;
  std::error_code ignored;
  return std::filesystem::exists(beside, ignored) ? beside.string() : "";
}

namespace {

struct Installed {
  StatusOr<PlanTable> table;
  std::string version;
};

// Read once, by whoever asks first: what the class says computes, whatever is written meanwhile.
const Installed& InstalledOnce() {
  static const Installed installed = []() -> Installed {
    const std::string path = InstalledPlanTablePath();
    if (path.empty()) return {PlanTable(), "none"};
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!file) {
      return {Error(absl::StatusCode::kNotFound, "kernel table {}: cannot be read", path),
              "unreadable"};
    }
    auto table = PlanTable::Parse(text, path);
    const std::string version = table.ok() ? table->Version() : "unreadable";
    return {std::move(table), version};
  }();
  return installed;
}

}  // namespace

StatusOr<const PlanTable*> PlanTableOrInstalled(const PlanTable* given) {
  if (given != nullptr) return given;
  const StatusOr<PlanTable>& table = InstalledOnce().table;
  if (!table.ok()) return table.status();
  return &*table;
}

std::string InstalledPlanTableVersion() { return InstalledOnce().version; }

}  // namespace ringmaster::cuda
