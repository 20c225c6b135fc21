// Model files of tests, read as ringctl reads them. Thread-safe (free functions).
#pragma once

#include <catch2/catch.hpp>

#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "common/model/build.h"
#include "common/model/read_model.h"
#include "common/status.h"

namespace ringmaster::model {

inline std::string ReadTestFile(const std::string& name) {
  std::ifstream file(std::string(RINGMASTER_MODEL_FILES) + "/" + name);
  REQUIRE(file.is_open());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline std::string ErrorOf(const std::string& text) {
  const auto model = ReadModelFile("net.yaml", text, {}, nullptr);
  if (!model.ok()) {
    CHECK(absl::IsInvalidArgument(model.status()));
    return Message(model.status());
  }
  const auto graph = BuildGraph(*model, ImagesAndLabels(zoo::kCifar));
  return graph.ok() ? "accepted" : Message(graph.status());
}

inline v1::Model Read(const std::string& text) {
  auto model = ReadModelFile("net.yaml", text, {}, nullptr);
  INFO(model.status());
  REQUIRE(model.ok());
  return *std::move(model);
}

inline v1::Graph GraphOf(const v1::Model& model, const zoo::DataShape& data = zoo::kCifar) {
  auto graph = BuildGraph(model, ImagesAndLabels(data));
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

// `conv2d_1 relu_1(conv2d_1)`: names of the layers, with what they read where that is not the one
// before.
inline std::string NamesOf(const v1::Model& model) {
  std::string text, before;
  for (const v1::Layer& layer : model.layers()) {
    text += (text.empty() ? "" : " ") + layer.name();
    const bool follows = layer.inputs_size() == 1 && layer.inputs(0) == before;
    if (layer.inputs_size() > 0 && !follows) {
      text += "(";
      for (int i = 0; i < layer.inputs_size(); ++i) text += (i == 0 ? "" : " ") + layer.inputs(i);
      text += ")";
    }
    before = layer.name();
  }
  return text;
}

}  // namespace ringmaster::model
