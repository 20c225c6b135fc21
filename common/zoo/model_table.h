// The table of models: one row a model, with the options of v1::Model that it has. Immutable,
// thread-safe. It builds no graph: zoo.h does.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/graph/builder.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::zoo {

inline constexpr uint32_t kMostUnits = 65536;  // of a hidden layer
inline constexpr int kMostLayers = 64;         // hidden ones
inline constexpr uint32_t kHiddenDefault[] = {2048, 2048};
inline constexpr uint32_t kDepths[] = {11, 13, 16, 19};

struct Entry {
  const char* name;
  const char* description;
  graph::ValueId (*build)(graph::GraphBuilder&, const v1::Model&, graph::ValueId, int64_t);
  Status (*check_images)(int64_t height, int64_t width) = nullptr;  // nullptr: the layers tell
  // Defaults of the options; nullopt: the model does not have the option.
  std::optional<bool> batch_norm = std::nullopt;
  std::optional<double> dropout = std::nullopt;
  std::optional<std::span<const uint32_t>> hidden = std::nullopt;
  std::optional<uint32_t> depth = std::nullopt;
};

// INVALID_ARGUMENT names the models, and the one that was meant.
[[nodiscard]] StatusOr<const Entry*> FindModel(const std::string& name);

struct OptionDescription {
  std::string name;
  std::string default_value;  // as in a job file
  std::string range;          // in words: `0 to 1, without 1`
};

struct ModelDescription {
  std::string name;
  std::string description;  // one line
  std::vector<OptionDescription> options;
};

[[nodiscard]] std::vector<std::string> ModelNames();
[[nodiscard]] std::vector<ModelDescription> ListModels();
// Of one model.
[[nodiscard]] std::vector<OptionDescription> OptionsOf(const Entry& entry);

}  // namespace ringmaster::zoo
