// emit_zoo FOLDER [SAMPLES]: the StableHLO of every model of the zoo, one file each of training in
// float32 and in mixed_bfloat16 and of evaluation, as the pjrt backend gives it to a plugin. What
// compilers on this host are asked about it (scripts/pjrt-check). Prints the files' names.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "common/zoo/model_table.h"
#include "tests/support/zoo_program.h"
#include "worker/backend/pjrt/emit/emit.h"

namespace ringmaster {
namespace {

struct Form {
  const char* name;
  graph::Mode mode;
  v1::Policy policy;
};
constexpr Form kForms[] = {
    {"float32", graph::Mode::kTraining, v1::POLICY_FLOAT32},
    {"mixed_bfloat16", graph::Mode::kTraining, v1::POLICY_MIXED_BFLOAT16},
    {"evaluation", graph::Mode::kInference, v1::POLICY_FLOAT32},
};

Status Write(const zoo::Entry& entry, const Form& form, int64_t samples,
             const std::string& folder) {
  RING_ASSIGN_OR_RETURN(
      const graph::Program program,
      zoo::BuildProgram(
          zoo::Model(entry.name),
          {.mode = form.mode, .samples = samples, .data = entry.usual, .policy = form.policy}));
  RING_ASSIGN_OR_RETURN(const pjrt::Module module, pjrt::Emit(program, pjrt::Rows::kSome));
  const std::string path = fmt::format("{}/{}-{}.mlir", folder, entry.name, form.name);
  std::ofstream file(path);
  file << module.text;
  if (!file.flush()) return FailedPrecondition("{} cannot be written", path);
  fmt::print("{}\n", path);
  return absl::OkStatus();
}

}  // namespace
}  // namespace ringmaster

int main(int argc, char** argv) {
  using namespace ringmaster;
  const int64_t samples = argc > 2 ? std::atoll(argv[2]) : 2;
  if (argc < 2 || samples < 1) {
    fmt::print(stderr, "usage: emit_zoo FOLDER [SAMPLES]\n");
    return 2;
  }
  for (const zoo::Entry& entry : zoo::ModelTable()) {
    for (const Form& form : kForms) {
      const Status written = Write(entry, form, samples, argv[1]);
      if (written.ok()) continue;
      fmt::print(stderr, "emit_zoo: {}, {}: {}\n", entry.name, form.name, Message(written));
      return 1;
    }
  }
  return 0;
}
