// A program bound to a core of a backend on the calling thread, with weights taken from reference
// feeds: what backend tests run. Thread-compatible; must stay on the thread that made it.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "common/exact/block.h"
#include "common/graph/ops/reference_executor.h"
#include "common/sha256.h"
#include "worker/backend/backend.h"
#include "worker/backend/shard_io.h"

namespace ringmaster::testing {

struct ShardResult {
  ShardOutput output;
  std::vector<std::vector<float>> gradients;  // by canonical parameter number
  std::vector<uint32_t> order;                // in which the sink got them

  // Of all gradients and outputs, bit by bit.
  [[nodiscard]] std::string Hash() const {
    Sha256 hash;
    hash.Update(output.scalars.data(), output.scalars.size() * sizeof(double));
    const auto add = [&hash](const std::vector<float>& values) {
      hash.Update(values.data(), values.size() * sizeof(float));
    };
    add(output.batch_means);
    add(output.batch_variances);
    for (const std::vector<float>& gradient : gradients) add(gradient);
    return Hex(hash.Finish());
  }
};

class BoundProgram {
 public:
  static StatusOr<std::unique_ptr<BoundProgram>> Create(Backend& backend,
                                                        const graph::Program& program,
                                                        const CoreOptions& options = {
                                                            .name = "core0"}) {
    std::unique_ptr<BoundProgram> bound(new BoundProgram(program));
    RING_ASSIGN_OR_RETURN(bound->weights_, backend.MakeWeights(program));
    RING_ASSIGN_OR_RETURN(bound->core_, backend.MakeCore(options));
    RING_ASSIGN_OR_RETURN(bound->executable_,
                          bound->core_->Bind(bound->program_, *bound->weights_, nullptr));
    return bound;
  }

  // Refreshes the weights from `feeds` and runs the shard.
  StatusOr<ShardResult> Run(const graph::ReferenceFeeds& feeds, const graph::RandomKeys& keys) {
    RING_RETURN_IF_ERROR(Refresh(feeds));
    std::vector<std::vector<std::byte>> columns;
    for (const graph::Column& column : program_.columns) {
      const bool whole = program_.graph.value(column.value).dtype == graph::DType::kInt32;
      const std::vector<double>& values = feeds.at(column.value);
      columns.push_back(whole ? BytesAs<int32_t>(values) : BytesAs<float>(values));
    }
    const bool seeded = !program_.seeds.empty() && feeds.contains(program_.seeds[0].value);
    ShardInput input = {.seed = keys.seed,
                        .step = keys.step,
                        .samples = keys.samples,
                        .columns = {columns.begin(), columns.end()}};
    if (program_.share != graph::kNoValue) {
      input.share = static_cast<float>(feeds.at(program_.share)[0]);
    }
    if (seeded) {
      const graph::Seed& seed = program_.seeds[0];
      input.loss_seed = static_cast<float>(feeds.at(seed.value)[0]) / seed.weight;
    }
    return Run(input);
  }

  StatusOr<ShardResult> Run(const ShardInput& input) {
    ShardResult result;
    result.gradients.resize(program_.parameters.size());
    bool in_order = true;
    const GradientSink sink{
        .take =
            [&](uint32_t parameter, size_t first, std::span<const float> piece) {
              if (first == 0) result.order.push_back(parameter);
              std::vector<float>& gradient = result.gradients[parameter];
              in_order = in_order && first == gradient.size() && !piece.empty() &&
                         first % exact::kBlockElements == 0 &&
                         reinterpret_cast<uintptr_t>(piece.data()) % 64 == 0;
              gradient.insert(gradient.end(), piece.begin(), piece.end());
            },
        .outage = outage_};
    RING_RETURN_IF_ERROR(executable_->Run(input, sink, &result.output));
    for (size_t p = 0; p < result.gradients.size(); ++p) {
      const graph::ValueId gradient = program_.parameters[p].gradient;
      in_order = in_order && (gradient == graph::kNoValue ||
                              result.gradients[p].size() == ElementsOf(program_, gradient));
    }
    if (!in_order) return Internal("gradients came torn, or not from their first element on");
    return result;
  }

  Status Refresh(const graph::ReferenceFeeds& feeds) {
    std::vector<exact::BlockLayout::Tensor> tensors;
    for (uint32_t p = 0; p < program_.parameters.size(); ++p) {
      tensors.push_back({p, static_cast<uint64_t>(graph::Elements(program_.parameters[p].shape))});
    }
    RING_ASSIGN_OR_RETURN(const exact::BlockLayout layout, exact::BlockLayout::Create(tensors));
    master_.assign(layout.arena_elements(), 0);
    for (uint32_t p = 0; p < program_.parameters.size(); ++p) {
      const std::vector<double>& values = feeds.at(program_.parameters[p].value);
      std::copy(values.begin(), values.end(),
                master_.begin() + static_cast<ptrdiff_t>(layout.tensor(p).offset()));
    }
    std::vector<float> means, variances;
    for (const graph::Normalization& normalization : program_.normalizations) {
      Append(feeds, normalization.moving_mean, normalization.channels, &means);
      Append(feeds, normalization.moving_variance, normalization.channels, &variances);
    }
    return weights_->Refresh(layout, master_, means, variances);
  }

  // Of runs from now on.
  void set_outage(std::function<bool(Outage)> outage) { outage_ = std::move(outage); }

  Core& core() { return *core_; }
  Weights& weights() { return *weights_; }

 private:
  explicit BoundProgram(const graph::Program& program) : program_(program) {}

  template <typename T>
  static std::vector<std::byte> BytesAs(const std::vector<double>& values) {
    const std::vector<T> typed(values.begin(), values.end());
    const auto bytes = std::as_bytes(std::span(typed));
    return {bytes.begin(), bytes.end()};
  }
  static void Append(const graph::ReferenceFeeds& feeds, graph::ValueId value, int64_t channels,
                     std::vector<float>* to) {
    const auto found = feeds.find(value);
    if (found == feeds.end()) {
      to->insert(to->end(), static_cast<size_t>(channels), 1.0F);
    } else {
      to->insert(to->end(), found->second.begin(), found->second.end());
    }
  }

  const graph::Program program_;
  std::function<bool(Outage)> outage_;
  std::vector<float> master_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<Core> core_;
  std::unique_ptr<Executable> executable_;
};

}  // namespace ringmaster::testing
