// The keys of a job file as they are described, and the document that lists them.
#include "common/job/keys.h"

#include <absl/strings/str_replace.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "common/status.h"
#include "common/zoo/model_table.h"

namespace ringmaster::job {
namespace {

Key Named(const std::string& path) {
  const std::vector<Key> keys = Keys();
  const auto at =
      std::find_if(keys.begin(), keys.end(), [&](const Key& key) { return key.path == path; });
  INFO(path);
  REQUIRE(at != keys.end());
  return *at;
}

// A row for each key, in the order of the proto.
std::string KeyTable() {
  const auto cell = [](const std::string& text) {
    return absl::StrReplaceAll(text, {{"|", "\\|"}, {"<", "&lt;"}});
  };
  std::string table = "| key | value | default | |\n|---|---|---|---|\n";
  for (const Key& key : Keys()) {
    table += fmt::format("| `{}` | {} | {} | {} |\n", key.path, cell(ValueWords(key)),
                         cell(DefaultWords(key)), cell(key.help));
  }
  return table;
}

std::string ReadDocument() {
  std::ifstream file(RINGMASTER_JOB_FILE_DOCUMENT);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST_CASE("Job keys: a key says what it may be, what it is by itself and what it is for") {
  const Key rate = Named("optimizer.adam.learning_rate");
  CHECK(ValueWords(rate) == "number, above 0");
  CHECK(DefaultWords(rate) == "0.001");
  CHECK(rate.example == "0.001");
  CHECK(ValueWords(Named("shards")) == "whole number, 1 to 4096");
  CHECK(DefaultWords(Named("shards")) == "min(8, batch)");
  CHECK(DefaultWords(Named("batch")) == "required");
  CHECK(DefaultWords(Named("steps")) == "-");
  CHECK(ValueWords(Named("precision.policy")) == "float32, mixed_bfloat16, mixed_float16");
  CHECK(Named("optimizer.sgd.nesterov").choices == std::vector<std::string>{"true", "false"});
  CHECK(ValueWords(Named("augment.N.random_crop.padding")) == "whole number, 1 to 64");
}

TEST_CASE("Job keys: every key but a mapping has a value to show") {
  REQUIRE(Keys().size() > 40);
  for (const Key& key : Keys()) {
    INFO(key.path);
    const bool mapping = key.type.starts_with("mapping") || key.type == "list of mappings";
    CHECK(key.example.empty() == mapping);
  }
}

TEST_CASE("Job keys: models and formats say what they are called and what their options are") {
  CHECK(Named("model.name").choices == zoo::ModelNames());
  CHECK(Named("data.format").choices ==
        std::vector<std::string>{"cifar10", "cifar100", "mnist", "npy", "npz", "image_folder",
                                 "tfrecord", "webdataset", "tokens", "csv"});
  CHECK(DefaultWords(Named("model.head")) == "own");
  CHECK(DefaultWords(Named("model.dropout")) ==
        "0 (alexnet, mlp), 0.2 (efficientnetb0, efficientnetb1), 0.3 (efficientnetb2, "
        "efficientnetb3), 0.4 (efficientnetb4, efficientnetb5), 0.001 (mobilenet), 0.5 (vgg)");
  CHECK(ValueWords(Named("model.dropout")) == "number, at least 0, under 1");
  CHECK(ValueWords(Named("model.depth")) == "whole number, 11, 13, 16, 19");
  CHECK(ValueWords(Named("model.batch_norm")) == "true or false");
}

TEST_CASE("Job keys: the document lists each with its values, default and help") {
  const std::string begin = "<!-- keys -->\n", end = "<!-- end of keys -->";
  std::string document = ReadDocument();
  const size_t from = document.find(begin), to = document.find(end);
  REQUIRE(from != std::string::npos);
  REQUIRE(to != std::string::npos);
  const size_t first = from + begin.size();
  if (std::getenv("RINGMASTER_REWRITE") != nullptr) {
    document.replace(first, to - first, KeyTable());
    std::ofstream(RINGMASTER_JOB_FILE_DOCUMENT) << document;
    return;
  }
  INFO("RINGMASTER_REWRITE=1 writes the table anew");
  CHECK(document.substr(first, to - first) == KeyTable());
}

}  // namespace
}  // namespace ringmaster::job
