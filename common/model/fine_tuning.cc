#include "common/model/fine_tuning.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "common/model/foreign_weights.h"
#include "common/text.h"

namespace ringmaster::model {
namespace {

using Patterns = google::protobuf::RepeatedPtrField<std::string>;

bool MatchesAny(const Patterns& patterns, const std::string& name) {
  return std::ranges::any_of(patterns, [&](const auto& pattern) { return Matches(pattern, name); });
}

// Every pattern must say something of the model.
Status CheckPatterns(const char* key, const Patterns& patterns, const v1::Graph& graph) {
  for (const std::string& pattern : patterns) {
    const auto matches = [&](const auto& tensor) { return Matches(pattern, tensor.name()); };
    if (std::ranges::any_of(graph.parameters(), matches) ||
        std::ranges::any_of(graph.statistics(), matches)) {
      continue;
    }
    return InvalidArgument(
        "{}: \"{}\" matches nothing; the model has {} parameters, {}; `ringctl model show` lists "
        "them all",
        key, OneLine(pattern, 200), graph.parameters_size(),
        graph.parameters_size() == 0 ? std::string("none")
                                     : "the first is " + graph.parameters(0).name());
  }
  return absl::OkStatus();
}

// x [gamma] [beta] moving_mean moving_variance: what it is frozen by.
bool IsFrozenNorm(const v1::Node& node, const std::set<std::string>& frozen,
                  const Patterns& patterns) {
  if (node.op() != "batch_norm") return false;
  const int statistics = node.inputs_size() - 2;
  for (int i = 1; i < statistics; ++i) {
    if (!frozen.contains(node.inputs(i))) return false;
  }
  return statistics > 1 || (MatchesAny(patterns, node.inputs(statistics)) &&
                            MatchesAny(patterns, node.inputs(statistics + 1)));
}

// It reads its moving statistics, whatever it is run for.
void FreezeNorm(v1::Node* node) {
  for (v1::Attribute& attribute : *node->mutable_attributes()) {
    if (attribute.name() == "inference") attribute.set_b(true);
  }
}

}  // namespace

Status Freeze(const Patterns& patterns, v1::Graph* graph) {
  if (patterns.empty()) return absl::OkStatus();
  RING_RETURN_IF_ERROR(CheckPatterns("freeze", patterns, *graph));
  std::set<std::string> frozen;
  for (v1::Parameter& parameter : *graph->mutable_parameters()) {
    if (!MatchesAny(patterns, parameter.name())) continue;
    parameter.set_trainable(false);
    frozen.insert(parameter.name());
  }
  if (frozen.size() == static_cast<size_t>(graph->parameters_size())) {
    return InvalidArgument("freeze: [{}] matches all {} parameters: nothing is left to train",
                           fmt::join(patterns, ", "), frozen.size());
  }
  for (v1::Node& node : *graph->mutable_nodes()) {
    if (IsFrozenNorm(node, frozen, patterns)) FreezeNorm(&node);
  }
  return absl::OkStatus();
}

void FreezeAll(v1::Graph* graph) {
  for (v1::Parameter& parameter : *graph->mutable_parameters()) parameter.set_trainable(false);
  for (v1::Node& node : *graph->mutable_nodes()) {
    if (node.op() == "batch_norm") FreezeNorm(&node);
  }
}

namespace {

constexpr int kMostReported = 64;  // of a report
constexpr size_t kMostLayers = 4;  // that an error proposes to draw anew

// With the text of the pattern's * in place of the name's.
std::string Replace(const v1::Rename& rename, const std::string& name) {
  const size_t star = rename.match().find('*');
  const size_t place = rename.to().find('*');
  if (star == std::string::npos || place == std::string::npos) return rename.to();
  const size_t behind = rename.match().size() - star - 1;
  std::string to = rename.to();
  return to.replace(place, 1, name.substr(star, name.size() - star - behind));
}

using Sources = std::map<std::string, const v1::SourceTensor*>;  // by name after renaming

StatusOr<Sources> Renamed(const v1::Init& init, const v1::InitSourceFacts& source) {
  Sources sources;
  std::vector<bool> used(static_cast<size_t>(init.rename_size()));
  for (const v1::SourceTensor& tensor : source.tensors()) {
    std::string name = tensor.name();
    for (int i = 0; i < init.rename_size(); ++i) {
      if (!Matches(init.rename(i).match(), tensor.name())) continue;
      used[static_cast<size_t>(i)] = true;
      name = Replace(init.rename(i), tensor.name());
      break;
    }
    const auto [known, added] = sources.emplace(name, &tensor);
    if (added) continue;
    return InvalidArgument("init.rename: {} and {} of the source are both called {} then",
                           OneLine(known->second->name(), 200), OneLine(tensor.name(), 200),
                           OneLine(name, 200));
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    return InvalidArgument(
        "init.rename.{}.match: \"{}\" matches no tensor of the source, or an earlier one has it; "
        "the source has {} tensors{}",
        i, init.rename(static_cast<int>(i)).match(), source.tensors_size(),
        source.tensors_size() == 0 ? ""
                                   : ", the first is " + OneLine(source.tensors(0).name(), 200));
  }
  return sources;
}

// What is wrong with tensors of the model, for one message.
class Problems {
 public:
  void Add(const std::string& name, std::string what) {
    const std::string layer = name.substr(0, name.rfind('/'));
    if (std::ranges::find(layers_, layer) == layers_.end()) layers_.push_back(layer);
    ++count_;
    if (texts_.size() < kMostLayers) texts_.push_back(std::move(what));
  }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] Status ToStatus() const {
    std::string patterns;
    for (size_t i = 0; i < std::min(layers_.size(), kMostLayers); ++i) {
      patterns += fmt::format("{}\"{}/*\"", i == 0 ? "" : ", ", layers_[i]);
    }
    const bool more = layers_.size() > kMostLayers;
    return InvalidArgument(
        "init: {}{}; fresh: [{}{}] draws {} anew, or rename what has another name",
        fmt::join(texts_, "; "),
        count_ > texts_.size() ? fmt::format("; and {} more", count_ - texts_.size()) : "",
        patterns, more ? ", ..." : "", count_ == 1 ? "it" : "them");
  }

 private:
  size_t count_ = 0;
  std::vector<std::string> texts_, layers_;
};

// The first of them.
void List(const std::string& name, google::protobuf::RepeatedPtrField<std::string>* names) {
  if (names->size() < kMostReported) *names->Add() = OneLine(name, 200);
}

class InitResolver {
 public:
  InitResolver(const v1::Init& init, v1::TensorLayout layout, Sources sources)
      : init_(init), layout_(layout), sources_(std::move(sources)) {}

  void Add(const ForeignTensor& wanted) {
    const std::string& name = wanted.name;
    if (MatchesAny(init_.fresh(), name)) {
      report_.set_fresh(report_.fresh() + 1);
      List(name, report_.mutable_fresh_names());
      return;
    }
    if (!wanted.unordered.empty()) return problems_.Add(name, wanted.unordered);
    const auto found = sources_.find(wanted.theirs);
    if (found == sources_.end()) {
      problems_.Add(name, wanted.theirs == name ? fmt::format("{} is not in the source", name)
                                                : fmt::format("{}, there {}, is not in the source",
                                                              name, wanted.theirs));
      return;
    }
    const v1::SourceTensor& tensor = *found->second;
    const bool fits = std::ranges::equal(tensor.shape(), wanted.shape) ||
                      std::ranges::equal(tensor.shape(), wanted.other_shape);
    if (tensor.type() != "F32" || !fits) {
      problems_.Add(name, fmt::format("{} is {} [{}] in the source, expected F32 [{}]", name,
                                      OneLine(tensor.type(), 16), fmt::join(tensor.shape(), ", "),
                                      fmt::join(wanted.shape, ", ")));
      return;
    }
    taken_.insert(found->second);
    report_.set_matched(report_.matched() + 1);
    List(name, report_.mutable_matched_names());
    v1::InitTensor& added = *resolved_.facts.add_tensors();
    added.set_name(name);
    added.set_source(tensor.name());
    added.set_layout(layout_);
    added.mutable_image()->Assign(wanted.image.begin(), wanted.image.end());
  }

  StatusOr<ResolvedInit> Finish(const v1::InitSourceFacts& source) {
    if (!problems_.empty()) return problems_.ToStatus();
    if (resolved_.facts.tensors().empty()) {
      return InvalidArgument("init: fresh matches every tensor: nothing is taken from the source");
    }
    for (const v1::SourceTensor& tensor : source.tensors()) {
      if (taken_.contains(&tensor)) continue;
      report_.set_unused(report_.unused() + 1);
      List(tensor.name(), report_.mutable_unused_names());
    }
    resolved_.facts.set_sha256(source.sha256());
    return std::move(resolved_);
  }

 private:
  const v1::Init& init_;
  const v1::TensorLayout layout_;
  const Sources sources_;
  std::set<const v1::SourceTensor*> taken_;
  Problems problems_;
  ResolvedInit resolved_;
  v1::InitReport& report_ = resolved_.report;
};

}  // namespace

Status CheckInit(const v1::Init& init) {
  const bool of_job = init.has_job();
  if (!of_job && (init.has_step() || init.has_average())) {
    return InvalidArgument("init.{}: only a job has one; leave it out",
                           init.has_step() ? "step" : "average");
  }
  if (of_job ? init.job().empty() : init.file().empty()) {
    return InvalidArgument("init.{}: empty", of_job ? "job" : "file");
  }
  for (int i = 0; i < init.rename_size(); ++i) {
    const v1::Rename& rename = init.rename(i);
    const auto from = std::ranges::count(rename.match(), '*');
    const auto to = std::ranges::count(rename.to(), '*');
    if (from <= 1 && to <= from) continue;
    return InvalidArgument(
        "init.rename.{}: expected at most one * in match, and in to no more than there; got "
        "\"{}\" and \"{}\"",
        i, OneLine(rename.match(), 200), OneLine(rename.to(), 200));
  }
  return absl::OkStatus();
}

StatusOr<ResolvedInit> ResolveInit(const v1::Init& init, const v1::InitSourceFacts& source,
                                   const v1::Graph& graph) {
  RING_RETURN_IF_ERROR(CheckPatterns("init.fresh", init.fresh(), graph));
  RING_ASSIGN_OR_RETURN(Sources sources, Renamed(init, source));
  const v1::TensorLayout layout =
      init.layout() == v1::TENSOR_LAYOUT_UNSPECIFIED ? v1::TENSOR_LAYOUT_RINGMASTER : init.layout();
  RING_ASSIGN_OR_RETURN(const std::vector<ForeignTensor> tensors, ForeignTensors(graph, layout));
  InitResolver resolver(init, layout, std::move(sources));
  for (const ForeignTensor& tensor : tensors) resolver.Add(tensor);
  return resolver.Finish(source);
}

}  // namespace ringmaster::model
