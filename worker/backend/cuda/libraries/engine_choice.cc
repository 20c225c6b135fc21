#include "worker/backend/cuda/libraries/engine_choice.h"

#include <algorithm>
#include <charconv>

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

}  // namespace ringmaster::cuda
