// What stands behind a model's features: options that models share. Values; thread-safe.
#pragma once

#include <string>
#include <tuple>

#include "common/graph/layers/layer_list.h"
#include "common/zoo/model_table.h"

namespace ringmaster::zoo {

// kGap: global average pooling, dropout and a dense layer, whatever the model's own top is.
enum class Head : uint8_t { kOwn, kGap, kNone };
[[nodiscard]] constexpr const char* Name(Head head) {
  return head == Head::kOwn ? "own" : head == Head::kGap ? "gap" : "none";
}

struct HeadOptions {
  Head head = Head::kOwn;
  double head_dropout = 0;

  static constexpr auto Fields() {
    return std::tuple(Field{"head", &HeadOptions::head, "what stands behind the features"},
                      Field{"head_dropout", &HeadOptions::head_dropout,
                            "rate of the dropout layer of gap", kRate});
  }
};

// The head that the options want behind the features; own(features) builds the model's own.
template <typename Own>
[[nodiscard]] graph::ValueId AddHead(const HeadOptions& options, const DataShape& data,
                                     graph::GraphBuilder& builder, graph::ValueId features,
                                     const Own& own) {
  if (options.head == Head::kNone) return features;
  if (options.head == Head::kOwn) return own(features);
  graph::ValueId x = builder.Add("head/pool", graph::GlobalAveragePool{}, features);
  x = builder.Add("head/dropout", graph::layers::Dropout{options.head_dropout}, x);
  return builder.Add("head", graph::layers::Dense{.units = data.classes}, x);
}

}  // namespace ringmaster::zoo
