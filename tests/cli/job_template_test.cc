#include "cli/job_template.h"

#include <catch2/catch.hpp>
#include <regex>
#include <sstream>
#include <string>

#include "common/job/job_file.h"
#include "common/job/resolve.h"

namespace ringmaster::cli {
namespace {

using google::protobuf::Descriptor;

Status Check(const std::string& text) {
  RING_ASSIGN_OR_RETURN(const v1::JobSpec spec, job::ParseJobFile("job.yaml", text, {}));
  return job::Validate(spec);
}

// Every name of a field that a job file can hold, nested ones too.
void CollectKeys(const Descriptor& type, std::vector<std::string>* keys) {
  for (int i = 0; i < type.field_count(); ++i) {
    const auto& field = *type.field(i);
    if (field.name() != "values") keys->push_back(field.name());
    if (field.message_type() != nullptr) CollectKeys(*field.message_type(), keys);
  }
}

TEST_CASE("JobTemplate: is a job as it stands") {
  const Status status = Check(kJobTemplate);
  CAPTURE(std::string(status.message()));
  CHECK(status.ok());
}

TEST_CASE("JobTemplate: names every key") {
  std::vector<std::string> keys;
  CollectKeys(*v1::JobSpec::descriptor(), &keys);
  REQUIRE(keys.size() > 40);
  for (const std::string& key : keys) {
    CAPTURE(key);
    CHECK(std::regex_search(kJobTemplate, std::regex("\\b" + key + ": ?")));
  }
}

TEST_CASE("JobTemplate: each key in a comment is right where it stands") {
  std::vector<std::string> lines;
  std::istringstream stream(kJobTemplate);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  const std::regex commented("^( *)# ([a-z_0-9]+: [^ ].*)$");
  int tried = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::smatch match;
    if (i < 5 || !std::regex_match(lines[i], match, commented)) continue;
    std::string text;
    for (size_t j = 0; j < lines.size(); ++j) {
      text += (j == i ? match[1].str() + match[2].str() : lines[j]) + "\n";
    }
    CAPTURE(lines[i]);
    const auto spec = job::ParseJobFile("job.yaml", text, {});
    CAPTURE(std::string(spec.status().message()));
    CHECK(spec.ok());
    ++tried;
  }
  CHECK(tried >= 15);
}

}  // namespace
}  // namespace ringmaster::cli
