// The document that lists kinds of layers with their options.
#include <absl/strings/str_replace.h>
#include <catch2/catch.hpp>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include <fmt/ranges.h>

#include "common/graph/layers/layer_table.h"
#include "common/graph/layers/losses.h"
#include "tests/common/model/model_files.h"

namespace ringmaster::model {
namespace {

// A row for the kind, then one for each of its options.
std::string RowsOf(const std::string& name, const std::string& help,
                   const std::vector<FieldDescription>& options) {
  const auto cell = [](const std::string& text) {
    return absl::StrReplaceAll(text, {{"|", "\\|"}, {"<", "&lt;"}});
  };
  std::string rows = fmt::format("| **{}** | | | {} |\n", name, cell(help));
  for (const FieldDescription& option : options) {
    const std::string by_default = option.required ? "required" : option.default_value;
    rows += fmt::format("| `{}` | {} | {} | {} |\n", option.name, cell(ValueWords(option)),
                        by_default.empty() ? "-" : cell(by_default), cell(option.help));
  }
  return rows;
}

std::string LayerRows() {
  std::string table = "| layer, option | value | default | |\n|---|---|---|---|\n";
  for (const graph::layers::LayerKind& kind : graph::layers::LayerTable()) {
    table += RowsOf(kind.name, kind.help, kind.options);
    if (kind.roles.empty()) continue;
    table += fmt::format("| `{}` | LAYER/ROLE | - | that parameter of a layer before it |\n",
                         fmt::join(kind.roles, "`, `"));
  }
  return table;
}

std::string OutputRows() {
  std::string table;
  for (const auto& [role, head] : {std::pair{graph::Output::Role::kLoss, "loss"},
                                   std::pair{graph::Output::Role::kMeasure, "metric"}}) {
    if (!table.empty()) table += '\n';
    table += fmt::format("| {}, option | value | default | |\n|---|---|---|---|\n", head);
    for (const graph::layers::OutputKind& kind : graph::layers::OutputTable()) {
      if (kind.role == role) table += RowsOf(kind.name, kind.help, kind.options);
    }
  }
  return table;
}

std::string ReadDocument() {
  std::ifstream file(RINGMASTER_LAYERS_DOCUMENT);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

TEST_CASE("Layers: the document's example is a model") {
  const std::string document = ReadDocument();
  const size_t begin = document.find("options: {width: 1"), end = document.find("```", begin);
  REQUIRE(begin != std::string::npos);
  const v1::Model model = Read(document.substr(begin, end - begin));
  CHECK(model.layers_size() == 1 + 3 * 6 + 7 + 2);
  CHECK(GraphOf(model).parameters_size() == 1 + 4 * 4 + 1 + 2);
}

TEST_CASE("Layers: the document lists each kind with its options") {
  const auto [what, rows] =
      GENERATE(std::pair{"layers", &LayerRows}, std::pair{"losses and metrics", &OutputRows});
  const std::string begin = fmt::format("<!-- {} -->\n", what),
                    end = fmt::format("<!-- end of {} -->", what);
  std::string document = ReadDocument();
  const size_t from = document.find(begin), to = document.find(end);
  REQUIRE(from != std::string::npos);
  REQUIRE(to != std::string::npos);
  const size_t first = from + begin.size();
  if (std::getenv("RINGMASTER_REWRITE") != nullptr) {
    document.replace(first, to - first, rows());
    std::ofstream(RINGMASTER_LAYERS_DOCUMENT) << document;
    return;
  }
  INFO("RINGMASTER_REWRITE=1 writes the tables anew");
  CHECK(document.substr(first, to - first) == rows());
}

}  // namespace ringmaster::model
